"""Tricubic interpolation of a map at the atoms in plain PyTorch, float64: the oracle of the kernel."""

from __future__ import annotations

import torch
from torch import Tensor


def cubic_convolution(distance: Tensor) -> Tensor:
    """Return Keys' kernel with a = −1/2 at a distance in voxels: it interpolates and is continuously differentiable."""
    t = distance.abs()
    inner = (1.5 * t - 2.5) * t * t + 1
    outer = ((-0.5 * t + 2.5) * t - 4) * t + 2
    return torch.where(t < 1, inner, torch.where(t < 2, outer, torch.zeros_like(t)))


def map_potential(
    positions: Tensor,
    atoms: Tensor,
    weights: Tensor,
    potential: Tensor,
    matrix: Tensor,
    origin: Tensor,
    periodic: bool,
) -> tuple[Tensor, Tensor]:
    """Average an interpolated map over the atoms; see `openmm_density.kernels.interpolation.map_potential`."""
    nz, ny, nx = potential.shape
    extent = torch.tensor([nx, ny, nz])
    with torch.enable_grad():
        x = positions.detach().to(torch.float64).requires_grad_()
        u = (x[atoms] - origin) @ torch.linalg.inv(matrix).T
        usable = torch.isfinite(u).all(dim=1) & (u.abs() < 1e9).all(dim=1)
        w = weights.to(torch.float64)
        u, used = u[usable], w[usable]
        first = torch.floor(u.detach()).to(torch.int64) - 1
        value = torch.zeros(len(u), dtype=torch.float64)
        for step in torch.cartesian_prod(*[torch.arange(4)] * 3):
            index = first + step
            factor = cubic_convolution(u - index).prod(dim=1)
            if periodic:
                index = torch.remainder(index, extent)
            inside = ((index >= 0) & (index < extent)).all(dim=1)
            index = torch.where(inside[:, None], index, 0)
            voxel = potential[index[:, 2], index[:, 1], index[:, 0]].to(torch.float64)
            value = value + torch.where(inside, factor * voxel, 0.0)
        similarity = (used * value).sum() / (w.sum() if len(w) else 1.0)
        (gradient,) = torch.autograd.grad(similarity, x)
    return similarity.detach(), torch.nan_to_num(gradient, nan=0.0)
