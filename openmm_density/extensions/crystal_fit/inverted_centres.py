"""Stereocentres of the wrong chirality in amino acids and nucleotides, which no fit turns over: found, and mirrored before it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...base.wording import residue_label
from ...models.chemistry.elements import is_hydrogen
from ...models.chemistry.stereocentres import chiral_centres
from ...models.model import Model

MOST = 0.2
"""Beyond this part of all centres a model is no damaged one, but the mirror image of a molecule."""
WELL_FORMED = (0.08, 8.0)
"""Å and degrees by which bonds and angles may be off at the Cα of a D-amino acid; one that was moved there has worse."""
LEAST_HEIGHT = 0.35
"""Å of a mirrored centre above the plane of its neighbours, at least: ideal ones are 0.5 above it."""
_BOND_TO_HYDROGEN = 1.09
# Å, to N, C and Cβ.
_ALPHA_BONDS = (1.46, 1.525, 1.53)


def inverted_centres(model: Model) -> list[str]:
    """Return the centres of standard residues that have the wrong chirality, as in ``A ILE 45 CB``."""
    atoms = list(model.topology.atoms())
    centres = chiral_centres(model.topology)
    wrong = centres[_heights(model.positions, centres) < 0, 0]
    return [f"{residue_label(atoms[k].residue)} {atoms[k].name}" for k in wrong]


def with_mended_centres(model: Model) -> tuple[Model, list[str]]:
    """Return a model with its inverted centres on the other side of their neighbours' plane, and their names.

    A model most of whose atoms were moved at random has such; a Cα with the geometry of a D-amino acid stays. What a centre's
    hydrogen is goes with it; bonds are left to a minimisation. Where many centres are inverted (`MOST`) the model stays as it is.
    """
    centres = chiral_centres(model.topology)
    heights = _heights(model.positions, centres)
    inverted = heights < 0
    wrong = np.flatnonzero(inverted & ~_of_d_amino_acids(model, centres))
    if not len(wrong) or inverted.sum() > MOST * len(centres):
        return model, []
    atoms = list(model.topology.atoms())
    hydrogens: dict[int, list[int]] = {}
    for a, b in model.topology.bonds():
        for one, other in ((a, b), (b, a)):
            if is_hydrogen(other):
                hydrogens.setdefault(one.index, []).append(other.index)
    positions = model.positions.copy()
    for number in wrong:
        centre = int(centres[number, 0])
        normal = _normals(positions, centres[[number]])[0]
        foot = positions[centre] - heights[number] * normal
        positions[centre] = foot + max(-heights[number], LEAST_HEIGHT) * normal
        for hydrogen in hydrogens.get(centre, []):
            positions[hydrogen] = positions[centre] + _BOND_TO_HYDROGEN * normal
    names = [f"{residue_label(atoms[k].residue)} {atoms[k].name}" for k in centres[wrong, 0]]
    return replace(model, positions=positions), names


def _of_d_amino_acids(model: Model, centres: np.ndarray) -> np.ndarray:
    """Return which centres are Cα with good bonds and angles to N, C and Cβ."""
    atoms = list(model.topology.atoms())
    arms = model.positions[centres[:, 1:]] - model.positions[centres[:, :1]]
    lengths = np.linalg.norm(arms, axis=2)
    arms /= np.maximum(lengths, 1e-6)[:, :, None]
    cosines = np.stack([(arms[:, a] * arms[:, b]).sum(axis=1) for a, b in ((0, 1), (0, 2), (1, 2))], axis=1)
    angles = np.degrees(np.arccos(np.clip(cosines, -1, 1)))
    bond, angle = WELL_FORMED
    well_formed = (np.abs(lengths - _ALPHA_BONDS) < bond).all(axis=1) & (np.abs(angles - 110.5) < angle).all(
        axis=1
    )
    return well_formed & np.array([atoms[k].name == "CA" for k in centres[:, 0]], dtype=bool)


def _normals(positions: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return the unit normals of the planes of three neighbours, on the side where a centre belongs."""
    a, b, c = (positions[centres[:, k]] for k in (1, 2, 3))
    normals = np.cross(c - a, b - a)
    return normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-6)


def _heights(positions: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return how far (Å) centres are above the planes of their neighbours; negative where the hand is wrong."""
    return ((positions[centres[:, 0]] - positions[centres[:, 1]]) * _normals(positions, centres)).sum(axis=1)
