"""PaiNN's messages on the GPU: the launches of their kernels (`gpu_rows`). A network has kernels of its own (`gpu_network`)."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from . import reference
from .gpu_network import painn
from .gpu_rows import give_back_kernel, receive_kernel

__all__ = ["messages", "messages_backward", "painn"]

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
