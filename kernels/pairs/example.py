"""A small evaluation of the operator, by which `openmm-density doctor` tries a GPU."""

from __future__ import annotations

import torch

from ..library import Example
from ..neighbors import neighbors
from . import NONBONDED, mate_contacts, pack_exclusions, pairs


def examples() -> dict[str, Example]:
    """Return the operator with arguments on the CPU, by its name."""
    generator = torch.Generator().manual_seed(0)
    side = torch.arange(6.0)
    positions = 0.3 * torch.cartesian_prod(side, side, side) + 0.05 * torch.rand(216, 3, generator=generator)
    box = 1.8 * torch.eye(3)
    listed = neighbors(positions, box, 0.8)[:3]
    parameters = torch.tensor([0.3, 0.5, 0.4]) * torch.rand(216, 3, generator=generator)
    excluded = pack_exclusions([(i, i + 1) for i in range(0, 216, 3)], 216)
    settings = [0.6, 138.935, 78.3]
    beside = torch.eye(3, 4, dtype=torch.float64).repeat(2, 1, 1)
    beside[:, 0, 3] = torch.tensor([1.8, -1.8])
    lone = torch.tensor([[5, 0, 5]], dtype=torch.int32)
    return {
        "pairs": (pairs, (positions, box, *listed, parameters, NONBONDED, 0.8, settings, *excluded)),
        "mate_contacts": (mate_contacts, (positions, parameters, beside, lone, 0.8, settings)),
    }
