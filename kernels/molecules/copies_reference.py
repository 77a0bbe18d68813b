"""Copies by symmetry operators in plain PyTorch: the oracle of the kernels, and the checks of their arguments."""

from __future__ import annotations

import torch
from torch import Tensor

from ..table_checks import check_indices
from .reference import rows_among_zeros


def symmetry_copies(positions: Tensor, atoms: Tensor, rotations: Tensor, translations: Tensor) -> Tensor:
    """Return what `openmm_density.kernels.molecules.symmetry_copies` returns, with the same arguments."""
    check_operators("symmetry_copies", positions, atoms, rotations, translations)
    check_atoms("symmetry_copies", atoms, len(positions))
    own = positions.detach()[atoms].to(torch.float64)
    moved = own @ rotations.mT + translations[:, None, :]
    return moved.reshape(-1, 3).to(positions.dtype)


def folded_copies(gradient: Tensor, atoms: Tensor, rotations: Tensor, count: int) -> Tensor:
    """Return what `openmm_density.kernels.molecules.folded_copies` returns, with the same arguments."""
    check_operators("folded_copies", gradient, atoms, rotations)
    check_atoms("folded_copies", atoms, count)
    of_copies = gradient.detach().to(torch.float64).reshape(len(rotations), -1, 3)
    return rows_among_zeros((of_copies @ rotations).sum(dim=0).to(gradient.dtype), atoms, count)


def check_atoms(operator: str, atoms: Tensor, count: int) -> None:
    """Check that atoms are among so many particles, and each named once; reads them.

    Raises ValueError naming the first that is not.
    """
    check_indices(operator, "atoms", atoms, count, "particles", "they are counted from 0")
    ordered, rows = atoms.sort(stable=True)
    again = rows[1:][ordered[1:] == ordered[:-1]]
    if again.numel():
        raise ValueError(
            f"{operator}: atoms holds index {atoms[again.min()]} twice: an atom has one row of copies"
        )


def check_operators(
    operator: str, of_atoms: Tensor, atoms: Tensor, rotations: Tensor, translations: Tensor | None = None
) -> None:
    """Check shapes and types, of which nothing is read: positions with translations, or the gradient by copies without."""
    n = rotations.shape[0]
    name, rows = (
        ("positions", of_atoms.shape[0]) if translations is not None else ("gradient", n * atoms.numel())
    )
    floats = of_atoms.dtype if of_atoms.dtype in (torch.float32, torch.float64) else torch.float32
    tables = [
        (name, of_atoms, floats, (rows, 3)),
        ("atoms", atoms, torch.int64, (atoms.numel(),)),
        ("rotations", rotations, torch.float64, (n, 3, 3)),
    ]
    if translations is not None:
        tables.append(("translations", translations, torch.float64, (n, 3)))
    for name, table, dtype, shape in tables:
        if table.shape != shape or table.dtype != dtype:
            raise ValueError(
                f"{operator}: {name} must be a tensor of {dtype} of shape {list(shape)}, but has shape {list(table.shape)} "
                f"and type {table.dtype}"
            )
