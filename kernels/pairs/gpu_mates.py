"""Contacts of a unit with its images on the GPU: a program to a block of the unit's atoms looks at each block of each image.

Blocks of atoms that follow each other are compact; a block of an image whose sphere is out of reach is passed over.
"""

# No annotations from __future__: Triton reads those of its kernels.
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..neighbors.reference import FARTHEST
from . import forms, mates_reference
from .gpu_forms import pair_energy

_ATOMS = 32
# Where atoms are put that have no contacts, in the positions' unit of length.
_NOWHERE = 1e6
_TANGENT_FROM = tl.constexpr(mates_reference.TANGENT_FROM)
_NONBONDED = tl.constexpr(forms.NONBONDED)


def mate_contacts(
    positions: Tensor,
    parameters: Tensor,
    images: Tensor,
    excluded: Tensor,
    cutoff: float,
    settings: Sequence[float],
    scale: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return what `openmm_density.kernels.pairs.mate_contacts` returns, with the same arguments.

    Raises
    ------
    ValueError
        As the operator.
    """
    mates_reference.check_call(positions, parameters, images, excluded, cutoff, settings)
    n = positions.shape[0]
    gradient = torch.zeros_like(positions)
    if n == 0 or images.shape[0] == 0:
        return torch.zeros((), dtype=torch.float64, device=positions.device), gradient
    x = positions.detach().double()
    acts = ((parameters[:, 1] != 0) | (parameters[:, 2] != 0)) & (x.abs() <= FARTHEST).all(dim=1)
    # As seen from the middle of all, in which float32 suffices.
    weights = acts[:, None].double()
    centre = torch.where(acts[:, None], x, 0.0).sum(dim=0) / weights.sum().clamp(min=1.0)
    own = torch.where(acts[:, None], x - centre, _NOWHERE).float().contiguous()
    turned = images[:, :, :3]
    away = (turned * centre).sum(dim=2) + images[:, :, 3] - centre
    operators = torch.cat([turned, away[:, :, None]], dim=2).float().contiguous()
    n_blocks = triton.cdiv(n, _ATOMS)
    spheres = _spheres(own, acts, n_blocks)
    energies = torch.empty(n_blocks, dtype=torch.float64, device=positions.device)
    begin = min(settings[0], cutoff)
    dielectric, volume = settings[2], cutoff**3
    _contacts_kernel[(n_blocks,)](
        own,
        parameters,
        operators,
        excluded,
        spheres,
        gradient,
        energies,
        n,
        images.shape[0],
        excluded.shape[0],
        n_blocks,
        cutoff,
        begin,
        1.0 / (cutoff - begin) if begin < cutoff else 0.0,
        settings[1],
        (dielectric - 1) / (2 * dielectric + 1) / volume,
        3 * dielectric / (2 * dielectric + 1) / cutoff,
        ATOMS=_ATOMS,
    )
    if scale is not None:
        gradient.mul_(scale.reshape(()))
    return energies.sum() / 2, gradient


def _spheres(own: Tensor, acts: Tensor, n_blocks: int) -> Tensor:
    """Return centre and radius of each block's atoms, below 0 where there are none, and of all: (n_blocks + 1, 4), float32."""
    room = n_blocks * _ATOMS - len(own)
    x = torch.nn.functional.pad(own, (0, 0, 0, room)).reshape(n_blocks, _ATOMS, 3)
    here = torch.nn.functional.pad(acts, (0, room)).reshape(n_blocks, _ATOMS, 1)
    centres = torch.where(here, x, 0.0).sum(dim=1) / here.sum(dim=1).clamp(min=1)
    squared = (x - centres[:, None]).square().sum(dim=2, keepdim=True)
    radii = torch.where(here, squared, -1.0).amax(dim=1)
    radii = torch.where(radii < 0, -1.0, radii.clamp(min=0.0).sqrt() * 1.0001)
    blocks = torch.cat([centres, radii], dim=1)
    farthest = torch.where(acts, own.square().sum(dim=1), 0.0).amax().sqrt() * 1.0001
    whole = torch.cat([torch.zeros_like(centres[0]), farthest[None]])
    return torch.cat([blocks, whole[None]]).contiguous()


@triton.jit
def _contacts_kernel(
    own,
    parameters,
    operators,
    excluded,
    spheres,
    gradient,
    energies,
    n,
    n_images,
    n_excluded,
    n_blocks,
    cutoff,
    switch_begin,
    per_switch,
    coulomb,
    k,
    c,
    ATOMS: tl.constexpr,
):
    """Sum the energies of a block's atoms with all images, and what acts on each.

    Launch grid: ``(n_blocks,)``.

    ==================================  ===============  ==========  ==================================================
    argument                            shape            dtype       what it is
    ==================================  ===============  ==========  ==================================================
    own                                 (n, 3)           float32     positions, as seen from the middle of all
    parameters                          (n, 3)           float32     sigma, epsilon, charge
    operators                           (images, 3, 4)   float32     of the images, as seen from there too
    excluded                            (excluded, 3)    int32       atom, image, and the atom there
    spheres                             (blocks + 1, 4)  float32     centre and radius of each block's atoms, -1: none; of all
    gradient                            (n, 3)           float32/64  out
    energies                            (blocks,)        float64     out: of each block's atoms
    n, n_images, n_excluded, n_blocks   scalars          int32       how many there are
    cutoff, switch_begin, per_switch    scalars          float32     see forms.py
    coulomb, k, c                       scalars          float32     see forms.py
    ATOMS                               constant                     of a block
    ==================================  ===============  ==========  ==================================================
    """
    block = tl.program_id(0)
    i = block * ATOMS + tl.arange(0, ATOMS)
    here = i < n
    x = tl.load(own + 3 * i, mask=here, other=0.0)
    y = tl.load(own + 3 * i + 1, mask=here, other=0.0)
    z = tl.load(own + 3 * i + 2, mask=here, other=0.0)
    a0 = tl.load(parameters + 3 * i, mask=here, other=0.0)[:, None]
    a1 = tl.load(parameters + 3 * i + 1, mask=here, other=0.0)[:, None]
    a2 = tl.load(parameters + 3 * i + 2, mask=here, other=0.0)[:, None]
    acts = here & ((tl.abs(x) < 1e5) & (tl.abs(y) < 1e5) & (tl.abs(z) < 1e5))
    sx, sy, sz = (
        tl.load(spheres + 4 * block),
        tl.load(spheres + 4 * block + 1),
        tl.load(spheres + 4 * block + 2),
    )
    radius = tl.load(spheres + 4 * block + 3)
    unit_radius = tl.load(spheres + 4 * n_blocks + 3)
    gx, gy, gz = (
        tl.zeros((ATOMS,), tl.float32),
        tl.zeros((ATOMS,), tl.float32),
        tl.zeros((ATOMS,), tl.float32),
    )
    total = tl.zeros((ATOMS,), tl.float32)
    image = 0
    while (image < n_images) & (radius >= 0.0):
        of = operators + 12 * image
        r00, r01, r02, t0 = tl.load(of), tl.load(of + 1), tl.load(of + 2), tl.load(of + 3)
        r10, r11, r12, t1 = tl.load(of + 4), tl.load(of + 5), tl.load(of + 6), tl.load(of + 7)
        r20, r21, r22, t2 = tl.load(of + 8), tl.load(of + 9), tl.load(of + 10), tl.load(of + 11)
        # The sphere of all atoms first.
        ox, oy, oz = t0 - sx, t1 - sy, t2 - sz
        reach = radius + unit_radius + cutoff * 1.0001
        other = tl.where(ox * ox + oy * oy + oz * oz < reach * reach, 0, n_blocks)
        while other < n_blocks:
            cx, cy, cz = (
                tl.load(spheres + 4 * other),
                tl.load(spheres + 4 * other + 1),
                tl.load(spheres + 4 * other + 2),
            )
            its_radius = tl.load(spheres + 4 * other + 3)
            ox = r00 * cx + r01 * cy + r02 * cz + t0 - sx
            oy = r10 * cx + r11 * cy + r12 * cz + t1 - sy
            oz = r20 * cx + r21 * cy + r22 * cz + t2 - sz
            reach = radius + its_radius + cutoff * 1.0001
            if (its_radius >= 0.0) & (ox * ox + oy * oy + oz * oz < reach * reach):
                j = other * ATOMS + tl.arange(0, ATOMS)
                there = j < n
                px = tl.load(own + 3 * j, mask=there, other=0.0)
                py = tl.load(own + 3 * j + 1, mask=there, other=0.0)
                pz = tl.load(own + 3 * j + 2, mask=there, other=0.0)
                there &= (tl.abs(px) < 1e5) & (tl.abs(py) < 1e5) & (tl.abs(pz) < 1e5)
                b0 = tl.load(parameters + 3 * j, mask=there, other=0.0)[None, :]
                b1 = tl.load(parameters + 3 * j + 1, mask=there, other=0.0)[None, :]
                b2 = tl.load(parameters + 3 * j + 2, mask=there, other=0.0)[None, :]
                dx = (r00 * px + r01 * py + r02 * pz + t0)[None, :] - x[:, None]
                dy = (r10 * px + r11 * py + r12 * pz + t1)[None, :] - y[:, None]
                dz = (r20 * px + r21 * py + r22 * pz + t2)[None, :] - z[:, None]
                squared = dx * dx + dy * dy + dz * dz
                near = acts[:, None] & there[None, :] & (squared < cutoff * cutoff)
                entry = 0
                while entry < n_excluded:
                    of_image = tl.load(excluded + 3 * entry + 1) == image
                    first = (i == tl.load(excluded + 3 * entry)) & of_image
                    near &= ~(first[:, None] & (j == tl.load(excluded + 3 * entry + 2))[None, :])
                    entry += 1
                r = tl.sqrt(tl.where(near, tl.maximum(squared, 1e-12), 1.0))
                at = tl.maximum(r, (a0 + b0) * 0.5 * _TANGENT_FROM)
                energy, slope = pair_energy(
                    at, 1.0 / at, a0, a1, a2, b0, b1, b2, switch_begin, per_switch, coulomb, k, c, _NONBONDED
                )
                by_r = slope * at
                total += tl.sum(tl.where(near, energy + by_r * (r - at), 0.0), axis=1)
                slope = tl.where(near, by_r / r, 0.0)
                gx -= tl.sum(slope * dx, axis=1)
                gy -= tl.sum(slope * dy, axis=1)
                gz -= tl.sum(slope * dz, axis=1)
            other += 1
        image += 1
    kind = gradient.dtype.element_ty
    tl.store(gradient + 3 * i, gx.to(kind), mask=here)
    tl.store(gradient + 3 * i + 1, gy.to(kind), mask=here)
    tl.store(gradient + 3 * i + 2, gz.to(kind), mask=here)
    tl.store(energies + block, tl.sum(total.to(tl.float64), axis=0))
