"""Grids in space: the voxels around positions, and the shape of a cell.

A grid is placed as in `openmm_density.maps.DensityMap`: point (i, j, k) lies at ``origin + matrix @ (i, j, k)``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import InputError
from ..base.units import checked_length, in_unit, positions_in_angstrom
from ..base.wording import counted, listing, named_atoms

if TYPE_CHECKING:
    from openmm.app import Topology

STAMPED_VOXELS_AT_ONCE = 1 << 21
MOST_VOXELS = 1 << 30
# Beyond, neighbouring numbers of float64 are no longer one apart.
_LARGEST_INDEX = 2.0**53


def real_numbers(values: Any, argument: str) -> np.ndarray:
    """Return values as an array of real numbers; raise InputError, naming the argument, for any others."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "fiub":
            return array
        found = f"numbers of type {array.dtype}" if array.dtype.kind == "c" else f"{values!r:.80}"
    except ValueError:
        found = "rows of different lengths"
    raise InputError("must be real numbers", argument=argument, found=found, remedy="give an array of them")


def check_grid(data: np.ndarray, matrix: np.ndarray, origin: np.ndarray) -> None:
    """Refuse what is no density on a grid, as `openmm_density.maps.DensityMap` has it."""
    if data.ndim != 3 or data.size == 0:
        raise InputError(
            "must have the shape (nz, ny, nx)",
            argument="data",
            found=data.shape,
            remedy="give one value for each voxel",
        )
    if matrix.shape != (3, 3) or origin.shape != (3,):
        raise InputError(
            "a density map is placed by a matrix of shape (3, 3) and an origin of shape (3,)",
            found=f"{matrix.shape} and {origin.shape}",
            remedy="give these",
        )
    if not np.isfinite(matrix).all() or not np.isfinite(origin).all() or is_flat(matrix):
        raise InputError(
            "must be finite, and its columns three steps that span space",
            argument="matrix",
            found=matrix.tolist(),
            remedy="give the steps along x, y and z in Å, and a finite origin",
        )


def checked_positions(
    positions: Any, n_atoms: int | None = None, topology: Topology | None = None
) -> np.ndarray:
    """Return finite positions in Å as a float64 array of shape (N, 3). `positions` (N, 3): Cartesian positions in Å."""
    positions = positions_in_angstrom(positions, n_atoms)
    if not len(positions):
        raise InputError("are empty", argument="positions", remedy="give at least one")
    check_finite_positions(positions, topology)
    return positions


def check_finite_positions(positions: np.ndarray, topology: Topology | None = None) -> None:
    """Refuse positions of shape (N, 3), one for each atom of a topology, that are NaN or infinite."""
    nowhere = np.flatnonzero(~np.isfinite(positions).all(axis=1))
    if not len(nowhere):
        return
    names = (
        listing([str(atom) for atom in nowhere], 5) if topology is None else named_atoms(topology, nowhere)
    )
    raise InputError(
        "must be finite",
        argument="positions",
        found=f"NaN or infinite coordinates of {counted(len(nowhere), 'atom')} ({names})",
        remedy="correct these",
    )


def checked_voxel_size(voxel_size: Any) -> np.ndarray:
    """Return a voxel size in Å, shape (3,), or () where one is given for all axes."""
    sizes = real_numbers(in_unit(voxel_size, "Å", "voxel_size"), "voxel_size").astype(np.float64)
    if sizes.shape not in ((), (3,)) or not (np.isfinite(sizes).all() and (sizes > 0).all()):
        raise InputError(
            "must be a positive length, or one for each of x, y and z",
            argument="voxel_size",
            found=str(voxel_size),
            remedy="give Å",
        )
    return sizes


def check_finite(data: np.ndarray, name: str) -> None:
    """Raise InputError, naming the map, where a voxel is NaN or infinite."""
    # The sum is NaN or infinite if any voxel is, and needs no array of flags as large as the map.
    if not np.isfinite(data.sum(dtype=np.float64)):
        raise InputError("it has NaN or infinite voxels", source=name, remedy="write it again without them")


def is_flat(matrix: np.ndarray) -> bool:
    """Return whether the three steps, the columns of a matrix of shape (3, 3), do not span space."""
    lengths = np.linalg.norm(matrix, axis=0)
    return not (lengths > 0).all() or abs(np.linalg.det(matrix / lengths)) < 1e-6


def cell_parameters(vectors: np.ndarray) -> tuple[float, float, float, float, float, float]:
    """Return lengths in Å and angles in degrees of the cell whose vectors are the columns, shape (3, 3)."""
    a, b, c = np.linalg.norm(vectors, axis=0)
    cosines = (vectors.T @ vectors) / np.outer((a, b, c), (a, b, c))
    # Without rounding here a right angle comes back as 89.99999999999999.
    alpha, beta, gamma = np.degrees(np.arccos(np.round([cosines[1, 2], cosines[0, 2], cosines[0, 1]], 15)))
    return float(a), float(b), float(c), float(alpha), float(beta), float(gamma)


def index_reach(matrix: np.ndarray, radius: float) -> np.ndarray:
    """Return how many grid steps along each axis a sphere of this radius (Å) reaches, shape (3,)."""
    reach = np.ceil(radius * np.linalg.norm(np.linalg.inv(matrix), axis=1))
    if not (reach <= MOST_VOXELS).all():
        raise InputError(
            f"a radius of {radius:g} Å reaches over {reach.max():g} voxels, more than fits in memory",
            remedy="give a smaller one in Å",
        )
    return reach.astype(int)


def index_box(
    positions: np.ndarray, matrix: np.ndarray, origin: np.ndarray, margin: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return the least box of grid points that holds spheres of radius `margin` around positions (N, 3), in Å."""
    margin = checked_length(margin, "margin")
    inverse = np.linalg.inv(matrix)
    index = (positions - origin) @ inverse.T
    reach = margin * np.linalg.norm(inverse, axis=1)
    start = np.floor(index.min(axis=0) - reach + 1e-9)
    stop = np.ceil(index.max(axis=0) + reach - 1e-9) + 1
    check_span(stop - start)
    if not (np.abs(start) < _LARGEST_INDEX).all():
        raise InputError(
            "are too far from the map to be counted in voxels",
            argument="positions",
            remedy="check that the coordinates are in Å",
        )
    return start.astype(int), stop.astype(int)


def check_span(size: np.ndarray, most: int = MOST_VOXELS) -> None:
    """Raise InputError where a box of this many grid points, shape (3,), is more than fits in memory."""
    # What is infinite, or no number, is not less.
    if not math.prod(map(float, size)) <= most:
        raise InputError(
            f"positions and margin span {' × '.join(f'{n:g}' for n in size)} voxels, more than fits in memory",
            remedy="check that the coordinates are in Å, that no atom has flown off, and that the voxels are not too small",
        )


def voxels_around(
    index: np.ndarray, size: np.ndarray, matrix: np.ndarray, radius: float
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """List the grid points within a radius of each of some points, a bounded number of pairs at a time.

    `index` (N, 3): fractional indices (i, j, k) of the points in a box of the grid; `matrix` (3, 3): its columns are
    the Cartesian steps in Å of the grid; `radius`: distance in Å. Yields `points` int (P,) for each pair, which of the
    N points it belongs to; `voxels` int (P,) for each pair, the grid point's number in the box's C-ordered array of
    shape (nz, ny, nx).
    """
    strides = np.array([1, size[0], size[0] * size[1]])
    corners = np.stack(np.meshgrid(*[[-0.5, 0.5]] * 3), axis=-1).reshape(-1, 3)
    half_diagonal = np.linalg.norm(corners @ matrix.T, axis=1).max()
    reach = index_reach(matrix, radius + half_diagonal)
    offsets = np.stack(np.meshgrid(*[np.arange(-n, n + 1) for n in reach]), axis=-1).reshape(-1, 3)
    steps = offsets @ matrix.T
    square = (steps**2).sum(axis=1)
    near = square <= (radius + half_diagonal) ** 2
    offsets, steps, square = offsets[near] @ strides, steps[near], square[near]
    chunk = max(1, STAMPED_VOXELS_AT_ONCE // len(offsets))
    for first in range(0, len(index), chunk):
        exact = index[first : first + chunk]
        nearest = np.rint(exact)
        shift = (nearest - exact) @ matrix.T
        distance2 = square + 2 * shift @ steps.T + (shift**2).sum(axis=1)[:, None]
        # A grid point at exactly the radius must count, whatever the rounding of its distance.
        points, which = np.nonzero(distance2 <= radius**2 + 1e-9)
        yield points + first, (nearest.astype(np.int64) @ strides)[points] + offsets[which]
