"""How well a map determines B factors: their standard deviations, and what of them is the map's and not the restraints'."""

from __future__ import annotations

import math

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree

from .refinement import Refined, Refinement

MOST_AT_ONCE = 1500
"""B factors of a block whose covariance is inverted: what two blocks have in common is left out."""
ATOMS_AT_ONCE = 256
"""Whose overlaps with all others are in memory: at 10 Å some ten thousand each."""
_SHELLS = 16
_REACH_PER_RESOLUTION = 2.5


def uncertainties(
    refinement: Refinement, found: Refined, positions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return how well each B factor of a level is determined.

    The second derivatives of the residual are taken without those of the density's own (Gauss-Newton), from overlaps of the
    atoms in Fourier space up to the resolution, which the mask does not cut. `positions` (M, 3) of the scattering atoms in Å.
    Returns `deviations` (G,): standard deviations in Å², of map and restraints together; `determined` (G,) from 0 (the
    restraints alone) to 1 (the map alone): 1 − variance / variance without the map.
    """
    prior = refinement.level.precision().tocsc()
    information = _information(refinement, found, positions)
    n = refinement.level.n_groups
    variances, without = np.empty(n), np.empty(n)
    for first in range(0, n, MOST_AT_ONCE):
        block = slice(first, min(first + MOST_AT_ONCE, n))
        held = prior[block, block].toarray()
        seen = held + information[block, block].toarray()
        variances[block] = np.diag(np.linalg.inv(seen))
        without[block] = np.diag(np.linalg.inv(held))
    width = np.exp(found.logarithms)
    return width * np.sqrt(variances), np.clip(1 - variances / without, 0, 1)


def occupancy_deviations(refinement: Refinement, found: Refined, positions: np.ndarray) -> np.ndarray:
    """Return the standard deviation of each group's occupancy (Q,), with what its B factor leaves open of it."""
    level = refinement.level
    b_factors = refinement.b_factors(found.logarithms)
    s, ds = _shells(refinement.masked.resolution)
    amplitude = refinement.scatterers.form_factors(s**2) * np.exp(-b_factors[:, None] * s**2 / 4)
    occupancies = refinement.occupancies(found.occupancies)
    by_width = -(s**2) / 4 * amplitude * (occupancies * (b_factors + refinement.shift))[:, None]
    prior = refinement.level.precision().diagonal()
    factor = _factor(refinement, found)
    deviations = []
    for members in refinement.groups.members:
        distance = np.linalg.norm(positions[members][:, None] - positions[members], axis=2)
        both = np.stack([amplitude[members], by_width[members]])
        widths = np.unique(level.group_of_atom[members])
        seen = np.zeros((2, 2))
        for k in range(_SHELLS):
            shell = 4 * math.pi * s[k] ** 2 * ds[k] * np.sinc(2 * s[k] * distance)
            seen += both[:, :, k] @ shell @ both[:, :, k].T
        seen *= factor
        # One B factor for the group: as firmly held as the least held of its residues.
        seen[1, 1] += prior[widths].min()
        seen[0, 0] += 1.0  # from 0 to 1
        deviations.append(math.sqrt(np.linalg.inv(seen)[0, 0]))
    return np.array(deviations)


def _factor(refinement: Refinement, found: Refined) -> float:
    """Return what turns an integral over reciprocal space of products of derivatives into those of the cost."""
    masked, agreement = refinement.masked, found.agreement
    return agreement.scale**2 * masked.n_observations / masked.squares_left(agreement)


def _shells(resolution: float) -> tuple[np.ndarray, np.ndarray]:
    """Return frequencies up to a resolution and their weights in an integral."""
    nodes, weights = np.polynomial.legendre.leggauss(_SHELLS)
    return (nodes + 1) / (2 * resolution), weights / (2 * resolution)


def _information(refinement: Refinement, found: Refined, positions: np.ndarray) -> sparse.csc_matrix:
    """Return the second derivatives of n/2 · ln(residual) with respect to the logarithms."""
    masked, level = refinement.masked, refinement.level
    s, ds = _shells(masked.resolution)
    b_factors = refinement.b_factors(found.logarithms)
    occupancies = refinement.occupancies(found.occupancies)
    # Of a density with respect to ln(B + shift) of its atom, in Fourier space.
    derivative = (
        -(s**2) / 4 * refinement.scatterers.form_factors(s**2) * np.exp(-b_factors[:, None] * s**2 / 4)
    )
    derivative *= (occupancies * (b_factors + refinement.shift))[:, None]
    reach = _REACH_PER_RESOLUTION * masked.resolution
    tree, group, n = cKDTree(positions), level.group_of_atom, level.n_groups
    information = sparse.csc_matrix((n, n))
    for first in range(0, len(positions), ATOMS_AT_ONCE):
        part = cKDTree(positions[first : first + ATOMS_AT_ONCE])
        pairs = part.sparse_distance_matrix(tree, reach, output_type="ndarray")
        i, j, distance = pairs["i"] + first, pairs["j"], pairs["v"]
        overlap = np.zeros(len(pairs))
        for k in range(_SHELLS):
            shell = 4 * math.pi * s[k] ** 2 * ds[k] * np.sinc(2 * s[k] * distance)
            overlap += shell * derivative[i, k] * derivative[j, k]
        # Wendland's function, which is positive definite: so is what is left of the overlaps.
        near = distance / reach
        overlap *= (1 - near) ** 4 * (4 * near + 1)
        information += sparse.csc_matrix((overlap, (group[i], group[j])), shape=(n, n))
    return _factor(refinement, found) * information
