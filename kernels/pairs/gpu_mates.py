"""Contacts of a unit with its images on the GPU: blocks of the unit's atoms with blocks of each image that are in reach.

Blocks of atoms that follow each other are compact. Programs share the images of a block; each looks at the spheres around many
blocks of an image at once, and adds what the few in reach do as whole numbers, whose sum is the same in any order. Three launches
in all, as each takes longer to start than to run.
"""

# No annotations from __future__: Triton reads those of its kernels.
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..neighbors.reference import FARTHEST
from ..table_checks import check_scale
from . import forms, reference
from .gpu_forms import pair_energy

_ATOMS = 32
# Components of the gradient to a program of the last launch.
_COMPONENTS = 256
# As many programs as a large GPU runs at once.
_PROGRAMS = 4096
_TANGENT_FROM = tl.constexpr(reference.TANGENT_FROM)
_NONBONDED = tl.constexpr(forms.NONBONDED)
# Of an energy or a component of a gradient: units in 1, and the largest that a program adds.
_UNITS = tl.constexpr(16777216.0)
# Of a program: no sum of as many as there are leaves int64.
_LARGEST = tl.constexpr(1.0e8)
_FARTHEST = tl.constexpr(FARTHEST)
# What rounding may make of the distance of two spheres.
_SLACK = tl.constexpr(1.0001)
# Of the largest sigma in a block: the radius up to which float32 suffices as seen from the mean of its atoms.
_WIDE = tl.constexpr(300.0)


def mate_contacts(
    positions: Tensor,
    parameters: Tensor,
    images: Tensor,
    excluded: Tensor,
    cutoff: float,
    settings: Sequence[float],
    scale: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return what `openmm_density.kernels.pairs.mate_contacts` returns, with the same arguments."""
    reference.check_contacts(positions, parameters, images, excluded, cutoff, settings)
    check_scale(scale)
    n, n_images = positions.shape[0], images.shape[0]
    if n == 0 or n_images == 0:
        return torch.zeros((), dtype=torch.float64, device=positions.device), torch.zeros_like(positions)
    positions = positions.detach().contiguous()
    gradient = torch.empty_like(positions)
    energy = positions.new_empty((), dtype=torch.float64)
    n_blocks = triton.cdiv(n, _ATOMS)
    spheres = positions.new_empty((n_blocks, 4), dtype=torch.float64)
    units = positions.new_empty((n, 3), dtype=torch.int64)
    energies = positions.new_empty((n_blocks,), dtype=torch.int64)
    begin = min(settings[0], cutoff)
    dielectric, volume = settings[2], cutoff**3
    chunk, warps = _shape_of_programs(n_blocks)
    n_chunks = triton.cdiv(n_blocks, chunk)
    shares = min(n_images * n_chunks, max(1, _PROGRAMS // n_blocks))
    with torch.cuda.device_of(positions):
        _spheres_kernel[(n_blocks,)](
            positions, parameters, spheres, units, energies, n, ATOMS=_ATOMS, num_warps=1
        )
        _contacts_kernel[(n_blocks, shares)](
            positions,
            parameters,
            images,
            excluded,
            spheres,
            units,
            energies,
            n,
            n_images * n_chunks,
            n_chunks,
            excluded.shape[0],
            n_blocks,
            cutoff,
            begin,
            1.0 / (cutoff - begin) if begin < cutoff else 0.0,
            settings[1],
            (dielectric - 1) / (2 * dielectric + 1) / volume,
            3 * dielectric / (2 * dielectric + 1) / cutoff,
            ATOMS=_ATOMS,
            CHUNK=chunk,
            num_warps=warps,
        )
        _sums_kernel[(1 + triton.cdiv(3 * n, _COMPONENTS),)](
            units,
            energies,
            units if scale is None else scale,
            gradient,
            energy,
            3 * n,
            n_blocks,
            SCALED=scale is not None,
            COMPONENTS=_COMPONENTS,
            num_warps=4,
        )
    return energy, gradient


def _shape_of_programs(n_blocks: int) -> tuple[int, int]:
    """Return the blocks of an image looked at together, and warps: the fastest for 105 blocks on an H200."""
    return (32, 4) if n_blocks <= 256 else (128, 4)


@triton.jit
def _to_units(x):
    bounded = tl.minimum(tl.maximum(x, -_LARGEST), _LARGEST)
    # The product is exact: a power of two.
    return (bounded * _UNITS).to(tl.int64)


@triton.jit
def _load_atoms(positions, parameters, i, n):
    """Return the positions of atoms in float64, 0 of those without contacts, their parameters, and whether they have any."""
    here = i < n
    x = tl.load(positions + 3 * i, mask=here, other=0.0).to(tl.float64)
    y = tl.load(positions + 3 * i + 1, mask=here, other=0.0).to(tl.float64)
    z = tl.load(positions + 3 * i + 2, mask=here, other=0.0).to(tl.float64)
    sigma = tl.load(parameters + 3 * i, mask=here, other=0.0)
    epsilon = tl.load(parameters + 3 * i + 1, mask=here, other=0.0)
    charge = tl.load(parameters + 3 * i + 2, mask=here, other=0.0)
    # False for NaN too.
    near = (tl.abs(x) <= _FARTHEST) & (tl.abs(y) <= _FARTHEST) & (tl.abs(z) <= _FARTHEST)
    acts = here & near & ((epsilon != 0.0) | (charge != 0.0))
    x, y, z = tl.where(acts, x, 0.0), tl.where(acts, y, 0.0), tl.where(acts, z, 0.0)
    return x, y, z, sigma, epsilon, charge, acts


@triton.jit
def _middle(x, acts, ATOMS: tl.constexpr):
    """Return the median of the coordinates of atoms with contacts."""
    lane = tl.arange(0, ATOMS)
    before = (x[None, :] < x[:, None]) | ((x[None, :] == x[:, None]) & (lane[None, :] < lane[:, None]))
    rank = tl.sum((before & acts[None, :]).to(tl.int32), axis=1)
    is_middle = acts & (rank == tl.sum(acts.to(tl.int32), axis=0) // 2)
    return tl.sum(tl.where(is_middle, x, 0.0), axis=0)


@triton.jit
def _farthest(x, y, z, acts, cx, cy, cz):
    """Return the largest squared distance of atoms with contacts from a centre, -1 where there are none."""
    dx, dy, dz = x - cx, y - cy, z - cz
    return tl.max(tl.where(acts, dx * dx + dy * dy + dz * dz, -1.0), axis=0)


@triton.jit
def _spheres_kernel(positions, parameters, spheres, units, energies, n, ATOMS: tl.constexpr):
    """Find the sphere around a block's atoms, and set what they add to to 0.

    Launch grid: ``(blocks,)``.

    ==========  ===========  ==========  =================================================================
    argument    shape        dtype       what it is
    ==========  ===========  ==========  =================================================================
    positions   (n, 3)       float32/64
    parameters  (n, 3)       float32     sigma, epsilon, charge
    spheres     (blocks, 4)  float64     out: centre and radius of each block's atoms; -1 where none acts
    units       (n, 3)       int64       out: 0
    energies    (blocks,)    int64       out: 0
    n           scalar       int32
    ATOMS       constant                 of a block
    ==========  ===========  ==========  =================================================================
    """
    block = tl.program_id(0)
    i = block * ATOMS + tl.arange(0, ATOMS)
    x, y, z, sigma, _, _, acts = _load_atoms(positions, parameters, i, n)
    count = tl.maximum(tl.sum(acts.to(tl.float64), axis=0), 1.0)
    cx, cy, cz = tl.sum(x, axis=0) / count, tl.sum(y, axis=0) / count, tl.sum(z, axis=0) / count
    farthest = _farthest(x, y, z, acts, cx, cy, cz)
    widest = _WIDE * tl.max(tl.where(acts, sigma, 0.0), axis=0)
    if farthest > widest * widest:
        # An atom that has got lost takes no digits from the others.
        cx, cy, cz = _middle(x, acts, ATOMS), _middle(y, acts, ATOMS), _middle(z, acts, ATOMS)
        farthest = _farthest(x, y, z, acts, cx, cy, cz)
    radius = tl.where(farthest < 0.0, -1.0, tl.sqrt(tl.maximum(farthest, 0.0)) * _SLACK)
    tl.store(spheres + 4 * block, cx)
    tl.store(spheres + 4 * block + 1, cy)
    tl.store(spheres + 4 * block + 2, cz)
    tl.store(spheres + 4 * block + 3, radius)
    zero = tl.zeros((ATOMS,), tl.int64)
    tl.store(units + 3 * i, zero, mask=i < n)
    tl.store(units + 3 * i + 1, zero, mask=i < n)
    tl.store(units + 3 * i + 2, zero, mask=i < n)
    tl.store(energies + block, tl.sum(zero, axis=0))


@triton.jit
def _first_excluded(excluded, first, end, atom, image, other):
    """Return the first entry from which on pairs are not before (atom, image, other), which may be a vector's."""
    low, high = first + 0 * atom, end + 0 * atom
    # Halved so often, no table of 32-bit entries leaves anything.
    length = end - first
    while length > 0:
        middle = (low + high) // 2
        asked = low < high
        its_atom = tl.load(excluded + 3 * middle, mask=asked, other=0)
        its_image = tl.load(excluded + 3 * middle + 1, mask=asked, other=0)
        its_other = tl.load(excluded + 3 * middle + 2, mask=asked, other=0)
        before = (its_image < image) | ((its_image == image) & (its_other < other))
        before = (its_atom < atom) | ((its_atom == atom) & before)
        low = tl.where(asked & before, middle + 1, low)
        high = tl.where(asked & ~before, middle, high)
        length = length // 2
    return low


@triton.jit
def _left_out(excluded, first, end, i, image, j, ATOMS: tl.constexpr):
    """Return which pairs of a block's atoms and those of an image's block are among the excluded ones from first to end."""
    entry = _first_excluded(excluded, first, end, i, image, tl.min(j, axis=0))
    after = _first_excluded(excluded, first, end, i, image, tl.max(j, axis=0) + 1)
    found = tl.zeros((ATOMS, ATOMS), tl.int1)
    while tl.max(after - entry, axis=0) > 0:
        atom = tl.load(excluded + 3 * entry + 2, mask=entry < after, other=-1)
        found |= atom[:, None] == j[None, :]
        entry = tl.minimum(entry + 1, after)
    return found


@triton.jit
def _in_reach(spheres, block, n_blocks, reach, r00, r01, r02, t0, r10, r11, r12, t1, r20, r21, r22, t2):
    """Return which blocks of an image have atoms nearer than so far from 0, beyond their own radius."""
    there = block < n_blocks
    x = tl.load(spheres + 4 * block, mask=there, other=0.0)
    y = tl.load(spheres + 4 * block + 1, mask=there, other=0.0)
    z = tl.load(spheres + 4 * block + 2, mask=there, other=0.0)
    radius = tl.load(spheres + 4 * block + 3, mask=there, other=-1.0)
    dx = r00 * x + r01 * y + r02 * z + t0
    dy = r10 * x + r11 * y + r12 * z + t1
    dz = r20 * x + r21 * y + r22 * z + t2
    return (radius >= 0.0) & (dx * dx + dy * dy + dz * dz < (reach + radius) * (reach + radius))


@triton.jit
def _contacts_kernel(
    positions,
    parameters,
    images,
    excluded,
    spheres,
    units,
    energies,
    n,
    n_pieces,
    n_chunks,
    n_excluded,
    n_blocks,
    cutoff,
    switch_begin,
    per_switch,
    coulomb,
    k,
    c,
    ATOMS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Add the energies of a block's atoms with some pieces of all images, and what acts on each.

    Launch grid: ``(blocks, shares)``: a program takes each share-th piece of all images.

    ==================================  ==============  ==========  ==================================================
    argument                            shape           dtype       what it is
    ==================================  ==============  ==========  ==================================================
    positions                           (n, 3)          float32/64
    parameters                          (n, 3)          float32     sigma, epsilon, charge
    images                              (images, 3, 4)  float64     R and t of each
    excluded                            (excluded, 3)   int32       atom, image, and the atom there; ascending
    spheres                             (blocks, 4)     float64     centre and radius of each block's atoms, -1: none
    units                               (n, 3)          int64       added to: the gradient, in units of 2^-24
    energies                            (blocks,)       int64       added to: of each block's atoms, in the same units
    n, n_excluded, n_blocks             scalars         int32       how many there are
    n_pieces                            scalar          int32       images times n_chunks
    n_chunks                            scalar          int32       pieces of an image, of CHUNK blocks
    cutoff, switch_begin, per_switch    scalars         float32     see forms.py
    coulomb, k, c                       scalars         float32     see forms.py
    ATOMS                               constant                    of a block
    CHUNK                               constant                    blocks of a piece
    ==================================  ==============  ==========  ==================================================
    """
    block = tl.program_id(0)
    i = block * ATOMS + tl.arange(0, ATOMS)
    x, y, z, a0, a1, a2, acts = _load_atoms(positions, parameters, i, n)
    sx = tl.load(spheres + 4 * block)
    sy = tl.load(spheres + 4 * block + 1)
    sz = tl.load(spheres + 4 * block + 2)
    radius = tl.load(spheres + 4 * block + 3)
    # As seen from the centre of the block, where float32 suffices.
    x, y, z = (x - sx).to(tl.float32), (y - sy).to(tl.float32), (z - sz).to(tl.float32)
    a0, a1, a2 = a0[:, None], a1[:, None], a2[:, None]
    first_left_out = _first_excluded(excluded, 0, n_excluded, block * ATOMS, -1, -1)
    end_left_out = _first_excluded(excluded, first_left_out, n_excluded, block * ATOMS + ATOMS, -1, -1)
    gx, gy, gz = (
        tl.zeros((ATOMS, ATOMS), tl.float32),
        tl.zeros((ATOMS, ATOMS), tl.float32),
        tl.zeros((ATOMS, ATOMS), tl.float32),
    )
    total = tl.zeros((ATOMS, ATOMS), tl.float32)
    found = 0
    lane = tl.arange(0, CHUNK)
    piece = tl.program_id(1)
    while (piece < n_pieces) & (radius >= 0.0):
        image = piece // n_chunks
        from_block = (piece % n_chunks) * CHUNK
        of = images + 12 * image
        r00, r01, r02, t0 = tl.load(of), tl.load(of + 1), tl.load(of + 2), tl.load(of + 3) - sx
        r10, r11, r12, t1 = tl.load(of + 4), tl.load(of + 5), tl.load(of + 6), tl.load(of + 7) - sy
        r20, r21, r22, t2 = tl.load(of + 8), tl.load(of + 9), tl.load(of + 10), tl.load(of + 11) - sz
        in_reach = _in_reach(
            spheres, from_block + lane, n_blocks, radius + cutoff * _SLACK,
            r00, r01, r02, t0, r10, r11, r12, t1, r20, r21, r22, t2,
        )  # fmt: skip
        other = tl.min(tl.where(in_reach, lane, CHUNK), axis=0)
        while other < CHUNK:
            found += 1
            j = (from_block + other) * ATOMS + tl.arange(0, ATOMS)
            px, py, pz, b0, b1, b2, act = _load_atoms(positions, parameters, j, n)
            dx = (r00 * px + r01 * py + r02 * pz + t0).to(tl.float32)[None, :] - x[:, None]
            dy = (r10 * px + r11 * py + r12 * pz + t1).to(tl.float32)[None, :] - y[:, None]
            dz = (r20 * px + r21 * py + r22 * pz + t2).to(tl.float32)[None, :] - z[:, None]
            squared = dx * dx + dy * dy + dz * dz
            near = acts[:, None] & act[None, :] & (squared < cutoff * cutoff)
            if first_left_out < end_left_out:
                near &= ~_left_out(excluded, first_left_out, end_left_out, i, image, j, ATOMS)
            r = tl.sqrt(tl.where(near, tl.maximum(squared, 1e-12), 1.0))
            b0, b1, b2 = b0[None, :], b1[None, :], b2[None, :]
            at = tl.maximum(r, (a0 + b0) * 0.5 * _TANGENT_FROM)
            energy, slope = pair_energy(
                at, 1.0 / at, a0, a1, a2, b0, b1, b2, switch_begin, per_switch, coulomb, k, c, _NONBONDED
            )
            by_r = slope * at
            total += tl.where(near, energy + by_r * (r - at), 0.0)
            slope = tl.where(near, by_r / r, 0.0)
            gx -= slope * dx
            gy -= slope * dy
            gz -= slope * dz
            other = tl.min(tl.where(in_reach & (lane > other), lane, CHUNK), axis=0)
        piece += tl.num_programs(1)
    if found > 0:
        to = units + 3 * i
        tl.atomic_add(to, _to_units(tl.sum(gx, axis=1)), mask=acts, sem="relaxed")
        tl.atomic_add(to + 1, _to_units(tl.sum(gy, axis=1)), mask=acts, sem="relaxed")
        tl.atomic_add(to + 2, _to_units(tl.sum(gz, axis=1)), mask=acts, sem="relaxed")
        of_block = tl.sum(tl.sum(total, axis=1).to(tl.float64), axis=0)
        tl.atomic_add(energies + block, _to_units(of_block), sem="relaxed")


@triton.jit
def _sums_kernel(
    units,
    energies,
    scale,
    gradient,
    energy,
    n_components,
    n_blocks,
    SCALED: tl.constexpr,
    COMPONENTS: tl.constexpr,
):
    """Turn whole numbers into a gradient, and by the first program into half of the blocks' energy.

    Launch grid: ``(1 + cdiv(n_components, COMPONENTS),)``.

    ============  ===============  ==========  ================================================
    argument      shape            dtype       what it is
    ============  ===============  ==========  ================================================
    units         (n_components,)  int64       in units of 2^-24, as the energies
    energies      (n_blocks,)      int64
    scale         ()               float64     what the gradient is multiplied with, where SCALED
    gradient      (n_components,)  float32/64  out
    energy        ()               float64     out
    n_components  scalar           int32
    n_blocks      scalar           int32
    SCALED        constant
    COMPONENTS    constant                     of a program
    ============  ===============  ==========  ================================================
    """
    program = tl.program_id(0)
    lane = tl.arange(0, COMPONENTS)
    if program == 0:
        of_lane = tl.zeros((COMPONENTS,), tl.float64)
        start = 0
        while start < n_blocks:
            found = tl.load(energies + start + lane, mask=start + lane < n_blocks, other=0)
            of_lane += found.to(tl.float64) / _UNITS
            start += COMPONENTS
        tl.store(energy, 0.5 * tl.sum(of_lane, axis=0))
    else:
        entry = (program - 1) * COMPONENTS + lane
        here = entry < n_components
        component = tl.load(units + entry, mask=here, other=0).to(tl.float64) / _UNITS
        if SCALED:
            component = component * tl.load(scale)
        tl.store(gradient + entry, component.to(gradient.dtype.element_ty), mask=here)
