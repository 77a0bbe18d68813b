"""Planarity in plain PyTorch and float64: slow, and the oracle of the kernels."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..table_checks import check_indices, check_positions, rises

SMALLEST_PLANE = 4
# Second over third eigenvalue: a plane a million times longer than wide is a line, and has no normal.
COLLINEARITY_LIMIT = 1e-12


def planarity(
    positions: Tensor,
    members: Tensor,
    offsets: Tensor,
    inverse_sigmas: Tensor,
    atom_offsets: Tensor,
    atom_members: Tensor,
    constants: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return what the operator returns; the tables of atoms are checked and not used, as PyTorch adds to the atoms by index."""
    tables = (members, offsets, inverse_sigmas, atom_offsets, atom_members)
    check_layout(positions, *tables)
    check_entries(positions.shape[0], *tables)
    x = positions.detach().to(torch.float64)
    energy = x.new_zeros(())
    gradient = torch.zeros_like(x)
    for slots in _slots_by_size(offsets):
        atoms = members[slots].long()
        inverse_sigma = inverse_sigmas[slots].to(torch.float64)
        distance, normal = fit_planes(x[atoms], inverse_sigma)
        energy += 0.5 * (distance * inverse_sigma).square().sum()
        slope = distance * inverse_sigma.square()
        gradient.index_add_(0, atoms.flatten(), (slope[..., None] * normal[:, None, :]).flatten(0, 1))
    if constants:
        energy += (0.5 * math.log(2.0 * math.pi) - inverse_sigmas.to(torch.float64).log()).sum()
    return energy, gradient.to(positions.dtype)


def deviations(positions: Tensor, members: Tensor, offsets: Tensor, inverse_sigmas: Tensor) -> Tensor:
    """Measure the signed distance of every member from the plane of its group.

    `positions` (N, 3): atoms, in the unit of length of the sigmas; `members`, `offsets`, `inverse_sigmas` as
    `pack_planes` returns them. Returns float64 (M,), in the order of ``members``; 0 in a group that has no plane:
    collinear, coincident or not finite.
    """
    x = positions.detach().to(torch.float64)
    result = x.new_zeros(members.shape)
    for slots in _slots_by_size(offsets):
        result[slots] = fit_planes(x[members[slots].long()], inverse_sigmas[slots].to(torch.float64))[0]
    return result


def fit_planes(coordinates: Tensor, inverse_sigma: Tensor) -> tuple[Tensor, Tensor]:
    """Return distances (P, n) and normals (P, 3), 0 without a plane, of groups (P, n, 3), weighted by 1/σ, float64."""
    weight = inverse_sigma.square()
    centroid = (weight[..., None] * coordinates).sum(1) / weight.sum(1, keepdim=True)
    centred = coordinates - centroid[:, None, :]
    covariance = torch.einsum("pa,pai,paj->pij", weight, centred, centred)
    finite = covariance.isfinite().all(-1).all(-1)
    eigenvalues, eigenvectors = torch.linalg.eigh(torch.where(finite[:, None, None], covariance, 0.0))
    has_normal = finite & (eigenvalues[:, 1] > COLLINEARITY_LIMIT * eigenvalues[:, 2])
    normal = torch.where(has_normal[:, None], eigenvectors[..., 0], 0.0)
    centred = torch.where(has_normal[:, None, None], centred, 0.0)
    return torch.einsum("pai,pi->pa", centred, normal), normal


def _slots_by_size(offsets: Tensor) -> list[Tensor]:
    """Return, for each size n, where in ``members`` the planes of that size stand, as (P, n)."""
    sizes = offsets.diff()
    first = offsets[:-1]
    return [
        first[sizes == size][:, None].long() + torch.arange(size, device=offsets.device)
        for size in sizes.unique().tolist()
    ]


def check_layout(
    positions: Tensor,
    members: Tensor,
    offsets: Tensor,
    inverse_sigmas: Tensor,
    atom_offsets: Tensor,
    atom_members: Tensor,
) -> None:
    """Check shapes and types of the operator's arguments, of which nothing is read."""
    check_positions("planarity", positions)
    tables = {"members": members, "offsets": offsets, "inverse_sigmas": inverse_sigmas}
    tables |= {"atom_offsets": atom_offsets, "atom_members": atom_members}
    for name, table in tables.items():
        dtype = torch.float32 if name == "inverse_sigmas" else torch.int32
        if table.dim() != 1 or table.dtype != dtype or not table.is_contiguous():
            raise ValueError(
                f"planarity: {name} must be a contiguous one-dimensional tensor of {dtype}, but has shape "
                f"{list(table.shape)} and type {table.dtype}: take it from pack_planes"
            )
    n_members = members.numel()
    if not n_members == inverse_sigmas.numel() == atom_members.numel():
        raise ValueError(
            f"planarity: {n_members} members need as many inverse_sigmas and atom_members, but there are "
            f"{inverse_sigmas.numel()} and {atom_members.numel()}: take all tables from one pack_planes"
        )


def check_entries(
    n_atoms: int,
    members: Tensor,
    offsets: Tensor,
    inverse_sigmas: Tensor,
    atom_offsets: Tensor,
    atom_members: Tensor,
) -> None:
    """Check what the tables hold, with ``n_atoms`` positions."""
    n_members = members.numel()
    for name, values, smallest_step in (
        ("offsets", offsets, SMALLEST_PLANE),
        ("atom_offsets", atom_offsets, 0),
    ):
        if not rises(values, n_members, smallest_step):
            raise ValueError(
                f"planarity: {name} must rise from 0 to {n_members} in steps of at least {smallest_step}: "
                "take it from pack_planes"
            )
    for name, entries, limit, of in (
        ("members", members, n_atoms, "positions"),
        ("atom_members", atom_members, n_members, "members"),
    ):
        remedy = "give the positions of all atoms that the planes were packed for"
        check_indices("planarity", name, entries, limit, of, remedy)
