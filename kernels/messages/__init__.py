"""PaiNN's messages between neighbouring atoms, and a whole network of them with its gradient.

With F features, r the distance and **u** the direction from atom i to its neighbour j, and r_c the cut-off, the message to i is

    b_n(r) = sin(n π r/r_c)/r,  n = 1 … n_radial;  b_0 = 1;  c(r) = ½ (cos(π r/r_c) + 1) below r_c, 0 beyond
    (w, w′, w″)_ij = c(r) Σ_n K_n b_n(r)                                                         the filter, 3 F numbers
    Δs_i = Σ_j w φ_j,        Δ**v**_i = Σ_j w′ φ′_j **u**_ij + w″ φ″_j **v**_j

where j has sent (φ, φ′, φ″), 3 F numbers made of its scalars, and has F vectors **v**. The filter is worked out from its
definition for every pair, never interpolated, and forces are the derivatives of what is evaluated.

Source: Schütt, Unke and Gastegger, ICML 2021 (arXiv:2102.03150).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..library import LIBRARY, define
from . import reference

__all__ = ["messages", "painn"]

_LIST = "Tensor positions, Tensor? box, Tensor offsets, Tensor neighbors, Tensor shifts"

LIBRARY.define(
    f"messages({_LIST}, Tensor sent, Tensor vectors, Tensor filter, float cutoff) -> (Tensor by_scalars, Tensor by_vectors)"
)
LIBRARY.impl("messages", reference.messages, "CompositeImplicitAutograd")

_PAINN = define(
    f"painn({_LIST}, Tensor kinds, Tensor[] weights, float cutoff) -> (Tensor energy, Tensor gradient)",
    "messages",
    reference.painn,
)


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
    """Return what every atom receives from its neighbours; callable from TorchScript.

    PyTorch's own operators work it out, in float64, and autograd differentiates it any number of times. The same input gives the
    same bits, with any number of threads.

    Parameters
    ----------
    positions : Tensor, shape (N, 3), float32 or float64
        Atoms, in any unit of length.
    box : Tensor, shape (3, 3), float32 or float64, or None
        Lattice vectors, in rows.
    offsets, neighbors, shifts : Tensor
        A list of `openmm_density.kernels.neighbors` with each pair both ways; it may hold pairs beyond the cut-off.
    sent : Tensor, shape (N, 3 F), float32
        (φ, φ′, φ″) of every atom; F is 32, 64 or 128.
    vectors : Tensor, shape (N, 3, F), float32
        **v** of every atom.
    filter : Tensor, shape (n_radial + 1, 3 F), float32
        K_1 … K_n_radial, and K_0 in the last row; n_radial is 128 at most.
    cutoff : float
        r_c.

    Returns
    -------
    scalars : Tensor, shape (N, F), float32
        Δs.
    vectors : Tensor, shape (N, 3, F), float32
        Δ**v**.

    Raises
    ------
    ValueError
        If a shape, type or number is not as above. Within TorchScript it is a RuntimeError.
    """
    return torch.ops.openmm_density.messages(
        positions, box, offsets, neighbors, shifts, sent, vectors, filter, cutoff
    )


def painn(
    positions: Tensor,
    box: Tensor | None,
    offsets: Tensor,
    neighbors: Tensor,
    shifts: Tensor,
    kinds: Tensor,
    weights: list[Tensor],
    cutoff: float,
) -> tuple[Tensor, Tensor]:
    """Return the sum of all atoms' energies by a network, and its gradient; callable from TorchScript.

    Layers of a message and an update follow one another, and the last scalars are read out, as
    `openmm_density.energies.painn_network` has it, without offsets and scale. On the CPU all of it is one call of C++; on a GPU
    it is a Triton kernel for each layer forward and one back, or with many atoms two, and one before them.

    Parameters
    ----------
    positions, box, offsets, neighbors, shifts, cutoff
        As of `messages`.
    kinds : Tensor, shape (N,), int32
        Rows of the embedding.
    weights : list of Tensor, float32
        The embedding (kinds, F); of the readout's two layers matrix (F, F/2), its transpose, bias (F/2,), matrix (F/2,) and bias
        (1,); and of each layer: D₁ (F, F), its transpose and bias, D₂ (F, 3 F), its transpose and bias, the filter
        (n_radial + 1, 3 F), U and V side by side (F, 2 F) and their transpose, D₃ (2 F, F), its transpose and bias, D₄ (F, 3 F),
        its transpose and bias. Matrices go from the input in rows to the output in columns.

    Returns
    -------
    energy : Tensor, shape (), float64
    gradient : Tensor, shape (N, 3), of the positions' type
        Of the energy with respect to the positions: the negative of the forces.

    Raises
    ------
    ValueError
        As `messages`, where a weight is missing or has another shape, and (on the CPU) where a pair is in the list one way only.
    """
    return torch.ops.openmm_density.painn(positions, box, offsets, neighbors, shifts, kinds, weights, cutoff)


@torch.library.register_fake(_PAINN, lib=LIBRARY)
def _shapes_of_network(positions: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return positions.new_empty((), dtype=torch.float64), positions.new_empty(positions.shape)
