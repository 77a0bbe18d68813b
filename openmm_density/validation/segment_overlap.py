"""SMOC: how much of the density around each residue, with its neighbours in the sequence, a model explains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.units import resolution_in_angstrom, takes_units
from ..maps.checks import check_map
from ..maps.grids import checked_positions, index_box, voxels_around
from ..models.chemistry.elements import is_hydrogen
from ..models.chemistry.residues import residue_kind

if TYPE_CHECKING:
    from openmm.app import Topology

    from ..maps.density_map import DensityMap

WINDOW = 11
"""Residues, the one in question in their middle."""
SIGMA_PER_RESOLUTION = 0.225
"""Width of an atom's Gaussian."""
_REACH, _LEAST_WIDTH = 2.5, 1.0
_CUT = 4.0


@takes_units("positions", "resolution")
def segment_overlap(
    density_map: DensityMap, topology: Topology, positions: Any, resolution: Any, *, window: int = WINDOW
) -> np.ndarray:
    """Return the segment-based Manders' overlap coefficient (SMOC) of each residue of a polymer.

    Σ ρ ρ_m / √(Σ ρ² Σ ρ_m²), ρ the map and ρ_m the model (each atom a Gaussian of its mass with σ = 0.225 d), over the voxels
    around the atoms of the residue and of those beside it in an unbroken stretch of its chain: within 2.5 σ of them, 2.5 Å at
    least. TEMPy shifts and scales ρ_m over the whole box first, so that its figure depends on the box; this one is the
    published formula.

    Parameters
    ----------
    density_map : DensityMap
        The map.
    topology : openmm.app.Topology
        Names the N atoms; those but hydrogens count.
    positions : Quantity or array_like, shape (N, 3)
        Cartesian positions in Å.
    resolution : float or Quantity
        d in Å.
    window : int
        Residues that count for one, an odd number.

    Returns
    -------
    np.ndarray of float64, shape (n_residues,)
        NaN for what is no polymer, and away from the map.

    Raises
    ------
    InputError
        If positions and topology disagree, or the resolution makes no sense.

    References
    ----------
    A. P. Joseph et al., Methods 100, 42 (2016).
    """
    check_map(density_map)
    sigma = SIGMA_PER_RESOLUTION * resolution_in_angstrom(resolution)
    positions = checked_positions(positions, topology.getNumAtoms(), topology)
    atoms = list(topology.atoms())
    heavy = np.array(
        [atom.index for atom in atoms if atom.element is not None and not is_hydrogen(atom)], dtype=np.int64
    )
    reach = _REACH * max(sigma, _LEAST_WIDTH)
    margin = max(_CUT * sigma, reach)
    start, stop = index_box(positions[heavy], density_map.matrix, density_map.origin, margin)
    index = density_map.to_index(positions[heavy]) - start
    masses = np.array([atoms[i].element.mass._value for i in heavy])
    model = _gaussians(index, stop - start, density_map.matrix, masses, sigma)
    observed, known = _on_box(density_map, start, stop - start)
    places = _places(topology, window)
    of_atoms = places[[atoms[i].residue.index for i in heavy]]
    pairs = _near(index[of_atoms >= 0], of_atoms[of_atoms >= 0], stop - start, density_map.matrix, reach)
    pairs = pairs[known[pairs[:, 0]]]
    a, b = observed[pairs[:, 0]], model[pairs[:, 0]]
    sums = _over_windows(pairs, np.stack([a * b, a * a, b * b]), int(places.max(initial=0)) + 1, window)
    with np.errstate(invalid="ignore", divide="ignore"):
        scores = sums[0] / np.sqrt(sums[1] * sums[2])
    return np.where(places >= 0, scores[np.maximum(places, 0)], np.nan) if len(scores) else places * np.nan


def _on_box(density_map: DensityMap, start: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a map's values on the points of a box, and which of them it has, by the points' numbers."""
    observed, known = np.zeros(size[::-1]), np.zeros(size[::-1], dtype=bool)
    on_map, of_box = density_map.overlap(start, size)
    observed[of_box], known[of_box] = density_map.data[on_map], True
    return observed.reshape(-1), known.reshape(-1)


def _gaussians(
    index: np.ndarray, size: np.ndarray, matrix: np.ndarray, weights: np.ndarray, sigma: float
) -> np.ndarray:
    """Return Gaussians on the points of a box, cut at 4 σ, by the points' numbers."""
    total = np.zeros(int(size.prod()))
    for points, voxels in voxels_around(index, size, matrix, _CUT * sigma):
        k, rest = np.divmod(voxels, size[0] * size[1])
        j, i = np.divmod(rest, size[0])
        away = (np.stack([i, j, k], axis=1) - index[points]) @ matrix.T
        values = weights[points] * np.exp(-0.5 * np.einsum("ij,ij->i", away, away) / sigma**2)
        total += np.bincount(voxels, values, len(total))
    return total


def _places(topology: Topology, window: int) -> np.ndarray:
    """Number the residues of polymers so that those of different stretches are at least a window apart; -1 for others."""
    places = np.full(topology.getNumResidues(), -1, dtype=np.int64)
    place, before = -1, None
    for residue in topology.residues():
        if residue_kind(residue) != "polymer":
            continue
        follows = (
            before is not None
            and before.chain is residue.chain
            and residue.id.lstrip("-").isdigit()
            and before.id.lstrip("-").isdigit()
            and 0 <= int(residue.id) - int(before.id) <= 1
        )
        place += 1 if follows else window
        places[residue.index] = place
        before = residue
    return places


def _near(
    index: np.ndarray, places: np.ndarray, size: np.ndarray, matrix: np.ndarray, reach: float
) -> np.ndarray:
    """Return the voxels near residues, each with the place of one, sorted by both; shape (P, 2)."""
    last = int(places.max(initial=0)) + 1
    numbers = [
        _distinct(voxels * last + places[points])
        for points, voxels in voxels_around(index, size, matrix, reach)
    ]
    together = _distinct(np.concatenate(numbers)) if numbers else np.empty(0, dtype=np.int64)
    return np.stack(np.divmod(together, last), axis=1)


def _distinct(numbers: np.ndarray) -> np.ndarray:
    # np.unique hashes, which takes longer.
    numbers = np.sort(numbers)
    return numbers[np.diff(numbers, prepend=-1) > 0]


def _over_windows(pairs: np.ndarray, values: np.ndarray, n_places: int, window: int) -> np.ndarray:
    """Sum values over the voxels near any residue of a window, each voxel once; shape (values, places), by the window's middle.

    A voxel that residues at p < q are near, none between them, counts for q in the windows that begin behind p and not before
    q - window + 1.
    """
    voxels, places = pairs.T
    before = np.full(len(pairs), -window, dtype=np.int64)
    same = np.flatnonzero(voxels[1:] == voxels[:-1])
    before[same + 1] = places[same]
    first = np.maximum(before + 1, places - window + 1)
    # Windows at a stretch's beginning begin before it.
    steps = np.stack(
        [
            np.bincount(first + window, each, n_places + 2 * window)
            - np.bincount(places + 1 + window, each, n_places + 2 * window)
            for each in values
        ]
    )
    by_beginning = np.cumsum(steps, axis=1)
    return by_beginning[:, window - window // 2 :][:, :n_places]
