"""Small evaluations of the operators, by which `openmm-density doctor` tries a GPU."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..library import Example
from ..neighbors import neighbors
from . import messages, painn

_FEATURES, _RADIAL, _CUTOFF = 32, 8, 0.5


def examples() -> dict[str, Example]:
    """Return the operators with arguments on the CPU, by their names."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator) - 0.5

    positions = 2.0 * draw(60, 3)
    listed = neighbors(positions, None, _CUTOFF, True)[:3]
    scene = (positions, None, *listed)
    features = (draw(60, 3 * _FEATURES), draw(60, 3, _FEATURES), draw(_RADIAL + 1, 3 * _FEATURES), _CUTOFF)
    kinds = torch.arange(60, dtype=torch.int32) % 3
    network = (kinds, weights(draw, 3, _FEATURES, 2, _RADIAL), _CUTOFF)
    return {
        "messages": (messages, (*scene, *features)),
        "painn": (painn, (*scene, *network)),
    }


def weights(
    draw: Callable[..., Tensor], n_kinds: int, features: int, layers: int, n_radial: int
) -> list[Tensor]:
    """Return weights of a network, each drawn by ``draw(*shape)`` about 0 up to ½, in the operator's order."""

    def dense(n_in: int, n_out: int, biased: bool = True) -> list[Tensor]:
        matrix = 2 * draw(n_in, n_out) / n_in**0.5
        return [matrix, matrix.t().contiguous(), *([draw(n_out)] if biased else [])]

    f = features
    found = [draw(n_kinds, f), *dense(f, f // 2), draw(f // 2), draw(1)]
    for _ in range(layers):
        found += [*dense(f, f), *dense(f, 3 * f), 0.05 * draw(n_radial + 1, 3 * f)]
        found += [*dense(f, 2 * f, False), *dense(2 * f, f), *dense(f, 3 * f)]
    return found
