"""Neighbour lists on the GPU: sort atoms by cell, count rows, fill rows, each step by what the last one left on the device.

A cell's atoms come in the order in which they arrive, and are then put into that of their numbers, so that nothing depends on the
order of atomics. Where a list that is kept still holds, every kernel but the first ends at once.
"""

# No annotations from __future__: Triton reads those of its kernels.
import struct
from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import reference
from .gpu_cells import (
    GEOMETRY_SLOTS,
    GRID_BUILD,
    GRID_SLOTS,
    assign_kernel,
    order_kernel,
    place_kernel,
    plan_kernel,
    prepare_kernel,
)
from .gpu_rows import rows_kernel

# No annotations from __future__: Triton reads those of its kernels.


@triton.jit
def block_sums_kernel(counts, grid, sums, n, BLOCK: tl.constexpr):
    """Add up blocks of counts.

    Launch grid: ``(cdiv(n, BLOCK),)``.

    ==========  =============  ==========  ================================
    argument    shape          dtype       what it is
    ==========  =============  ==========  ================================
    counts      (n,)           int32
    grid        (GRID_SLOTS,)  int32       see gpu_cells.py
    sums        (programs,)    int64       out
    n           scalar         int32
    BLOCK       constant                   counts of a program
    ==========  =============  ==========  ================================
    """
    if tl.load(grid + GRID_BUILD) == 0:
        return
    program = tl.program_id(0)
    entry = program * BLOCK + tl.arange(0, BLOCK)
    count = tl.load(counts + entry, mask=entry < n, other=0).to(tl.int64)
    tl.store(sums + program, tl.sum(count, axis=0))


@triton.jit
def offsets_kernel(
    counts,
    grid,
    sums,
    offsets,
    status,
    n,
    limit,
    IS_TOTAL: tl.constexpr,
    BLOCK: tl.constexpr,
    SUMS: tl.constexpr,
):
    """Store where each entry begins, given how many things each has, and where the last ends.

    Launch grid: ``(cdiv(n, BLOCK),)``.

    ==========  =============  ==========  =======================================
    argument    shape          dtype       what it is
    ==========  =============  ==========  =======================================
    counts      (n,)           int32
    grid        (GRID_SLOTS,)  int32       see gpu_cells.py
    sums        (programs,)    int64       of the counts of each program
    offsets     (n + 1,)       int32       out, none above the limit
    status      (3,)           int64       out, its first number: the sum of all
    n           scalar         int32
    limit       scalar         int32
    IS_TOTAL    constant                   whether the status is stored
    BLOCK       constant                   counts of a program
    SUMS        constant                   programs' sums that are read at once
    ==========  =============  ==========  =======================================
    """
    if tl.load(grid + GRID_BUILD) == 0:
        return
    program = tl.program_id(0)
    before = tl.zeros((SUMS,), tl.int64)
    start = program * 0
    while start < program:
        entry = start + tl.arange(0, SUMS)
        before += tl.load(sums + entry, mask=entry < program, other=0)
        start += SUMS
    first = tl.sum(before, axis=0)
    entry = program * BLOCK + tl.arange(0, BLOCK)
    count = tl.load(counts + entry, mask=entry < n, other=0).to(tl.int64)
    end = first + tl.cumsum(count, axis=0)
    tl.store(offsets + entry + 1, tl.minimum(end, limit).to(tl.int32), mask=entry < n)
    if program == 0:
        tl.store(offsets, 0)
    if IS_TOTAL:  # noqa: SIM102 (the first decides when the kernel is compiled)
        if program == tl.num_programs(0) - 1:
            tl.store(status, first + tl.sum(count, axis=0))


# Cells per cut-off: across a column, and along it.
_ACROSS, _ALONG = 2, 4
_LANES = 128
_SCANNED = 2048
# Of all rows: 128 MiB.
_MOST_SLOTS = 2**24
# The capacity of a list that has as many pairs as are found.
_UNLIMITED = 2**31 - 1


def _shape_of_rows(both_ways: bool) -> tuple[int, int]:
    """Return columns of cells that a row goes along at once, about as many as it reaches, and lanes of each."""
    return (32, 1) if both_ways else (16, 2)


def _programs_of_rows(n_atoms: int, is_new: bool) -> int:
    """Return how many programs take rows in turn, fewer where most lists still hold: the fastest of four on an H200."""
    most = 8192 if not is_new else 16896 if n_atoms < 65536 else 33792
    return min(n_atoms, most)


def _slots_of_rows(n_atoms: int, capacity: int) -> int:
    """Return how many neighbours of a row are kept when rows are counted; 0 where enough for nearly all rows take much memory."""
    if not 0 < capacity < _UNLIMITED:
        return 0
    slots = max(32, triton.next_power_of_2(triton.cdiv(3 * capacity, 2 * n_atoms)))
    return slots if slots * n_atoms <= _MOST_SLOTS else 0


def neighbors(
    positions: Tensor, box: Tensor | None, cutoff: float, both_ways: bool = False, capacity: int | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what the operator returns; RuntimeError if a CUDA graph is being captured and there is no capacity."""
    reference.check_call(positions, box, cutoff, 0.0, read_box=False)
    if capacity is not None and not 0 <= capacity < 2**31:
        raise ValueError(f"neighbors: capacity must be from 0 to 2^31 - 1, not {capacity}")
    if capacity is None and positions.is_cuda and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("neighbors: give a capacity where a CUDA graph is captured")
    n_atoms = positions.shape[0]
    offsets = positions.new_empty((n_atoms + 1,), dtype=torch.int32)
    status = positions.new_empty((3,), dtype=torch.int64)
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
    _build(positions, box, cutoff, 0.0, both_ways, offsets, room, limit, status, built, built_box, True)
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
    """Do what `openmm_density.kernels.neighbors.update_neighbors` does, with the same arguments."""
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
        False,
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
    is_new: bool,
) -> None:
    """Make a list, unless it still holds; ``room`` returns its tensors once rows are counted."""
    positions = positions.detach().contiguous()
    n_atoms, periodic = positions.shape[0], box is not None
    if n_atoms == 0:
        offsets.zero_()
        status[: 3 if is_new else 2].zero_()
        status[2] += 1
        room()
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
    inside = positions.new_empty((3, n_atoms), dtype=torch.float32)
    place = positions.new_empty((n_atoms, 4), dtype=torch.float32)
    atoms, shift, row_counts = (integers(n_atoms) for _ in range(3))
    cell_sums = positions.new_empty((triton.cdiv(max_cells, _scanned(max_cells)),), dtype=torch.int64)
    row_sums = positions.new_empty((triton.cdiv(n_atoms, _scanned(n_atoms)),), dtype=torch.int64)
    reach = _bits(cutoff + skin)
    columns, strands = _shape_of_rows(both_ways)
    slots = _slots_of_rows(n_atoms, capacity)
    drafts = [integers(n_atoms * slots) if slots else offsets for _ in range(2)]
    rows = (
        *(positions, lattice, geometry, grid, starts, place, atoms, shift),
        *(offsets, row_counts, row_sums),
    )
    with torch.cuda.device_of(positions):
        prepare_kernel[(n_blocks,)](
            positions,
            built_positions,
            stale,
            ends,
            counts,
            row_sums,
            n_atoms,
            max_cells,
            row_sums.numel(),
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
            IS_NEW=is_new,
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
        if cell_sums.numel() > 1:
            block_sums_kernel[(cell_sums.numel(),)](
                counts, grid, cell_sums, max_cells, BLOCK=_scanned(max_cells)
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
            place,
            row_counts,
            n_atoms,
            max_cells,
            LANES=_LANES,
        )
        options = {
            "BOTH_WAYS": both_ways,
            "PERIODIC": periodic,
            "COLUMNS": columns,
            "STRANDS": strands,
            "SLOTS": slots,
            "SUMMED": _scanned(n_atoms),
            "num_warps": 1,
        }
        programs = (_programs_of_rows(n_atoms, is_new),)
        sizes = (n_atoms, max_cells, reach)
        rows_kernel[programs](*rows, offsets, offsets, *drafts, *sizes, FILL=False, **options)
        _sum_up(row_counts, row_sums, grid, offsets, status, capacity, True)
        found, found_shifts = room()
        rows_kernel[programs](*rows, found, found_shifts, *drafts, *sizes, FILL=True, **options)


def _scanned(n: int) -> int:
    """Return how many counts a program adds up: all, where that is one launch less."""
    return 2 * _SCANNED if n <= 2 * _SCANNED else _SCANNED


def _sum_up(
    counts: Tensor, sums: Tensor, grid: Tensor, offsets: Tensor, status: Tensor, limit: int, is_total: bool
) -> None:
    """Store the sums of all counts before each, and of all, clamped to a limit; and that one in the status, as it is."""
    n = counts.numel()
    offsets_kernel[(sums.numel(),)](
        counts, grid, sums, offsets, status, n, limit, IS_TOTAL=is_total, BLOCK=_scanned(n), SUMS=1024
    )
