"""Chiral volumes, and their ideal values from ideal bonds and angles."""

from __future__ import annotations

from typing import Any

import numpy as np

VOLUME_SIGMA = 0.2
"""Å³; REFMAC's standard deviation of chiral volumes."""


def chiral_volumes(positions: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return a · (b × c) of the arms from centres to neighbours, (C,) in Å³; `centres` int (C, 4), the centre first."""
    a, b, c = (positions[centres[:, k]] - positions[centres[:, 0]] for k in (1, 2, 3))
    return np.einsum("ij,ij->i", a, np.cross(b, c))


def ideal_volumes(centres: np.ndarray, bonds: Any, angles: Any, n_atoms: int) -> np.ndarray:
    """Return V = d₁d₂d₃ √(1 - cos²α - cos²β - cos²γ + 2 cos α cos β cos γ) of ideal centres, (C,); NaN if a term is unknown."""
    centre, *arms = centres.T
    product = np.ones(len(centres))
    for arm in arms:
        product *= _looked_up(bonds, np.column_stack([centre, arm]), n_atoms)
    first, second, third = (
        np.cos(_looked_up(angles, np.column_stack([arms[i], centre, arms[j]]), n_atoms))
        for i, j in ((0, 1), (1, 2), (0, 2))
    )
    squared = 1 - first**2 - second**2 - third**2 + 2 * first * second * third
    return product * np.sqrt(np.maximum(squared, 0.0))


def _looked_up(terms: Any, atoms: np.ndarray, n_atoms: int) -> np.ndarray:
    """Return the values of terms of these atoms in either order, NaN where there is none."""
    place = places_of(terms.atoms, atoms, n_atoms)
    return np.where(place < 0, np.nan, np.append(terms.values, np.nan)[place])


def places_of(known: np.ndarray, wanted: np.ndarray, n_atoms: int) -> np.ndarray:
    """Return the index of each bond or angle among known ones, with its atoms in either order; -1 for unknown ones."""
    known, wanted = _keys(known, n_atoms), _keys(wanted, n_atoms)
    order = np.argsort(known, kind="stable")
    found = np.searchsorted(known[order], wanted)
    result = np.full(len(wanted), -1)
    inside = np.flatnonzero(found < len(known))
    at = order[found[inside]]
    result[inside] = np.where(known[at] == wanted[inside], at, -1)
    return result


def _keys(atoms: np.ndarray, n_atoms: int) -> np.ndarray:
    """Return one number per row of atoms, the same for a row in reverse."""
    ends = np.sort(atoms[:, [0, -1]], axis=1)
    keys = ends[:, 0] * n_atoms + ends[:, 1]
    return keys * n_atoms + atoms[:, 1] if atoms.shape[1] == 3 else keys
