"""Model density and its similarity to a target in plain PyTorch, float64: the oracle of the kernels.

Everything is differentiable by autograd, which is where the reference gradients come from. The formulas are those of the
operators' docstrings and of `measures`; nothing here is optimised beyond working in blocks of atoms.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..scatter.reference import structured_scatter_add
from .measures import similarity

# The most that the kernels have registers for: those of a form factor.
MAX_GAUSSIANS = 5
ATOMS_PER_BLOCK = 128


def density_splat(
    positions: Tensor,
    amplitudes: Tensor,
    exponents: Tensor,
    cutoff: float,
    matrix: Tensor,
    origin: Tensor,
    shape: list[int],
    periodic: bool,
) -> Tensor:
    """Sum the atoms' truncated Gaussians on the grid; see `openmm_density.kernels.density.density_splat`."""
    positions, amplitudes, exponents = (x.to(torch.float64) for x in (positions, amplitudes, exponents))
    matrix, origin = matrix.to(torch.float64), origin.to(torch.float64)
    nz, ny, nx = shape
    extent = torch.tensor([nx, ny, nz])
    inverse = torch.linalg.inv(matrix)
    fractional = (positions - origin) @ inverse.T
    usable = torch.isfinite(fractional).all(dim=1) & (fractional.abs() < 1e9).all(dim=1)

    reach = [int(r) for r in torch.ceil(cutoff * inverse.norm(dim=1)) + 1]
    steps = [torch.arange(-r, r + 1) for r in reach]

    density = torch.zeros(nz * ny * nx, dtype=torch.float64)
    for atoms in usable.nonzero()[:, 0].split(ATOMS_PER_BLOCK):
        nearest = torch.round(fractional[atoms].detach()).to(torch.int64)
        # Each atom's cube of voxels, by the index along x, y and z: (atoms, cube).
        along = [nearest[:, axis, None] + steps[axis] for axis in range(3)]
        x, y, z = along[0][:, :, None, None], along[1][:, None, :, None], along[2][:, None, None, :]
        index = torch.stack(torch.broadcast_tensors(x, y, z), dim=-1)
        displacement = (index - fractional[atoms][:, None, None, None, :]) @ matrix.T
        s = (displacement**2).sum(dim=-1)
        value = truncated_gaussians(s.flatten(1), amplitudes[atoms], exponents[atoms], cutoff).reshape(
            s.shape
        )
        if not periodic:
            value = torch.where(((index >= 0) & (index < extent)).all(dim=-1), value, 0.0)
        # A voxel's index modulo the grid's size along each axis is its periodic image in the grid, so that adding by index, one
        # index_add in float64, sums all images. What is outside a finite map is zero, and may be added anywhere. A test compares
        # with the sum over atoms and images written out.
        i, j, k = (torch.remainder(each, n) for each, n in zip(along, (nx, ny, nz)))
        density = density + structured_scatter_add(
            value, i, (k[:, None, :] * ny + j[:, :, None]) * nx, len(density)
        )
    return density.reshape(nz, ny, nx)


def truncated_gaussians(s: Tensor, amplitudes: Tensor, exponents: Tensor, cutoff: float) -> Tensor:
    """Return ρ(s) = f(s) − f(s_c) − f′(s_c)(s − s_c) below s_c = cutoff², and 0 beyond, for s of shape (atoms, points)."""
    s_c = cutoff**2
    at_cutoff = amplitudes * torch.exp(-exponents * s_c)
    value = torch.zeros_like(s)
    for component in range(amplitudes.shape[1]):
        a, alpha = amplitudes[:, component, None], exponents[:, component, None]
        edge = at_cutoff[:, component, None]
        value = value + a * torch.exp(-alpha * s) - edge + alpha * edge * (s - s_c)
    return torch.where(s < s_c, value, 0.0)


def density_gather(
    gradient: Tensor,
    positions: Tensor,
    amplitudes: Tensor,
    exponents: Tensor,
    cutoff: float,
    matrix: Tensor,
    origin: Tensor,
    periodic: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Differentiate Σ gradient·density; see `openmm_density.kernels.density.density_gather`."""
    with torch.enable_grad():
        leaves = [x.detach().to(torch.float64).requires_grad_() for x in (positions, amplitudes, exponents)]
        density = density_splat(*leaves, cutoff, matrix, origin, list(gradient.shape), periodic)
        total = (gradient.to(torch.float64) * density).sum()
        gradients = torch.autograd.grad(total, leaves, allow_unused=True)
    x, a, alpha = (torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, gradients))
    return x, a, alpha


def density_similarity(
    positions: Tensor,
    atoms: Tensor,
    amplitudes: Tensor,
    exponents: Tensor,
    cutoff: float,
    target: Tensor,
    matrix: Tensor,
    origin: Tensor,
    periodic: bool,
    measure: int,
    total_weight: float,
) -> tuple[Tensor, Tensor]:
    """Compare model density and target; see `openmm_density.kernels.density.density_similarity`."""
    with torch.enable_grad():
        x = positions.detach().to(torch.float64).requires_grad_()
        density = density_splat(
            x[atoms], amplitudes, exponents, cutoff, matrix, origin, list(target.shape), periodic
        )
        counted = torch.isfinite(target)
        value = similarity(density[counted], target[counted].to(torch.float64), measure, total_weight)
        gradient = torch.zeros_like(x)
        if value.requires_grad:
            (gradient,) = torch.autograd.grad(value, x)
    return value.detach(), torch.nan_to_num(gradient, nan=0.0)
