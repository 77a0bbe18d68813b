"""Read an atomic model from a PDB or mmCIF file, with standard names, and with elements and bonds that the file omits."""

from __future__ import annotations

import os
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import gemmi
import numpy as np
from openmm import app
from scipy.spatial import cKDTree

from ..base.errors import level_outside
from .bonds import (
    BACKBONE_BONDS,
    add_bonds,
    connections_of_alternates,
    links_of_file,
    named_connections,
)
from .chemistry.elements import UNKNOWN, openmm_element
from .chemistry.residue_names import name_tables, standard_residue_names
from .confidence import b_factors_of_plddt
from .conformers import ReadResidue, kept_residues
from .metadata import read_metadata
from .model import Alternates, AtomRecord, Model
from .odd_atoms import check_twice, notes_on_atoms
from .predictions import read_confidence, trimmed
from .structure_suffixes import format_of_name, structure_format
from .structure_text import check_has_atoms, read_structure

# Backbone bond lengths (Å) up to which two residues count as joined: neighbours in number may be badly
# strained, others must look like a bond.
NEIGHBOUR_BACKBONE_BOND = 3.0
OTHER_BACKBONE_BOND = 2.0

# The PDB's names of unidentified atoms.
_UNKNOWN_NAMES = ("UNK", "UNX", "UNL")


def read_model(
    path: str | os.PathLike[str], predicted: bool | None = None, trim: float | None = None
) -> Model:
    """Read a PDB or mmCIF file.

    Of several models the first is read. One alternate location is chosen for each residue number, whatever residue names it
    has: the one with the highest mean occupancy, the first in the file where they are equal, and the same for
    residues whose alternates touch; an atom missing from this conformer comes from the location with its highest occupancy.
    The others are the model's `alternates`, including residues with other numbers that alternate with one that was
    chosen. Waters, ions and ligands stay. Elements come from the element column; in standard residues, and where the column is
    empty, from the atom's name.

    Parameters
    ----------
    path : path-like
        A file ending in .pdb, .ent, .cif or .mmcif, or in one of these and .gz.
    predicted : bool, optional
        Whether it is a prediction, with pLDDT in its B column; by default if the file says so or the column looks like it, see
        `openmm_density.models.predictions`.
    trim : float, optional
        Residues of a prediction whose pLDDT is below this are left out.

    Raises
    ------
    InputError
        The file is missing, is not a model, has no atoms, or an atom has a coordinate, occupancy or B factor that is not a
        number, or is duplicated without a label; the message names the atom.
    """
    path = Path(path)
    structure = read_structure(path)
    check_has_atoms(path, structure)
    model, sources = _model_of(path, structure)
    confidence = read_confidence(model, structure, sources, predicted)
    model.confidence = confidence
    if trim is not None:
        trimmed(model, structure, trim)
        before, (model, _) = model, _model_of(path, structure)
        model.confidence = (
            None
            if confidence is None
            else confidence.of_atoms(
                [each.own for each in before.records], [each.own for each in model.records], trim
            )
        )
        model.notes += [note for note in before.notes if note not in model.notes]
    _take_confidence(model)
    model.notes += notes_on_atoms(model)
    connections = list(named_connections(model, structure))
    model.links = links_of_file(model, structure, connections)
    model.metadata.structure.connections = connections_of_alternates(model, structure)
    add_bonds(model, structure, connections)
    return model


def _model_of(path: Path, structure: gemmi.Structure) -> tuple[Model, list[gemmi.Residue]]:
    """Return a structure's first model with the fitted conformers and without bonds, and each atom's residue in the file."""
    notes: list[str] = []
    if (found := structure_format(path)) != format_of_name(path):
        said = f"{path.name} is read as {found}, which it is by its content"
        warnings.warn(said, stacklevel=level_outside())
        notes.append(f"{said}.")
    if len(structure) > 1:
        notes.append(f"The file holds {len(structure)} models: the first was read.")
    residues = united(kept_residues(structure[0]))
    check_twice(path, residues)
    _name_atoms(residues)
    alternates = _alternates(residues)
    if len(alternates):
        notes.append(alternates.sentence())

    atoms = [atom for residue in residues for atom in residue.atoms]
    positions = np.array([atom.pos.tolist() for atom in atoms], dtype=np.float64)
    records = tuple(
        _record(residue.chain, source, atom, element)
        for residue in residues
        for atom, source, element in zip(residue.atoms, residue.sources, residue.elements)
    )
    parts = np.array([part for residue in residues for part in residue.parts])
    cell = structure.cell
    parameters = (cell.a, cell.b, cell.c, cell.alpha, cell.beta, cell.gamma)
    known_group = structure.find_spacegroup() is not None and not cell.explicit_matrices
    model = Model(
        path=path,
        topology=_build_topology(residues),
        positions=positions,
        b_factors=np.array([atom.b_iso for atom in atoms], dtype=np.float64),
        occupancies=np.array([atom.occ for atom in atoms], dtype=np.float64),
        records=records,
        cell=parameters if min(parameters[:3]) > 1.5 else None,
        space_group=structure.spacegroup_hm if known_group and min(parameters[:3]) > 1.5 else "",
        alternates=alternates,
        ranks=None if (np.diff(parts) >= 0).all() else np.argsort(np.argsort(parts, kind="stable")),
        metadata=read_metadata(structure, path),
        notes=notes,
    )
    return model, [source for residue in residues for source in residue.sources]


def _take_confidence(model: Model) -> None:
    """Record a prediction's confidence, and derive B factors from it where the file has none."""
    found = model.confidence
    if found is None:
        return
    model.notes.append(found.sentence())
    if found.column is not None:
        model.b_factors = b_factors_of_plddt(found.plddt)
        estimated = b_factors_of_plddt(found.scale * model.alternates.b_factors)
        model.alternates = replace(model.alternates, b_factors=estimated)


def _record(chain: str, residue: gemmi.Residue, atom: gemmi.Atom, element: str) -> AtomRecord:
    return AtomRecord(
        name=atom.name,
        altloc="" if atom.altloc == "\0" else atom.altloc,
        element=element,
        residue_name=residue.name,
        chain=chain,
        residue_number=residue.seqid.num or 0,
        insertion_code=residue.seqid.icode.strip(),
        segment=residue.segment.strip(),
        hetero=residue.het_flag == "H",
        charge=atom.charge,
        serial=atom.serial,
        file_element=atom.element.name,
    )


def _alternates(residues: list[ReadResidue]) -> Alternates:
    """Return the atoms of conformers that were not chosen, from residues with final names and elements."""
    records, numbers, after = [], [], []
    atoms: list[gemmi.Atom] = []
    elements = [
        {atom.name: element for atom, element in zip(residue.atoms, residue.elements)} for residue in residues
    ]
    places = {id(residue): index for index, residue in enumerate(residues)}
    before = 0
    for residue in residues:
        for each in residue.alternates:
            owner = each.host or residue
            host = places[id(owner.whole or owner)]
            element = elements[host].get(each.atom.name, each.atom.element.name)
            records.append(_record(each.chain, each.residue, each.atom, element))
            numbers.append(host)
            after.append(before + each.after)
            atoms.append(each.atom)
        before += len(residue.atoms)
    positions = np.array([atom.pos.tolist() for atom in atoms], dtype=np.float64).reshape(-1, 3)
    return Alternates(
        records=tuple(records),
        positions=positions,
        b_factors=np.array([atom.b_iso for atom in atoms], dtype=np.float64),
        occupancies=np.array([atom.occ for atom in atoms], dtype=np.float64),
        residues=np.array(numbers, dtype=np.int64),
        after=np.array(after, dtype=np.int64),
    )


def is_backbone_bond(a: app.topology.Atom, b: app.topology.Atom) -> bool:
    """Return whether two atoms, in either order, have the names of a backbone bond."""
    return (a.name, b.name) in BACKBONE_BONDS or (b.name, a.name) in BACKBONE_BONDS


def _name_atoms(residues: list[ReadResidue]) -> None:
    """Convert residue and atom names to the PDB's, and find the elements."""
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
    """Return the element symbol implied by an atom's name in a standard residue."""
    letters = name.lstrip("0123456789'*\"")
    return letters[:1].upper() if letters[:1].upper() in "HCNOSPD" else "C"


def _ligand_element(atom: gemmi.Atom, misplaced: bool, size: int) -> str:
    """Return an element symbol; where the file's columns are shifted, from the letters of the name, if these are a symbol."""
    element = atom.element
    if element.name != UNKNOWN and not misplaced:
        return element.name
    if atom.name in _UNKNOWN_NAMES:
        return UNKNOWN
    letters = "".join(character for character in atom.name if character.isalpha())
    candidates = [letters[:1], letters[:2]] if size > 1 else [letters[:2], letters[:1]]
    for candidate in candidates:
        found = gemmi.Element(candidate.capitalize())
        if found.name != UNKNOWN and (size == 1 or len(candidate) == 2 or candidate in "HCNOSPFIBK"):
            return found.name
    return element.name


def _is_polymer(residue: ReadResidue) -> bool:
    if residue.standard_name == "HOH":
        return False
    if residue.standard_name in standard_residue_names():
        return True
    names = set(residue.atom_names)
    return {"N", "CA", "C"} <= names or {"C3'", "O3'", "C5'"} <= names


def _joined(previous: ReadResidue, following: ReadResidue) -> bool:
    """Return whether the backbone runs from one residue to the next."""
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


def _build_topology(residues: list[ReadResidue]) -> app.Topology:
    topology = app.Topology()
    chain: app.topology.Chain | None = None
    previous: ReadResidue | None = None
    previous_kind = ""
    for index, residue in enumerate(residues):
        polymer = _is_polymer(residue)
        if polymer and residue.standard_name not in standard_residue_names():
            # A free amino acid or nucleotide, or anything with such atoms, is a ligand.
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


FARTHEST = 2.5
"""Å between parts of one residue: a bond, even with badly placed hydrogens."""


def united(residues: Sequence[ReadResidue]) -> list[ReadResidue]:
    """Return residues, merging those of one chain, number and name with different atoms close to one another.

    Segments and TER do not matter. A part joins the nearest one that it fits, parts with only hydrogens come
    last; the residue takes the position of its first part with other atoms.
    """
    parts: dict[tuple[str, int, str, str], list[int]] = defaultdict(list)
    for k, residue in enumerate(residues):
        parts[residue.chain, residue.number, residue.insertion_code, residue.name].append(k)
    gone: set[int] = set()
    for members in parts.values():
        names = {k: {atom.name for atom in residues[k].atoms} for k in members} if len(members) > 1 else {}
        # Waters whose numbers ran out number thousands, each with an oxygen.
        if not names or set.intersection(*names.values()):
            continue
        whole: list[int] = []
        for k in sorted(members, key=lambda k: _is_hydrogens(residues[k])):
            fitting = [(_distance(residues[k], residues[q]), q) for q in whole if not names[k] & names[q]]
            distance, nearest = min(fitting, default=(np.inf, k))
            if distance > FARTHEST:
                whole.append(k)
                continue
            names[nearest] |= names[k]
            _join(residues[nearest], residues[k])
            gone.add(k)
            if residues[k].after_gap and k + 1 < len(residues):
                residues[k + 1].after_gap = True
    return [residue for k, residue in enumerate(residues) if k not in gone]


def _is_hydrogens(residue: ReadResidue) -> bool:
    return all(atom.is_hydrogen() for atom in residue.atoms)


def _distance(first: ReadResidue, second: ReadResidue) -> float:
    places = [np.array([atom.pos.tolist() for atom in each.atoms]) for each in (first, second)]
    return float(cKDTree(places[0]).query(places[1])[0].min())


def _join(residue: ReadResidue, part: ReadResidue) -> None:
    """Append the atoms of a part to those of its residue."""
    before = len(residue.atoms)
    residue.alternates += [replace(each, after=each.after + before) for each in part.alternates]
    residue.atoms += part.atoms
    residue.sources += part.sources
    residue.parts += part.parts
    part.whole = residue
