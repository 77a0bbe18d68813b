"""Whole molecules, and copies by symmetry operators, in plain PyTorch: the oracles of the kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from ..table_checks import check_indices


def whole_molecules(
    positions: Tensor, particles: Tensor, order: Tensor, offsets: Tensor, references: Tensor, box: Tensor
) -> Tensor:
    """Return what `openmm_density.kernels.molecules.whole_molecules` returns, with the same arguments."""
    check_layout(positions, particles, order, offsets, references, box)
    check_entries(positions.shape[0], particles, order, offsets)
    sizes = offsets.diff()
    molecules = torch.empty_like(order)
    molecules[order] = torch.repeat_interleave(torch.arange(len(sizes), device=order.device), sizes)
    selected = positions.detach()[particles]
    centroids = torch.zeros_like(references).index_add(0, molecules, selected.to(torch.float64))
    away = references - centroids / sizes[:, None]
    lattice = box.to(torch.float64)
    neighbours = torch.cartesian_prod(
        *[torch.tensor([0.0, -1.0, 1.0], dtype=torch.float64, device=box.device)] * 3
    )
    steps = torch.round(away @ torch.linalg.inv(lattice))
    candidates = steps[:, None, :] + neighbours[None, :, :]
    distance = ((away[:, None, :] - candidates @ lattice) ** 2).sum(dim=2)
    best = steps + neighbours[distance.argmin(dim=1)]
    return selected + (best @ lattice)[molecules].to(selected.dtype)


def among_all(values: Tensor, particles: Tensor, count: int) -> Tensor:
    """Return what `openmm_density.kernels.molecules.among_all` returns, with the same arguments."""
    check_rows(values, particles)
    check_particles(particles, count)
    return rows_among_zeros(values, particles, count)


def rows_among_zeros(values: Tensor, particles: Tensor, count: int) -> Tensor:
    """Return the rows of some particles among zeros for all others; the arguments of `among_all`, unchecked."""
    return values.new_zeros(count, 3).index_copy_(0, particles, values.detach())


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


def check_rows(values: Tensor, particles: Tensor) -> None:
    """Check shapes and types of `among_all`'s arguments, of which nothing is read."""
    if values.dim() != 2 or values.shape[1] != 3 or values.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"among_all: values must be a float32 or float64 tensor of shape (M, 3), not {_describe(values)}"
        )
    if particles.shape != values.shape[:1] or particles.dtype != torch.int64:
        raise ValueError(
            f"among_all: particles must be int64 of shape ({len(values)},), as many as values, not {_describe(particles)}"
        )


def check_particles(particles: Tensor, count: int) -> None:
    """Check that particles are among so many."""
    wrong = particles[(particles < 0) | (particles >= count)]
    if wrong.numel():
        raise ValueError(
            f"among_all: particle {int(wrong[0])} is not among the {count}: particles are counted from 0"
        )


def check_layout(
    positions: Tensor, particles: Tensor, order: Tensor, offsets: Tensor, references: Tensor, box: Tensor
) -> None:
    """Check shapes and types of the operator's arguments, of which nothing is read."""
    floats = (torch.float32, torch.float64)
    n_molecules = offsets.numel() - 1
    for valid, problem in (
        (
            positions.dim() == 2 and positions.shape[1] == 3 and positions.dtype in floats,
            f"positions must be a float32 or float64 tensor of shape (N, 3), not {_describe(positions)}",
        ),
        (
            particles.dim() == 1 and particles.dtype == torch.int64,
            f"particles must be int64 of shape (M,), not {_describe(particles)}",
        ),
        (
            order.shape == particles.shape and order.dtype == torch.int64,
            f"order must be int64 of the shape of particles, not {_describe(order)}",
        ),
        (
            offsets.dim() == 1 and offsets.dtype == torch.int64 and n_molecules >= 0,
            f"offsets must be int64 of shape (molecules + 1,), not {_describe(offsets)}",
        ),
        (
            references.shape == (n_molecules, 3) and references.dtype == torch.float64,
            f"references must be float64 of shape (molecules, 3), not {_describe(references)}",
        ),
        (
            box.shape == (3, 3) and box.dtype in floats,
            f"box must be a float32 or float64 tensor of shape (3, 3), not {_describe(box)}",
        ),
    ):
        if not valid:
            raise ValueError(f"whole_molecules: {problem}")


def check_entries(n_particles: int, particles: Tensor, order: Tensor, offsets: Tensor) -> None:
    """Check what the tables hold."""
    wrong = particles[(particles < 0) | (particles >= n_particles)]
    if wrong.numel():
        raise ValueError(
            f"whole_molecules: particle {int(wrong[0])} is not among the {n_particles} positions: "
            "particles are counted from 0"
        )
    n = order.numel()
    if not torch.equal(order.sort().values, torch.arange(n, device=order.device)):
        raise ValueError(f"whole_molecules: order must name each row of particles, 0 to {n - 1}, once")
    if offsets[0] != 0 or offsets[-1] != n or bool((offsets.diff() < 1).any()):
        raise ValueError(f"whole_molecules: offsets must rise from 0 to {n} in steps of at least 1")


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
    """Check that atoms are among so many particles, each named once, by reading them; ValueError names the first that is not."""
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
