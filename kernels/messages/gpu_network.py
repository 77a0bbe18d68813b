"""A whole network on the GPU: a launch for near neighbours, and one for each layer forward and back (`gpu_layers`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import reference
from .gpu_layers import last_layer_kernel, layer_kernel
from .gpu_layers_back import first_layer_back_kernel, layer_back_kernel
from .gpu_near import near_kernel

# Radial functions at once.
_CHUNK = 32


class Launch(NamedTuple):
    """How a layer is launched: pairs at once, warps, and how filters are multiplied."""

    edges: int
    warps: int
    products: str


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


FORWARD, BACK = Launch(16, 4, "loop"), Launch(16, 4, "loop")


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
    n = len(positions)
    gradient = torch.empty_like(positions, memory_format=torch.contiguous_format)
    if n == 0:
        return gradient.new_zeros((), dtype=torch.float64), gradient
    energy = gradient.new_empty((), dtype=torch.float64)
    first, size = reference.WEIGHTS_OF_ALL, reference.WEIGHTS_OF_A_LAYER
    embedding, r1, r1_transposed, c1, r2, c2 = weights[:first]
    layers = [_Layer(*weights[at : at + size]) for at in range(first, len(weights), size)]
    f, n_basis = embedding.shape[1], len(layers[0].filter)

    def table(*shape: int) -> Tensor:
        return embedding.new_empty(shape)

    def options(launch: Launch) -> dict[str, Any]:
        basis = -(-n_basis // _CHUNK) * _CHUNK
        return {
            **{"FEATURES": f, "BASIS": basis, "CHUNK": _CHUNK, "EDGES": launch.edges},
            **{"PRODUCTS": launch.products, "num_warps": launch.warps},
        }

    forward, back = options(FORWARD), options(BACK)
    numbers = (float(cutoff), n_basis)
    counts, near = offsets.new_empty((n,)), torch.empty_like(neighbors)
    rows = (offsets, counts, near, table(neighbors.numel(), 4))
    before, sent, vectors = embedding, table(len(embedding), 3 * f), embedding
    gathered, tapes = [], []
    with torch.cuda.device_of(positions):
        at = positions.detach().contiguous()
        near_kernel[(n + len(embedding),)](
            *(at, at if box is None else box.detach().contiguous(), offsets, neighbors, shifts, embedding),
            *(*layers[0].sends, counts, near, rows[3], sent, n, neighbors.numel(), float(cutoff)),
            **{"FEATURES": f, "EDGES": 64, "PERIODIC": box is not None, "num_warps": 8},
        )
        for k, layer in enumerate(layers[:-1]):
            made = (table(n, 3, f), table(n, 3 * f), table(n, 3, f, 4))
            layer_kernel[(n,)](
                *(
                    *rows,
                    kinds,
                    before,
                    sent,
                    vectors,
                    layer.filter,
                    layer.mix,
                    layer.d3,
                    layer.b3,
                    layer.d4,
                ),
                *(layer.b4, *layers[k + 1].sends, *made, *numbers),
                FIRST=k == 0,
                **forward,
            )
            gathered.append((sent, vectors))
            vectors, sent, before = made
            tapes.append(before)
        gathered.append((sent, vectors))
        atomic, by_scalars, by_vectors = table(n), table(n, f), table(n, 3, f)
        last_layer_kernel[(n,)](
            *(*rows, kinds, before, sent, vectors, *layers[-1][6:]),
            *(r1, r1_transposed, c1, r2, c2, atomic, by_scalars, by_vectors, *numbers),
            FIRST=len(layers) == 1,
            **forward,
        )
        for k in range(len(layers) - 1, 0, -1):
            layer, previous = layers[k], layers[k - 1]
            by = (table(n, f), table(n, 3, f))
            layer_back_kernel[(n,)](
                *(*rows, *gathered[k], layer.filter, by_scalars, by_vectors),
                *(layer.d1_transposed, layer.d2_transposed, tapes[k - 1]),
                *(previous.mix_transposed, previous.d3_transposed, previous.d4_transposed),
                *(*by, gradient, *numbers),
                BEGINS=k == len(layers) - 1,
                **back,
            )
            by_scalars, by_vectors = by
        first_layer_back_kernel[(n + 1,)](
            *(
                *rows,
                kinds,
                gathered[0][0],
                layers[0].filter,
                by_scalars,
                by_vectors,
                atomic,
                gradient,
                energy,
            ),
            *(n, *numbers),
            BEGINS=len(layers) == 1,
            **back,
        )
    return energy, gradient
