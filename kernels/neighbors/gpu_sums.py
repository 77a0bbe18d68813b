"""Prefix sums in a fixed number of launches, which end at once where a list still holds."""

# No annotations from __future__: Triton reads those of its kernels.
import triton
import triton.language as tl

from .gpu_cells import GRID_BUILD


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
