"""A small evaluation of each operator, by which `openmm-density doctor` tries a GPU."""

from __future__ import annotations

import torch
from torch import Tensor

from ..library import Example
from . import NeighborList, listed_pairs, neighbors


def examples() -> dict[str, Example]:
    """Return the operators with arguments on the CPU, by their names."""
    positions = torch.rand(300, 3, generator=torch.Generator().manual_seed(0)) * 1.5
    box = torch.tensor([[1.5, 0.0, 0.0], [0.3, 1.4, 0.0], [-0.4, 0.2, 1.3]])
    return {"neighbors": (_pairs_once, (positions, box)), "update_neighbors": (_pairs_kept, (positions, box))}


def _pairs_once(positions: Tensor, box: Tensor) -> Tensor:
    return _in_order(*listed_pairs(*neighbors(positions, box, 0.4, True)[:3]))


def _pairs_kept(positions: Tensor, box: Tensor) -> Tensor:
    kept = NeighborList(len(positions), 0.3, 60_000, skin=0.1, both_ways=True).to(positions.device)
    for move in (0.0, 0.01, 0.1):
        kept(positions + move, box)
    return _in_order(*listed_pairs(kept.offsets, kept.neighbors, kept.shifts))


def _in_order(first: Tensor, second: Tensor, steps: Tensor) -> Tensor:
    """Return the pairs in one order: within a row they stand as an implementation found them."""
    pairs = torch.cat([first[:, None], second[:, None], steps], dim=1)
    return torch.unique(pairs, dim=0)
