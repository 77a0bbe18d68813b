"""A small evaluation of the operator, by which `openmm-density doctor` tries a GPU."""

from __future__ import annotations

import numpy as np
import torch

from ..library import Example
from . import pack_planes, planarity


def examples() -> dict[str, Example]:
    """Return the operator with arguments on the CPU, by its name."""
    positions = torch.rand(200, 3, generator=torch.Generator().manual_seed(0)) * 1.5
    planes = pack_planes([(np.arange(200).reshape(40, 5), 0.02)])
    return {"planarity": (planarity, (positions, *planes))}
