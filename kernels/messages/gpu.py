"""PaiNN's messages on the GPU: the launches of their kernels (`gpu_rows`); between them, products of matrices by torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from . import reference
from .gpu_rows import give_back_kernel, receive_kernel

# Neighbours at once: products of matrices have 16 rows or more.
_EDGES = 16
# Features of a program: with more, registers do not suffice.
_BLOCK = 32


def messages(
    positions: Tensor,
    box: Tensor | None,
    offsets: Tensor,
    neighbors: Tensor,
    shifts: Tensor,
    sent: Tensor,
    vectors: Tensor,
    filter: Tensor,
    cutoff: float,
) -> tuple[Tensor, Tensor]:
    """Return what `openmm_density.kernels.messages.messages` returns, with the same arguments; what tables hold is not checked.

    Raises
    ------
    ValueError
        As the operator.
    """
    reference.check_call(
        "messages", positions, box, offsets, neighbors, shifts, sent, vectors, filter, cutoff
    )
    scene = _Scene(positions, box, offsets, neighbors, shifts, cutoff)
    scalars, moved = vectors.new_zeros((vectors.shape[0], vectors.shape[2])), torch.zeros_like(vectors)
    scene.receive(sent, vectors, filter, scalars, moved)
    return scalars, moved


def messages_backward(
    positions: Tensor,
    box: Tensor | None,
    offsets: Tensor,
    neighbors: Tensor,
    shifts: Tensor,
    sent: Tensor,
    vectors: Tensor,
    filter: Tensor,
    cutoff: float,
    by_scalars: Tensor,
    by_vectors: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `openmm_density.kernels.messages.messages_backward` returns, with the same arguments.

    Raises
    ------
    ValueError
        As the operator.
    """
    name = "messages_backward"
    reference.check_call(name, positions, box, offsets, neighbors, shifts, sent, vectors, filter, cutoff)
    n_atoms, _, features = vectors.shape
    reference.check_tables(name, {"by_scalars": (by_scalars, (n_atoms, features))})
    reference.check_tables(name, {"by_vectors": (by_vectors, (n_atoms, 3, features))})
    scene = _Scene(positions, box, offsets, neighbors, shifts, cutoff)
    by_positions = torch.zeros_like(positions, memory_format=torch.contiguous_format)
    by_sent, by_sent_vectors = torch.empty_like(sent), torch.zeros_like(vectors)
    scene.give_back(sent, vectors, filter, by_scalars, by_vectors, by_sent, by_sent_vectors, by_positions)
    return by_positions, by_sent, by_sent_vectors


def painn(
    positions: Tensor,
    box: Tensor | None,
    offsets: Tensor,
    neighbors: Tensor,
    shifts: Tensor,
    kinds: Tensor,
    weights: Sequence[Tensor],
    cutoff: float,
) -> tuple[Tensor, Tensor]:
    """Return what `openmm_density.kernels.messages.painn` returns, with the same arguments.

    Raises
    ------
    ValueError
        As the operator.
    """
    reference.check_network(positions, box, offsets, neighbors, shifts, kinds, weights, cutoff)
    scene = _Scene(positions, box, offsets, neighbors, shifts, cutoff)
    layers = [
        weights[begin : begin + reference.WEIGHTS_OF_A_LAYER]
        for begin in range(reference.WEIGHTS_OF_ALL, len(weights), reference.WEIGHTS_OF_A_LAYER)
    ]
    scalars = weights[0].index_select(0, kinds)
    vectors = scalars.new_zeros((scalars.shape[0], 3, scalars.shape[1]))
    tapes = []
    for layer in layers:
        d1, _, b1, d2, _, b2, filter = layer[:7]
        hidden = torch.addmm(b1, scalars, d1)
        sent = torch.addmm(b2, torch.nn.functional.silu(hidden), d2)
        before = vectors
        scalars, vectors = scalars.clone(), vectors.clone()
        scene.receive(sent, before, filter, scalars, vectors)
        update = _Update(layer, scalars, vectors)
        tapes.append((layer, hidden, sent, before, update))
        scalars, vectors = update.scalars, update.vectors
    _, r1, r1_transposed, c1, r2, c2 = weights[: reference.WEIGHTS_OF_ALL]
    hidden = torch.addmm(c1, scalars, r1)
    atomic = torch.mv(torch.nn.functional.silu(hidden), r2) + c2
    by_scalars = (_silu_slope(hidden) * r2) @ r1_transposed
    by_vectors = torch.zeros_like(vectors)
    gradient = torch.zeros_like(positions, memory_format=torch.contiguous_format)
    for layer, hidden, sent, before, update in reversed(tapes):
        by_scalars, by_vectors = update.backward(by_scalars, by_vectors)
        by_sent, by_before = torch.empty_like(sent), by_vectors.clone()
        scene.give_back(sent, before, layer[6], by_scalars, by_vectors, by_sent, by_before, gradient)
        by_scalars = by_scalars + ((by_sent @ layer[4]) * _silu_slope(hidden)) @ layer[1]
        by_vectors = by_before
    return atomic.sum(dtype=torch.float64), gradient


def _silu_slope(x: Tensor) -> Tensor:
    y = torch.sigmoid(x)
    return y * (1 + x * (1 - y))


class _Update:
    """What a layer's update makes of scalars and vectors, and its derivative."""

    def __init__(self, layer: Sequence[Tensor], scalars: Tensor, vectors: Tensor) -> None:
        self.layer = layer
        mix, _, d3, _, b3, d4, _, b4 = layer[7:]
        self.p, self.q = (vectors @ mix).chunk(2, dim=-1)
        self.length = torch.sqrt((self.q * self.q).sum(dim=1) + reference.NORM_FLOOR)
        self.hidden = torch.addmm(b3, torch.cat([scalars, self.length], dim=1), d3)
        self.gates = torch.addmm(b4, torch.nn.functional.silu(self.hidden), d4).chunk(3, dim=1)
        self.dot = (self.p * self.q).sum(dim=1)
        grown, added, turned = self.gates
        self.scalars = scalars + added + turned * self.dot
        self.vectors = vectors + grown[:, None] * self.p

    def backward(self, by_scalars: Tensor, by_vectors: Tensor) -> tuple[Tensor, Tensor]:
        _, mix_transposed, _, d3_transposed, _, _, d4_transposed, _ = self.layer[7:]
        grown, _, turned = self.gates
        by_gates = torch.cat([(by_vectors * self.p).sum(dim=1), by_scalars, by_scalars * self.dot], dim=1)
        by_hidden = (by_gates @ d4_transposed) * _silu_slope(self.hidden)
        to_scalars, by_length = (by_hidden @ d3_transposed).chunk(2, dim=1)
        by_dot, by_squares = (by_scalars * turned)[:, None], (by_length / self.length)[:, None]
        by_p = by_vectors * grown[:, None] + by_dot * self.q
        by_q = by_dot * self.p + by_squares * self.q
        return by_scalars + to_scalars, by_vectors + torch.cat([by_p, by_q], dim=-1) @ mix_transposed


class _Scene:
    """Positions and a list, and the launches of both kernels."""

    def __init__(
        self,
        positions: Tensor,
        box: Tensor | None,
        offsets: Tensor,
        neighbors: Tensor,
        shifts: Tensor,
        cutoff: float,
    ) -> None:
        self.positions = positions.detach().contiguous()
        self.periodic = box is not None
        lattice = self.positions if box is None else box.detach().contiguous()
        self.tables = (self.positions, lattice, offsets, neighbors, shifts)
        self.cutoff = float(cutoff)

    def receive(self, sent: Tensor, vectors: Tensor, filter: Tensor, scalars: Tensor, moved: Tensor) -> None:
        """Add what atoms receive to scalars and vectors."""
        n_atoms, _, features = vectors.shape
        if n_atoms == 0:
            return
        with torch.cuda.device_of(self.positions):
            receive_kernel[(n_atoms, features // _BLOCK)](
                *self.tables,
                sent,
                vectors,
                filter,
                scalars,
                moved,
                *self._numbers(filter),
                **self._constants(features, filter),
            )

    def give_back(
        self,
        sent: Tensor,
        vectors: Tensor,
        filter: Tensor,
        by_scalars: Tensor,
        by_vectors: Tensor,
        by_sent: Tensor,
        by_sent_vectors: Tensor,
        by_positions: Tensor,
    ) -> None:
        """Write the gradients of what was sent, and add those of vectors and positions to what is there."""
        n_atoms, _, features = vectors.shape
        if n_atoms == 0:
            return
        parts = vectors.new_empty((features // _BLOCK, n_atoms, 3))
        with torch.cuda.device_of(self.positions):
            give_back_kernel[(n_atoms, features // _BLOCK)](
                *self.tables,
                sent,
                vectors,
                filter,
                by_scalars.contiguous(),
                by_vectors.contiguous(),
                by_sent,
                by_sent_vectors,
                parts,
                *self._numbers(filter),
                **self._constants(features, filter),
            )
        by_positions += parts.sum(dim=0)

    def _numbers(self, filter: Tensor) -> tuple[int, int, float, int]:
        return len(self.positions), self.tables[3].numel(), self.cutoff, len(filter)

    def _constants(self, features: int, filter: Tensor) -> dict[str, Any]:
        basis = max(16, triton.next_power_of_2(len(filter)))
        return {
            **{"FEATURES": features, "BLOCK": _BLOCK, "BASIS": basis},
            **{"EDGES": _EDGES, "PERIODIC": self.periodic, "num_warps": 8},
        }
