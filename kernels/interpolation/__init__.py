"""A map as a potential: tricubic interpolation at the atoms, with the exact gradient.

Keys' cubic convolution (R. G. Keys, IEEE Trans. Acoust. Speech Signal Process. 29, 1153, 1981; a = −1/2, also known as
Catmull-Rom) passes through the voxels and is continuously differentiable; each value takes the 64 voxels around an atom.
Voxels outside a finite map count as 0, so a map with two layers of zeros around it falls off smoothly.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..autograd import with_derivative, with_scale
from ..library import define
from . import reference

__all__ = ["map_potential"]


def map_potential(
    positions: Tensor,
    atoms: Tensor,
    weights: Tensor,
    potential: Tensor,
    matrix: Tensor,
    origin: Tensor,
    periodic: bool,
) -> tuple[Tensor, Tensor]:
    """Average an interpolated map u over the atoms: S = Σ w u(**x**) / Σ w.

    Autograd differentiates S with respect to the positions, once. It does not know the operator itself,
    ``torch.ops.openmm_density.map_potential``, which is what a module for a simulation calls.

    Any unit of length serves, as long as positions, matrix and origin share it. Atoms with a NaN or infinite coordinate, or
    outside a finite map, contribute 0 and have no gradient.

    Parameters
    ----------
    positions : Tensor, shape (N, 3), float32 or float64
        Of all particles.
    atoms : Tensor, shape (M,), int64
        The particles that feel the map, each at most once.
    weights : Tensor, shape (M,), float32
    potential : Tensor, shape (nz, ny, nx), float32, contiguous
        u at the voxels.
    matrix : Tensor, shape (3, 3), float64
        Its columns are the steps from voxel to voxel along x, y and z.
    origin : Tensor, shape (3,), float64
        Where voxel (0, 0, 0) is.
    periodic : bool
        Whether the grid is one cell of a crystal.

    Returns
    -------
    similarity : Tensor, shape (), float64
    gradient : Tensor, shape (N, 3)
        ∂S/∂positions in the dtype of the positions.
    """
    with torch.no_grad():
        similarity, gradient = torch.ops.openmm_density.map_potential(
            positions, atoms, weights, potential, matrix, origin, periodic
        )
    return with_derivative(similarity, gradient, positions), gradient


define(
    "map_potential(Tensor positions, Tensor atoms, Tensor weights, Tensor potential, Tensor matrix, Tensor origin, "
    "bool periodic, Tensor? scale=None) -> (Tensor, Tensor)",
    "interpolation",
    with_scale(reference.map_potential),
)
