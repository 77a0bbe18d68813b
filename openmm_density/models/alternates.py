"""Alternate conformers that are not fitted: they are kept and move rigidly with their residue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from .alternate_geometry import AlternateGeometry
from .chemistry.elements import is_hydrogen
from .model import AtomRecord, Model
from .superposition import superposition

# Atoms up to this many bonds away guide an alternate conformer: they preserve bond lengths, angles and torsions at the junction.
REACH = 3

_FRAMES = (("N", "CA", "C"), ("C3'", "C4'", "C5'"))
"""Backbone atoms of amino acids and nucleotides that tell where a residue is, whatever its side chain does."""


def moved_with_residues(model: Model, positions: np.ndarray) -> np.ndarray:
    """Return the positions of the alternate conformers of a model, moved with its fitted atoms.

    Each conformer moves rigidly, by the motion that best superposes the atoms it shares with the fitted one: the atoms of its
    residue without alternates that are at most three bonds from those with; where these are fewer than three, the backbone of
    the fitted conformer; where there is none, the atoms of the same names, and of a single atom, such as a water, its shift.
    Where this strains bonds or angles to what a conformer shares, or to a conformer of the same label in another residue, or
    brings atoms together, `AlternateGeometry` mends them. `positions` (N, 3) of its fitted atoms, in Å. Returns (K, 3), Å.
    """
    alternates = model.alternates
    result = alternates.positions.copy()
    for members, rotation, shift in motions_with_residues(model, positions):
        result[members] = alternates.positions[members] @ rotation.T + shift
    return AlternateGeometry(model).mended(positions, result) if len(alternates) else result


def motions_with_residues(
    model: Model, positions: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the atoms of each alternate conformer, and the rotation and shift by which `moved_with_residues` moves them."""
    alternates = model.alternates
    if not len(alternates):
        return
    residues = list(model.topology.residues())
    wanted = {int(index) for index in alternates.residues}
    bonded: dict[int, set[int]] = defaultdict(set)
    for a, b in model.topology.bonds():
        if a.residue is b.residue and a.residue.index in wanted:
            bonded[a.index].add(b.index)
            bonded[b.index].add(a.index)
    for members in alternates.conformers():
        residue = residues[int(alternates.residues[members[0]])]
        names = {alternates.records[k].name for k in members}
        atoms = [atom.index for atom in residue.atoms() if not is_hydrogen(atom)]
        atoms = atoms or [atom.index for atom in residue.atoms()]
        guides = _guides(model.records, atoms, names, bonded)
        yield members, *superposition(model.positions[guides], positions[guides])


def _guides(
    records: Sequence[AtomRecord], atoms: list[int], names: set[str], bonded: dict[int, set[int]]
) -> list[int]:
    """Return the fitted atoms of a residue that guide a conformer with atoms of these names."""
    shared = [k for k in atoms if not records[k].altloc]
    near = _within(REACH, (k for k in atoms if records[k].altloc and records[k].name in names), bonded)
    frame = [k for k in atoms for frame in _FRAMES if records[k].name in frame]
    common = [k for k in atoms if not records[k].altloc or records[k].name in names]
    choices = [[k for k in shared if k in near], shared, frame, common, atoms]
    return next((choice for choice in choices if len(choice) >= 3), common or atoms)


def _within(reach: int, starts: Iterable[int], bonded: dict[int, set[int]]) -> set[int]:
    """Return what is within a number of bonds of a starting atom."""
    found = set(starts)
    for _ in range(reach):
        found |= {neighbour for k in found for neighbour in bonded[k]}
    return found
