"""A map interpolated at the atoms, and its gradient, on the GPU: a lane to an atom, then one launch that divides by the weights.

The fractional index is worked out in double precision, the cubics in single. The sums over the atoms have one order, so that the
same input gives the same bits.
"""

# No annotations from __future__: Triton reads those of its kernels.
import torch
import triton
import triton.language as tl
from torch import Tensor

from ..autograd import scaled
from ..table_checks import check_once

_ATOMS = 64
_DIVISIONS = 512
_SUMS = 512
# Rows of the sums over each program's atoms.
SUM_WU, SUM_W = tl.constexpr(0), tl.constexpr(1)


def map_potential(
    positions: Tensor,
    atoms: Tensor,
    weights: Tensor,
    potential: Tensor,
    matrix: Tensor,
    origin: Tensor,
    periodic: bool,
    scale: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return what the operator returns; new tables are read and checked, with RuntimeError while a CUDA graph is captured.

    Raises IndexError if an atom is not among the positions; RuntimeError if a shape or type is wrong, or the grid has no
    volume.
    """
    _check_layout(positions, atoms, weights, potential, matrix, origin)
    n_particles, n_atoms = positions.shape[0], atoms.numel()
    if not check_once(
        "map_potential", lambda: _check_entries(n_particles, atoms, matrix), (atoms, matrix), n_particles
    ):
        raise RuntimeError("map_potential: evaluate once with these tables before capturing a CUDA graph")
    positions = positions.detach().contiguous()
    gradient = torch.zeros_like(positions)
    if n_atoms == 0:
        return torch.zeros((), dtype=torch.float64, device=positions.device), gradient
    atoms, weights = atoms.contiguous(), weights.contiguous()
    nz, ny, nx = potential.shape
    n_programs = triton.cdiv(n_atoms, _ATOMS)
    similarity = positions.new_empty((), dtype=torch.float64)
    sums = positions.new_empty((2, n_programs), dtype=torch.float64)
    with torch.cuda.device_of(positions):
        _interpolate_kernel[(n_programs,)](
            positions,
            atoms,
            weights,
            potential,
            matrix.contiguous(),
            origin.contiguous(),
            gradient,
            sums,
            n_atoms,
            nx,
            ny,
            nz,
            PERIODIC=periodic,
            ATOMS=_ATOMS,
            num_warps=2,
        )
        _divide_kernel[(triton.cdiv(n_atoms, _DIVISIONS),)](
            atoms, gradient, sums, similarity, n_atoms, n_programs, ATOMS=_DIVISIONS, SUMS=_SUMS, num_warps=4
        )
    return similarity, scaled(gradient, scale)


def _check_layout(
    positions: Tensor, atoms: Tensor, weights: Tensor, potential: Tensor, matrix: Tensor, origin: Tensor
) -> None:
    for valid, problem in (
        (potential.dim() == 3, f"a grid has three dimensions (nz, ny, nx), not {potential.dim()}"),
        (
            all(0 < size < 2**30 for size in potential.shape),
            f"a grid has from 1 to {2**30 - 1} voxels along an axis, not {tuple(potential.shape)}",
        ),
        (
            matrix.shape == (3, 3) and matrix.dtype == torch.float64,
            f"matrix must be a float64 tensor of shape (3, 3), not {_describe(matrix)}",
        ),
        (
            origin.shape == (3,) and origin.dtype == torch.float64,
            f"origin must be a float64 tensor of shape (3,), not {_describe(origin)}",
        ),
        (
            positions.dim() == 2
            and positions.shape[1] == 3
            and positions.dtype in (torch.float32, torch.float64),
            f"positions must be float32 or float64 of shape (N, 3), not {_describe(positions)}",
        ),
        (
            atoms.dim() == 1 and atoms.dtype == torch.int64,
            f"atoms must be int64 of shape (M,), not {_describe(atoms)}",
        ),
        (
            weights.shape == atoms.shape and weights.dtype == torch.float32,
            f"weights must be float32 of the shape of atoms, {tuple(atoms.shape)}, not {_describe(weights)}",
        ),
        (
            potential.dtype == torch.float32 and potential.is_contiguous(),
            f"potential must be float32 and contiguous, not {_describe(potential)} with strides {potential.stride()}: "
            "pass potential.float().contiguous()",
        ),
    ):
        if not valid:
            raise RuntimeError(problem)


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


def _check_entries(n_particles: int, atoms: Tensor, matrix: Tensor) -> None:
    wrong = atoms[(atoms < 0) | (atoms >= n_particles)]
    if wrong.numel():
        raise IndexError(
            f"atom {int(wrong[0])} is not among the {n_particles} positions: atoms are counted from 0"
        )
    determinant = torch.linalg.det(matrix.cpu())
    if determinant == 0 or not determinant.isfinite():
        raise RuntimeError(
            f"the steps of the grid span no volume: the determinant of matrix is {float(determinant):g}, "
            "and must be finite and not 0"
        )


@triton.jit
def _cubic(t, K: tl.constexpr):
    # Keys' cubic convolution (a = -1/2) at voxel K of the four around a point at fraction t from the second to the third.
    if K == 0:
        value = ((-0.5 * t + 1.0) * t - 0.5) * t
        slope = (-1.5 * t + 2.0) * t - 0.5
    elif K == 1:
        value = (1.5 * t - 2.5) * t * t + 1.0
        slope = (4.5 * t - 5.0) * t
    elif K == 2:
        value = ((-1.5 * t + 2.0) * t + 0.5) * t
        slope = (-4.5 * t + 4.0) * t + 0.5
    else:
        value = (0.5 * t - 0.5) * t * t
        slope = (1.5 * t - 1.0) * t
    return value, slope


@triton.jit
def _voxel(below, n, K: tl.constexpr, PERIODIC: tl.constexpr):
    voxel = below + (K - 1)
    if PERIODIC:
        # Below is from 0 to n, so that n = 1 and 2 too need no more than a remainder.
        voxel = (voxel + n) % n
    return voxel, (voxel >= 0) & (voxel < n)


@triton.jit
def _fractional(a, b, c, dx, dy, dz, n, PERIODIC: tl.constexpr):
    u = a * dx + b * dy + c * dz
    usable = tl.abs(u) < 1e9
    if PERIODIC:
        # In double precision, so that a point a thousand cells away loses nothing.
        u = u - n * tl.floor(u / n)
    return tl.where(usable, u, 0.0), usable


@triton.jit
def _interpolate_kernel(
    positions,
    atoms,
    weights,
    potential,
    matrix,
    origin,
    gradient,
    sums,
    n_atoms,
    nx,
    ny,
    nz,
    PERIODIC: tl.constexpr,
    ATOMS: tl.constexpr,
):
    """Interpolate the potential at the atoms: the sums over a program's atoms, and w ∂u/∂x of each.

    Launch grid: ``(cdiv(n_atoms, ATOMS),)``: a lane to an atom.

    ===============  ================  ==========  =============================================
    argument         shape             dtype       what it is
    ===============  ================  ==========  =============================================
    positions        (n_positions, 3)  float32/64
    atoms            (n_atoms,)        int64       the particle of each atom
    weights          (n_atoms,)        float32     w
    potential        (nz, ny, nx)      float32     u
    matrix           (3, 3)            float64     its columns are the steps from voxel to voxel
    origin           (3,)              float64     position of voxel 0
    gradient         (n_positions, 3)  float32/64  0 before; out
    sums             (2, programs)     float64     out: Σ w u in row SUM_WU, Σ w in row SUM_W
    n_atoms          scalar            int32
    nx, ny, nz       scalar            int32       voxels of the grid
    PERIODIC, ATOMS  constant                      ATOMS: atoms of a program
    ===============  ================  ==========  =============================================
    """
    program = tl.program_id(0)
    fitted = program.to(tl.int64) * ATOMS + tl.arange(0, ATOMS)
    exists = fitted < n_atoms
    atom = tl.load(atoms + fitted, mask=exists, other=0)
    weight = tl.load(weights + fitted, mask=exists, other=0.0).to(tl.float64)

    xx, xy, xz = tl.load(matrix), tl.load(matrix + 1), tl.load(matrix + 2)
    yx, yy, yz = tl.load(matrix + 3), tl.load(matrix + 4), tl.load(matrix + 5)
    zx, zy, zz = tl.load(matrix + 6), tl.load(matrix + 7), tl.load(matrix + 8)
    ax, bx, cx = yy * zz - yz * zy, yz * zx - yx * zz, yx * zy - yy * zx
    per_volume = 1.0 / (xx * ax + xy * bx + xz * cx)
    ax, bx, cx = ax * per_volume, bx * per_volume, cx * per_volume
    ay, by, cy = (
        (xz * zy - xy * zz) * per_volume,
        (xx * zz - xz * zx) * per_volume,
        (xy * zx - xx * zy) * per_volume,
    )
    az, bz, cz = (
        (xy * yz - xz * yy) * per_volume,
        (xz * yx - xx * yz) * per_volume,
        (xx * yy - xy * yx) * per_volume,
    )

    dx = tl.load(positions + 3 * atom, mask=exists, other=0.0).to(tl.float64) - tl.load(origin)
    dy = tl.load(positions + 3 * atom + 1, mask=exists, other=0.0).to(tl.float64) - tl.load(origin + 1)
    dz = tl.load(positions + 3 * atom + 2, mask=exists, other=0.0).to(tl.float64) - tl.load(origin + 2)
    u, x_usable = _fractional(ax, ay, az, dx, dy, dz, nx, PERIODIC)
    v, y_usable = _fractional(bx, by, bz, dx, dy, dz, ny, PERIODIC)
    w, z_usable = _fractional(cx, cy, cz, dx, dy, dz, nz, PERIODIC)
    usable = exists & x_usable & y_usable & z_usable
    x_below, y_below, z_below = tl.floor(u), tl.floor(v), tl.floor(w)
    tx, ty, tz = (u - x_below).to(tl.float32), (v - y_below).to(tl.float32), (w - z_below).to(tl.float32)
    x_below, y_below, z_below = x_below.to(tl.int32), y_below.to(tl.int32), z_below.to(tl.int32)

    value = tl.zeros((ATOMS,), tl.float32)
    du = tl.zeros((ATOMS,), tl.float32)
    dv = tl.zeros((ATOMS,), tl.float32)
    dw = tl.zeros((ATOMS,), tl.float32)
    for k in tl.static_range(4):
        z_value, z_slope = _cubic(tz, k)
        z, z_inside = _voxel(z_below, nz, k, PERIODIC)
        for j in tl.static_range(4):
            y_value, y_slope = _cubic(ty, j)
            y, y_inside = _voxel(y_below, ny, j, PERIODIC)
            row = potential + (z.to(tl.int64) * ny + y) * nx
            row_inside = usable & z_inside & y_inside
            in_row = tl.zeros((ATOMS,), tl.float32)
            slope_in_row = tl.zeros((ATOMS,), tl.float32)
            for i in tl.static_range(4):
                x_value, x_slope = _cubic(tx, i)
                x, x_inside = _voxel(x_below, nx, i, PERIODIC)
                here = tl.load(row + x, mask=row_inside & x_inside, other=0.0)
                in_row += x_value * here
                slope_in_row += x_slope * here
            value += z_value * y_value * in_row
            du += z_value * y_value * slope_in_row
            dv += z_value * y_slope * in_row
            dw += z_slope * y_value * in_row

    type = gradient.dtype.element_ty
    gx = weight * (ax * du + bx * dv + cx * dw)
    gy = weight * (ay * du + by * dv + cy * dw)
    gz = weight * (az * du + bz * dv + cz * dw)
    tl.store(gradient + 3 * atom, gx.to(type), mask=usable)
    tl.store(gradient + 3 * atom + 1, gy.to(type), mask=usable)
    tl.store(gradient + 3 * atom + 2, gz.to(type), mask=usable)
    tl.store(sums + SUM_WU * tl.num_programs(0) + program, tl.sum(weight * value, axis=0))
    tl.store(sums + SUM_W * tl.num_programs(0) + program, tl.sum(weight, axis=0))


@triton.jit
def _divide_kernel(
    atoms,
    gradient,
    sums,
    similarity,
    n_atoms,
    n_sums,
    ATOMS: tl.constexpr,
    SUMS: tl.constexpr,
):
    """Divide by the total weight: the similarity, by the first program, and the gradients.

    Launch grid: ``(cdiv(n_atoms, ATOMS),)``: a lane to an atom.

    ===============  ================  ==========  ==============================================
    argument         shape             dtype       what it is
    ===============  ================  ==========  ==============================================
    atoms            (n_atoms,)        int64       the particle of each atom
    gradient         (n_positions, 3)  float32/64  of `_interpolate_kernel`; in place
    sums             (2, n_sums)       float64     of `_interpolate_kernel`
    similarity       ()                float64     out
    n_atoms, n_sums  scalar            int32
    ATOMS, SUMS      constant                      atoms of a program; sums that are read at once
    ===============  ================  ==========  ==============================================
    """
    program = tl.program_id(0)
    value = tl.zeros((SUMS,), tl.float64)
    weight = tl.zeros((SUMS,), tl.float64)
    start = 0
    while start < n_sums:
        entry = start + tl.arange(0, SUMS)
        value += tl.load(sums + SUM_WU * n_sums + entry, mask=entry < n_sums, other=0.0)
        weight += tl.load(sums + SUM_W * n_sums + entry, mask=entry < n_sums, other=0.0)
        start += SUMS
    per_weight = 1.0 / tl.sum(weight, axis=0)
    if program == 0:
        tl.store(similarity, tl.sum(value, axis=0) * per_weight)
    fitted = program.to(tl.int64) * ATOMS + tl.arange(0, ATOMS)
    exists = fitted < n_atoms
    atom = tl.load(atoms + fitted, mask=exists, other=0)
    type = gradient.dtype.element_ty
    for axis in tl.static_range(3):
        pointer = gradient + 3 * atom + axis
        component = tl.load(pointer, mask=exists, other=0.0).to(tl.float64)
        tl.store(pointer, (component * per_weight).to(type), mask=exists)
