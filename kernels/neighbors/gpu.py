"""Neighbour lists on the GPU: sort atoms by cell, count rows, fill rows, each step by what the last one left on the device.

A cell's atoms come in the order in which they arrive, and are then put into that of their numbers, so that nothing depends on the
order of atomics. Where a list that is kept still holds, every kernel but the first ends at once.
"""

# No annotations from __future__: Triton reads those of its kernels.
import struct
from collections.abc import Callable

import torch
import triton
from torch import Tensor

from . import reference
from .gpu_cells import (
    GEOMETRY_SLOTS,
    GRID_SLOTS,
    assign_kernel,
    order_kernel,
    place_kernel,
    plan_kernel,
    prepare_kernel,
)
from .gpu_rows import rows_kernel
from .gpu_sums import block_sums_kernel, offsets_kernel

# Cells per cut-off: across a column, and along it.
_ACROSS, _ALONG = 2, 4
_LANES = 128
_SCANNED = 2048
# The capacity of a list that has as many pairs as are found.
_UNLIMITED = 2**31 - 1


def _shape_of_rows(n_atoms: int, pairs_of_row: float, is_kept: bool) -> tuple[int, int]:
    """Return rows of a program, which is a warp, and lanes of each, for a number of pairs that a row has room for.

    Few rows are to reach many multiprocessors, and long ones are searched by several lanes; where a list is kept, many programs
    cost more at each look than they gain when it is made.
    """
    if n_atoms <= 2048:
        return 1, 32
    if n_atoms <= 16384:
        return 4, 8
    if pairs_of_row > 64 and not (is_kept and n_atoms > 65536):
        return 8, 4
    return (16, 2) if n_atoms <= 65536 else (32, 1)


def neighbors(
    positions: Tensor, box: Tensor | None, cutoff: float, both_ways: bool = False, capacity: int | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what `openmm_density.kernels.neighbors.neighbors` returns, with the same arguments.

    Raises
    ------
    ValueError
        As the operator.
    RuntimeError
        If a CUDA graph is being captured and there is no capacity.
    """
    reference.check_call(positions, box, cutoff, 0.0, read_box=False)
    if capacity is not None and not 0 <= capacity < 2**31:
        raise ValueError(f"neighbors: capacity must be from 0 to 2^31 - 1, not {capacity}")
    if capacity is None and positions.is_cuda and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("neighbors: give a capacity where a CUDA graph is captured")
    n_atoms = positions.shape[0]
    offsets = positions.new_empty((n_atoms + 1,), dtype=torch.int32)
    status = torch.zeros(3, dtype=torch.int64, device=positions.device)
    built = torch.empty_like(positions, memory_format=torch.contiguous_format)
    built_box = positions.new_empty((3, 3), dtype=torch.float64)
    table: list[Tensor] = []

    def room() -> tuple[Tensor, Tensor]:
        size = int(status[0]) if capacity is None else capacity
        if size >= 2**31:
            raise ValueError(f"neighbors: there are {size} pairs, but a list can hold 2^31 - 1")
        table.extend(positions.new_empty((size,), dtype=torch.int32) for _ in range(2))
        return table[0], table[1]

    limit = _UNLIMITED if capacity is None else capacity
    _build(positions, box, cutoff, 0.0, both_ways, offsets, room, limit, status, built, built_box)
    return offsets, table[0], table[1], status


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
    """Do what `openmm_density.kernels.neighbors.update_neighbors` does, with the same arguments.

    Raises
    ------
    ValueError
        As the operator.
    """
    reference.check_call(positions, box, cutoff, skin, read_box=False)
    reference.check_list(positions, offsets, neighbors, shifts, status, built_positions, built_box)

    def room() -> tuple[Tensor, Tensor]:
        return neighbors, shifts

    _build(
        positions,
        box,
        cutoff,
        skin,
        both_ways,
        offsets,
        room,
        neighbors.numel(),
        status,
        built_positions,
        built_box,
    )


def _bits(value: float) -> int:
    """Return a number's bits: Triton would round a Python number to float32."""
    return int(struct.unpack("q", struct.pack("d", value))[0])


def _build(
    positions: Tensor,
    box: Tensor | None,
    cutoff: float,
    skin: float,
    both_ways: bool,
    offsets: Tensor,
    room: Callable[[], tuple[Tensor, Tensor]],
    capacity: int,
    status: Tensor,
    built_positions: Tensor,
    built_box: Tensor,
) -> None:
    """Make a list, unless it still holds; ``room`` returns its tensors once rows are counted."""
    positions = positions.detach().contiguous()
    n_atoms, periodic = positions.shape[0], box is not None
    if n_atoms == 0:
        offsets.zero_()
        room()
        status[:2].zero_()
        status[2] += 1
        return
    lattice = built_box if box is None else box.detach().contiguous()
    max_cells = 2 * n_atoms + 64

    def integers(size: int) -> Tensor:
        return positions.new_empty((size,), dtype=torch.int32)

    geometry = positions.new_empty((GEOMETRY_SLOTS,), dtype=torch.float64)
    grid = integers(GRID_SLOTS)
    n_blocks = triton.cdiv(n_atoms, _LANES)
    ends = positions.new_empty((n_blocks, 6), dtype=torch.float64)
    stale, counts, starts = integers(n_blocks), integers(max_cells), integers(max_cells + 1)
    cell_of, slot_of, shift_of, unsorted = (integers(n_atoms) for _ in range(4))
    inside, place = (positions.new_empty((3, n_atoms), dtype=torch.float32) for _ in range(2))
    atoms, shift, cells, row_counts = (integers(n_atoms) for _ in range(4))
    cell_sums = positions.new_empty((triton.cdiv(max_cells, _SCANNED),), dtype=torch.int64)
    row_sums = positions.new_empty((triton.cdiv(n_atoms, _SCANNED),), dtype=torch.int64)
    reach = _bits(cutoff + skin)
    pairs_of_row = capacity / n_atoms if capacity < _UNLIMITED else 0.0
    n_rows, lanes = _shape_of_rows(n_atoms, pairs_of_row / (2 if both_ways else 1), skin > 0)
    rows = (
        *(positions, lattice, geometry, grid, starts, place, atoms, shift, cells),
        *(offsets, row_counts),
    )
    with torch.cuda.device_of(positions):
        prepare_kernel[(n_blocks,)](
            positions,
            built_positions,
            stale,
            ends,
            counts,
            n_atoms,
            max_cells,
            _bits((skin / 2) ** 2),
            KEPT=skin > 0,
            PERIODIC=periodic,
            LANES=_LANES,
            ZEROED=triton.next_power_of_2(triton.cdiv(max_cells, n_blocks)),
        )
        plan_kernel[(1,)](
            lattice,
            built_box,
            stale,
            ends,
            status,
            geometry,
            grid,
            n_blocks,
            n_atoms,
            max_cells,
            reach,
            PERIODIC=periodic,
            ACROSS=_ACROSS,
            ALONG=_ALONG,
            BLOCK=1024,
        )
        assign_kernel[(n_blocks,)](
            positions,
            built_positions,
            geometry,
            grid,
            counts,
            cell_of,
            slot_of,
            shift_of,
            inside,
            status,
            n_atoms,
            PERIODIC=periodic,
            LANES=_LANES,
        )
        _sum_up(counts, cell_sums, grid, starts, status, 2**31 - 1, False)
        place_kernel[(n_blocks,)](cell_of, slot_of, starts, grid, unsorted, n_atoms, LANES=_LANES)
        order_kernel[(n_blocks,)](
            unsorted,
            cell_of,
            shift_of,
            inside,
            starts,
            grid,
            atoms,
            shift,
            cells,
            place,
            row_counts,
            n_atoms,
            max_cells,
            LANES=_LANES,
        )
        options = {
            "BOTH_WAYS": both_ways,
            "PERIODIC": periodic,
            "ROWS": n_rows,
            "LANES": lanes,
            "num_warps": 1,
        }
        programs = (triton.cdiv(n_atoms, n_rows),)
        rows_kernel[programs](*rows, offsets, offsets, n_atoms, max_cells, reach, FILL=False, **options)
        _sum_up(row_counts, row_sums, grid, offsets, status, capacity, True)
        found, found_shifts = room()
        rows_kernel[programs](*rows, found, found_shifts, n_atoms, max_cells, reach, FILL=True, **options)


def _sum_up(
    counts: Tensor, sums: Tensor, grid: Tensor, offsets: Tensor, status: Tensor, limit: int, is_total: bool
) -> None:
    """Store the sums of all counts before each, and of all, clamped to a limit; and that one in the status, as it is."""
    n = counts.numel()
    block = 2 * _SCANNED if n <= 2 * _SCANNED else _SCANNED
    programs = (triton.cdiv(n, block),)
    if programs != (1,):
        block_sums_kernel[programs](counts, grid, sums, n, BLOCK=block)
    offsets_kernel[programs](
        counts, grid, sums, offsets, status, n, limit, IS_TOTAL=is_total, BLOCK=block, SUMS=1024
    )
