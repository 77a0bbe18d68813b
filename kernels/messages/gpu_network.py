"""A whole network on the GPU: a launch for near neighbours, and one for each layer forward and back (`gpu_layers`).

With many atoms each of these is two: a message, a program to an atom (`gpu_gather`), and an update, a program to a tile of atoms
(`gpu_tiles`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..neighbors.gpu_shifts import imaged
from . import reference
from .gpu_dense import send, store_row_of_three
from .gpu_gather import message_back_kernel, message_kernel
from .gpu_layers import last_layer_kernel, layer_kernel
from .gpu_layers_back import first_layer_back_kernel, layer_back_kernel
from .gpu_tiles import readout_kernel, update_back_kernel, update_kernel


class _Layer(NamedTuple):
    """A layer's weights, in the operator's order."""

    d1: Tensor
    d1_transposed: Tensor
    b1: Tensor
    d2: Tensor
    d2_transposed: Tensor
    b2: Tensor
    filter: Tensor
    mix: Tensor
    mix_transposed: Tensor
    d3: Tensor
    d3_transposed: Tensor
    b3: Tensor
    d4: Tensor
    d4_transposed: Tensor
    b4: Tensor

    @property
    def sends(self) -> tuple[Tensor, ...]:
        return self.d1, self.b1, self.d2, self.b2


# Pairs at once and warps, by the features; the fastest of ten on an H200. More warps wait longer for one another.
SHAPES = {32: (16, 4), 64: (16, 4), 128: (32, 8)}

# The same of messages that are launches of their own, and a tile's atoms and warps. Tiles of 128 features no GPU has timed.
TILED_SHAPES = {32: ((16, 2), (16, 4)), 64: ((16, 4), (16, 8))}
# From so many atoms on updates are by tiles. On an H200 that took twice the time of 50 atoms, the same time of 500, and of 5 000
# 0.58 of the time with 32 features, 0.73 with 64.
TILED_FROM = 1000


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
    """Return what `openmm_density.kernels.messages.painn` returns, with the same arguments."""
    reference.check_network(positions, box, offsets, neighbors, shifts, kinds, weights, cutoff)
    gradient = torch.empty_like(positions, memory_format=torch.contiguous_format)
    if len(positions) == 0:
        return gradient.new_zeros((), dtype=torch.float64), gradient
    energy = gradient.new_empty((), dtype=torch.float64)
    with torch.cuda.device_of(positions):
        by_tiles = len(positions) >= TILED_FROM and weights[0].shape[1] in TILED_SHAPES
        form = _TiledEvaluation if by_tiles else _Evaluation
        evaluation = form(offsets, neighbors, kinds, weights, cutoff)
        evaluation.find_near(positions.detach().contiguous(), box, neighbors, shifts)
        evaluation.forward()
        evaluation.back(gradient, energy)
    return energy, gradient


class _Evaluation:
    """What launches leave for those that follow; a layer is one launch each way."""

    def __init__(
        self, offsets: Tensor, neighbors: Tensor, kinds: Tensor, weights: Sequence[Tensor], cutoff: float
    ) -> None:
        first, size = reference.WEIGHTS_OF_ALL, reference.WEIGHTS_OF_A_LAYER
        self.embedding, *self.readout = weights[:first]
        self.layers = [_Layer(*weights[at : at + size]) for at in range(first, len(weights), size)]
        self.kinds, self.n_atoms, self.features = kinds, len(kinds), self.embedding.shape[1]
        self.numbers = (float(cutoff), len(self.layers[0].filter))
        edges, warps = SHAPES[self.features]
        self.options: dict[str, Any] = {"FEATURES": self.features, "EDGES": edges, "num_warps": warps}
        counts, near = torch.empty_like(kinds), torch.empty_like(neighbors)
        self.rows = (offsets, counts, near, self._table(neighbors.numel(), 4))
        # What each layer's messages are made of: sent, and vectors; of the first layer by kind, and none.
        self.gathered = [(self._table(len(self.embedding), 3 * self.features), self.embedding)]
        self.tapes: list[Tensor] = []
        self.atomic = self._table(self.n_atoms)
        self.by = self._features()

    def _table(self, *shape: int) -> Tensor:
        return self.embedding.new_empty(shape)

    def _features(self) -> tuple[Tensor, Tensor]:
        return self._table(self.n_atoms, self.features), self._table(self.n_atoms, 3, self.features)

    def find_near(self, positions: Tensor, box: Tensor | None, neighbors: Tensor, shifts: Tensor) -> None:
        """Write the neighbours within the cut-off, and what is sent first."""
        offsets, *found = self.rows
        lattice = positions if box is None else box.detach().contiguous()
        near_kernel[(self.n_atoms + len(self.embedding),)](
            *(positions, lattice, offsets, neighbors, shifts, self.embedding, *self.layers[0].sends),
            *(*found, self.gathered[0][0], self.n_atoms, neighbors.numel(), self.numbers[0]),
            **{"FEATURES": self.features, "EDGES": 64, "PERIODIC": box is not None, "num_warps": 8},
        )

    def forward(self) -> None:
        """Evaluate all layers, and the gradient by what the last one has after its message."""
        n, f, before = self.n_atoms, self.features, self.embedding
        for layer, following in pairwise(self.layers):
            moved, sent, tape = self._table(n, 3, f), self._table(n, 3 * f), self._table(n, 3, f, 4)
            layer_kernel[(n,)](
                *(*self.rows, self.kinds, before, *self.gathered[-1], layer.filter, layer.mix),
                *(layer.d3, layer.b3, layer.d4, layer.b4, *following.sends, moved, sent, tape, *self.numbers),
                FIRST=not self.tapes,
                **self.options,
            )
            before = tape
            self.tapes.append(tape)
            self.gathered.append((sent, moved))
        last_layer_kernel[(n,)](
            *(*self.rows, self.kinds, before, *self.gathered[-1], *self.layers[-1][6:], *self.readout),
            *(self.atomic, *self.by, *self.numbers),
            FIRST=not self.tapes,
            **self.options,
        )

    def back(self, gradient: Tensor, energy: Tensor) -> None:
        """Go back through all layers to the positions, and add up the energy."""
        last = len(self.layers) - 1
        for k in range(last, 0, -1):
            self.layer_back(k, gradient)
        first_layer_back_kernel[(self.n_atoms + 1,)](
            *(*self.rows, self.kinds, self.gathered[0][0], self.layers[0].filter, *self.by),
            *(self.atomic, gradient, energy, self.n_atoms, *self.numbers),
            BEGINS=last == 0,
            **self.options,
        )

    def layer_back(self, k: int, gradient: Tensor) -> None:
        """Go back from a layer's message to that of the layer before, and to the positions."""
        layer, before, by = self.layers[k], self.layers[k - 1], self._features()
        layer_back_kernel[(self.n_atoms,)](
            *(*self.rows, *self.gathered[k], layer.filter, *self.by),
            *(layer.d1_transposed, layer.d2_transposed, self.tapes[k - 1]),
            *(before.mix_transposed, before.d3_transposed, before.d4_transposed),
            *(*by, gradient, *self.numbers),
            BEGINS=k == len(self.layers) - 1,
            **self.options,
        )
        self.by = by


class _TiledEvaluation(_Evaluation):
    """The same for many atoms: a layer's message is a launch, and what tiles of atoms do before the next one is another."""

    def __init__(
        self, offsets: Tensor, neighbors: Tensor, kinds: Tensor, weights: Sequence[Tensor], cutoff: float
    ) -> None:
        super().__init__(offsets, neighbors, kinds, weights, cutoff)
        (edges, warps), (atoms, warps_of_tile) = TILED_SHAPES[self.features]
        self.options |= {"EDGES": edges, "num_warps": warps}
        self.tiles = (-(-self.n_atoms // atoms),)
        self.tile: dict[str, Any] = {"FEATURES": self.features, "ATOMS": atoms, "num_warps": warps_of_tile}

    def forward(self) -> None:
        """Evaluate all layers, and the gradient by what the last one has after its message."""
        n, f, before = self.n_atoms, self.features, self.embedding
        scalars, vectors = self._features()
        for k, layer in enumerate(self.layers):
            message_kernel[(n,)](
                *(*self.rows, self.kinds, before, *self.gathered[k], layer.filter, scalars, vectors),
                *self.numbers,
                FIRST=k == 0,
                **self.options,
            )
            before = scalars
            if k + 1 < len(self.layers):
                moved, sent, tape = self._table(n, 3, f), self._table(n, 3 * f), self._table(n, 10, f)
                update_kernel[self.tiles](
                    *(scalars, vectors, layer.mix, layer.d3, layer.b3, layer.d4, layer.b4),
                    *(*self.layers[k + 1].sends, moved, sent, tape, n),
                    **self.tile,
                )
                self.tapes.append(tape)
                self.gathered.append((sent, moved))
        readout_kernel[self.tiles](
            *(scalars, vectors, *self.layers[-1][7:], *self.readout, self.atomic, *self.by, n), **self.tile
        )

    def layer_back(self, k: int, gradient: Tensor) -> None:
        """Go back from a layer's message to that of the layer before, and to the positions."""
        n, f, layer, before = self.n_atoms, self.features, self.layers[k], self.layers[k - 1]
        by_sent, by_vectors = self._table(n, 3 * f), self._table(n, 3, f)
        message_back_kernel[(n,)](
            *(*self.rows, *self.gathered[k], layer.filter, *self.by, by_sent, by_vectors, gradient),
            *self.numbers,
            BEGINS=k == len(self.layers) - 1,
            **self.options,
        )
        self.by = (self.by[0], by_vectors)
        update_back_kernel[self.tiles](
            *(by_sent, *self.by, self.tapes[k - 1], layer.d1_transposed, layer.d2_transposed),
            *(before.mix_transposed, before.d3_transposed, before.d4_transposed, n),
            **self.tile,
        )


# No annotations from __future__: Triton reads those of its kernels.


_NEAREST_SQUARED = tl.constexpr(1e-24)


@triton.jit
def edges(
    positions,
    box,
    neighbors,
    shifts,
    i,
    begin,
    end,
    n_atoms,
    cutoff,
    EDGES: tl.constexpr,
    PERIODIC: tl.constexpr,
):
    """Return of some entries of row i: the other atom, whether it is within the cut-off, the direction to it, r, 1/r."""
    entry = begin + tl.arange(0, EDGES)
    here = entry < end
    j = tl.load(neighbors + entry, mask=here, other=-1).to(tl.int64)
    here &= (j >= 0) & (j < n_atoms)
    j = tl.where(here, j, 0)
    dx = tl.load(positions + 3 * j) - tl.load(positions + 3 * i)
    dy = tl.load(positions + 3 * j + 1) - tl.load(positions + 3 * i + 1)
    dz = tl.load(positions + 3 * j + 2) - tl.load(positions + 3 * i + 2)
    if PERIODIC:
        dx, dy, dz = imaged(dx, dy, dz, shifts, entry, entry < end, box)
    dx, dy, dz = dx.to(tl.float32), dy.to(tl.float32), dz.to(tl.float32)
    squared = dx * dx + dy * dy + dz * dz
    near = here & (squared < cutoff * cutoff)
    r = tl.sqrt(tl.where(near, tl.maximum(squared, _NEAREST_SQUARED), 1.0))
    per_r = 1.0 / r
    # Of pairs that add nothing there are directions as well, which must be numbers.
    ux, uy, uz = (
        tl.where(near, dx * per_r, 0.0),
        tl.where(near, dy * per_r, 0.0),
        tl.where(near, dz * per_r, 0.0),
    )
    return j, near, ux, uy, uz, r, per_r


@triton.jit
def near_kernel(
    positions,
    box,
    offsets,
    neighbors,
    shifts,
    embedding,
    d1,
    b1,
    d2,
    b2,
    counts,
    near,
    geometry,
    sent,
    n_atoms,
    capacity,
    cutoff,
    FEATURES: tl.constexpr,
    EDGES: tl.constexpr,
    PERIODIC: tl.constexpr,
):
    """Write an atom's neighbours within the cut-off, in the list's order, or what a kind of atom sends in the first layer.

    Launch grid: ``(n_atoms + n_kinds,)``: a program to a row, and to a kind.

    =========  =====================  ==========  =====================================================
    argument   shape                  dtype       what it is
    =========  =====================  ==========  =====================================================
    positions  (n_atoms, 3)           float32/64
    box        (3, 3)                 float32/64  lattice vectors, in rows
    offsets    (n_atoms + 1,)         int32
    neighbors  (capacity,)            int32
    shifts     (capacity,)            int32       packed
    embedding  (n_kinds, FEATURES)    float32
    d1         (FEATURES, FEATURES)   float32     of the first layer, as the next three
    b1         (FEATURES,)            float32
    d2         (FEATURES, 3 FEATURES) float32
    b2         (3 FEATURES,)          float32
    counts     (n_atoms,)             int32       out: how many neighbours are near
    near       (capacity,)            int32       out: they, from the beginning of the atom's row in the list
    geometry   (capacity, 4)          float32     out: direction and distance of each
    sent       (n_kinds, 3 FEATURES)  float32     out
    n_atoms    scalar                 int32
    capacity   scalar                 int32       entries of the list
    cutoff     scalar                 float32
    FEATURES   constant                           F
    EDGES      constant                           pairs at once
    PERIODIC   constant                           whether there is a box
    =========  =====================  ==========  =====================================================
    """
    i = tl.program_id(0).to(tl.int64)
    if i < n_atoms:
        begin = tl.load(offsets + i)
        end = tl.minimum(tl.load(offsets + i + 1), capacity)
        to = begin.to(tl.int64)
        last = to
        while begin < end:
            j, is_near, ux, uy, uz, r, _ = edges(
                positions, box, neighbors, shifts, i, begin, end, n_atoms, cutoff, EDGES, PERIODIC
            )
            rank = tl.cumsum(is_near.to(tl.int32), axis=0)
            at = last + rank - 1
            tl.store(near + at, j.to(tl.int32), mask=is_near)
            tl.store(geometry + 4 * at, ux, mask=is_near)
            tl.store(geometry + 4 * at + 1, uy, mask=is_near)
            tl.store(geometry + 4 * at + 2, uz, mask=is_near)
            tl.store(geometry + 4 * at + 3, r, mask=is_near)
            last += tl.sum(is_near.to(tl.int32), axis=0)
            begin += EDGES
        tl.store(counts + i, (last - to).to(tl.int32))
    else:
        kind = i - n_atoms
        s = tl.load(embedding + kind * FEATURES + tl.arange(0, FEATURES))
        own, along, carried, _ = send(s, d1, b1, d2, b2, FEATURES)
        store_row_of_three(sent + kind * 3 * FEATURES, own, along, carried, FEATURES)
