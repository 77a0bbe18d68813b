"""Energies of pairs on the GPU: records of atoms, rows of the list, and sums in one order, a launch to each."""

# No annotations from __future__: Triton reads those of its kernels.
from collections.abc import Sequence

import torch
import triton
from torch import Tensor

from . import forms, gpu_forms, reference
from .gpu_mates import mate_contacts
from .gpu_rows import RECORD, SUMS, gradient_kernel, records_kernel, rows_kernel, totals_kernel

__all__ = ["mate_contacts", "pairs"]

_ATOMS = 128
_BLOCK = 256
_SUMMED = 8192


def _shape_of_programs(n_atoms: int) -> tuple[int, int, int]:
    """Return rows of a program, pairs of a row at once, and warps: few rows where many programs are needed to keep a GPU busy."""
    if n_atoms <= 8192:
        return 1, 64, 1
    return (4 if n_atoms <= 400_000 else 32), 64, 1


def pairs(
    positions: Tensor,
    box: Tensor | None,
    offsets: Tensor,
    neighbors: Tensor,
    shifts: Tensor,
    parameters: Tensor,
    form: int,
    cutoff: float,
    settings: Sequence[float],
    excluded_offsets: Tensor | None = None,
    excluded: Tensor | None = None,
    both_ways: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `openmm_density.kernels.pairs.pairs` returns, with the same arguments; what tables hold is not checked."""
    reference.check_call(
        positions,
        box,
        offsets,
        neighbors,
        shifts,
        parameters,
        form,
        cutoff,
        settings,
        excluded_offsets,
        excluded,
    )
    positions = positions.detach().contiguous()
    n_atoms = positions.shape[0]
    gradient = torch.empty_like(positions)
    if n_atoms == 0:
        return (
            positions.new_zeros((), dtype=torch.float64),
            gradient,
            positions.new_zeros((3, 3), dtype=torch.float64),
        )
    lattice = positions if box is None else box.detach().contiguous()
    numbers = gpu_forms.numbers_of(form, cutoff, [*settings, *[0.0] * (forms.SETTINGS - len(settings))])
    rows, lanes, warps = _shape_of_programs(n_atoms)
    n_programs = triton.cdiv(n_atoms, rows)
    records = positions.new_empty((n_atoms + 1, RECORD))
    sums = positions.new_empty((SUMS, n_programs), dtype=torch.float64)
    energy = positions.new_empty((), dtype=torch.float64)
    virial = positions.new_empty((3, 3), dtype=torch.float64)
    units = gradient if both_ways else positions.new_empty((2, n_atoms, 3), dtype=torch.int64)
    has_excluded = excluded is not None and excluded.numel() > 0
    with torch.cuda.device_of(positions):
        records_kernel[(triton.cdiv(n_atoms + 1, _ATOMS),)](
            positions,
            parameters,
            records,
            units,
            n_atoms,
            FORM=form,
            BOTH_WAYS=both_ways,
            ATOMS=_ATOMS,
        )
        rows_kernel[(n_programs,)](
            records,
            lattice,
            offsets,
            neighbors,
            shifts,
            excluded_offsets if has_excluded else offsets,
            excluded if has_excluded else offsets,
            units,
            sums,
            n_atoms,
            neighbors.numel(),
            *numbers,
            FORM=form,
            BOTH_WAYS=both_ways,
            PERIODIC=box is not None,
            HAS_EXCLUDED=has_excluded,
            ROWS=rows,
            LANES=lanes,
            num_warps=warps,
        )
        if not both_ways:
            gradient_kernel[(triton.cdiv(3 * n_atoms, _BLOCK),)](units, gradient, 3 * n_atoms, BLOCK=_BLOCK)
        totals_kernel[(SUMS,)](
            sums,
            energy,
            virial,
            n_programs,
            FACTOR=0.5 if both_ways else 1.0,
            BLOCK=min(_SUMMED, max(128, triton.next_power_of_2(n_programs))),
            num_warps=8,
        )
    return energy, gradient, virial
