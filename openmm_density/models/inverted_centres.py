"""Stereocentres of the wrong hand in amino acids and nucleotides, which no fit turns over: found, and mirrored before it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..chemistry.elements import is_hydrogen
from ..chemistry.residues import residue_label
from ..chemistry.stereocentres import chiral_centres
from .model import Model

MOST = 0.2
"""Beyond this part of all centres a model is no damaged one, but the mirror image of a molecule."""
LEAST_HEIGHT = 0.35
"""Å of a mirrored centre above the plane of its neighbours, at least: ideal ones are .5 above it."""
_BOND_TO_HYDROGEN = 1.09


def inverted_centres(model: Model) -> list[str]:
    """Return the centres of standard residues that have the wrong hand, as in ``A ILE 45 CB``."""
    atoms = list(model.topology.atoms())
    centres = chiral_centres(model.topology)
    wrong = centres[_heights(model.positions, centres) < 0, 0]
    return [f"{residue_label(atoms[k].residue)} {atoms[k].name}" for k in wrong]


def with_mended_centres(model: Model) -> tuple[Model, list[str]]:
    """Return a model with its inverted centres on the other side of their neighbours' plane, and their names.

    A model most of whose atoms were moved at random has such. What a centre's hydrogen is goes with it; bonds are left to a
    minimisation. Where many centres are inverted (`MOST`) the model stays as it is.

    Parameters
    ----------
    model : Model
    """
    centres = chiral_centres(model.topology)
    heights = _heights(model.positions, centres)
    wrong = np.flatnonzero(heights < 0)
    if not len(wrong) or len(wrong) > MOST * len(centres):
        return model, []
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
    return replace(model, positions=positions), inverted_centres(model)


def _normals(positions: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return the unit normals of the planes of three neighbours, on the side where a centre belongs."""
    a, b, c = (positions[centres[:, k]] for k in (1, 2, 3))
    normals = np.cross(c - a, b - a)
    return normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-6)


def _heights(positions: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return how far (Å) centres are above the planes of their neighbours; negative where the hand is wrong."""
    return ((positions[centres[:, 0]] - positions[centres[:, 1]]) * _normals(positions, centres)).sum(axis=1)
