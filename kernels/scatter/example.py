"""A small evaluation of each operator, by which `openmm-density doctor` tries a GPU."""

from __future__ import annotations

import torch

from ..library import Example
from . import structured_gather, structured_scatter_add


def examples() -> dict[str, Example]:
    """Return the operators with arguments on the CPU, by their names."""
    wa = 48 * torch.arange(8, dtype=torch.int32).repeat(20, 1)
    wbwc = torch.arange(48, dtype=torch.int32).reshape(1, 6, 8).repeat(20, 1, 1)
    return {
        "structured_scatter_add": (structured_scatter_add, (torch.ones(20, 8, 6, 8), wa, wbwc, 8 * 48)),
        "structured_gather": (structured_gather, (torch.arange(384.0), wa, wbwc)),
    }
