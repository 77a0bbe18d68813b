"""The grid and the sphere of an atom as the GPU's kernels need them: two small tables, written by one program and read by all.

`inverse`, shape (9,), float64, is the inverse of the grid's matrix M, row by row: from a position to voxels. `geometry`, shape
(GEOMETRY_SLOTS,), float32, holds in the slots named here how far a sphere reaches, M itself, and U, the upper-triangular Cholesky
factor of the grid metric in units of the cut-off: UᵀU = MᵀM / cutoff². The squared distance of two points that are v voxels apart
is |Uv|², which takes fewer products than |Mv|², and is 1 at the cut-off.
"""

# No annotations from __future__: Triton reads those of its kernels.
import triton
import triton.language as tl

# Three reaches, six numbers of U and nine of M; nine of the inverse.
GEOMETRY_SLOTS, INVERSE_SLOTS = 18, 9

(
    # How far the sphere reaches along each axis, in voxels, rounded up a little.
    REACH_X,
    REACH_Y,
    REACH_Z,
    # U.
    U_XX,
    U_XY,
    U_XZ,
    U_YY,
    U_YZ,
    U_ZZ,
    # M, row by row.
    MATRIX_XX,
    MATRIX_XY,
    MATRIX_XZ,
    MATRIX_YX,
    MATRIX_YY,
    MATRIX_YZ,
    MATRIX_ZX,
    MATRIX_ZY,
    MATRIX_ZZ,
) = (tl.constexpr(slot) for slot in range(GEOMETRY_SLOTS))


@triton.jit
def store_geometry(matrix, cutoff, inverse, geometry):
    """Fill `inverse` and `geometry` from the matrix, shape (3, 3), float64, and the cut-off."""
    xx = tl.load(matrix)
    xy = tl.load(matrix + 1)
    xz = tl.load(matrix + 2)
    yx = tl.load(matrix + 3)
    yy = tl.load(matrix + 4)
    yz = tl.load(matrix + 5)
    zx = tl.load(matrix + 6)
    zy = tl.load(matrix + 7)
    zz = tl.load(matrix + 8)
    cx = yy * zz - yz * zy
    cy = yz * zx - yx * zz
    cz = yx * zy - yy * zx
    scale = _reciprocal(xx * cx + xy * cy + xz * cz)
    _store_row(inverse, cx * scale, (xz * zy - xy * zz) * scale, (xy * yz - xz * yy) * scale)
    _store_row(inverse + 3, cy * scale, (xx * zz - xz * zx) * scale, (xz * yx - xx * yz) * scale)
    _store_row(inverse + 6, cz * scale, (xy * zx - xx * zy) * scale, (xx * yy - xy * yx) * scale)
    tl.debug_barrier()
    axis = tl.arange(0, 4)
    row = tl.zeros([4], tl.float64)
    for k in tl.static_range(3):
        element = tl.load(inverse + 3 * axis + k, mask=axis < 3, other=0.0)
        row += element * element
    reach = cutoff * (1.0 + 1e-6) * tl.sqrt(row.to(tl.float32)) + 1e-4
    tl.store(geometry + REACH_X + axis, reach, mask=axis < 3)
    u_xx = _root(xx * xx + yx * yx + zx * zx)
    per_x = _reciprocal(u_xx)
    u_xy = (xx * xy + yx * yy + zx * zy) * per_x
    u_xz = (xx * xz + yx * yz + zx * zz) * per_x
    u_yy = _root(xy * xy + yy * yy + zy * zy - u_xy * u_xy)
    u_yz = (xy * xz + yy * yz + zy * zz - u_xy * u_xz) * _reciprocal(u_yy)
    u_zz = _root(xz * xz + yz * yz + zz * zz - u_xz * u_xz - u_yz * u_yz)
    # A rotated orthogonal grid is one but for rounding.
    small = 1e-13 * u_xx
    per_cutoff = _reciprocal(cutoff + tl.zeros([], tl.float64))
    tl.store(geometry + U_XX, (per_cutoff * u_xx).to(tl.float32))
    tl.store(geometry + U_XY, (per_cutoff * tl.where(tl.abs(u_xy) > small, u_xy, 0.0)).to(tl.float32))
    tl.store(geometry + U_XZ, (per_cutoff * tl.where(tl.abs(u_xz) > small, u_xz, 0.0)).to(tl.float32))
    tl.store(geometry + U_YY, (per_cutoff * u_yy).to(tl.float32))
    tl.store(geometry + U_YZ, (per_cutoff * tl.where(tl.abs(u_yz) > small, u_yz, 0.0)).to(tl.float32))
    tl.store(geometry + U_ZZ, (per_cutoff * u_zz).to(tl.float32))
    element = tl.arange(0, 16)
    of_matrix = element < 9
    tl.store(
        geometry + MATRIX_XX + element,
        tl.load(matrix + element, mask=of_matrix).to(tl.float32),
        mask=of_matrix,
    )


@triton.jit
def _reciprocal(x):
    """Return 1/x in float64 by Newton's method, which takes less time than a division."""
    guess = (1.0 / x.to(tl.float32)).to(tl.float64)
    guess += guess * (1.0 - x * guess)
    return guess + guess * (1.0 - x * guess)


@triton.jit
def _root(x):
    """Return the square root of x in float64, likewise."""
    guess = tl.sqrt(x.to(tl.float32))
    exact = guess.to(tl.float64)
    return exact + ((x - exact * exact).to(tl.float32) * (0.5 / guess)).to(tl.float64)


@triton.jit
def _store_row(row, x, y, z):
    tl.store(row, x)
    tl.store(row + 1, y)
    tl.store(row + 2, z)


@triton.jit
def reach_of_sphere(geometry):
    """Return how far the sphere reaches along each axis, in voxels."""
    return tl.load(geometry + REACH_X), tl.load(geometry + REACH_Y), tl.load(geometry + REACH_Z)


@triton.jit
def cholesky_of_metric(geometry):
    """Return U: xx, xy, xz, yy, yz, zz."""
    return (
        tl.load(geometry + U_XX),
        tl.load(geometry + U_XY),
        tl.load(geometry + U_XZ),
        tl.load(geometry + U_YY),
        tl.load(geometry + U_YZ),
        tl.load(geometry + U_ZZ),
    )


@triton.jit
def twice_matrix(geometry):
    """Return twice M, row by row: ∂ρ/∂x = −2 ρ′(s) (voxel − atom), from voxels to space."""
    rows = ()
    for k in tl.static_range(9):
        rows = rows + (2.0 * tl.load(geometry + MATRIX_XX + k),)  # noqa: RUF005
    return rows
