"""Copies of atoms that symmetry operators make, and their forces on the atoms that they are copies of.

The copies are x′ = R_g x + t_g, one copy of all atoms after the other. What acts on them acts on the atoms by

    ∂S/∂x = Σ_g R_gᵀ ∂S/∂x_g.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..library import define
from . import copies_reference

__all__ = ["folded_copies", "symmetry_copies"]


define(
    "symmetry_copies(Tensor positions, Tensor atoms, Tensor rotations, Tensor translations) -> Tensor",
    "molecules",
    copies_reference.symmetry_copies,
)

define(
    "folded_copies(Tensor gradient, Tensor atoms, Tensor rotations, int count) -> Tensor",
    "molecules",
    copies_reference.folded_copies,
)


def symmetry_copies(positions: Tensor, atoms: Tensor, rotations: Tensor, translations: Tensor) -> Tensor:
    """Select atoms, and turn and move them by each operator.

    Parameters
    ----------
    positions : Tensor, shape (N, 3), float32 or float64
        Of all particles, in any unit of length.
    atoms : Tensor, shape (M,), int64
        Which have copies, each at most once.
    rotations : Tensor, shape (G, 3, 3), float64
    translations : Tensor, shape (G, 3), float64

    Returns
    -------
    Tensor, shape (G M, 3), of the positions' type
        One copy after the other, worked out in float64.

    Raises
    ------
    ValueError
        If a shape or type is not as above, an atom is not among the N, or one is named twice. Within TorchScript it is a
        RuntimeError.
    """
    return torch.ops.openmm_density.symmetry_copies(positions, atoms, rotations, translations)


def folded_copies(gradient: Tensor, atoms: Tensor, rotations: Tensor, count: int) -> Tensor:
    """Sum the gradients by all copies, turned back, for each atom, and put the sums among zeros for all other particles.

    The same input gives the same bits.

    Parameters
    ----------
    gradient : Tensor, shape (G M, 3), float32 or float64
        By the positions that `symmetry_copies` returned.
    atoms : Tensor, shape (M,), int64
    rotations : Tensor, shape (G, 3, 3), float64
    count : int
        N, the number of all particles.

    Returns
    -------
    Tensor, shape (N, 3), of the gradient's type
        Summed in float64.

    Raises
    ------
    ValueError
        As `symmetry_copies`.
    """
    return torch.ops.openmm_density.folded_copies(gradient, atoms, rotations, count)
