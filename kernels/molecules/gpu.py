"""Molecules put back whole, on the GPU: a program to a molecule. __init__.py says how."""

# No annotations from __future__: Triton reads those of its kernels.
import torch
import triton
import triton.language as tl
from torch import Tensor

from ..table_checks import check_once
from . import reference
from .gpu_copies import folded_copies, symmetry_copies

__all__ = ["among_all", "folded_copies", "symmetry_copies", "whole_molecules"]

# Waters by the ten thousand need few threads each, a protein alone as many as it can use.
_FEW_MOLECULES = 500


def whole_molecules(
    positions: Tensor, particles: Tensor, order: Tensor, offsets: Tensor, references: Tensor, box: Tensor
) -> Tensor:
    """Return what the operator returns; new tables are read and checked, with RuntimeError while a CUDA graph is captured."""
    reference.check_layout(positions, particles, order, offsets, references, box)
    tables = (particles, order, offsets)
    n_particles = positions.shape[0]
    if not check_once(
        "whole_molecules", lambda: reference.check_entries(n_particles, *tables), tables, n_particles
    ):
        raise RuntimeError("whole_molecules: evaluate once with these tables before capturing a CUDA graph")
    positions = positions.detach().contiguous()
    n_molecules = offsets.numel() - 1
    whole = positions.new_empty((particles.numel(), 3))
    if n_molecules == 0:
        return whole
    few = n_molecules <= _FEW_MOLECULES
    with torch.cuda.device_of(positions):
        _whole_kernel[(n_molecules,)](
            positions,
            particles.contiguous(),
            order.contiguous(),
            offsets.contiguous(),
            references.contiguous(),
            box.contiguous(),
            whole,
            BLOCK=1024 if few else 128,
            num_warps=8 if few else 1,
        )
    return whole


def among_all(values: Tensor, particles: Tensor, count: int) -> Tensor:
    """Return what the operator returns; RuntimeError while a CUDA graph is captured with particles not seen before."""
    reference.check_rows(values, particles)
    if not check_once("among_all", lambda: reference.check_particles(particles, count), (particles,), count):
        raise RuntimeError("among_all: evaluate once with these particles before capturing a CUDA graph")
    return reference.rows_among_zeros(values, particles, count)


@triton.jit
def _whole_kernel(positions, particles, order, offsets, references, box, whole, BLOCK: tl.constexpr):
    """Shift a molecule by the lattice vector that brings its centroid nearest to its reference point.

    Launch grid: ``(n_molecules,)``.

    ==========  ==================  ==========  =============================================================================
    argument    shape               dtype       what it is
    ==========  ==================  ==========  =============================================================================
    positions   (n_positions, 3)    float32/64
    particles   (n_selected,)       int64       the selected particles
    order       (n_selected,)       int64       entries of particles, molecule after molecule
    offsets     (n_molecules + 1,)  int64       molecule m has the entries from order[offsets[m]] up to order[offsets[m + 1]]
    references  (n_molecules, 3)    float64
    box         (3, 3)              float32/64  lattice vectors, in rows
    whole       (n_selected, 3)     float32/64  out, in the order of particles
    BLOCK       constant                        particles that are read at once
    ==========  ==================  ==========  =============================================================================
    """
    molecule = tl.program_id(0)
    first = tl.load(offsets + molecule)
    end = tl.load(offsets + molecule + 1)
    x = tl.zeros((BLOCK,), tl.float64)
    y = tl.zeros((BLOCK,), tl.float64)
    z = tl.zeros((BLOCK,), tl.float64)
    start = first
    while start < end:
        entry = start + tl.arange(0, BLOCK)
        row = tl.load(order + entry, mask=entry < end, other=0)
        particle = tl.load(particles + row, mask=entry < end, other=0)
        x += tl.load(positions + 3 * particle, mask=entry < end, other=0.0).to(tl.float64)
        y += tl.load(positions + 3 * particle + 1, mask=entry < end, other=0.0).to(tl.float64)
        z += tl.load(positions + 3 * particle + 2, mask=entry < end, other=0.0).to(tl.float64)
        start += BLOCK
    size = (end - first).to(tl.float64)
    # From the centroid to the reference.
    x_away = tl.load(references + 3 * molecule) - tl.sum(x, axis=0) / size
    y_away = tl.load(references + 3 * molecule + 1) - tl.sum(y, axis=0) / size
    z_away = tl.load(references + 3 * molecule + 2) - tl.sum(z, axis=0) / size

    ax = tl.load(box).to(tl.float64)
    ay = tl.load(box + 1).to(tl.float64)
    az = tl.load(box + 2).to(tl.float64)
    bx = tl.load(box + 3).to(tl.float64)
    by = tl.load(box + 4).to(tl.float64)
    bz = tl.load(box + 5).to(tl.float64)
    cx = tl.load(box + 6).to(tl.float64)
    cy = tl.load(box + 7).to(tl.float64)
    cz = tl.load(box + 8).to(tl.float64)
    ux, uy, uz = by * cz - bz * cy, bz * cx - bx * cz, bx * cy - by * cx
    vx, vy, vz = cy * az - cz * ay, cz * ax - cx * az, cx * ay - cy * ax
    wx, wy, wz = ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx
    per_volume = 1.0 / (ax * ux + ay * uy + az * uz)
    a_steps = tl.floor((x_away * ux + y_away * uy + z_away * uz) * per_volume + 0.5)
    b_steps = tl.floor((x_away * vx + y_away * vy + z_away * vz) * per_volume + 0.5)
    c_steps = tl.floor((x_away * wx + y_away * wy + z_away * wz) * per_volume + 0.5)

    # Rounding is right up to one step in a skewed box: a lane to each of the 27 lattice points around.
    lane = tl.arange(0, 32)
    a = a_steps + (lane // 9 - 1).to(tl.float64)
    b = b_steps + (lane // 3 % 3 - 1).to(tl.float64)
    c = c_steps + (lane % 3 - 1).to(tl.float64)
    x_shift = a * ax + b * bx + c * cx
    y_shift = a * ay + b * by + c * cy
    z_shift = a * az + b * bz + c * cz
    dx, dy, dz = x_away - x_shift, y_away - y_shift, z_away - z_shift
    distance = tl.where(lane < 27, dx * dx + dy * dy + dz * dz, float("inf"))
    chosen = lane == tl.argmin(distance, axis=0)
    type = whole.dtype.element_ty
    x_shift = tl.sum(tl.where(chosen, x_shift, 0.0), axis=0).to(type)
    y_shift = tl.sum(tl.where(chosen, y_shift, 0.0), axis=0).to(type)
    z_shift = tl.sum(tl.where(chosen, z_shift, 0.0), axis=0).to(type)

    start = first
    while start < end:
        entry = start + tl.arange(0, BLOCK)
        here = entry < end
        row = tl.load(order + entry, mask=here, other=0)
        particle = tl.load(particles + row, mask=here, other=0)
        tl.store(
            whole + 3 * row, tl.load(positions + 3 * particle, mask=here, other=0.0) + x_shift, mask=here
        )
        tl.store(
            whole + 3 * row + 1,
            tl.load(positions + 3 * particle + 1, mask=here, other=0.0) + y_shift,
            mask=here,
        )
        tl.store(
            whole + 3 * row + 2,
            tl.load(positions + 3 * particle + 2, mask=here, other=0.0) + z_shift,
            mask=here,
        )
        start += BLOCK
