"""Energies of pairs on the GPU: a warp to a row of the list, and a lane to a pair.

A row's gradient is added up in registers, and those of the second atoms as whole numbers, whose sum is the same in any order.
Energy and virial of each row are stored, and added up in one order.
"""

# No annotations from __future__: Triton reads those of its kernels.
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..neighbors.gpu_shifts import imaged
from . import forms, reference
from .gpu_forms import pair_energy
from .gpu_mates import mate_contacts

__all__ = ["mate_contacts", "pairs"]

_LANES = 32
_SUMS = 7
_ATOMS = 256
# Of a gradient's component: units in 1, and the largest that a pair adds.
_UNITS = tl.constexpr(16777216.0)
_LARGEST = tl.constexpr(1.0e9)


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
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `openmm_density.kernels.pairs.pairs` returns, with the same arguments; what tables hold is not checked.

    Raises
    ------
    ValueError
        As the operator.
    """
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
    numbers = _numbers(form, cutoff, [*settings, *[0.0] * (forms.SETTINGS - len(settings))])
    units = torch.zeros((n_atoms, 3), dtype=torch.int64, device=positions.device)
    sums = positions.new_empty((_SUMS, n_atoms), dtype=torch.float64)
    has_excluded = excluded is not None and excluded.numel() > 0
    with torch.cuda.device_of(positions):
        _rows_kernel[(n_atoms,)](
            positions,
            lattice,
            offsets,
            neighbors,
            shifts,
            parameters,
            excluded_offsets if has_excluded else offsets,
            excluded if has_excluded else offsets,
            units,
            sums,
            n_atoms,
            neighbors.numel(),
            *numbers,
            FORM=form,
            PERIODIC=box is not None,
            HAS_EXCLUDED=has_excluded,
            LANES=_LANES,
            num_warps=_LANES // 32,
        )
        _gradient_kernel[(triton.cdiv(3 * n_atoms, _ATOMS),)](units, gradient, 3 * n_atoms, BLOCK=_ATOMS)
    totals = sums.sum(dim=1)
    return totals[0], gradient, _tensor_of(totals)


def _tensor_of(totals: Tensor) -> Tensor:
    """Return the virial of its six numbers."""
    xx, xy, xz, yy, yz, zz = totals[1:].unbind()
    return torch.stack([xx, xy, xz, xy, yy, yz, xz, yz, zz]).reshape(3, 3)


def _numbers(form: int, cutoff: float, settings: Sequence[float]) -> tuple[float, ...]:
    """Return what is the same for all pairs: cut-off, switch, Coulomb's constant and the reaction field's two."""
    switch_begin, per_switch, coulomb, k, c = cutoff, 0.0, 0.0, 0.0, 0.0
    if form in (forms.LENNARD_JONES, forms.NONBONDED, forms.MORSE) and settings[0] < cutoff:
        switch_begin, per_switch = settings[0], 1 / (cutoff - settings[0])
    if form in (forms.REACTION_FIELD, forms.NONBONDED):
        coulomb, dielectric = settings[int(form == forms.NONBONDED) :][:2]
        k = (dielectric - 1) / (2 * dielectric + 1) / cutoff**3
        c = 3 * dielectric / (2 * dielectric + 1) / cutoff
    return float(cutoff) ** 2, float(switch_begin), float(per_switch), float(coulomb), float(k), float(c)


@triton.jit
def _to_units(x):
    bounded = tl.minimum(tl.maximum(x, -_LARGEST), _LARGEST)
    return (bounded.to(tl.float64) * _UNITS).to(tl.int64)


@triton.jit
def _rows_kernel(
    positions,
    box,
    offsets,
    neighbors,
    shifts,
    parameters,
    excluded_offsets,
    excluded,
    units,
    sums,
    n_atoms,
    capacity,
    cutoff_squared,
    switch_begin,
    per_switch,
    coulomb,
    k,
    c,
    FORM: tl.constexpr,
    PERIODIC: tl.constexpr,
    HAS_EXCLUDED: tl.constexpr,
    LANES: tl.constexpr,
):
    """Add up the pairs of a row.

    Launch grid: ``(n_atoms,)``: a program to a row.

    ==============================  ==============  ==========  ==================================================
    argument                        shape           dtype       what it is
    ==============================  ==============  ==========  ==================================================
    positions                       (n_atoms, 3)    float32/64
    box                             (3, 3)          float32/64  lattice vectors, in rows
    offsets                         (n_atoms + 1,)  int32
    neighbors                       (capacity,)     int32
    shifts                          (capacity,)     int32       packed
    parameters                      (n_atoms, 3)    float32
    excluded_offsets                (n_atoms + 1,)  int32
    excluded                        (any,)          int32
    units                           (n_atoms, 3)    int64       in and out: the gradient
    sums                            (7, n_atoms)    float64     out: of the row, its energy and virial
    n_atoms, capacity               scalar          int32
    cutoff_squared                  scalar          float32
    switch_begin, per_switch        scalar          float32     per_switch: 0 without a switch
    coulomb, k, c                   scalar          float32     Coulomb's constant, and the reaction field
    FORM                            constant                    which function of r
    PERIODIC                        constant                    whether there is a box
    HAS_EXCLUDED                    constant                    whether pairs are excluded
    LANES                           constant                    pairs at once
    ==============================  ==============  ==========  ==================================================
    """
    i = tl.program_id(0).to(tl.int64)
    begin = tl.load(offsets + i)
    end = tl.minimum(tl.load(offsets + i + 1), capacity)
    x, y, z = tl.load(positions + 3 * i), tl.load(positions + 3 * i + 1), tl.load(positions + 3 * i + 2)
    a0, a1, a2 = tl.load(parameters + 3 * i), tl.load(parameters + 3 * i + 1), tl.load(parameters + 3 * i + 2)
    zero = tl.zeros((LANES,), tl.float32)
    gx, gy, gz, total = zero, zero, zero, zero
    xx, xy, xz, yy, yz, zz = zero, zero, zero, zero, zero, zero
    while begin < end:
        entry = begin + tl.arange(0, LANES)
        here = entry < end
        j = tl.load(neighbors + entry, mask=here, other=-1).to(tl.int64)
        here &= (j >= 0) & (j < n_atoms)
        dx = tl.load(positions + 3 * j, mask=here, other=0.0) - x
        dy = tl.load(positions + 3 * j + 1, mask=here, other=0.0) - y
        dz = tl.load(positions + 3 * j + 2, mask=here, other=0.0) - z
        if PERIODIC:
            dx, dy, dz = imaged(dx, dy, dz, shifts, entry, here, box)
        dx, dy, dz = dx.to(tl.float32), dy.to(tl.float32), dz.to(tl.float32)
        squared = dx * dx + dy * dy + dz * dz
        near = here & (squared < cutoff_squared)
        if HAS_EXCLUDED:
            at, last = tl.load(excluded_offsets + i), tl.load(excluded_offsets + i + 1)
            while at < last:
                near &= j != tl.load(excluded + at)
                at += 1
        b0 = tl.load(parameters + 3 * j, mask=near, other=1.0)
        b1 = tl.load(parameters + 3 * j + 1, mask=near, other=1.0)
        b2 = tl.load(parameters + 3 * j + 2, mask=near, other=1.0)
        r = tl.sqrt(tl.where(near, tl.maximum(squared, 1e-24), 1.0))
        energy, slope = pair_energy(
            r, 1.0 / r, a0, a1, a2, b0, b1, b2, switch_begin, per_switch, coulomb, k, c, FORM
        )
        slope = tl.where(near, slope, 0.0)
        dx, dy, dz = tl.where(near, dx, 0.0), tl.where(near, dy, 0.0), tl.where(near, dz, 0.0)
        total += tl.where(near, energy, 0.0)
        fx, fy, fz = slope * dx, slope * dy, slope * dz
        gx, gy, gz = gx + fx, gy + fy, gz + fz
        xx, xy, xz = xx - dx * fx, xy - dx * fy, xz - dx * fz
        yy, yz, zz = yy - dy * fy, yz - dy * fz, zz - dz * fz
        to = units + 3 * j
        tl.atomic_add(to, _to_units(fx), mask=near, sem="relaxed")
        tl.atomic_add(to + 1, _to_units(fy), mask=near, sem="relaxed")
        tl.atomic_add(to + 2, _to_units(fz), mask=near, sem="relaxed")
        begin += LANES
    tl.atomic_add(units + 3 * i, _to_units(-tl.sum(gx, axis=0)), sem="relaxed")
    tl.atomic_add(units + 3 * i + 1, _to_units(-tl.sum(gy, axis=0)), sem="relaxed")
    tl.atomic_add(units + 3 * i + 2, _to_units(-tl.sum(gz, axis=0)), sem="relaxed")
    tl.store(sums + i, tl.sum(total, axis=0).to(tl.float64))
    tl.store(sums + n_atoms + i, tl.sum(xx, axis=0).to(tl.float64))
    tl.store(sums + 2 * n_atoms + i, tl.sum(xy, axis=0).to(tl.float64))
    tl.store(sums + 3 * n_atoms + i, tl.sum(xz, axis=0).to(tl.float64))
    tl.store(sums + 4 * n_atoms + i, tl.sum(yy, axis=0).to(tl.float64))
    tl.store(sums + 5 * n_atoms + i, tl.sum(yz, axis=0).to(tl.float64))
    tl.store(sums + 6 * n_atoms + i, tl.sum(zz, axis=0).to(tl.float64))


@triton.jit
def _gradient_kernel(units, gradient, n, BLOCK: tl.constexpr):
    """Turn whole numbers into a gradient.

    Launch grid: ``(cdiv(n, BLOCK),)``.

    ========  ========  ==========  =========================
    argument  shape     dtype       what it is
    ========  ========  ==========  =========================
    units     (n,)      int64
    gradient  (n,)      float32/64  out
    n         scalar    int32
    BLOCK     constant              components of a program
    ========  ========  ==========  =========================
    """
    entry = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    whole = tl.load(units + entry, mask=entry < n, other=0)
    tl.store(gradient + entry, (whole.to(tl.float64) / _UNITS).to(gradient.dtype.element_ty), mask=entry < n)
