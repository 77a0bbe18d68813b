"""Neighbour lists by brute force: every atom with every image of every other, in float64."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from ..table_checks import check_positions, check_reach, check_tables

# How many boxes away an atom may be, and how many of the box's smallest heights the cut-off may be long.
FARTHEST_BOX = 200
MOST_HEIGHTS = 100
# The largest coordinate: its square, and that of a distance, is a float32.
FARTHEST = 1e18
# Pairs and images whose distances are worked out together.
_AT_ONCE = 200_000


def packed(steps: Tensor) -> Tensor:
    """Return steps (M, 3) along the lattice vectors as one number each, int32."""
    return (steps[:, 0] + 1024 * steps[:, 1] + 1048576 * steps[:, 2]).to(torch.int32)


def unpacked(shifts: Tensor) -> Tensor:
    """Return the steps (M, 3), int64, that `packed` made one number each."""
    code = shifts.long()
    x = ((code + 512) & 1023) - 512
    code = (code - x) >> 10
    y = ((code + 512) & 1023) - 512
    return torch.stack([x, y, (code - y) >> 10], dim=1)


def neighbors(
    positions: Tensor, box: Tensor | None, cutoff: float, both_ways: bool = False, capacity: int | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what the operator returns; a pair listed once is in its smaller index's row, sorted by neighbour, then shift."""
    check_call(positions, box, cutoff, 0.0)
    if capacity is not None and not 0 <= capacity < 2**31:
        raise ValueError(f"neighbors: capacity must be from 0 to 2^31 - 1, not {capacity}")
    first, second, shifts, n_lost = _search(positions, box, cutoff, both_ways)
    room = first.numel() if capacity is None else capacity
    offsets = positions.new_empty((positions.shape[0] + 1,), dtype=torch.int32)
    table = [positions.new_zeros((room,), dtype=torch.int32) for _ in range(2)]
    _store(first, second, shifts, offsets, *table)
    status = torch.tensor([first.numel(), n_lost, 1], device=positions.device)
    return offsets, *table, status


def update_neighbors(
    positions: Tensor,
    box: Tensor | None,
    cutoff: float,
    skin: float,
    both_ways: bool,
    offsets: Tensor,
    neighbors: Tensor,
    shifts: Tensor,
    status: Tensor,
    built_positions: Tensor,
    built_box: Tensor,
) -> None:
    """Do what `openmm_density.kernels.neighbors.update_neighbors` does, with the same arguments."""
    check_call(positions, box, cutoff, skin)
    check_list(positions, offsets, neighbors, shifts, status, built_positions, built_box)
    lattice = torch.zeros_like(built_box) if box is None else box.double()
    same_box = torch.equal(lattice, built_box)
    moved = (positions.double() - built_positions.double()).square().sum(dim=1)
    if skin > 0 and status[2] > 0 and same_box and bool((moved < (skin / 2) ** 2).all()):
        return
    first, second, found_shifts, n_lost = _search(positions, box, cutoff + skin, both_ways)
    _store(first, second, found_shifts, offsets, neighbors, shifts)
    status[0], status[1], status[2] = first.numel(), n_lost, status[2] + 1
    built_positions.copy_(positions)
    built_box.copy_(lattice)


def check_call(
    positions: Tensor, box: Tensor | None, cutoff: float, skin: float, read_box: bool = True
) -> None:
    """Check what both operators are called with; the entries of the box only if they may be read."""
    check_positions("neighbors", positions)
    if positions.shape[0] >= 2**31 - 1:
        raise ValueError(f"neighbors: there may be 2^31 - 2 atoms, not {positions.shape[0]}")
    check_reach("neighbors", box, cutoff)
    if not (math.isfinite(skin) and skin >= 0):
        raise ValueError(f"neighbors: skin must be 0 or a positive length, not {skin:g}")
    if box is None or not read_box:
        return
    height = smallest_height(box)
    if not height > 0:
        raise ValueError("neighbors: box must be three vectors that are not in a plane")
    if not (cutoff + skin) <= MOST_HEIGHTS * height:
        raise ValueError(
            f"neighbors: the cut-off may be {MOST_HEIGHTS} times the smallest height of the box, "
            f"not {(cutoff + skin) / height:g} times"
        )


def smallest_height(box: Tensor) -> float:
    """Return the smallest distance between opposite faces of a box, 0 where it is flat or not finite."""
    rows = box.double().cpu()
    lengths = rows.norm(dim=1)
    if not bool(torch.isfinite(rows).all()) or not bool((lengths > 0).all()):
        return 0.0
    volume = float(torch.linalg.det(rows).abs())
    if not volume > 1e-12 * float(lengths.prod()):
        return 0.0
    areas = torch.linalg.cross(rows[[1, 2, 0]], rows[[2, 0, 1]]).norm(dim=1)
    return volume / float(areas.max())


def check_list(
    positions: Tensor,
    offsets: Tensor,
    neighbors: Tensor,
    shifts: Tensor,
    status: Tensor,
    built_positions: Tensor,
    built_box: Tensor,
) -> None:
    """Check the tensors of a list that is kept. Raises ValueError as `update_neighbors`."""
    n_atoms, room = positions.shape[0], neighbors.numel()
    wanted = {
        "offsets": (offsets, torch.int32, (n_atoms + 1,)),
        "neighbors": (neighbors, torch.int32, (room,)),
        "shifts": (shifts, torch.int32, (room,)),
        "status": (status, torch.int64, (3,)),
        "built_positions": (built_positions, positions.dtype, (n_atoms, 3)),
        "built_box": (built_box, torch.float64, (3, 3)),
    }
    check_tables("neighbors", wanted)


def _search(
    positions: Tensor, box: Tensor | None, cutoff: float, both_ways: bool
) -> tuple[Tensor, Tensor, Tensor, int]:
    """Return the pairs sorted by first atom, second atom and shift, and how many atoms are not usable."""
    x = positions.detach().double()
    usable = (x.abs() <= FARTHEST).all(dim=1)
    base = torch.zeros_like(x)
    images = torch.zeros((1, 3), dtype=torch.float64, device=x.device)
    rows = x.new_zeros((3, 3))
    if box is not None:
        rows = box.detach().double()
        inverse = torch.linalg.inv(rows)
        base = (x.nan_to_num(0, 0, 0) @ inverse).floor()
        usable &= (base.abs() <= FARTHEST_BOX).all(dim=1)
        # In the box coordinates are from 0 to 1, so that a difference in them is less than 1.
        reach = [int(r) + 1 for r in torch.ceil(cutoff * inverse.norm(dim=0))]
        images = torch.cartesian_prod(*[torch.arange(-r, r + 1.0, dtype=torch.float64) for r in reach]).to(x)
    atoms = usable.nonzero()[:, 0]
    x, base = x[atoms], base[atoms]
    found = [atoms.new_zeros((0, 3))]
    for rows_of, images_of in _parts(len(atoms), len(images)):
        steps = images[images_of, None, None] + (base[rows_of, None] - base)
        vectors = x - x[rows_of, None]
        vectors = vectors + steps @ rows
        image, i, j = (vectors.square().sum(dim=-1) < cutoff * cutoff).nonzero(as_tuple=True)
        code = packed(steps[image, i, j].long()).long()
        i, j = atoms[i + rows_of.start], atoms[j]
        # Of codes with fields of one size the sign is that of the last step that is not 0.
        keep = (i != j) | (code != 0) if both_ways else (i < j) | ((i == j) & (code > 0))
        found.append(torch.stack([i, j, code], dim=1)[keep])
    pairs = torch.cat(found)
    for column in (2, 1, 0):
        pairs = pairs[pairs[:, column].argsort(stable=True)]
    return pairs[:, 0], pairs[:, 1], pairs[:, 2], int((~usable).sum())


def _parts(n_atoms: int, n_images: int) -> Iterator[tuple[slice, slice]]:
    """Yield atoms and images, all with all, as many at once as memory is small."""
    few = max(1, _AT_ONCE // max(1, n_atoms))
    for row in range(0, n_atoms, few):
        many = max(1, _AT_ONCE // (n_atoms * min(few, n_atoms)))
        for image in range(0, n_images, many):
            yield slice(row, row + few), slice(image, image + many)


def _store(
    first: Tensor, second: Tensor, codes: Tensor, offsets: Tensor, neighbors: Tensor, shifts: Tensor
) -> None:
    """Store pairs in a list's tensors, as many as there is room for."""
    room = min(first.numel(), neighbors.numel())
    counts = torch.bincount(first, minlength=offsets.numel() - 1)
    offsets[0] = 0
    offsets[1:] = counts.cumsum(0).clamp(max=neighbors.numel())
    neighbors[:room] = second[:room]
    shifts[:room] = codes[:room]
