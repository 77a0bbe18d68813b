"""Maps of two torsions on the GPU: a launch for the terms, and one for the atoms and the energy.

A term is one lane of a program, which stores the gradients of its five atoms. An atom then adds those of its terms in the order
of the table, and one program adds the programs' energies in double precision: every sum has one order, so that the same input
gives the same bits. __init__.py has the formulas, cpu.cpp the same method.
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

# A warp to a program: a protein has a few hundred terms, which many multiprocessors share.
_TERMS = 32

_LARGEST = tl.constexpr(3.4028234663852886e38)
_PI = tl.constexpr(math.pi)
_QUARTER = tl.constexpr(math.pi / 4)
_HALF = tl.constexpr(math.pi / 2)
# Of arctan's argument; beyond, it is turned by 45°.
_TAN_EIGHTH = tl.constexpr(math.tan(math.pi / 8))
COLLINEARITY_LIMIT = tl.constexpr(reference.COLLINEARITY_LIMIT)


def torsion_maps(
    positions: Tensor,
    members: Tensor,
    map_of_term: Tensor,
    handedness: Tensor,
    atom_offsets: Tensor,
    atom_members: Tensor,
    nodes: Tensor,
    scale: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return what the operator returns; new tables are read and checked, with RuntimeError while a CUDA graph is captured."""
    tables = (members, map_of_term, handedness, atom_offsets, atom_members, nodes)
    reference.check_layout(positions, *tables)
    n_atoms = positions.shape[0]
    if not check_once("torsion_maps", lambda: reference.check_entries(n_atoms, *tables), tables, n_atoms):
        raise RuntimeError("torsion_maps: evaluate once with these tables before capturing a CUDA graph")
    positions = positions.detach().contiguous()
    n_terms = map_of_term.numel()
    n_programs = triton.cdiv(n_terms, _TERMS)
    gradient = torch.empty_like(positions)
    energy = positions.new_empty((), dtype=torch.float64)
    energies = positions.new_empty(n_programs, dtype=torch.float64)
    member_gradient = positions.new_empty((members.numel(), 3), dtype=torch.float32)
    with torch.cuda.device_of(positions):
        if n_terms:
            _terms_kernel[(n_programs,)](
                positions,
                members,
                map_of_term,
                handedness,
                nodes,
                member_gradient,
                energies,
                n_terms,
                nodes.shape[1],
                TERMS=_TERMS,
                num_warps=max(1, _TERMS // 32),
            )
        add_to_atoms(member_gradient, atom_offsets, atom_members, energies, scale, gradient, energy)
    return energy, gradient


@triton.jit
def _cross(ax, ay, az, bx, by, bz):
    return ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx


@triton.jit
def _dot(ax, ay, az, bx, by, bz):
    return ax * bx + ay * by + az * bz


@triton.jit
def _angle(y, x):
    """Return the angle of a vector (x, y) in radians, to 2e-7; 0 where both are 0."""
    along, across = tl.abs(x), tl.abs(y)
    larger, smaller = tl.maximum(along, across), tl.minimum(along, across)
    turned = smaller > _TAN_EIGHTH * larger
    over = tl.where(turned, smaller - larger, smaller)
    under = tl.where(turned, smaller + larger, larger)
    t = over / tl.where(under > 0.0, under, 1.0)
    # The series of arctan to t^15; the rest is below 4e-8 for |t| up to tan 22.5°.
    s = t * t
    series = -1.0 / 15.0 * s + 1.0 / 13.0
    series = series * s - 1.0 / 11.0
    series = series * s + 1.0 / 9.0
    series = series * s - 1.0 / 7.0
    series = series * s + 1.0 / 5.0
    series = series * s - 1.0 / 3.0
    angle = t + t * s * series + tl.where(turned, _QUARTER, 0.0)
    angle = tl.where(across > along, _HALF - angle, angle)
    angle = tl.where(x < 0.0, _PI - angle, angle)
    return tl.where(y < 0.0, -angle, angle)


@triton.jit
def _torsion(ax, ay, az, bx, by, bz, cx, cy, cz):
    """Return a torsion of three bonds, whether it has a value, and its derivatives by the four atoms."""
    mx, my, mz = _cross(ax, ay, az, bx, by, bz)
    nx, ny, nz = _cross(bx, by, bz, cx, cy, cz)
    mm, nn = _dot(mx, my, mz, mx, my, mz), _dot(nx, ny, nz, nx, ny, nz)
    aa, bb, cc = _dot(ax, ay, az, ax, ay, az), _dot(bx, by, bz, bx, by, bz), _dot(cx, cy, cz, cx, cy, cz)
    # False for NaN too.
    bent = (mm > COLLINEARITY_LIMIT * aa * bb) & (nn > COLLINEARITY_LIMIT * cc * bb)
    usable = bent & (mm <= _LARGEST) & (nn <= _LARGEST) & (aa <= _LARGEST) & (cc <= _LARGEST)
    mm, nn, bb = tl.where(usable, mm, 1.0), tl.where(usable, nn, 1.0), tl.where(usable, bb, 1.0)
    length = tl.sqrt(bb)
    sine = tl.where(usable, length * _dot(ax, ay, az, nx, ny, nz), 0.0)
    cosine = tl.where(usable, _dot(mx, my, mz, nx, ny, nz), 1.0)
    first, last = -length / mm, length / nn
    along_a = _dot(ax, ay, az, bx, by, bz) / (length * mm)
    along_c = _dot(cx, cy, cz, bx, by, bz) / (length * nn)
    ex, ey, ez = first * mx, first * my, first * mz
    fx, fy, fz = last * nx, last * ny, last * nz
    ix = along_a * mx + along_c * nx
    iy = along_a * my + along_c * ny
    iz = along_a * mz + along_c * nz
    return (
        _angle(sine, cosine),
        usable,
        ex,
        ey,
        ez,
        ix - ex,
        iy - ey,
        iz - ez,
        -ix - fx,
        -iy - fy,
        -iz - fz,
        fx,
        fy,
        fz,
    )


@triton.jit
def _on_axis(angle, n):
    """Return the node below an angle and the one above, and the polynomials of both with their derivatives, by the node."""
    cells = (angle + _PI) * (n / (2.0 * _PI))
    below = tl.floor(cells)
    u = cells - below
    lower = below.to(tl.int32)
    # The rounding of an angle of 180° may be beyond the edge.
    lower = tl.where(lower >= n, lower - n, tl.where(lower < 0, lower + n, lower))
    upper = tl.where(lower + 1 == n, 0, lower + 1)
    value, steep = u * u * (3.0 - 2.0 * u), 6.0 * u * (1.0 - u)
    slope_0, slope_1 = u * (1.0 - u) * (1.0 - u), u * u * (u - 1.0)
    steep_0, steep_1 = (1.0 - u) * (1.0 - 3.0 * u), u * (3.0 * u - 2.0)
    return lower, upper, 1.0 - value, value, slope_0, slope_1, -steep, steep, steep_0, steep_1


@triton.jit
def _corner(
    node, mask, row, row_slope, by_row, by_row_slope, column, column_slope, by_column, by_column_slope
):
    """Return what a corner of a cell adds to the value and to its derivatives by row and by column."""
    f = tl.load(node, mask=mask, other=0.0)
    f_row = tl.load(node + 1, mask=mask, other=0.0)
    f_column = tl.load(node + 2, mask=mask, other=0.0)
    f_both = tl.load(node + 3, mask=mask, other=0.0)
    plain, steep = f * row + f_row * row_slope, f_column * row + f_both * row_slope
    plain_by, steep_by = f * by_row + f_row * by_row_slope, f_column * by_row + f_both * by_row_slope
    return (
        plain * column + steep * column_slope,
        plain_by * column + steep_by * column_slope,
        plain * by_column + steep * by_column_slope,
    )


@triton.jit
def _store(to, mask, x, y, z):
    tl.store(to, x, mask=mask)
    tl.store(to + 1, y, mask=mask)
    tl.store(to + 2, z, mask=mask)


@triton.jit
def _store_usable(to, mask, usable, x, y, z):
    # Derivatives of a torsion without a value are no numbers.
    _store(to, mask, tl.where(usable, x, 0.0), tl.where(usable, y, 0.0), tl.where(usable, z, 0.0))


@triton.jit
def _bond(positions, members, mask):
    """Return the vector from an atom to the next of its term, in float32."""
    atom = tl.load(members, mask=mask, other=0).to(tl.int64)
    behind = tl.load(members + 1, mask=mask, other=0).to(tl.int64)
    x = tl.load(positions + 3 * behind, mask=mask, other=0.0) - tl.load(
        positions + 3 * atom, mask=mask, other=0.0
    )
    y = tl.load(positions + 3 * behind + 1, mask=mask, other=0.0) - tl.load(
        positions + 3 * atom + 1, mask=mask, other=0.0
    )
    z = tl.load(positions + 3 * behind + 2, mask=mask, other=0.0) - tl.load(
        positions + 3 * atom + 2, mask=mask, other=0.0
    )
    return x.to(tl.float32), y.to(tl.float32), z.to(tl.float32)


@triton.jit
def _terms_kernel(
    positions,
    members,
    map_of_term,
    handedness,
    nodes,
    member_gradient,
    energies,
    n_terms,
    n,
    TERMS: tl.constexpr,
):
    """Sum the energies of terms, and store the gradient of each of their atoms.

    Launch grid: ``(cdiv(n_terms, TERMS),)``: a lane to a term.

    ===============  ================  ==========  ==========================================
    argument         shape             dtype       what it is
    ===============  ================  ==========  ==========================================
    positions        (n_atoms, 3)      float32/64
    members          (n_terms, 5)      int32       the atoms of each term
    map_of_term      (n_terms,)        int32
    handedness       (n_terms,)        float32     1 or -1
    nodes            (maps, n, n, 4)   float32     value, slopes and cross derivative
    member_gradient  (n_terms, 5, 3)   float32     out
    energies         (programs,)       float64     out: of each program's terms
    n_terms, n       scalar            int32       n: nodes of a map along each axis
    TERMS            constant                      terms of a program
    ===============  ================  ==========  ==========================================
    """
    program = tl.program_id(0)
    term = program.to(tl.int64) * TERMS + tl.arange(0, TERMS)
    here = term < n_terms
    first = members + 5 * term
    ax, ay, az = _bond(positions, first, here)
    bx, by, bz = _bond(positions, first + 1, here)
    cx, cy, cz = _bond(positions, first + 2, here)
    dx, dy, dz = _bond(positions, first + 3, here)
    phi, has_phi, p0x, p0y, p0z, p1x, p1y, p1z, p2x, p2y, p2z, p3x, p3y, p3z = _torsion(
        ax, ay, az, bx, by, bz, cx, cy, cz
    )
    psi, has_psi, q0x, q0y, q0z, q1x, q1y, q1z, q2x, q2y, q2z, q3x, q3y, q3z = _torsion(
        bx, by, bz, cx, cy, cz, dx, dy, dz
    )
    usable = here & has_phi & has_psi
    sign = tl.load(handedness + term, mask=here, other=1.0)
    i, i_above, r0, r1, rs0, rs1, dr0, dr1, drs0, drs1 = _on_axis(sign * phi, n)
    j, j_above, c0, c1, cs0, cs1, dc0, dc1, dcs0, dcs1 = _on_axis(sign * psi, n)
    of_map = tl.load(map_of_term + term, mask=here, other=0).to(tl.int64) * n
    lower, upper = nodes + 4 * (of_map + i) * n, nodes + 4 * (of_map + i_above) * n
    e00, u00, v00 = _corner(lower + 4 * j, usable, r0, rs0, dr0, drs0, c0, cs0, dc0, dcs0)
    e01, u01, v01 = _corner(lower + 4 * j_above, usable, r0, rs0, dr0, drs0, c1, cs1, dc1, dcs1)
    e10, u10, v10 = _corner(upper + 4 * j, usable, r1, rs1, dr1, drs1, c0, cs0, dc0, dcs0)
    e11, u11, v11 = _corner(upper + 4 * j_above, usable, r1, rs1, dr1, drs1, c1, cs1, dc1, dcs1)
    per_radian = sign * (n / (2.0 * _PI))
    u, v = (u00 + u01 + u10 + u11) * per_radian, (v00 + v01 + v10 + v11) * per_radian
    to = member_gradient + 15 * term
    _store_usable(to, here, usable, u * p0x, u * p0y, u * p0z)
    _store_usable(to + 3, here, usable, u * p1x + v * q0x, u * p1y + v * q0y, u * p1z + v * q0z)
    _store_usable(to + 6, here, usable, u * p2x + v * q1x, u * p2y + v * q1y, u * p2z + v * q1z)
    _store_usable(to + 9, here, usable, u * p3x + v * q2x, u * p3y + v * q2y, u * p3z + v * q2z)
    _store_usable(to + 12, here, usable, v * q3x, v * q3y, v * q3z)
    energy = tl.where(usable, e00 + e01 + e10 + e11, 0.0).to(tl.float64)
    tl.store(energies + program, tl.sum(energy, axis=0))
