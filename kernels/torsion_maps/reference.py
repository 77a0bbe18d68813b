"""Maps of two torsions in plain PyTorch and float64: slow, and the oracle of the kernels."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..table_checks import check_indices, check_positions, rises

ATOMS_PER_TERM = 5
COLLINEARITY_LIMIT = 1e-12
"""The squared sine of the angle between two bonds up to which they are on a line."""


def torsion_maps(
    positions: Tensor,
    members: Tensor,
    map_of_term: Tensor,
    handedness: Tensor,
    atom_offsets: Tensor,
    atom_members: Tensor,
    nodes: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return what the operator returns; the tables of atoms are checked and not used, as autograd adds to the atoms by index."""
    tables = (members, map_of_term, handedness, atom_offsets, atom_members, nodes)
    check_layout(positions, *tables)
    check_entries(positions.shape[0], *tables)
    with torch.enable_grad():
        x = positions.detach().to(torch.float64).requires_grad_()
        usable = _usable(x.detach()[members.long()])
        corners, signs = x[members[usable].long()], handedness[usable].to(torch.float64)
        phi, psi = signs * torsions(corners[:, :4]), signs * torsions(corners[:, 1:])
        energy = interpolated(nodes, map_of_term[usable].long(), phi, psi).sum()
        (gradient,) = torch.autograd.grad(energy, x)
    return energy.detach(), gradient.to(positions.dtype)


def torsions(corners: Tensor) -> Tensor:
    """Return torsions in radians of four points each, (T, 4, 3)."""
    first, middle, last = corners.diff(dim=1).unbind(1)
    a, b = torch.linalg.cross(first, middle), torch.linalg.cross(middle, last)
    return torch.atan2((torch.linalg.cross(a, b) * middle).sum(-1) / middle.norm(dim=-1), (a * b).sum(-1))


def interpolated(nodes: Tensor, map_of_term: Tensor, phi: Tensor, psi: Tensor) -> Tensor:
    """Return the value of each term's map at its two angles in radians, by the formula of __init__.py."""
    n = nodes.shape[1]
    rows, columns = ((angle + math.pi) * (n / (2 * math.pi)) for angle in (phi, psi))
    i, j = (place.detach().floor() for place in (rows, columns))
    along_rows, along_columns = _hermite(rows - i), _hermite(columns - j)
    value = torch.zeros_like(phi)
    for a in range(2):
        for b in range(2):
            node = nodes[map_of_term, (i.long() + a) % n, (j.long() + b) % n].to(torch.float64)
            for k in range(4):
                value = value + node[:, k] * along_rows[a][k % 2] * along_columns[b][k // 2]
    return value


def _hermite(u: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return the polynomials of value and slope at the lower and at the upper end of a cell."""
    upper = u * u * (3 - 2 * u)
    return (1 - upper, u * (1 - u) ** 2), (upper, u * u * (u - 1))


def _usable(corners: Tensor) -> Tensor:
    """Tell which terms (T, 5, 3) have both torsions."""
    bonds = corners.diff(dim=1)
    normals = torch.linalg.cross(bonds[:, :-1], bonds[:, 1:])
    lengths = bonds.square().sum(-1)
    limits = COLLINEARITY_LIMIT * lengths[:, :-1] * lengths[:, 1:]
    return (normals.square().sum(-1) > limits).all(-1) & corners.isfinite().all(-1).all(-1)


def check_layout(
    positions: Tensor,
    members: Tensor,
    map_of_term: Tensor,
    handedness: Tensor,
    atom_offsets: Tensor,
    atom_members: Tensor,
    nodes: Tensor,
) -> None:
    """Check shapes and types of the operator's arguments, of which nothing is read."""
    check_positions("torsion_maps", positions)
    n = map_of_term.numel()
    for name, table, dtype, shape in (
        ("members", members, torch.int32, (n, ATOMS_PER_TERM)),
        ("map_of_term", map_of_term, torch.int32, (n,)),
        ("handedness", handedness, torch.float32, (n,)),
        ("atom_offsets", atom_offsets, torch.int32, (atom_offsets.numel(),)),
        ("atom_members", atom_members, torch.int32, (n * ATOMS_PER_TERM,)),
    ):
        if table.shape != shape or table.dtype != dtype or not table.is_contiguous():
            raise ValueError(
                f"torsion_maps: {name} must be a contiguous tensor of {dtype} of shape {list(shape)}, but has shape "
                f"{list(table.shape)} and type {table.dtype}: take all tables from one pack_torsions"
            )
    square = nodes.dim() == 4 and nodes.shape[1] == nodes.shape[2] > 0 and nodes.shape[3] == 4
    if not square or nodes.dtype != torch.float32 or not nodes.is_contiguous():
        raise ValueError(
            "torsion_maps: nodes must be a contiguous tensor of torch.float32 of shape (maps, n, n, 4), but have shape "
            f"{list(nodes.shape)} and type {nodes.dtype}: take them from spline_nodes"
        )


def check_entries(
    n_atoms: int,
    members: Tensor,
    map_of_term: Tensor,
    handedness: Tensor,
    atom_offsets: Tensor,
    atom_members: Tensor,
    nodes: Tensor,
) -> None:
    """Check what the tables hold, with ``n_atoms`` positions."""
    n_members = members.numel()
    if not rises(atom_offsets, n_members):
        raise ValueError(
            f"torsion_maps: atom_offsets must rise from 0 to {n_members}: take it from pack_torsions"
        )
    for name, entries, limit, of in (
        ("members", members, n_atoms, "positions"),
        ("map_of_term", map_of_term, nodes.shape[0], "maps"),
        ("atom_members", atom_members, n_members, "members"),
    ):
        remedy = "give the positions and maps that the terms were packed for"
        check_indices("torsion_maps", name, entries, limit, of, remedy)
