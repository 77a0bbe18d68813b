"""Atomic models: read them, complete them for a force field, and write them back as they came."""

from __future__ import annotations

import gzip
import io
import os
import random
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import gemmi
import numpy as np
import openmm
import torch  # noqa: F401  before openmm, or openmm-torch's platform plugins stay unloaded
from openmm import app, unit
from pdbfixer import PDBFixer
from scipy.spatial import cKDTree

from openmm_density.errors import InputError
from openmm_density.units import positions_in_angstrom, value_in

PDB_SUFFIXES = (".pdb", ".ent")
CIF_SUFFIXES = (".cif", ".mmcif")

# A covalent bond is at most this much longer than the sum of the covalent radii (Å): inside a ligand, whose
# atoms are known to belong together; between residues, where a clash must not become a bond; to a metal.
LIGAND_BOND_SLACK = 0.45
LINK_SLACK = 0.30
METAL_BOND_SLACK = 0.60

# Backbone bond lengths (Å) up to which two residues count as joined: neighbours in number may be badly
# strained, others must look like a bond.
NEIGHBOUR_BACKBONE_BOND = 3.0
OTHER_BACKBONE_BOND = 2.0

COORDINATING = frozenset({"N", "O", "S", "Se"})
CHARMM_ALIASES = {"HSE": "HIS", "HSC": "HIS", "HIN": "HIS", "CYM": "CYS", "CYS2": "CYS", "LYN": "LYS"}
WATER_ALIASES = {"TIP4": "HOH", "TP4": "HOH", "SPC": "HOH", "DOD": "HOH"}


@dataclass(frozen=True)
class AtomRecord:
    """How the file names one atom: what is needed to write the same atom back."""

    name: str
    altloc: str
    element: str
    residue_name: str
    chain: str
    residue_number: int
    insertion_code: str
    segment: str
    hetero: bool
    charge: int
    serial: int

    def describe(self) -> str:
        """Name the atom as in ``A 87 HIS NE2``."""
        return (
            f"{self.chain} {self.residue_number}{self.insertion_code} {self.residue_name} {self.name}".strip()
        )


@dataclass
class Model:
    """An atomic model as it was read.

    Attributes
    ----------
    path : Path
        The file.
    topology : openmm.app.Topology
        The atoms in the file's order, with residue and atom names brought to the PDB's (``HSD`` is ``HIS``,
        isoleucine's ``CD`` is ``CD1``). A chain of the topology is one unbroken polymer, or one run of
        ligands, or of waters, so that several chains may carry the same id, as with mmCIF's label_asym_id.
        Bonds: standard ones, disulphides, those of the file, and those that distances show in and around
        residues that are not standard, metal coordination included.
    positions : ndarray of shape (N, 3)
        Å, float64.
    b_factors, occupancies : ndarray of shape (N,)
        Å² and fractions.
    records : tuple of AtomRecord
        The names in the file, one for each atom.
    cell : tuple of float or None
        a, b, c (Å), α, β, γ (degrees); None where the file has none, or a dummy of 1 Å.
    notes : list of str
        What the reader left out or decided, one sentence each.
    """

    path: Path
    topology: app.Topology
    positions: np.ndarray
    b_factors: np.ndarray
    occupancies: np.ndarray
    records: tuple[AtomRecord, ...]
    cell: tuple[float, ...] | None = None
    notes: list[str] = field(default_factory=list)


@dataclass
class _ReadResidue:
    """One residue while it is read: the file's names and the conformer kept."""

    name: str
    standard_name: str
    chain: str
    number: int
    insertion_code: str
    segment: str
    subchain: str
    hetero: bool
    after_gap: bool
    atoms: list[gemmi.Atom]
    atom_names: list[str] = field(default_factory=list)
    elements: list[str] = field(default_factory=list)

    def position(self, name: str) -> np.ndarray | None:
        for atom, atom_name in zip(self.atoms, self.atom_names):
            if atom_name == name:
                return np.array(atom.pos.tolist())
        return None


def read_model(path: str | os.PathLike[str]) -> Model:
    """Read a PDB or mmCIF file.

    Of several models the first is read. Of alternate locations one is kept for each residue: the one with the
    highest mean occupancy, the first in the file where they are equal; an atom that this conformer lacks
    comes from the location with its own highest occupancy. Of several residues at one place in the chain the
    one with the highest occupancy is kept. Waters, ions and ligands stay. Elements come from the element
    column; in standard residues, and where the column is empty, from the atom's name.

    Parameters
    ----------
    path : str or path-like
        A file ending in .pdb, .ent, .cif or .mmcif, or in one of these and .gz.

    Raises
    ------
    InputError
        The file is missing, is not a model, has no atoms, or has a coordinate that is not a number.
    """
    path = Path(path)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else ""
    if suffix not in PDB_SUFFIXES + CIF_SUFFIXES:
        raise InputError(
            f"{path}: the ending is none of .pdb, .ent, .cif, .mmcif (or one of these and .gz); "
            "give a model in PDB or mmCIF format."
        )
    text = _read_text(path)
    structure = (_pdb_structure if suffix in PDB_SUFFIXES else _cif_structure)(path, text)
    if not len(structure) or not any(len(residue) for chain in structure[0] for residue in chain):
        raise InputError(f"{path}: no atoms were found; give a model in PDB or mmCIF format.")

    notes: list[str] = []
    if len(structure) > 1:
        notes.append(f"The file holds {len(structure)} models: the first was read.")
    residues, dropped = _kept_residues(structure[0])
    if dropped:
        notes.append(f"{dropped} atoms of alternate locations with lower occupancy were left out.")
    _name_atoms(residues)

    atoms = [atom for residue in residues for atom in residue.atoms]
    positions = np.array([atom.pos.tolist() for atom in atoms], dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(positions).all(axis=1))
    records = tuple(
        AtomRecord(
            name=atom.name,
            altloc="" if atom.altloc == "\0" else atom.altloc,
            element=element,
            residue_name=residue.name,
            chain=residue.chain,
            residue_number=residue.number,
            insertion_code=residue.insertion_code,
            segment=residue.segment,
            hetero=residue.hetero,
            charge=atom.charge,
            serial=atom.serial,
        )
        for residue in residues
        for atom, element in zip(residue.atoms, residue.elements)
    )
    if len(bad):
        raise InputError(
            f"{path}: atom {records[bad[0]].describe()} has a coordinate that is not a number "
            f"({len(bad)} such atoms); correct or remove them."
        )
    topology = _build_topology(residues)
    cell = structure.cell
    parameters = (cell.a, cell.b, cell.c, cell.alpha, cell.beta, cell.gamma)
    model = Model(
        path=path,
        topology=topology,
        positions=positions,
        b_factors=np.array([atom.b_iso for atom in atoms], dtype=np.float64),
        occupancies=np.array([atom.occ for atom in atoms], dtype=np.float64),
        records=records,
        cell=parameters if min(parameters[:3]) > 1.5 else None,
        notes=notes,
    )
    _add_bonds(model, structure)
    return model


def _read_text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; check the path of the model.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the file.") from None
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            raise InputError(f"{path}: is not a whole gzip file; copy it again.") from None
    return data.decode("utf-8", errors="replace")


def _pdb_structure(path: Path, text: str) -> gemmi.Structure:
    # gemmi reads a malformed number as zero, which would put the atom at the origin without a word.
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("ENDMDL"):
            break
        if line.startswith(("ATOM  ", "HETATM")):
            try:
                finite = all(np.isfinite(float(line[start : start + 8])) for start in (30, 38, 46))
            except ValueError:
                finite = False
            if not finite:
                raise InputError(
                    f"{path}: line {number} has a coordinate that is not a number "
                    f"({line[30:54].strip()!r} in columns 31-54); correct or remove it."
                )
    try:
        return gemmi.read_pdb_string(text, split_chain_on_ter=True)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as PDB ({_one_line(error)}); check the file.") from None


def _cif_structure(path: Path, text: str) -> gemmi.Structure:
    try:
        document = gemmi.cif.read_string(text)
        blocks = [block for block in document if block.find_loop("_atom_site.Cartn_x")]
        if not blocks:
            raise InputError(f"{path}: there is no _atom_site loop; give a model in mmCIF format.")
        return gemmi.make_structure_from_block(blocks[0])
    except (RuntimeError, ValueError, IndexError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot be read as mmCIF ({_one_line(error)}); check the file.") from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _kept_residues(model: gemmi.Model) -> tuple[list[_ReadResidue], int]:
    """Choose conformers; give the residues in the file's order and the number of atoms left out."""
    kept: list[_ReadResidue] = []
    dropped = 0
    for chain in model:
        first_of_chain = True
        group: list[gemmi.Residue] = []
        for residue in [*chain, None]:
            same_place = (
                residue is not None
                and group
                and residue.seqid == group[-1].seqid
                and residue.segment == group[-1].segment
                and residue.name != group[-1].name
                and all(atom.has_altloc() for atom in [*group[-1], *residue])
            )
            if group and not same_place:
                best = max(group, key=lambda candidate: np.mean([atom.occ for atom in candidate]))
                dropped += sum(len(candidate) for candidate in group if candidate is not best)
                atoms = _one_conformer(best)
                dropped += len(best) - len(atoms)
                # A name that comes again without an altloc is another residue with the same number, as
                # in water boxes whose numbers ran out.
                for part in _split_at_repeated_name(atoms):
                    kept.append(
                        _ReadResidue(
                            name=best.name,
                            standard_name=best.name,
                            chain=chain.name.strip(),
                            number=best.seqid.num if best.seqid.num is not None else 0,
                            insertion_code=best.seqid.icode.strip(),
                            segment=best.segment.strip(),
                            subchain=best.subchain,
                            hetero=best.het_flag == "H",
                            after_gap=first_of_chain,
                            atoms=part,
                        )
                    )
                    first_of_chain = False
                group = []
            if residue is not None and len(residue):
                group.append(residue)
    return kept, dropped


def _one_conformer(residue: gemmi.Residue) -> list[gemmi.Atom]:
    occupancies: dict[str, list[float]] = defaultdict(list)
    for atom in residue:
        if atom.has_altloc():
            occupancies[atom.altloc].append(atom.occ)
    if not occupancies:
        return list(residue)
    chosen = max(occupancies, key=lambda altloc: np.mean(occupancies[altloc]))
    best: dict[str, gemmi.Atom] = {}
    for atom in residue:
        if not atom.has_altloc():
            continue
        rival = best.get(atom.name)
        if rival is None or (atom.altloc == chosen, atom.occ) > (rival.altloc == chosen, rival.occ):
            best[atom.name] = atom
    # gemmi gives a new Python object at each iteration: identity is the (name, altloc) pair.
    keys = {(atom.name, atom.altloc) for atom in best.values()}
    return [atom for atom in residue if not atom.has_altloc() or (atom.name, atom.altloc) in keys]


def _split_at_repeated_name(atoms: list[gemmi.Atom]) -> list[list[gemmi.Atom]]:
    parts: list[list[gemmi.Atom]] = [[]]
    names: set[str] = set()
    for atom in atoms:
        if atom.name in names:
            parts.append([])
            names = set()
        names.add(atom.name)
        parts[-1].append(atom)
    return parts


@lru_cache(maxsize=1)
def name_tables() -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Give OpenMM's tables of other names: residues', and for each residue its atoms'."""
    tree = ElementTree.parse(Path(app.__file__).parent / "data" / "pdbNames.xml")
    shared: dict[str, dict[str, str]] = {}
    residues: dict[str, str] = {}
    atoms: dict[str, dict[str, str]] = {}
    for residue in tree.getroot().iter("Residue"):
        own = {
            other: atom.attrib["name"]
            for atom in residue.iter("Atom")
            for key, other in atom.attrib.items()
            if key != "name"
        }
        name = residue.attrib["name"]
        if name in ("All", "Protein", "Nucleic"):
            shared[name] = own
            continue
        atoms[name] = {**shared["All"], **shared.get(residue.attrib.get("type", ""), {}), **own}
        for key, other in residue.attrib.items():
            if key not in ("name", "type"):
                residues[other] = name
    return {**residues, **CHARMM_ALIASES, **WATER_ALIASES}, atoms


@lru_cache(maxsize=1)
def standard_residue_names() -> frozenset[str]:
    """Give the names of the residues whose bonds OpenMM knows: amino acids, nucleotides, caps, water."""
    app.Topology().createStandardBonds()
    return frozenset(app.Topology._standardBonds)


def _name_atoms(residues: list[_ReadResidue]) -> None:
    """Bring residue and atom names to the PDB's, and find the elements."""
    residue_aliases, atom_aliases = name_tables()
    standard = standard_residue_names()
    misplaced = 0
    for residue in residues:
        names = [atom.name for atom in residue.atoms]
        name = residue_aliases.get(residue.name, residue.name)
        if name in ("A", "C", "G", "U") and "O2'" not in names and "O2*" not in names and len(names) > 5:
            name = "D" + name if name != "U" else name
        residue.standard_name = name
        aliases = atom_aliases.get(name, {}) if name in standard else {}
        renamed = [aliases.get(other, other) for other in names]
        residue.atom_names = renamed if len(set(renamed)) == len(renamed) else names
        if name in standard:
            residue.elements = [_polymer_element(other) for other in residue.atom_names]
            misplaced += sum(
                element != atom.element.name and atom.element.name not in ("X", "D")
                for atom, element in zip(residue.atoms, residue.elements)
            )
    for residue in residues:
        if residue.standard_name not in standard:
            residue.elements = [
                _ligand_element(atom, misplaced > 0, len(residue.atoms)) for atom in residue.atoms
            ]


def _polymer_element(name: str) -> str:
    letters = name.lstrip("0123456789'*\"")
    return letters[:1].upper() if letters[:1].upper() in "HCNOSPD" else "C"


def _ligand_element(atom: gemmi.Atom, misplaced: bool, size: int) -> str:
    """Give an element symbol; where the file's columns are off, from the name's letters."""
    element = atom.element
    if element.name != "X" and not misplaced:
        return element.name
    letters = "".join(character for character in atom.name if character.isalpha())
    candidates = [letters[:1], letters[:2]] if size > 1 else [letters[:2], letters[:1]]
    for candidate in candidates:
        found = gemmi.Element(candidate.capitalize())
        if found.name != "X" and (size == 1 or len(candidate) == 2 or candidate in "HCNOSPFIBK"):
            return found.name
    return element.name if element.name != "X" else "C"


def _is_polymer(residue: _ReadResidue) -> bool:
    if residue.standard_name == "HOH":
        return False
    if residue.standard_name in standard_residue_names():
        return True
    names = set(residue.atom_names)
    return {"N", "CA", "C"} <= names or {"C3'", "O3'", "C5'"} <= names


def _joined(previous: _ReadResidue, following: _ReadResidue) -> bool:
    """Tell whether the backbone runs from one residue to the next."""
    if "OXT" in previous.atom_names:
        return False
    neighbours = 0 <= following.number - previous.number <= 1 and (
        previous.number,
        previous.insertion_code,
    ) != (following.number, following.insertion_code)
    limit = NEIGHBOUR_BACKBONE_BOND if neighbours else OTHER_BACKBONE_BOND
    for tail, head in (("C", "N"), ("O3'", "P")):
        a, b = previous.position(tail), following.position(head)
        if a is not None and b is not None:
            return bool(np.linalg.norm(a - b) < limit)
    for name, longest in (("CA", 4.5), ("P", 8.0)):
        a, b = previous.position(name), following.position(name)
        if a is not None and b is not None:
            return neighbours and bool(np.linalg.norm(a - b) < longest)
    cap = previous.standard_name in ("ACE", "FOR") or following.standard_name in ("NME", "NH2")
    return neighbours or cap


def _build_topology(residues: list[_ReadResidue]) -> app.Topology:
    topology = app.Topology()
    chain: app.topology.Chain | None = None
    previous: _ReadResidue | None = None
    previous_kind = ""
    for index, residue in enumerate(residues):
        polymer = _is_polymer(residue)
        if polymer and residue.standard_name not in standard_residue_names():
            # A free amino acid or nucleotide, or something that merely has such atoms, is a ligand.
            neighbours = residues[max(index - 1, 0) : index + 2]
            polymer = any(
                _is_polymer(other) and (_joined(other, residue) or _joined(residue, other))
                for other in neighbours
                if other is not residue and other.chain == residue.chain
            )
        kind = "polymer" if polymer else ("water" if residue.standard_name == "HOH" else "ligand")
        if (
            chain is None
            or previous is None
            or residue.after_gap
            or residue.chain != previous.chain
            or residue.segment != previous.segment
            or kind != previous_kind
            or (residue.subchain and previous.subchain and residue.subchain != previous.subchain)
            or (kind == "polymer" and not _joined(previous, residue))
        ):
            chain = topology.addChain(residue.chain)
        new = topology.addResidue(residue.standard_name, chain, str(residue.number), residue.insertion_code)
        for atom, name, element in zip(residue.atoms, residue.atom_names, residue.elements):
            topology.addAtom(name, _openmm_element(element), new, id=str(atom.serial))
        previous, previous_kind = residue, kind
    return topology


def _openmm_element(symbol: str) -> app.element.Element | None:
    if symbol == "D":
        return app.element.deuterium
    try:
        return app.element.Element.getBySymbol(symbol)
    except KeyError:
        return None


def _add_bonds(model: Model, structure: gemmi.Structure) -> None:
    topology, positions = model.topology, model.positions
    topology.createStandardBonds()
    bonded = {frozenset((a.index, b.index)) for a, b in topology.bonds()}
    atoms = list(topology.atoms())

    def add(i: int, j: int) -> None:
        if i != j and frozenset((i, j)) not in bonded:
            bonded.add(frozenset((i, j)))
            topology.addBond(atoms[i], atoms[j])

    for i, j in _bonds_of_file(model, structure):
        add(i, j)
    for i, j in _disulphides(topology, positions):
        add(i, j)
    for i, j in _bonds_by_distance(topology, positions):
        add(i, j)


def _bonds_of_file(model: Model, structure: gemmi.Structure) -> Iterable[tuple[int, int]]:
    """Give the pairs of CONECT, LINK, SSBOND and _struct_conn that are near enough to be bonds."""
    by_serial = {record.serial: index for index, record in enumerate(model.records)}
    by_name = {
        (record.chain, record.residue_number, record.insertion_code, record.residue_name, record.name): index
        for index, record in enumerate(model.records)
    }
    pairs: list[tuple[int, int]] = []
    if len(by_serial) == len(model.records):
        for first, others in structure.conect_map.items():
            pairs += [
                (by_serial[first], by_serial[other])
                for other in others
                if first in by_serial and other in by_serial
            ]
    for connection in structure.connections:
        if connection.asu == gemmi.Asu.Different or connection.type == gemmi.ConnectionType.Hydrog:
            continue
        ends = [
            by_name.get(
                (
                    end.chain_name,
                    end.res_id.seqid.num,
                    end.res_id.seqid.icode.strip(),
                    end.res_id.name,
                    end.atom_name,
                )
            )
            for end in (connection.partner1, connection.partner2)
        ]
        if None not in ends:
            pairs.append((ends[0], ends[1]))
    atoms = list(model.topology.atoms())
    far = 0
    seen: set[tuple[int, int]] = set()
    for i, j in pairs:
        key = (min(i, j), max(i, j))
        if key in seen:
            continue
        seen.add(key)
        distance = np.linalg.norm(model.positions[i] - model.positions[j])
        limit = max(1.35 * (_covalent_radius(atoms[i]) + _covalent_radius(atoms[j])), 3.0)
        if distance < limit:
            yield key
        else:
            far += 1
    if far:
        model.notes.append(f"{far} bonds of the file join atoms that are too far apart and were left out.")


def _covalent_radius(atom: app.topology.Atom) -> float:
    return gemmi.Element(atom.element.symbol).covalent_r if atom.element is not None else 0.77


def is_metal(atom: app.topology.Atom) -> bool:
    """Tell whether a topology's atom is a metal."""
    return atom.element is not None and gemmi.Element(atom.element.symbol).is_metal


def is_hydrogen(atom: app.topology.Atom) -> bool:
    """Tell whether a topology's atom is hydrogen or deuterium."""
    return atom.element is not None and atom.element.atomic_number == 1


def _disulphides(topology: app.Topology, positions: np.ndarray) -> Iterable[tuple[int, int]]:
    sulphurs = [
        atom.index
        for residue in topology.residues()
        if residue.name == "CYS" and not any(atom.name == "HG" for atom in residue.atoms())
        for atom in residue.atoms()
        if atom.name == "SG"
    ]
    if len(sulphurs) < 2:
        return
    pairs = cKDTree(positions[sulphurs]).query_pairs(2.6, output_type="ndarray")
    lengths = np.linalg.norm(positions[sulphurs][pairs[:, 0]] - positions[sulphurs][pairs[:, 1]], axis=1)
    taken: set[int] = set()
    for k in np.argsort(lengths, kind="stable"):
        i, j = sulphurs[pairs[k, 0]], sulphurs[pairs[k, 1]]
        if not {i, j} & taken:
            taken |= {i, j}
            yield i, j


def _bonds_by_distance(topology: app.Topology, positions: np.ndarray) -> Iterable[tuple[int, int]]:
    """Give the bonds that distances show in and around the residues that are not standard."""
    standard = standard_residue_names()
    atoms = list(topology.atoms())
    nonstandard = np.array([atom.residue.name not in standard for atom in atoms])
    if not nonstandard.any():
        return
    own = np.flatnonzero(nonstandard)
    tree = cKDTree(positions)
    for i, near in zip(own, tree.query_ball_point(positions[own], 3.2)):
        for j in near:
            if j == i or (nonstandard[j] and j < i):
                continue
            a, b = atoms[i], atoms[j]
            distance = float(np.linalg.norm(positions[i] - positions[j]))
            if distance < 0.5 or (is_hydrogen(a) and is_hydrogen(b)):
                continue
            radii = _covalent_radius(a) + _covalent_radius(b)
            same = a.residue is b.residue
            if is_metal(a) or is_metal(b):
                metal, other = (a, b) if is_metal(a) else (b, a)
                limit = radii + METAL_BOND_SLACK
                # Alkali and alkaline-earth ions sit among their neighbours by charge, not by bonds.
                ionic = len(metal.residue) == 1 and _is_ionic(metal)
                joined = same or (
                    not ionic and other.element is not None and other.element.symbol in COORDINATING
                )
            else:
                limit = radii + (LIGAND_BOND_SLACK if same else LINK_SLACK)
                joined = same or not (
                    is_hydrogen(a) or is_hydrogen(b) or "HOH" in (a.residue.name, b.residue.name)
                )
                if not same and (len(a.residue) == 1 or len(b.residue) == 1):
                    joined = False
            if joined and distance < limit:
                yield int(i), int(j)


def _is_ionic(metal: app.topology.Atom) -> bool:
    return metal.element.symbol in {"Li", "Na", "K", "Rb", "Cs", "Be", "Mg", "Ca", "Sr", "Ba"}


# Chemically the nearest residue that the force fields know; only where shape and protonation are the same.
SUBSTITUTIONS = {"MSE": ("MET", {"SE": "SD"})}

RIGID_FREQUENCY = 150.0
"""Angular frequency (1/ps) at which an atom of a rigid residue vibrates about its place."""
RIGID_CUTOFF = 12.0
"""Longest pair (Å) of a rigid residue's elastic network."""
LINK_FORCE_CONSTANT = 1.0e5
"""kJ/mol/nm², of a bond between a rigid residue and its surroundings; a fifth for pairs one bond further."""
RIGID_EPSILON = 0.4
"""Lennard-Jones well depth (kJ/mol) of the atoms of rigid residues."""


@dataclass
class PreparationReport:
    """What :func:`prepare` changed.

    Attributes
    ----------
    sentences : list of str
        All of it, in plain words.
    added_heavy_atoms : dict of str to list of str
        Residue (``A 45 LYS``) to the names of the heavy atoms that were built.
    added_hydrogens : int
        Hydrogens that the input lacks.
    dropped_hydrogens : list of str
        Input hydrogens without a counterpart; in ``fitted.pdb`` they move rigidly with their residue.
    rigid_residues : list of str
        Residues kept rigid, as in ``HEM A 142 (43 atoms)``.
    adapted_residues : list of str
        Residues parametrised as a known one with fewer hydrogens or other neighbours.
    substitutions : list of str
        Residues replaced by a known one.
    links : list of str
        Bonds held by springs.
    chain_breaks : list of str
        Places where the backbone is broken; both ends are treated as termini.
    """

    sentences: list[str] = field(default_factory=list)
    added_heavy_atoms: dict[str, list[str]] = field(default_factory=dict)
    added_hydrogens: int = 0
    dropped_hydrogens: list[str] = field(default_factory=list)
    rigid_residues: list[str] = field(default_factory=list)
    adapted_residues: list[str] = field(default_factory=list)
    substitutions: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    chain_breaks: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Give all fields as plain lists, dicts and numbers."""
        return asdict(self)


@dataclass
class _WorkAtom:
    name: str
    element: app.element.Element
    position: np.ndarray
    source: int = -1


@dataclass
class _WorkResidue:
    name: str
    chain: int
    chain_id: str
    id: str
    insertion_code: str
    atoms: list[_WorkAtom]

    def find(self, name: str) -> int | None:
        return next((k for k, atom in enumerate(self.atoms) if atom.name == name), None)

    def label(self) -> str:
        return " ".join(f"{self.name} {self.chain_id} {self.id}{self.insertion_code}".split())


# Two atoms, each as the index of its residue and its name.
_Link = tuple[tuple[int, str], tuple[int, str]]


@dataclass
class Prepared:
    """A model that a force field can run.

    Attributes
    ----------
    model : Model
        What it was made from.
    topology : openmm.app.Topology
        All atoms, hydrogens included. Bonds between a metal and another residue are not in it (the force
        field would not know its residues any more): see ``links``.
    positions : ndarray of shape (N, 3)
        Å. Atoms that the input has are where it has them.
    input_index : ndarray of shape (N,)
        The input's atom, or -1 for an atom that was added.
    prepared_index : ndarray of shape (M,)
        For each input atom its atom here, or -1 for a hydrogen without a counterpart.
    b_factors : ndarray of shape (N,)
        Å²; an added atom has that of the nearest input atom of its residue.
    rigid : list of ndarray
        The atoms of each residue that is kept rigid.
    links : list of (int, int)
        Bonds that springs hold: between rigid residues and their surroundings, and metal coordination.
    report : PreparationReport
        What was changed.
    """

    model: Model
    topology: app.Topology
    positions: np.ndarray
    input_index: np.ndarray
    prepared_index: np.ndarray
    b_factors: np.ndarray
    rigid: list[np.ndarray]
    links: list[tuple[int, int]]
    report: PreparationReport
    forcefield: app.ForceField = field(repr=False)
    residue_templates: dict[int, str] = field(default_factory=dict, repr=False)

    def input_positions(self, positions: Any) -> np.ndarray:
        """Give the positions of the input's atoms, in the input's order.

        An input hydrogen without a counterpart is carried along by the rigid motion that best superposes the
        other atoms of its residue, as the input has them, on where they are now.

        Parameters
        ----------
        positions : Quantity or array_like of shape (N, 3)
            Positions of the prepared atoms; Å where plain.

        Returns
        -------
        ndarray of shape (M, 3)
            Å.
        """
        positions = positions_in_angstrom(positions)
        if positions.shape != self.positions.shape:
            raise InputError(
                f"positions: expected {len(self.positions)} prepared atoms, found {len(positions)}; "
                "give the positions of every atom of prepared.topology."
            )
        has = self.prepared_index >= 0
        result = np.empty_like(self.model.positions)
        result[has] = positions[self.prepared_index[has]]
        if has.all():
            return result
        for residue in self.model.topology.residues():
            atoms = np.array([atom.index for atom in residue.atoms()])
            lost, kept = atoms[~has[atoms]], atoms[has[atoms]]
            if len(lost):
                rotation, shift = _superposition(self.model.positions[kept], result[kept])
                result[lost] = self.model.positions[lost] @ rotation.T + shift
        return result

    def system(
        self,
        nonbonded_cutoff: Any = 1.0,
        constraints: Any = app.HBonds,
        hydrogen_mass: Any = None,
        nonbonded_method: Any = app.CutoffNonPeriodic,
        rigid_force_group: int = 0,
        **options: Any,
    ) -> openmm.System:
        """Build the System: the force field, and springs for what it does not know.

        Centre-of-mass motion is not removed: it would hold the model back from its density. OpenMM's
        minimiser often stalls where there are constraints: minimise a new model in a System with
        ``constraints=None, rigidWater=False`` first, and start the run from there.

        Parameters
        ----------
        nonbonded_cutoff : float or Quantity
            nm.
        constraints : None, HBonds, AllBonds or HAngles
            As for ``ForceField.createSystem``.
        hydrogen_mass : float or Quantity, optional
            Da; mass moved to hydrogens from their heavy atoms.
        nonbonded_method : NoCutoff or CutoffNonPeriodic
            As for ``ForceField.createSystem``.
        rigid_force_group : int
            Force group of the springs.
        **options
            Passed to ``ForceField.createSystem``.

        Raises
        ------
        InputError
            The force field cannot describe the model with these options.
        """
        residues = list(self.topology.residues())
        arguments: dict[str, Any] = {
            "nonbondedMethod": nonbonded_method,
            "constraints": constraints,
            "removeCMMotion": False,
            "residueTemplates": {residues[index]: name for index, name in self.residue_templates.items()},
            **options,
        }
        if nonbonded_method is not app.NoCutoff:
            arguments["nonbondedCutoff"] = value_in(nonbonded_cutoff, unit.nanometer) * unit.nanometer
        if hydrogen_mass is not None:
            arguments["hydrogenMass"] = value_in(hydrogen_mass, unit.dalton) * unit.dalton
        try:
            system = self.forcefield.createSystem(self.topology, **arguments)
        except Exception as error:  # ForceField raises bare Exception for what it cannot match
            raise InputError(
                f"{self.model.path}: the force field cannot describe the model ({_one_line(error)}); "
                "give other force field files or options."
            ) from None
        self._add_springs(system, rigid_force_group)
        return system

    def _add_springs(self, system: openmm.System, force_group: int) -> None:
        if not self.rigid and not self.links:
            return
        masses = np.array(
            [system.getParticleMass(i).value_in_unit(unit.dalton) for i in range(len(self.positions))]
        )
        springs: dict[tuple[int, int], tuple[float, float]] = {}
        excluded: set[tuple[int, int]] = set()
        for atoms in self.rigid:
            if len(atoms) < 2:
                continue
            pairs = cKDTree(self.positions[atoms]).query_pairs(RIGID_CUTOFF, output_type="ndarray")
            count = np.bincount(pairs.ravel(), minlength=len(atoms))
            for k, m in pairs:
                i, j = sorted((int(atoms[k]), int(atoms[m])))
                reduced = masses[i] * masses[j] / (masses[i] + masses[j])
                # A third of a random spring's stiffness acts along each axis.
                stiffness = 3 * reduced * RIGID_FREQUENCY**2 / max(count[k], count[m])
                springs[i, j] = (self._distance(i, j), stiffness)
                excluded.add((i, j))
        atoms = list(self.topology.atoms())
        bonded = self._bonded()
        for i, j in self.links:
            for a, b, stiffness in _link_pairs(i, j, bonded, atoms):
                pair = (min(a, b), max(a, b))
                excluded.add(pair)
                if stiffness and pair not in springs:
                    length = self._distance(a, b)
                    if (a, b) == (i, j) and not is_metal(atoms[a]) and not is_metal(atoms[b]):
                        ideal = _covalent_radius(atoms[a]) + _covalent_radius(atoms[b])
                        length = float(np.clip(length, 0.85 * ideal, 1.15 * ideal))
                    springs[pair] = (length, stiffness)
        force = openmm.HarmonicBondForce()
        force.setName("RigidResidues")
        force.setForceGroup(force_group)
        for (i, j), (length, stiffness) in sorted(springs.items()):
            force.addBond(i, j, length / 10.0, stiffness)
        system.addForce(force)
        _exclude(system, sorted(excluded))

    def _distance(self, i: int, j: int) -> float:
        return float(np.linalg.norm(self.positions[i] - self.positions[j]))

    def _bonded(self) -> dict[int, set[int]]:
        bonded: dict[int, set[int]] = defaultdict(set)
        for a, b in self.topology.bonds():
            bonded[a.index].add(b.index)
            bonded[b.index].add(a.index)
        return bonded


def _link_pairs(
    i: int, j: int, bonded: dict[int, set[int]], atoms: list[app.topology.Atom]
) -> Iterator[tuple[int, int, float]]:
    """Give the pairs one and two bonds apart across a link; hydrogens are excluded but not held."""
    yield i, j, LINK_FORCE_CONSTANT
    for near, far in ((i, j), (j, i)):
        for neighbour in sorted(bonded[near] - {far}):
            yield neighbour, far, 0.0 if is_hydrogen(atoms[neighbour]) else LINK_FORCE_CONSTANT / 5


def _exclude(system: openmm.System, pairs: list[tuple[int, int]]) -> None:
    """Take pairs out of every nonbonded force (OpenMM demands the same exclusions of all)."""
    for force in system.getForces():
        if isinstance(force, openmm.NonbondedForce):
            for i, j in pairs:
                force.addException(i, j, 0.0, 0.1, 0.0, True)
        elif isinstance(force, openmm.CustomNonbondedForce):
            known = {frozenset(force.getExclusionParticles(k)) for k in range(force.getNumExclusions())}
            for i, j in pairs:
                if frozenset((i, j)) not in known:
                    force.addExclusion(i, j)


def _superposition(moving: np.ndarray, fixed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give the rotation and shift that carry points onto others (Kabsch); a shift alone for fewer than 3."""
    if len(moving) == 0:
        return np.eye(3), np.zeros(3)
    centre, target = moving.mean(axis=0), fixed.mean(axis=0)
    rotation = np.eye(3)
    if len(moving) >= 3:
        u, _, vt = np.linalg.svd((moving - centre).T @ (fixed - target))
        sign = np.sign(np.linalg.det(vt.T @ u.T))
        rotation = vt.T @ np.diag([1.0, 1.0, sign]) @ u.T
    return rotation, target - rotation @ centre


def prepare(
    model: Model,
    forcefield: str | Sequence[str] = ("amber14-all.xml", "amber14/tip3pfb.xml"),
    *,
    ph: float = 7.0,
    platform: str = "CPU",
) -> Prepared:
    """Complete a model for molecular dynamics, without losing an atom of it.

    - Heavy atoms that a standard residue lacks and terminal oxygens are built (pdbfixer). Loops are not: the
      ends of a gap become termini.
    - Hydrogens of standard residues follow the force field: the input's are kept where they have a
      counterpart, the others are built. Protonation follows the input's hydrogens and residue names
      (``HID``/``HSD``, ``ASH``, ``LYN`` …), then metal coordination, then the pH.
    - Selenomethionine becomes methionine, its selenium the sulphur.
    - A residue that has the atoms of a known one less some hydrogens, or with other neighbours (a
      glycosylated asparagine, a nucleotide that begins with a phosphate), takes that one's parameters, the
      charge of a missing hydrogen added to its parent.
    - Every other residue is kept rigid, in place: no charges, generic Lennard-Jones spheres (gemmi's van der
      Waals radii), an elastic network between all its atoms, and springs across its bonds and metal
      coordination.

    Parameters
    ----------
    model : Model
        From :func:`read_model`.
    forcefield : str or sequence of str
        OpenMM force field files.
    ph : float
        For the protonation of titratable residues.
    platform : str
        OpenMM platform that relaxes the atoms which are built.

    Raises
    ------
    InputError
        The model has no backbone (a Cα trace), or a force field file cannot be read.
    """
    loaded = _load_forcefield(forcefield)
    report = PreparationReport(sentences=list(model.notes))
    residues, links = _work_residues(model, report)
    _refuse_trace(model, residues)
    compute = openmm.Platform.getPlatformByName(platform)
    with _repeatable(compute):
        _add_missing_heavy_atoms(residues, links, compute, report)
        variants = _variants(model, residues, links)
        _add_hydrogens(residues, links, variants, ph, compute)
    _free_valences(residues, links)
    _take_input_hydrogens(model, residues, report)

    topology, coordination = _topology_of(residues, links)
    positions = np.array([atom.position for residue in residues for atom in residue.atoms])
    input_index = np.array([atom.source for residue in residues for atom in residue.atoms], dtype=np.int64)
    prepared_index = np.full(len(model.positions), -1, dtype=np.int64)
    prepared_index[input_index[input_index >= 0]] = np.flatnonzero(input_index >= 0)

    templates, rigid = _templates(loaded, topology, residues, report)
    held = _held_links(topology, rigid, coordination)
    atoms = list(topology.atoms())
    for i, j in held:
        pair = " - ".join(f"{_label(atoms[k].residue)} {atoms[k].name}" for k in (i, j))
        report.links.append(f"{pair} ({np.linalg.norm(positions[i] - positions[j]):.2f} Å)")
    _describe(model, residues, prepared_index, input_index, report)
    return Prepared(
        model=model,
        topology=topology,
        positions=positions,
        input_index=input_index,
        prepared_index=prepared_index,
        b_factors=_b_factors(model, residues),
        rigid=rigid,
        links=held,
        report=report,
        forcefield=loaded,
        residue_templates=templates,
    )


def _label(residue: app.topology.Residue) -> str:
    return " ".join(f"{residue.name} {residue.chain.id} {residue.id}{residue.insertionCode}".split())


def _load_forcefield(files: str | Sequence[str]) -> app.ForceField:
    names = [files] if isinstance(files, str) else list(files)
    try:
        return app.ForceField(*names)
    except Exception as error:  # ForceField raises whatever the XML parser and its own checks raise
        raise InputError(
            f"force field {', '.join(names)}: cannot be read ({_one_line(error)}); "
            "give OpenMM force field files, such as amber14-all.xml."
        ) from None


@contextmanager
def _repeatable(platform: openmm.Platform) -> Iterator[None]:
    """Make building atoms give the same bits each time.

    Modeller draws hydrogen directions from Python's generator, and neither it nor pdbfixer passes properties
    to the platform: seed the one, set defaults of the other, and put both back.
    """
    state = random.getstate()
    random.seed(0)
    wanted = {"Threads": "1", "DeterministicForces": "true"}
    defaults = {
        name: platform.getPropertyDefaultValue(name) for name in wanted if name in platform.getPropertyNames()
    }
    for name in defaults:
        platform.setPropertyDefaultValue(name, wanted[name])
    try:
        yield
    finally:
        random.setstate(state)
        for name, value in defaults.items():
            platform.setPropertyDefaultValue(name, value)


def _work_residues(model: Model, report: PreparationReport) -> tuple[list[_WorkResidue], list[_Link]]:
    """Give residues without the hydrogens that will be built anew, and the bonds between residues."""
    standard = standard_residue_names()
    residues: list[_WorkResidue] = []
    place: dict[int, tuple[int, str]] = {}
    for residue in model.topology.residues():
        name, renamed = SUBSTITUTIONS.get(residue.name, (residue.name, {}))
        work = _WorkResidue(
            name, residue.chain.index, residue.chain.id, residue.id, residue.insertionCode, atoms=[]
        )
        if name != residue.name:
            report.substitutions.append(f"{_label(residue)} as {name}")
        for atom in residue.atoms():
            if name in standard and is_hydrogen(atom):
                continue
            atom_name = renamed.get(atom.name, atom.name)
            element = atom.element or app.element.carbon
            if atom.name in renamed:
                element = _openmm_element(_polymer_element(atom_name))
            work.atoms.append(_WorkAtom(atom_name, element, model.positions[atom.index], atom.index))
            place[atom.index] = (len(residues), atom_name)
        residues.append(work)
    links: list[_Link] = []
    for a, b in model.topology.bonds():
        if a.index in place and b.index in place:
            first, second = place[a.index], place[b.index]
            inside = first[0] == second[0]
            if inside and residues[first[0]].name in standard:
                continue
            if not inside and _is_backbone_bond(residues, first, second):
                continue
            links.append((first, second))
    for chain in model.topology.chains():
        chain_residues = list(chain.residues())
        following = next((other for other in model.topology.chains() if other.index == chain.index + 1), None)
        if following is None or following.id != chain.id:
            continue
        last, first = chain_residues[-1], next(following.residues())
        if all(other.name in standard and other.name != "HOH" for other in (last, first)):
            report.chain_breaks.append(f"{_label(last)} | {_label(first)}")
    return residues, links


def _is_backbone_bond(residues: list[_WorkResidue], a: tuple[int, str], b: tuple[int, str]) -> bool:
    """Tell whether createStandardBonds makes this bond between neighbours again."""
    if a[0] > b[0]:
        a, b = b, a
    return (
        b[0] == a[0] + 1
        and residues[a[0]].chain == residues[b[0]].chain
        and (a[1], b[1]) in (("C", "N"), ("O3'", "P"))
    )


def _refuse_trace(model: Model, residues: list[_WorkResidue]) -> None:
    amino = [residue for residue in residues if gemmi.find_tabulated_residue(residue.name).is_amino_acid()]
    bare = sum(residue.find("N") is None or residue.find("C") is None for residue in amino)
    if amino and bare > len(amino) / 2:
        raise InputError(
            f"{model.path}: {bare} of {len(amino)} amino acids lack backbone atoms, as in a Cα trace; "
            "build the full backbone first."
        )


def _topology_of(
    residues: list[_WorkResidue], links: list[_Link]
) -> tuple[app.Topology, list[tuple[int, int]]]:
    """Build the topology; give the bonds to metals of other residues apart."""
    topology = app.Topology()
    chain, number = None, None
    index: dict[tuple[int, str], app.topology.Atom] = {}
    for k, residue in enumerate(residues):
        if chain is None or residue.chain != number:
            chain, number = topology.addChain(residue.chain_id), residue.chain
        new = topology.addResidue(residue.name, chain, residue.id, residue.insertion_code)
        for atom in residue.atoms:
            index[k, atom.name] = topology.addAtom(atom.name, atom.element, new)
    topology.createStandardBonds()
    bonded = {frozenset((a.index, b.index)) for a, b in topology.bonds()}
    # Backbone bonds to residues that are not standard: the standard side makes only its own.
    for k in range(len(residues) - 1):
        if residues[k].chain == residues[k + 1].chain:
            for tail, head in (("C", "N"), ("O3'", "P")):
                ends = index.get((k, tail)), index.get((k + 1, head))
                if None not in ends and frozenset(a.index for a in ends) not in bonded:
                    near = np.linalg.norm(
                        residues[k].atoms[residues[k].find(tail)].position
                        - residues[k + 1].atoms[residues[k + 1].find(head)].position
                    )
                    if near < NEIGHBOUR_BACKBONE_BOND:
                        topology.addBond(*ends)
                        bonded.add(frozenset(a.index for a in ends))
    coordination = []
    for first, second in links:
        a, b = index[first], index[second]
        if frozenset((a.index, b.index)) in bonded:
            continue
        bonded.add(frozenset((a.index, b.index)))
        if first[0] != second[0] and (is_metal(a) or is_metal(b)):
            coordination.append((a.index, b.index))
        else:
            topology.addBond(a, b)
    return topology, coordination


def _quantity(residues: list[_WorkResidue]) -> unit.Quantity:
    return [
        openmm.Vec3(*(atom.position / 10.0)) for residue in residues for atom in residue.atoms
    ] * unit.nanometer


def _add_missing_heavy_atoms(
    residues: list[_WorkResidue], links: list[_Link], platform: openmm.Platform, report: PreparationReport
) -> None:
    topology, _ = _topology_of(residues, links)
    # PDBFixer reads files only: it gets a stand-in, then the model.
    fixer = PDBFixer(
        pdbfile=io.StringIO(
            "ATOM      1  CA  GLY A   1       0.000   0.000   0.000  1.00  0.00           C\nEND\n"
        ),
        platform=platform,
    )
    fixer.topology, fixer.positions = topology, _quantity(residues)
    fixer.missingResidues = {}
    fixer.findMissingAtoms()
    for residue, atoms in list(fixer.missingAtoms.items()):
        if not any(atom.name == name for name in ("CA", "C3'", "C") for atom in residue.atoms()):
            del fixer.missingAtoms[residue]
            continue
        report.added_heavy_atoms.setdefault(_label(residue), []).extend(atom.name for atom in atoms)
    for residue, names in fixer.missingTerminals.items():
        if {"CA", "C", "O"} <= {atom.name for atom in residue.atoms()} | {
            atom.name for atom in fixer.missingAtoms.get(residue, [])
        }:
            report.added_heavy_atoms.setdefault(_label(residue), []).extend(names)
    if not fixer.missingAtoms and not fixer.missingTerminals:
        return
    fixer.addMissingAtoms(seed=1)
    placed = fixer.positions.value_in_unit(unit.angstrom)
    for work, residue in zip(residues, fixer.topology.residues(), strict=True):
        known = {atom.name for atom in work.atoms}
        for atom in residue.atoms():
            if atom.name not in known:
                work.atoms.append(_WorkAtom(atom.name, atom.element, np.array(placed[atom.index])))


def _variants(model: Model, residues: list[_WorkResidue], links: list[_Link]) -> list[str | None]:
    """Choose protonation states that the input or a bond decides; None leaves it to the pH."""
    variants: list[str | None] = [None] * len(residues)
    metals: dict[int, set[str]] = defaultdict(set)
    bonds: dict[int, set[str]] = defaultdict(set)
    for (a, name_a), (b, name_b) in links:
        if a == b:
            continue
        bonds[a].add(name_a)
        bonds[b].add(name_b)
        for (own, own_name), (other, other_name) in (((a, name_a), (b, name_b)), ((b, name_b), (a, name_a))):
            element = residues[other].atoms[residues[other].find(other_name)].element
            if gemmi.Element(element.symbol).is_metal:
                metals[own].add(own_name)
    for k, residue in enumerate(model.topology.residues()):
        names = {atom.name for atom in residue.atoms()}
        has_hydrogens = any(is_hydrogen(atom) for atom in residue.atoms())
        original = model.records[next(residue.atoms()).index].residue_name
        if residue.name == "HIS":
            if metals[k] & {"NE2", "ND1"}:
                variants[k] = {("NE2",): "HID", ("ND1",): "HIE"}.get(
                    tuple(sorted(metals[k] & {"NE2", "ND1"})), "HIN"
                )
            elif names & {"HD1", "HE2"}:
                variants[k] = "HIP" if {"HD1", "HE2"} <= names else ("HID" if "HD1" in names else "HIE")
            else:
                variants[k] = {"HSD": "HID", "HSE": "HIE", "HSP": "HIP"}.get(
                    original, original if original in ("HID", "HIE", "HIP") else None
                )
        elif residue.name == "ASP":
            if "HD2" in names or (original == "ASH" and not has_hydrogens):
                variants[k] = "ASH"
        elif residue.name == "GLU":
            if "HE2" in names or (original == "GLH" and not has_hydrogens):
                variants[k] = "GLH"
        elif residue.name == "LYS":
            stripped = {"HZ1", "HZ2"} <= names and "HZ3" not in names
            if "NZ" in bonds[k] or stripped or original == "LYN":
                variants[k] = "LYN"
        elif residue.name == "CYS" and "SG" in metals[k] | bonds[k]:
            variants[k] = "CYX"
    return variants


def _add_hydrogens(
    residues: list[_WorkResidue],
    links: list[_Link],
    variants: list[str | None],
    ph: float,
    platform: openmm.Platform,
) -> None:
    # Modeller refuses a histidine without its ring; pdbfixer could not complete it, so leave it alone.
    hidden = {}
    for k, residue in enumerate(residues):
        if residue.name == "HIS" and (residue.find("ND1") is None or residue.find("NE2") is None):
            hidden[k], residue.name = residue.name, "HIS*"
            variants[k] = None
    topology, _ = _topology_of(residues, links)
    modeller = app.Modeller(topology, _quantity(residues))
    modeller.addHydrogens(None, pH=ph, variants=variants, platform=platform)
    placed = modeller.positions.value_in_unit(unit.angstrom)
    for work, residue in zip(residues, modeller.topology.residues(), strict=True):
        old = {atom.name: atom for atom in work.atoms}
        work.atoms = [
            old.get(atom.name) or _WorkAtom(atom.name, atom.element, np.array(placed[atom.index]))
            for atom in residue.atoms()
        ]
        # Modeller caps the first nucleotide of a chain even where a phosphate already sits on its O5'.
        if work.find("P") is not None:
            work.atoms = [atom for atom in work.atoms if atom.name != "HO5'"]
    for k, name in hidden.items():
        residues[k].name = name


def _free_valences(residues: list[_WorkResidue], links: list[_Link]) -> None:
    """Take away the hydrogen that a bond to another residue replaces."""
    standard = standard_residue_names()
    for first, second in links:
        if first[0] == second[0]:
            continue
        for (own, name), (other, other_name) in ((first, second), (second, first)):
            if residues[own].name not in standard:
                continue
            parent = residues[own].atoms[residues[own].find(name)]
            partner = residues[other].atoms[residues[other].find(other_name)]
            if (
                gemmi.Element(partner.element.symbol).is_metal
                or gemmi.Element(parent.element.symbol).is_metal
            ):
                continue
            hydrogens = [
                atom
                for atom in residues[own].atoms
                if atom.element.atomic_number == 1 and np.linalg.norm(atom.position - parent.position) < 1.5
            ]
            if hydrogens:
                nearest = min(hydrogens, key=lambda atom: np.linalg.norm(atom.position - partner.position))
                residues[own].atoms.remove(nearest)


def _take_input_hydrogens(model: Model, residues: list[_WorkResidue], report: PreparationReport) -> None:
    """Match the input's hydrogens with the built ones: by name, then by parent; take their positions."""
    standard = standard_residue_names()
    for work, residue in zip(residues, model.topology.residues(), strict=True):
        if work.name not in standard:
            continue
        given = [atom for atom in residue.atoms() if is_hydrogen(atom)]
        built = {atom.name: atom for atom in work.atoms if atom.element.atomic_number == 1}
        heavy = [atom for atom in work.atoms if atom.element.atomic_number != 1]
        places = np.array([atom.position for atom in heavy])

        def parent(position: np.ndarray, places: np.ndarray = places) -> int:
            return int(np.argmin(np.linalg.norm(places - position, axis=1)))

        if not given or not heavy:
            report.dropped_hydrogens += [model.records[atom.index].describe() for atom in given]
            continue
        matches: list[tuple[Any, _WorkAtom]] = []
        left = []
        for atom in given:
            twin = built.get(atom.name)
            if twin is not None and parent(twin.position) == parent(model.positions[atom.index]):
                matches.append((atom, built.pop(atom.name)))
            else:
                left.append(atom)
        for atom in left:
            own = parent(model.positions[atom.index])
            rivals = [twin for twin in built.values() if parent(twin.position) == own]
            if rivals:
                position = model.positions[atom.index]
                twin = min(rivals, key=lambda rival: np.linalg.norm(rival.position - position))
                matches.append((atom, built.pop(twin.name)))
            else:
                report.dropped_hydrogens.append(model.records[atom.index].describe())
        for atom, twin in matches:
            twin.source = atom.index
            position = model.positions[atom.index]
            if 0.7 < np.linalg.norm(position - places[parent(position)]) < 1.6:
                twin.position = position


def _templates(
    forcefield: app.ForceField,
    topology: app.Topology,
    residues: list[_WorkResidue],
    report: PreparationReport,
) -> tuple[dict[int, str], list[np.ndarray]]:
    """Give a template to every residue that the force field does not match; tell which are rigid."""
    known = forcefield._templates
    templates: dict[int, str] = {}
    bonded: dict[int, list[app.topology.Atom]] = defaultdict(list)
    for a, b in topology.bonds():
        bonded[a.index].append(b)
        bonded[b.index].append(a)
    single: list[app.topology.Residue] = []
    for residue in topology.residues():
        if len(residue) == 1 and residue.name != "HOH":
            # Several templates may hold one atom of an element (FE, FE2): the name decides.
            atom = next(residue.atoms())
            template = known.get(residue.name) or known.get(residue.name.capitalize())
            fits = (
                template is not None
                and len(template.atoms) == 1
                and template.atoms[0].element is atom.element
                and not bonded[atom.index]
            )
            if fits:
                templates[residue.index] = template.name
            else:
                single.append(residue)
    unmatched = _unmatched(forcefield, topology, templates, set(single))
    unknown = sorted([*unmatched, *single], key=lambda residue: residue.index)
    if not unknown:
        return templates, []

    xml = ElementTree.Element("ForceField")
    types = ElementTree.SubElement(xml, "AtomTypes")
    definitions = ElementTree.SubElement(xml, "Residues")
    elements: set[str] = set()
    rigid = []
    for residue in unknown:
        name = f"{residue.name}-{residue.index}-openmm-density"
        templates[residue.index] = name
        definition = ElementTree.SubElement(definitions, "Residue", name=name)
        parameters = _adapted_parameters(known, residue)
        if parameters is None:
            rigid.append(np.array([atom.index for atom in residue.atoms()]))
            report.rigid_residues.append(f"{_label(residue)} ({len(residue)} atoms)")
            parameters = []
            for atom in residue.atoms():
                elements.add(atom.element.symbol)
                parameters.append((f"rigid-{atom.element.symbol}", 0.0))
        else:
            report.adapted_residues.append(_label(residue))
        atoms = list(residue.atoms())
        order = {atom.index: k for k, atom in enumerate(atoms)}
        for k, (type_, charge) in enumerate(parameters):
            ElementTree.SubElement(definition, "Atom", name=f"a{k}", type=type_, charge=repr(charge))
        for atom in atoms:
            for other in bonded[atom.index]:
                if other.residue is not residue:
                    ElementTree.SubElement(definition, "ExternalBond", atomName=f"a{order[atom.index]}")
                elif other.index > atom.index:
                    ElementTree.SubElement(
                        definition,
                        "Bond",
                        atomName1=f"a{order[atom.index]}",
                        atomName2=f"a{order[other.index]}",
                    )
    generators = forcefield.getGenerators()
    own = next((g for g in generators if isinstance(g, app.forcefield.NonbondedGenerator)), None)
    separate = next((g for g in generators if isinstance(g, app.forcefield.LennardJonesGenerator)), None)
    nonbonded = ElementTree.SubElement(
        xml,
        "NonbondedForce",
        coulomb14scale=repr(own.coulomb14scale if own else 1.0),
        lj14scale=repr(own.lj14scale if own else 1.0),
    )
    # CHARMM keeps Lennard-Jones terms in a force of their own, with nothing left in NonbondedForce.
    spheres = nonbonded
    if separate is not None:
        spheres = ElementTree.SubElement(xml, "LennardJonesForce", lj14scale=repr(separate.lj14scale))
    for symbol in sorted(elements):
        element = gemmi.Element(symbol)
        ElementTree.SubElement(
            types,
            "Type",
            {
                "name": f"rigid-{symbol}",
                "class": f"rigid-{symbol}",
                "element": symbol,
                "mass": repr(element.weight),
            },
        )
        sphere = {"epsilon": repr(RIGID_EPSILON), "sigma": repr(2 * element.vdw_r / 10.0 / 2 ** (1 / 6))}
        nothing = {"epsilon": "0", "sigma": "1"}
        name = {"type": f"rigid-{symbol}"}
        if spheres is not nonbonded:
            ElementTree.SubElement(spheres, "Atom", {**name, **sphere})
        ElementTree.SubElement(
            nonbonded, "Atom", {**name, "charge": "0", **(sphere if spheres is nonbonded else nothing)}
        )
    forcefield.loadFile(io.StringIO(ElementTree.tostring(xml, encoding="unicode")))
    return templates, rigid


def _unmatched(
    forcefield: app.ForceField,
    topology: app.Topology,
    templates: dict[int, str],
    skipped: set[app.topology.Residue],
) -> list[app.topology.Residue]:
    """Give the residues that neither a template nor a patched one (CHARMM's termini) describes."""
    data = app.ForceField._SystemData(topology)
    unmatched = []
    found = [None] * topology.getNumResidues()
    for residue in topology.residues():
        if residue in skipped or residue.index in templates:
            continue
        try:
            found[residue.index], _ = forcefield._getResidueTemplateMatches(residue, data.bondedToAtom)
        except Exception:  # several templates fit, with different parameters: none can be trusted
            found[residue.index] = None
        if found[residue.index] is None:
            unmatched.append(residue)
    if unmatched and forcefield._patches:
        unmatched = app.forcefield._applyPatchesToMatchResidues(
            forcefield, data, unmatched, found, data.bondedToAtom, False, False
        )
    return unmatched


def _adapted_parameters(
    known: dict[str, Any], residue: app.topology.Residue
) -> list[tuple[str, float]] | None:
    """Take types and charges from the residue's own template where only hydrogens or neighbours differ."""
    protein, variant = residue.name, {"HIS": ("HID", "HIE", "HIP"), "CYS": ("CYX", "CYM"), "LYS": ("LYN",)}
    stems = [protein, *variant.get(protein, ()), *{"ASP": ("ASH",), "GLU": ("GLH",)}.get(protein, ())]
    names = {atom.name for atom in residue.atoms()}
    ends = ["C", "N", ""] if "OXT" in names else ["", "N", "C"]
    if {"H2", "H3"} & names:
        ends = ["N", "", "C"]
    candidates = [end + stem for stem in stems for end in ends]
    candidates += [protein + end for end in ("5", "3")]
    best: tuple[int, list[tuple[str, float]]] | None = None
    for candidate in candidates:
        template = known.get(candidate)
        if template is None:
            continue
        by_name = {atom.name: atom for atom in template.atoms}
        if not names <= set(by_name):
            continue
        missing = [atom for atom in template.atoms if atom.name not in names]
        if any(atom.element is None or atom.element.atomic_number != 1 for atom in missing):
            continue
        charges = {atom.name: float(atom.parameters.get("charge", 0.0)) for atom in template.atoms}
        for atom in missing:
            for neighbour in atom.bondedTo:
                charges[template.atoms[neighbour].name] += charges[atom.name]
        parameters = [(by_name[atom.name].type, charges[atom.name]) for atom in residue.atoms()]
        if best is None or len(missing) < best[0]:
            best = (len(missing), parameters)
    return None if best is None else best[1]


def _held_links(
    topology: app.Topology, rigid: list[np.ndarray], coordination: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Give the bonds between residues that the force field may not know."""
    unknown = {int(index) for atoms in rigid for index in atoms}
    ordinary = ({"C", "N"}, {"O3'", "P"}, {"SG"})
    held = list(coordination)
    for a, b in topology.bonds():
        if a.residue is not b.residue and ({a.index, b.index} & unknown or {a.name, b.name} not in ordinary):
            held.append((a.index, b.index))
    return held


def _b_factors(model: Model, residues: list[_WorkResidue]) -> np.ndarray:
    result = []
    for residue in residues:
        sources = [atom for atom in residue.atoms if atom.source >= 0 and atom.element.atomic_number != 1]
        sources = sources or [atom for atom in residue.atoms if atom.source >= 0]
        places = np.array([atom.position for atom in sources]).reshape(-1, 3)
        for atom in residue.atoms:
            if atom.source >= 0:
                result.append(model.b_factors[atom.source])
            elif len(sources):
                nearest = np.argmin(np.linalg.norm(places - atom.position, axis=1))
                result.append(model.b_factors[sources[nearest].source])
            else:
                result.append(0.0)
    return np.array(result)


def _describe(
    model: Model,
    residues: list[_WorkResidue],
    prepared_index: np.ndarray,
    input_index: np.ndarray,
    report: PreparationReport,
) -> None:
    elements = [atom.element for residue in residues for atom in residue.atoms]
    report.added_hydrogens = sum(
        element.atomic_number == 1 and source < 0 for element, source in zip(elements, input_index)
    )
    say = report.sentences.append
    if report.chain_breaks:
        say(
            f"The backbone is broken at {len(report.chain_breaks)} places (both ends become termini): "
            f"{_listing(report.chain_breaks)}."
        )
    if report.added_heavy_atoms:
        total = sum(len(names) for names in report.added_heavy_atoms.values())
        say(
            f"{total} missing heavy atoms were built in {len(report.added_heavy_atoms)} residues: "
            f"{_listing([' '.join([label, *names]) for label, names in report.added_heavy_atoms.items()])}."
        )
    if report.added_hydrogens:
        say(f"{report.added_hydrogens} hydrogens were added.")
    if report.dropped_hydrogens:
        say(
            f"{len(report.dropped_hydrogens)} input hydrogens have no counterpart (other protonation); "
            f"in the PDB file they move rigidly with their residue: {_listing(report.dropped_hydrogens)}."
        )
    if report.substitutions:
        say(f"Residues simulated as the standard one: {_listing(report.substitutions)}.")
    if report.adapted_residues:
        say(
            "Residues parametrised as the standard one with another protonation or neighbours: "
            f"{_listing(report.adapted_residues)}."
        )
    if report.rigid_residues:
        say(
            "The force field does not know these residues; each was kept as a rigid body without charges: "
            f"{_listing(report.rigid_residues)}."
        )
    if report.links:
        say(f"Bonds held by springs at their length in the input: {_listing(report.links)}.")


def _listing(items: Sequence[str], longest: int = 20) -> str:
    shown = ", ".join(items[:longest])
    return shown if len(items) <= longest else f"{shown} and {len(items) - longest} more"


def write_cif(
    path: str | os.PathLike[str],
    topology: app.Topology,
    positions: Any,
    b_factors: Sequence[float] | np.ndarray | None = None,
) -> None:
    """Write all atoms of a topology as mmCIF.

    Chain ids and residue numbers are written as auth_asym_id and auth_seq_id, each chain of the topology as a
    label_asym_id of its own; a blank chain id becomes the first free letter. Bonds between residues
    that are not peptide or phosphate bonds are written as _struct_conn.

    Parameters
    ----------
    path : str or path-like
    topology : openmm.app.Topology
    positions : Quantity or array_like of shape (N, 3)
        Å where plain.
    b_factors : array_like of shape (N,), optional
        Å²; zero where not given.

    Raises
    ------
    InputError
        The numbers of atoms differ, a coordinate is not a number, or the file cannot be written.
    """
    count = topology.getNumAtoms()
    positions = _checked_positions(path, positions, count)
    b_factors = _checked_b_factors(path, b_factors, count)
    used = {chain.id.strip() for chain in topology.chains()}
    blank = next(letter for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if letter not in used or letter == "Z")
    structure = gemmi.Structure()
    structure.name = "model"
    model = gemmi.Model(1)
    standard = standard_residue_names()
    addresses: list[gemmi.AtomAddress] = []
    for number, chain in enumerate(topology.chains()):
        written = gemmi.Chain(chain.id.strip() or blank)
        for position_in_chain, residue in enumerate(chain.residues(), start=1):
            new = gemmi.Residue()
            new.name = residue.name
            new.seqid = gemmi.SeqId(_number(residue), residue.insertionCode.strip() or " ")
            new.subchain = _label_asym(number)
            water = residue.name == "HOH"
            polymer = residue.name in standard and not water
            new.het_flag = "A" if polymer else "H"
            kind = "Polymer" if polymer else ("Water" if water else "NonPolymer")
            new.entity_type = getattr(gemmi.EntityType, kind)
            if polymer:
                new.label_seq = position_in_chain
            for atom in residue.atoms():
                record = gemmi.Atom()
                record.name = atom.name
                record.element = gemmi.Element(atom.element.symbol if atom.element is not None else "X")
                record.pos = gemmi.Position(*positions[atom.index])
                record.b_iso = float(b_factors[atom.index])
                record.occ = 1.0
                record.serial = atom.index + 1
                new.add_atom(record)
                addresses.append(gemmi.AtomAddress(written.name, new.seqid, new.name, atom.name))
            written.add_residue(new)
        model.add_chain(written)
    structure.add_model(model)
    structure.ensure_entities()
    for a, b in topology.bonds():
        if a.residue is not b.residue and {a.name, b.name} not in ({"C", "N"}, {"O3'", "P"}):
            connection = gemmi.Connection()
            connection.name = f"link{len(structure.connections) + 1}"
            connection.type = (
                gemmi.ConnectionType.Disulf if a.name == b.name == "SG" else gemmi.ConnectionType.Covale
            )
            connection.partner1, connection.partner2 = addresses[a.index], addresses[b.index]
            connection.asu = gemmi.Asu.Same
            structure.connections.append(connection)
    groups = gemmi.MmcifOutputGroups(False)
    groups.atoms = groups.entity = groups.struct_asym = groups.conn = groups.block_name = True
    _replace(path, structure.make_mmcif_document(groups).as_string())


def _number(residue: app.topology.Residue) -> int:
    try:
        return int(residue.id)
    except ValueError:
        return residue.index + 1


def _label_asym(number: int) -> str:
    letters = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, 26)
        letters = chr(ord("A") + digit) + letters
    return letters


def pdb_limit(model: Model, positions: Any) -> str | None:
    """Tell in words why the PDB format cannot hold a model; None where it can."""
    positions = positions_in_angstrom(positions)
    if len(model.records) > 99999:
        return f"it has {len(model.records)} atoms and the format holds 99999"
    for record in model.records:
        if len(record.chain) > 1:
            return f"chain {record.chain!r} has a name of more than one letter"
        if not -999 <= record.residue_number <= 9999:
            return (
                f"residue number {record.residue_number} of chain {record.chain!r} has more than four digits"
            )
        if len(record.residue_name) > 3:
            return f"residue name {record.residue_name!r} has more than three letters"
        if len(record.name) > 4:
            return f"atom name {record.name!r} has more than four letters"
    if len(positions) and (positions.max() > 9999.999 or positions.min() < -999.999):
        return "a coordinate is above 9999.999 or below -999.999 Å"
    return None


def write_pdb(
    path: str | os.PathLike[str],
    model: Model,
    positions: Any,
    b_factors: Sequence[float] | np.ndarray | None = None,
) -> None:
    """Write the atoms of a model that was read, at other positions, as PDB.

    Atoms, order, names, chains, numbers, insertion codes, segments, occupancies and ATOM or HETATM are the
    input's; the alternate location column is empty, since one conformer was kept. TER follows each polymer.

    Parameters
    ----------
    path : str or path-like
    model : Model
    positions : Quantity or array_like of shape (N, 3)
        Å where plain; from :meth:`Prepared.input_positions`.
    b_factors : array_like of shape (N,), optional
        Å²; the input's where not given.

    Raises
    ------
    InputError
        The format cannot hold the model (:func:`pdb_limit` tells beforehand), the numbers of atoms differ, a
        coordinate is not a number, or the file cannot be written.
    """
    count = len(model.records)
    positions = _checked_positions(path, positions, count)
    b_factors = _checked_b_factors(path, model.b_factors if b_factors is None else b_factors, count)
    limit = pdb_limit(model, positions)
    if limit is not None:
        raise InputError(f"{path}: the PDB format cannot hold this model ({limit}); use the mmCIF file.")
    lines = []
    if model.cell is not None:
        a, b, c, alpha, beta, gamma = model.cell
        lines.append(f"CRYST1{a:9.3f}{b:9.3f}{c:9.3f}{alpha:7.2f}{beta:7.2f}{gamma:7.2f} P 1           1")
    standard = standard_residue_names()
    atoms = list(model.topology.atoms())
    for index, (record, atom) in enumerate(zip(model.records, atoms)):
        x, y, z = positions[index]
        occupancy = model.occupancies[index]
        charge = f"{abs(record.charge)}{'-' if record.charge < 0 else '+'}" if record.charge else ""
        name = record.name if len(record.name) == 4 or len(record.element) == 2 else f" {record.name}"
        lines.append(
            f"{'HETATM' if record.hetero else 'ATOM  '}{index + 1:5d} {name:<4s} {record.residue_name:>3s} "
            f"{record.chain:1s}{record.residue_number:4d}{record.insertion_code:1s}   "
            f"{x:8.3f}{y:8.3f}{z:8.3f}{min(max(occupancy, -99.0), 999.0):6.2f}"
            f"{min(max(b_factors[index], -99.0), 999.99):6.2f}      {record.segment:<4.4s}"
            f"{record.element.upper():>2s}{charge:2s}"
        )
        following = atoms[index + 1] if index + 1 < count else None
        ends_chain = following is None or following.residue.chain is not atom.residue.chain
        gap = (
            following is not None
            and following.residue.chain.id == atom.residue.chain.id
            and following.residue.name in standard
            and following.residue.name != "HOH"
        )
        if ends_chain and not gap and atom.residue.name in standard and atom.residue.name != "HOH":
            lines.append("TER")
    _replace(path, "\n".join([*lines, "END", ""]))


def _checked_positions(path: str | os.PathLike[str], positions: Any, count: int) -> np.ndarray:
    positions = positions_in_angstrom(positions)
    if len(positions) != count:
        raise InputError(
            f"{path}: {len(positions)} positions were given for {count} atoms; give one for each."
        )
    if not np.isfinite(positions).all():
        raise InputError(
            f"{path}: a coordinate to write is not a number; the run has gone wrong before this."
        )
    return positions


def _checked_b_factors(
    path: str | os.PathLike[str], b_factors: Sequence[float] | np.ndarray | None, count: int
) -> np.ndarray:
    values = np.zeros(count) if b_factors is None else np.asarray(b_factors, dtype=np.float64)
    if values.shape != (count,):
        raise InputError(f"{path}: {values.size} B factors were given for {count} atoms; give one for each.")
    return np.nan_to_num(values)


def _replace(path: str | os.PathLike[str], text: str) -> None:
    """Write a file under a temporary name beside it, then move it into place."""
    path = Path(path)
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=f".{path.name}.", delete=False, encoding="utf-8"
        ) as handle:
            temporary = handle.name
            handle.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
        raise InputError(f"{path}: cannot be written ({error.strerror}); check the folder.") from None
