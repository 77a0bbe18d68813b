"""A small evaluation of the operator, by which `openmm-density doctor` tries a GPU."""

from __future__ import annotations

import torch

from ..library import Example
from . import map_potential


def examples() -> dict[str, Example]:
    """Return the operator with arguments on the CPU, by its name."""
    generator = torch.Generator().manual_seed(0)
    positions = torch.rand(200, 3, generator=generator) * 1.5
    voxels = torch.rand(16, 17, 18, generator=generator)
    matrix, origin = torch.eye(3, dtype=torch.float64) / 10, torch.zeros(3, dtype=torch.float64)
    arguments = (positions, torch.arange(200), torch.ones(200), voxels, matrix, origin, False)
    return {"map_potential": (map_potential, arguments)}
