"""Build missing heavy atoms of residues that are present."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence, Set
from copy import copy
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import openmm
from openmm import app, unit
from pdbfixer import PDBFixer

from ...base.wording import listing, residue_label
from ..chemistry.elements import is_hydrogen
from ..chemistry.residue_names import is_standard_polymer
from .prepared import PreparationReport
from .work_residues import Link, WorkAtom, WorkResidue, bound_atoms, opposite, positions_of, topology_of

# The heavy neighbours of Cβ; the last is moved first.
_BETA_CENTRES = {"ILE": ("CA", "CG1", "CG2"), "THR": ("CA", "OG1", "CG2")}


# Å; and the angle between the bisector of a tetrahedron's edge and a corner.
_CA_CB = 1.53


_HALF_TETRAHEDRAL = np.arccos(-1 / 3) / 2


_SMALLEST = 1e-3
# Å, of a carboxylate; and the deviation from which an oxygen counts as misplaced, as pdbfixer's are.
_C_OXT = 1.25
_LONGEST_C_OXT = 1.8


def add_missing_heavy_atoms(
    residues: list[WorkResidue], links: list[Link], platform: openmm.Platform, report: PreparationReport
) -> None:
    """Build the heavy atoms that residues lack, with the right handedness at Cβ, and report them."""
    topology, _ = topology_of(residues, links)
    fixer = copy(_fixer())
    fixer.platform, fixer.topology = platform, topology
    fixer.missingResidues = {}
    fixer.findMissingAtoms()
    phosphates = list(add_phosphates(residues))
    for work, names in phosphates:
        report.added_heavy_atoms.setdefault(work.label, []).extend(names)
    if _add_beta_carbons(residues, fixer, report) or phosphates:
        fixer.topology = topology_of(residues, links)[0]
        fixer.findMissingAtoms()
    bound = bound_atoms(residues, links)
    for residue, atoms in list(fixer.missingAtoms.items()):
        atoms[:] = _not_replaced(residue, atoms, fixer.templates[residue.name], bound)
        if not atoms or not any(atom.name == name for name in ("CA", "C3'", "C") for atom in residue.atoms()):
            del fixer.missingAtoms[residue]
            continue
        report.added_heavy_atoms.setdefault(residue_label(residue), []).extend(atom.name for atom in atoms)
    # Its terminal oxygens lie on the wrong side of the carbon, 3.2 Å away.
    open_ends = [residue.index for residue in fixer.missingTerminals if (residue.index, "C") not in bound]
    fixer.missingTerminals = {}
    if fixer.missingAtoms:
        fixer.positions = positions_of(residues)
        fixer.addMissingAtoms(seed=1)
        placed = fixer.positions.value_in_unit(unit.angstrom)
        for work, residue in zip(residues, fixer.topology.residues(), strict=True):
            known = {atom.name for atom in work.atoms}
            for atom in residue.atoms():
                if atom.name not in known:
                    work.atoms.append(WorkAtom(atom.name, atom.element, np.array(placed[atom.index])))
            if work.name in _BETA_CENTRES:
                _correct_built_chirality(work, fixer.templates[work.name])
    _add_terminal_oxygens([residues[k] for k in open_ends], report)
    _mend_terminal_oxygens(residues, report)


@cache
def _fixer() -> PDBFixer:
    """Return a PDBFixer of a dummy model, since it only reads files, with its templates, which it reads from a file each."""
    stand_in = "ATOM      1  CA  GLY A   1       0.000   0.000   0.000  1.00  0.00           C\nEND\n"
    return PDBFixer(pdbfile=io.StringIO(stand_in))


def _not_replaced(
    residue: app.topology.Residue, atoms: list[Any], template: Any, bound: Set[tuple[int, str]]
) -> list[Any]:
    """Return missing atoms without those replaced by a bond to another residue, such as ND2 in an isopeptide."""
    neighbours: dict[str, list[Any]] = {}
    for pair in template.topology.bonds():
        for one, other in (pair, pair[::-1]):
            if not is_hydrogen(other):
                neighbours.setdefault(one.name, []).append(other)

    def is_replaced(name: str) -> bool:
        near = neighbours.get(name, [])
        return (
            len(near) == 1
            and near[0].element is app.element.carbon
            and (residue.index, near[0].name) in bound
        )

    return [atom for atom in atoms if not is_replaced(atom.name)]


def _add_terminal_oxygens(ends: Sequence[WorkResidue], report: PreparationReport) -> None:
    """Build OXT in the plane of the carboxylate, at equal angles to Cα and O."""
    for work in ends:
        if None not in (work.find("CA"), work.find("C"), work.find("O")):
            work.atoms.append(WorkAtom("OXT", app.element.oxygen, _beside(work, "O")))
            report.added_heavy_atoms.setdefault(work.label, []).append("OXT")


def _mend_terminal_oxygens(residues: Sequence[WorkResidue], report: PreparationReport) -> None:
    """Rebuild and report the second oxygen of a carboxylate where it is on the side of the first or far from its carbon."""
    mended = []
    for work in residues:
        atoms = [work.find(name) for name in ("CA", "C", "O", "OXT")]
        if None in atoms:
            continue
        carbon, first, second = (atom.position for atom in atoms[1:])
        if np.linalg.norm(second - carbon) < _LONGEST_C_OXT and (first - carbon) @ (second - carbon) < 0:
            continue
        if atoms[2].source < 0:
            atoms[2].position = _beside(work, "OXT")
        else:
            atoms[3].position = _beside(work, "O")
            mended.append(work.label)
    if mended:
        report.sentences.append(
            f"OXT lay far from its carbon or on the side of the other oxygen, and was rebuilt: {listing(mended)}."
        )


def _beside(work: WorkResidue, oxygen: str) -> np.ndarray:
    """Return the free position at a residue's C, opposite Cα and one oxygen."""
    carbon = work.find("C").position
    return opposite(carbon, [work.find("CA").position, work.find(oxygen).position], _C_OXT)


def _correct_built_chirality(work: WorkResidue, template: Any) -> None:
    """Move a built atom at a chiral Cβ to the side that gives it the template's handedness, which pdbfixer does not check."""
    names = ("CB", *_BETA_CENTRES[work.name])
    atoms = [work.find(name) for name in names]
    places = {
        atom.name: np.array(position.value_in_unit(unit.angstrom))
        for atom, position in zip(template.topology.atoms(), template.positions)
    }
    if None in atoms or np.sign(_volume([atom.position for atom in atoms])) == np.sign(
        _volume([places[name] for name in names])
    ):
        return
    built = next(
        (atom for atom in reversed(atoms) if atom.source < 0 and atom.name not in ("CA", "CB")), None
    )
    if built is None:  # the input has it so
        return
    centre = atoms[0].position
    vectors = np.array([atom.position - centre for atom in atoms[1:]])
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    opposite = -(vectors / np.maximum(lengths, _SMALLEST)).sum(axis=0)
    moved = centre + opposite / max(float(np.linalg.norm(opposite)), _SMALLEST) * np.linalg.norm(
        built.position - centre
    )
    beyond = work.find("CD1") if built.name == "CG1" else None
    if beyond is not None:
        beyond.position = beyond.position + moved - built.position
    built.position = moved


def _volume(places: Sequence[np.ndarray]) -> float:
    """Return the signed volume of three neighbours about the first place."""
    return float(np.linalg.det(np.array(places[1:]) - places[0]))


def _add_beta_carbons(residues: list[WorkResidue], fixer: PDBFixer, report: PreparationReport) -> bool:
    """Add Cβ to amino acids that end at Cα; pdbfixer, which builds the rest, puts some of them on the wrong side."""
    added = False
    for residue, atoms in fixer.missingAtoms.items():
        work = residues[residue.index]
        backbone = [work.find(name) for name in ("N", "CA", "C")]
        beyond = {atom.name for atom in work.atoms if not is_hydrogen(atom)} - {"N", "CA", "C", "O", "OXT"}
        if beyond or None in backbone or not any(atom.name == "CB" for atom in atoms):
            continue
        n, ca, c = (atom.position for atom in backbone)
        first, second = ca - n, c - ca
        bisector, normal = second - first, np.cross(first, second)
        if min(np.linalg.norm(bisector), np.linalg.norm(normal)) < _SMALLEST:
            continue
        # A tetrahedron with N and C at two corners: the other two are half the tetrahedral angle from the bisector.
        outward = -bisector / np.linalg.norm(bisector)
        up = normal / np.linalg.norm(normal)
        place = ca + _CA_CB * (np.cos(_HALF_TETRAHEDRAL) * outward - np.sin(_HALF_TETRAHEDRAL) * up)
        work.atoms.append(WorkAtom("CB", app.element.carbon, place))
        report.added_heavy_atoms.setdefault(residue_label(residue), []).append("CB")
        added = True
    return added


# Å and degrees, of nucleic acids at high resolution.
_P_O3, _P_O5, _P_OP = 1.607, 1.593, 1.485
_C_O_P = 120.3
_OP_P_OP = 119.6
FARTHEST_OXYGENS = 4.0
"""Å between O3' and the next O5' up to which a phosphate joins them; in good models they are 2.5 Å apart."""


def add_phosphates(residues: list[WorkResidue]) -> Iterator[tuple[WorkResidue, list[str]]]:
    """Add P, OP1 and OP2 where a nucleotide lacks P or both oxygens, and yield it with the names of added atoms."""
    for previous, work in pairwise(residues):
        has_oxygens = work.find("OP1") is not None or work.find("OP2") is not None
        if work.chain != previous.chain or has_oxygens or not is_standard_polymer(work.name):
            continue
        ends = (previous.find("C3'"), previous.find("O3'"), work.find("O5'"), work.find("C5'"))
        if None in ends:
            continue
        c3, o3, o5, c5 = (atom.position for atom in ends)
        if not 0.5 < np.linalg.norm(o5 - o3) < FARTHEST_OXYGENS:
            continue
        added = (
            [] if work.find("P") is not None else [("P", app.element.phosphorus, _phosphorus(c3, o3, o5, c5))]
        )
        phosphorus = added[0][2] if added else work.find("P").position
        first, second = _oxygens(phosphorus, o3, o5)
        added += [("OP1", app.element.oxygen, first), ("OP2", app.element.oxygen, second)]
        work.atoms += [WorkAtom(*each) for each in added]
        yield work, [name for name, _, _ in added]


def _phosphorus(c3: np.ndarray, o3: np.ndarray, o5: np.ndarray, c5: np.ndarray) -> np.ndarray:
    """Return the position at the right distance from both oxygens with the best angles."""
    axis = o5 - o3
    apart = np.linalg.norm(axis)
    axis /= apart
    along = (apart**2 + _P_O3**2 - _P_O5**2) / (2 * apart)
    radius = np.sqrt(max(_P_O3**2 - along**2, 0.0))
    across = np.cross(axis, np.eye(3)[np.argmin(np.abs(axis))])
    across /= np.linalg.norm(across)
    turns = np.radians(np.arange(0, 360, 5.0))[:, None]
    places = o3 + along * axis + radius * (np.cos(turns) * across + np.sin(turns) * np.cross(axis, across))
    bent = [np.abs(_angles(carbon, oxygen, places) - _C_O_P) for carbon, oxygen in ((c3, o3), (c5, o5))]
    return places[np.argmin(np.maximum(*bent))]


def _oxygens(phosphorus: np.ndarray, o3: np.ndarray, o5: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of OP1 and OP2, the other corners of a tetrahedron."""
    arms = np.array([o3, o5]) - phosphorus
    arms /= np.linalg.norm(arms, axis=1, keepdims=True)
    outward, normal = -arms.sum(axis=0), np.cross(*arms)
    if min(np.linalg.norm(outward), np.linalg.norm(normal)) < 1e-3:  # the oxygens are too far apart
        outward = np.cross(arms[0], np.eye(3)[np.argmin(np.abs(arms[0]))])
        normal = np.cross(arms[0], outward)
    outward, normal = outward / np.linalg.norm(outward), normal / np.linalg.norm(normal)
    half = np.radians(_OP_P_OP / 2)
    first, second = (
        phosphorus + _P_OP * (np.cos(half) * outward + side * np.sin(half) * normal) for side in (1, -1)
    )
    return first, second


def _angles(a: np.ndarray, b: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the angles in degrees at b between a and each of the places."""
    u, v = a - b, places - b
    return np.degrees(np.arccos(np.clip(v @ u / np.linalg.norm(u) / np.linalg.norm(v, axis=1), -1, 1)))
