"""Molecules put back whole beside reference points, from wherever a periodic simulation has wrapped them; and their forces.

OpenMM moves whole molecules by lattice vectors. Each molecule is shifted here by the lattice vector that brings its centroid
nearest to its reference point: a candidate comes of rounding the fractional coordinates, which in a skewed box can be one step
off, and the nearest of the 27 lattice points around it is exact.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..library import define
from . import reference

__all__ = ["among_all", "folded_copies", "symmetry_copies", "whole_molecules"]

whole_molecules_operator = define(
    "whole_molecules(Tensor positions, Tensor particles, Tensor order, Tensor offsets, Tensor references, Tensor box) -> Tensor",
    "molecules",
    reference.whole_molecules,
)

define("among_all(Tensor values, Tensor particles, int count) -> Tensor", "molecules", reference.among_all)


def among_all(values: Tensor, particles: Tensor, count: int) -> Tensor:
    """Put the rows of some particles, such as their forces, among zeros for all others.

    Parameters
    ----------
    values : Tensor, shape (M, 3), float32 or float64
    particles : Tensor, shape (M,), int64
        Which they belong to, each at most once.
    count : int
        N, the number of all particles.

    Returns
    -------
    Tensor, shape (N, 3), of the values' type

    Raises
    ------
    ValueError
        If a shape or type is not as above, or a particle is not among the N.
    """
    return torch.ops.openmm_density.among_all(values, particles, count)


def whole_molecules(
    positions: Tensor, particles: Tensor, order: Tensor, offsets: Tensor, references: Tensor, box: Tensor
) -> Tensor:
    """Select particles, and shift each of their molecules by a lattice vector to its reference point.

    A shift leaves gradients as they are, so the operator has none of its own. The same input gives the same bits for every
    number of threads.

    Parameters
    ----------
    positions : Tensor, shape (N, 3), float32 or float64
        Of all particles, in any unit of length.
    particles : Tensor, shape (M,), int64
        Which are selected.
    order : Tensor, shape (M,), int64
        Rows of ``particles``: those of the first molecule, then of the second, ...
    offsets : Tensor, shape (molecules + 1,), int64
        Molecule m has the rows from ``order[offsets[m]]`` up to ``order[offsets[m + 1]]``, at least one.
    references : Tensor, shape (molecules, 3), float64
        Where each molecule's centroid, over its selected particles, is to be.
    box : Tensor, shape (3, 3), float32 or float64
        Lattice vectors, in rows.

    Returns
    -------
    Tensor, shape (M, 3), of the positions' type
        In the order of ``particles``.

    Raises
    ------
    ValueError
        If a shape or type is not as above, or a table names a row or particle that does not exist.
    """
    return whole_molecules_operator(positions, particles, order, offsets, references, box)


define(
    "symmetry_copies(Tensor positions, Tensor atoms, Tensor rotations, Tensor translations) -> Tensor",
    "molecules",
    reference.symmetry_copies,
)

define(
    "folded_copies(Tensor gradient, Tensor atoms, Tensor rotations, int count) -> Tensor",
    "molecules",
    reference.folded_copies,
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
