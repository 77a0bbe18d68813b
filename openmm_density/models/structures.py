"""Read an atomic model from a PDB or mmCIF file, with the standard names, elements and bonds that it leaves open."""

from __future__ import annotations

import gzip
import os
import zlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Protocol
from xml.etree import ElementTree

import gemmi
import numpy as np
import torch  # noqa: F401  before openmm, or openmm-torch's platform plugins stay unloaded
from openmm import app
from scipy.spatial import cKDTree

from openmm_density.errors import InputError
from openmm_density.whole_files import read_file
from openmm_density.wording import one_line

PDB_SUFFIXES = (".pdb", ".ent")
CIF_SUFFIXES = (".cif", ".mmcif")

_SIMULATED_WATERS = frozenset(("SOL", "SPC", "T3P", "T4P", "TIP", "TIP3", "TIP4", "TP3"))
# A covalent bond is at most this much longer than the sum of the covalent radii (Å): inside a ligand, whose
# atoms are known to belong together; between residues, where a clash must not become a bond; to a metal.
LIGAND_BOND_SLACK = 0.45
LINK_SLACK = 0.30
METAL_BOND_SLACK = 0.60

# Backbone bond lengths (Å) up to which two residues count as joined: neighbours in number may be badly
# strained, others must look like a bond.
NEIGHBOUR_BACKBONE_BOND = 3.0
OTHER_BACKBONE_BOND = 2.0

BACKBONE_BONDS = (("C", "N"), ("O3'", "P"))
"""Names of the atoms that join a residue to the one behind it in its polymer."""

_NAMED_BONDS = (gemmi.ConnectionType.Covale, gemmi.ConnectionType.Disulf, gemmi.ConnectionType.MetalC)

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
        """Name the atom as in ``A HIS 87 NE2``."""
        residue = f"{self.chain} {self.residue_name} {self.residue_number}{self.insertion_code}"
        return " ".join(f"{residue} {self.name}".split())


@dataclass(frozen=True)
class Link:
    """A bond that a file names: LINK, SSBOND or _struct_conn.

    Attributes
    ----------
    first, second : int
        The atoms.
    symmetry : bool
        Whether it leads to a copy of the second atom that the symmetry of the crystal makes.
    """

    first: int
    second: int
    symmetry: bool = False


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
    space_group : str
        Of the crystal, as the file writes it (``P 1 21 1``); empty where there is none, or one that is not known, or where the
        axes of the coordinates are not those that the PDB and mmCIF take for granted.
    links : tuple of Link
        The covalent, disulphide and metal bonds that the file names among these atoms, however long.
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
    space_group: str = ""
    links: tuple[Link, ...] = ()
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
    known_group = structure.find_spacegroup() is not None and not cell.explicit_matrices
    model = Model(
        path=path,
        topology=topology,
        positions=positions,
        b_factors=np.array([atom.b_iso for atom in atoms], dtype=np.float64),
        occupancies=np.array([atom.occ for atom in atoms], dtype=np.float64),
        records=records,
        cell=parameters if min(parameters[:3]) > 1.5 else None,
        space_group=structure.spacegroup_hm if known_group and min(parameters[:3]) > 1.5 else "",
        notes=notes,
    )
    connections = list(_connections(model, structure))
    model.links = _links(model, structure, connections)
    _add_bonds(model, structure, connections)
    return model


def _read_text(path: Path) -> str:
    try:
        data = read_file(path)
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
        raise InputError(f"{path}: cannot be read as PDB ({one_line(error)}); check the file.") from None


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
        raise InputError(f"{path}: cannot be read as mmCIF ({one_line(error)}); check the file.") from None


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


def is_standard_polymer(name: str) -> bool:
    """Tell whether a residue of this name is a standard amino acid, nucleotide or cap."""
    return name in standard_residue_names() and name != "HOH"


def is_backbone_bond(a: app.topology.Atom, b: app.topology.Atom) -> bool:
    """Tell whether the names of two atoms, in either order, are those of a bond of the backbone."""
    return (a.name, b.name) in BACKBONE_BONDS or (b.name, a.name) in BACKBONE_BONDS


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
            residue.elements = [polymer_element(other) for other in residue.atom_names]
            misplaced += sum(
                element != atom.element.name and atom.element.name not in ("X", "D")
                for atom, element in zip(residue.atoms, residue.elements)
            )
    for residue in residues:
        if residue.standard_name not in standard:
            residue.elements = [
                _ligand_element(atom, misplaced > 0, len(residue.atoms)) for atom in residue.atoms
            ]


def polymer_element(name: str) -> str:
    """Give the element symbol that an atom's name tells in a standard residue."""
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
    for tail, head in BACKBONE_BONDS:
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
            topology.addAtom(name, openmm_element(element), new, id=str(atom.serial))
        previous, previous_kind = residue, kind
    return topology


def openmm_element(symbol: str) -> app.element.Element | None:
    """Give OpenMM's element of a symbol; None where OpenMM has none."""
    if symbol == "D":
        return app.element.deuterium
    try:
        return app.element.Element.getBySymbol(symbol)
    except KeyError:
        return None


def _connections(
    model: Model, structure: gemmi.Structure
) -> Iterable[tuple[gemmi.Connection, tuple[int, int]]]:
    """Give what LINK, SSBOND and _struct_conn name among the atoms that were read."""
    by_name: dict[tuple[str, int, str, str, str], int] = {}
    for index, record in enumerate(model.records):
        name = (
            record.chain,
            record.residue_number,
            record.insertion_code,
            record.residue_name,
            record.name,
        )
        # Of several atoms of one name the first is meant.
        by_name.setdefault(name, index)
    for connection in structure.connections:
        first, second = (
            by_name.get(
                (
                    end.chain_name.strip(),
                    end.res_id.seqid.num,
                    end.res_id.seqid.icode.strip(),
                    end.res_id.name,
                    end.atom_name,
                )
            )
            for end in (connection.partner1, connection.partner2)
        )
        if first is not None and second is not None:
            yield connection, (first, second)


def _links(
    model: Model, structure: gemmi.Structure, connections: list[tuple[gemmi.Connection, tuple[int, int]]]
) -> tuple[Link, ...]:
    found: dict[tuple[frozenset[int], bool], Link] = {}
    for connection, (i, j) in connections:
        if connection.type not in _NAMED_BONDS:
            continue
        if any(
            end.altloc.strip("\0 ") and model.records[k].altloc not in ("", end.altloc)
            for end, k in ((connection.partner1, i), (connection.partner2, j))
        ):
            # It is of a conformer that was left out.
            continue
        symmetry = connection.asu == gemmi.Asu.Different
        if connection.asu == gemmi.Asu.Any and structure.cell.is_crystal():
            places = (gemmi.Position(*model.positions[k]) for k in (i, j))
            symmetry = not structure.cell.find_nearest_image(*places, gemmi.Asu.Any).same_asu()
        if i != j or symmetry:
            found.setdefault((frozenset((i, j)), symmetry), Link(i, j, symmetry))
    return tuple(found.values())


def _add_bonds(
    model: Model, structure: gemmi.Structure, connections: list[tuple[gemmi.Connection, tuple[int, int]]]
) -> None:
    topology, positions = model.topology, model.positions
    topology.createStandardBonds()
    bonded = {frozenset((a.index, b.index)) for a, b in topology.bonds()}
    atoms = list(topology.atoms())

    def add(i: int, j: int) -> None:
        if i != j and frozenset((i, j)) not in bonded:
            bonded.add(frozenset((i, j)))
            topology.addBond(atoms[i], atoms[j])

    for i, j in _bonds_of_file(model, structure, connections):
        add(i, j)
    for i, j in _disulphides(topology, positions):
        add(i, j)
    for i, j in _bonds_by_distance(topology, positions):
        add(i, j)


def _bonds_of_file(
    model: Model, structure: gemmi.Structure, connections: list[tuple[gemmi.Connection, tuple[int, int]]]
) -> Iterable[tuple[int, int]]:
    """Give the pairs of CONECT, LINK, SSBOND and _struct_conn that are near enough to be bonds."""
    by_serial = {record.serial: index for index, record in enumerate(model.records)}
    pairs: list[tuple[int, int]] = []
    if len(by_serial) == len(model.records):
        for first, others in structure.conect_map.items():
            pairs += [
                (by_serial[first], by_serial[other])
                for other in others
                if first in by_serial and other in by_serial
            ]
    pairs += [
        pair
        for connection, pair in connections
        if connection.asu != gemmi.Asu.Different and connection.type != gemmi.ConnectionType.Hydrog
    ]
    atoms = list(model.topology.atoms())
    far = 0
    seen: set[tuple[int, int]] = set()
    for i, j in pairs:
        key = (min(i, j), max(i, j))
        if key in seen:
            continue
        seen.add(key)
        distance = np.linalg.norm(model.positions[i] - model.positions[j])
        limit = max(1.35 * (covalent_radius(atoms[i]) + covalent_radius(atoms[j])), 3.0)
        if distance < limit:
            yield key
        else:
            far += 1
    if far:
        model.notes.append(f"{far} bonds of the file join atoms that are too far apart and were left out.")


class HasElement(Protocol):
    """A topology's atom, a force field template's, or any other that has an element or None."""

    element: app.element.Element | None


def covalent_radius(atom: HasElement) -> float:
    """Give an atom's covalent radius (Å; gemmi's table), 0.77 where its element is not known."""
    return gemmi.Element(atom.element.symbol).covalent_r if atom.element is not None else 0.77


def is_metal(atom: HasElement) -> bool:
    """Tell whether an atom is a metal."""
    return atom.element is not None and gemmi.Element(atom.element.symbol).is_metal


def is_hydrogen(atom: HasElement) -> bool:
    """Tell whether an atom is hydrogen or deuterium."""
    return atom.element is not None and atom.element.atomic_number == 1


def is_water(name: str) -> bool:
    """Tell whether a residue of this name is water, also as simulations call it."""
    return name in _SIMULATED_WATERS or gemmi.find_tabulated_residue(name).is_water()


def residue_kind(residue: app.topology.Residue) -> str:
    """Say what a residue belongs to: "polymer", "water", or "other", which is a ligand, an ion or a sugar."""
    if is_water(residue.name):
        return "water"
    known = gemmi.find_tabulated_residue(residue.name)
    # Amino acids that gemmi does not know have their backbone.
    has_backbone = {"N", "CA", "C"} <= {atom.name for atom in residue.atoms()}
    return "polymer" if known.is_amino_acid() or known.is_nucleic_acid() or has_backbone else "other"


def residue_label(residue: app.topology.Residue) -> str:
    """Name a residue as in ``A HIS 57B``."""
    return " ".join(f"{residue.chain.id} {residue.name} {residue.id}{residue.insertionCode}".split())


@lru_cache(maxsize=128)
def is_d_amino_acid(name: str) -> bool:
    """Tell whether a residue of this name is an amino acid of the D form."""
    return gemmi.find_tabulated_residue(name).kind == gemmi.ResidueKind.AAD


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
            radii = covalent_radius(a) + covalent_radius(b)
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
