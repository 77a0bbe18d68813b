"""Planarity on the GPU: a launch for the planes of all sizes, and one for the atoms and the energy.

A plane is one lane of a program, which walks its members four times: for the centroid, the covariance, the covariance in the
frame of its own axes, and the gradient. Between them Jacobi's method runs in registers, without branches. An atom then adds the
gradients of its members in the order of the table, and one program adds the planes' energies in double precision: every sum has
one order, so that the same input gives the same bits. __init__.py has the formulas, cpu.cpp the same method.
"""

# No annotations from __future__: Triton reads those of its kernels.
import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..gpu_members import add_to_atoms
from ..table_checks import check_once
from . import reference

# A warp to a program: the solver waits for its divisions, and the programs of a multiprocessor fill each other's gaps.
_PLANES = 32

_LARGEST = tl.constexpr(3.4028234663852886e38)
_SMALLEST = tl.constexpr(1.1754943508222875e-38)
COLLINEARITY_LIMIT = tl.constexpr(reference.COLLINEARITY_LIMIT)
_HALF_LOG_TWO_PI = tl.constexpr(0.5 * math.log(2.0 * math.pi))


def planarity(
    positions: Tensor,
    members: Tensor,
    offsets: Tensor,
    inverse_sigmas: Tensor,
    atom_offsets: Tensor,
    atom_members: Tensor,
    constants: bool = False,
    scale: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return what the operator returns; new tables are read and checked, with RuntimeError while a CUDA graph is captured."""
    tables = (members, offsets, inverse_sigmas, atom_offsets, atom_members)
    reference.check_layout(positions, *tables)
    n_atoms = positions.shape[0]
    if not check_once("planarity", lambda: reference.check_entries(n_atoms, *tables), tables, n_atoms):
        raise RuntimeError("planarity: evaluate once with these tables before capturing a CUDA graph")
    positions = positions.detach().contiguous()
    n_planes = offsets.numel() - 1
    n_programs = triton.cdiv(n_planes, _PLANES)
    gradient = torch.empty_like(positions)
    energy = positions.new_empty((), dtype=torch.float64)
    energies = positions.new_empty(n_programs, dtype=torch.float64)
    member_gradient = positions.new_empty((members.numel(), 3), dtype=torch.float32)
    with torch.cuda.device_of(positions):
        if n_planes > 0:
            _planes_kernel[(n_programs,)](
                positions,
                members,
                offsets,
                inverse_sigmas,
                member_gradient,
                energies,
                n_planes,
                CONSTANTS=constants,
                PLANES=_PLANES,
                num_warps=max(1, _PLANES // 32),
            )
        add_to_atoms(member_gradient, atom_offsets, atom_members, energies, scale, gradient, energy)
    return energy, gradient


@triton.jit
def _dot(ax, ay, az, x, y, z):
    # Fused explicitly: the walks that repeat a sum have to repeat its bits.
    return tl.fma(az, z, tl.fma(ay, y, ax * x))


@triton.jit
def _rotate(pp, qq, pq, pr, qr, px, py, pz, qx, qy, qz):
    difference = qq - pp
    root = tl.sqrt(difference * difference + 4.0 * pq * pq)
    tangent = tl.where(difference < 0.0, -2.0, 2.0) * pq / (tl.abs(difference) + root + _SMALLEST)
    square = 1.0 + tangent * tangent
    cosine = tl.rsqrt(square)
    # The hardware's reciprocal root is a digit short, and fifteen rotations would shrink the axes.
    cosine = cosine * (1.5 - 0.5 * square * cosine * cosine)
    sine = tangent * cosine
    return (
        pp - tangent * pq,
        qq + tangent * pq,
        cosine * pr - sine * qr,
        sine * pr + cosine * qr,
        cosine * px - sine * qx,
        cosine * py - sine * qy,
        cosine * pz - sine * qz,
        sine * px + cosine * qx,
        sine * py + cosine * qy,
        sine * pz + cosine * qz,
    )


@triton.jit
def _diagonalise(xx, yy, zz, xy, xz, yz, SWEEPS: tl.constexpr):
    one = tl.full(xx.shape, 1.0, tl.float32)
    zero = tl.zeros(xx.shape, tl.float32)
    ax, ay, az = one, zero, zero
    bx, by, bz = zero, one, zero
    cx, cy, cz = zero, zero, one
    for _ in range(SWEEPS):
        xx, yy, xz, yz, ax, ay, az, bx, by, bz = _rotate(xx, yy, xy, xz, yz, ax, ay, az, bx, by, bz)
        xy = zero
        xx, zz, xy, yz, ax, ay, az, cx, cy, cz = _rotate(xx, zz, xz, xy, yz, ax, ay, az, cx, cy, cz)
        xz = zero
        yy, zz, xy, xz, bx, by, bz, cx, cy, cz = _rotate(yy, zz, yz, xy, xz, bx, by, bz, cx, cy, cz)
        yz = zero
    return xx, yy, zz, ax, ay, az, bx, by, bz, cx, cy, cz


@triton.jit
def _member(positions, members, inverse_sigmas, first, row, size, origin_x, origin_y, origin_z):
    # Beside the first member, in the positions' own precision: what is left then fits float32.
    here = row < size
    atom = tl.load(members + first + row, mask=here, other=0).to(tl.int64)
    s = tl.load(inverse_sigmas + first + row, mask=here, other=0.0)
    x = tl.load(positions + 3 * atom, mask=here, other=0.0) - origin_x
    y = tl.load(positions + 3 * atom + 1, mask=here, other=0.0) - origin_y
    z = tl.load(positions + 3 * atom + 2, mask=here, other=0.0) - origin_z
    return here, s, x.to(tl.float32), y.to(tl.float32), z.to(tl.float32)


@triton.jit
def _planes_kernel(
    positions,
    members,
    offsets,
    inverse_sigmas,
    member_gradient,
    energies,
    n_planes,
    CONSTANTS: tl.constexpr,
    PLANES: tl.constexpr,
):
    """Sum the energies of planes, and store the gradient of each of their members.

    Launch grid: ``(cdiv(n_planes, PLANES),)``: a lane to a plane.

    ===============  ===============  ==========  ============================================================
    argument         shape            dtype       what it is
    ===============  ===============  ==========  ============================================================
    positions        (n_atoms, 3)     float32/64
    members          (n_members,)     int32       atoms of the first plane, then of the second, ...
    offsets          (n_planes + 1,)  int32       plane p has the members from offsets[p] up to offsets[p + 1]
    inverse_sigmas   (n_members,)     float32     1/σ
    member_gradient  (n_members, 3)   float32     out
    energies         (programs,)      float64     out: of each program's planes
    n_planes         scalar           int32
    CONSTANTS        constant                     whether energies hold Σ (ln σ + ½ ln 2π)
    PLANES           constant                     planes of a program
    ===============  ===============  ==========  ============================================================
    """
    program = tl.program_id(0)
    plane = program.to(tl.int64) * PLANES + tl.arange(0, PLANES)
    exists = plane < n_planes
    first = tl.load(offsets + plane, mask=exists, other=0)
    size = tl.load(offsets + plane + 1, mask=exists, other=0) - first
    rows = tl.max(size, axis=0)
    first = first.to(tl.int64)
    anchor = tl.load(members + first, mask=exists, other=0).to(tl.int64)
    ox = tl.load(positions + 3 * anchor, mask=exists, other=0.0)
    oy = tl.load(positions + 3 * anchor + 1, mask=exists, other=0.0)
    oz = tl.load(positions + 3 * anchor + 2, mask=exists, other=0.0)
    zero = tl.zeros((PLANES,), tl.float32)

    weight, mx, my, mz = zero, zero, zero, zero
    constant = tl.zeros((PLANES,), tl.float64)
    row = 0
    while row < rows:
        here, s, x, y, z = _member(positions, members, inverse_sigmas, first, row, size, ox, oy, oz)
        w = s * s
        weight += w
        mx += w * x
        my += w * y
        mz += w * z
        if CONSTANTS:
            terms = _HALF_LOG_TWO_PI - tl.log(tl.where(here, s, 1.0).to(tl.float64))
            constant += tl.where(here, terms, 0.0)
        row += 1
    per_weight = 1.0 / tl.where(exists, weight, 1.0)
    mx, my, mz = mx * per_weight, my * per_weight, mz * per_weight

    xx, yy, zz, xy, xz, yz = zero, zero, zero, zero, zero, zero
    row = 0
    while row < rows:
        here, s, x, y, z = _member(positions, members, inverse_sigmas, first, row, size, ox, oy, oz)
        x, y, z = (x - mx) * s, (y - my) * s, (z - mz) * s
        xx += x * x
        yy += y * y
        zz += z * z
        xy += x * y
        xz += x * z
        yz += y * z
        row += 1
    trace = xx + yy + zz
    scale = 1.0 / tl.maximum(trace, _SMALLEST)
    _, _, _, ax, ay, az, bx, by, bz, cx, cy, cz = _diagonalise(
        xx * scale, yy * scale, zz * scale, xy * scale, xz * scale, yz * scale, 3
    )

    # The covariance squares the members, which halves the digits of a narrow plane's small eigenvalues. In the frame of its own
    # axes they no longer are small differences of large numbers. The same walk sums what rounding left of the centroid.
    xx, yy, zz, xy, xz, yz = zero, zero, zero, zero, zero, zero
    ra, rb, rc = zero, zero, zero
    row = 0
    while row < rows:
        here, s, x, y, z = _member(positions, members, inverse_sigmas, first, row, size, ox, oy, oz)
        x, y, z = (x - mx) * s, (y - my) * s, (z - mz) * s
        a, b, c = _dot(ax, ay, az, x, y, z), _dot(bx, by, bz, x, y, z), _dot(cx, cy, cz, x, y, z)
        xx += a * a
        yy += b * b
        zz += c * c
        xy += a * b
        xz += a * c
        yz += b * c
        ra += s * a
        rb += s * b
        rc += s * c
        row += 1
    xx, yy, zz, dx, dy, dz, ex, ey, ez, fx, fy, fz = _diagonalise(
        xx * scale, yy * scale, zz * scale, xy * scale, xz * scale, yz * scale, 2
    )

    largest = tl.maximum(tl.maximum(xx, yy), zz)
    middle = tl.maximum(tl.minimum(xx, yy), tl.minimum(tl.maximum(xx, yy), zz))
    third = (zz < xx) & (zz < yy)
    second = (yy < xx) & (~third)
    ux = tl.where(third, fx, tl.where(second, ex, dx))
    uy = tl.where(third, fy, tl.where(second, ey, dy))
    uz = tl.where(third, fz, tl.where(second, ez, dz))
    # False for NaN too: a member that is not finite makes the trace so.
    usable = exists & (trace <= _LARGEST) & (middle > COLLINEARITY_LIMIT * largest)
    nx = tl.where(usable, _dot(ux, uy, uz, ax, bx, cx), 0.0)
    ny = tl.where(usable, _dot(ux, uy, uz, ay, by, cy), 0.0)
    nz = tl.where(usable, _dot(ux, uy, uz, az, bz, cz), 0.0)
    mean = _dot(ux, uy, uz, ra, rb, rc) * per_weight

    square = zero
    row = 0
    while row < rows:
        here, s, x, y, z = _member(positions, members, inverse_sigmas, first, row, size, ox, oy, oz)
        x, y, z = (x - mx) * s, (y - my) * s, (z - mz) * s
        a, b, c = _dot(ax, ay, az, x, y, z), _dot(bx, by, bz, x, y, z), _dot(cx, cy, cz, x, y, z)
        # Without the centroid's rounding, which would be a net force.
        distance = _dot(ux, uy, uz, a, b, c) - s * mean
        square += tl.where(here, distance * distance, 0.0)
        slope = tl.where(usable, s * distance, 0.0)
        to = member_gradient + 3 * (first + row)
        tl.store(to, slope * nx, mask=here)
        tl.store(to + 1, slope * ny, mask=here)
        tl.store(to + 2, slope * nz, mask=here)
        row += 1
    energy = tl.where(usable, 0.5 * square, 0.0).to(tl.float64) + constant
    tl.store(energies + program, tl.sum(energy, axis=0))
