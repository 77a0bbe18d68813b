"""A small evaluation of each operator, by which `openmm-density doctor` tries a GPU."""

from __future__ import annotations

import torch

from ..library import Example
from . import among_all, folded_copies, symmetry_copies, whole_molecules


def examples() -> dict[str, Example]:
    """Return the operators with arguments on the CPU, by their names."""
    positions = torch.rand(200, 3, generator=torch.Generator().manual_seed(0)) * 1.5
    atoms, starts = torch.arange(200), 10 * torch.arange(21)
    references, box = torch.zeros(20, 3, dtype=torch.float64), torch.eye(3)
    rotations = torch.diag_embed(torch.tensor([[1.0, 1.0, 1.0], [-1.0, -1.0, 1.0]], dtype=torch.float64))
    translations = torch.zeros(2, 3, dtype=torch.float64)
    return {
        "whole_molecules": (whole_molecules, (positions, atoms, atoms, starts, references, box)),
        "among_all": (among_all, (positions, 2 * atoms, 400)),
        "symmetry_copies": (symmetry_copies, (positions, atoms, rotations, translations)),
        "folded_copies": (folded_copies, (positions, atoms[:100], rotations, 200)),
    }
