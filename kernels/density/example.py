"""A small evaluation of each operator, by which `openmm-density doctor` tries a GPU."""

from __future__ import annotations

import torch

from ..library import Example
from . import CROSS_CORRELATION, density_gather, density_similarity, density_splat, target_moments


def examples() -> dict[str, Example]:
    """Return the operators with arguments on the CPU, by their names."""
    generator = torch.Generator().manual_seed(0)
    positions = torch.rand(200, 3, generator=generator) * 1.5
    voxels = torch.rand(16, 17, 18, generator=generator)
    atoms, amplitudes, exponents = torch.arange(200), torch.ones(200, 1), torch.full((200, 1), 50.0)
    gaussians = amplitudes, exponents, 0.5
    matrix, origin = torch.eye(3, dtype=torch.float64) / 10, torch.zeros(3, dtype=torch.float64)
    target = voxels, target_moments(voxels), matrix, origin, False
    return {
        "density_splat": (
            density_splat,
            (positions, *gaussians, matrix, origin, list(voxels.shape), False),
        ),
        "density_gather": (density_gather, (voxels, positions, *gaussians, matrix, origin, False)),
        "density_similarity": (
            density_similarity,
            (positions, atoms, *gaussians, *target, CROSS_CORRELATION, 1.0),
        ),
    }
