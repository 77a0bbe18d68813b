"""PaiNN's messages and network in plain PyTorch and float64, differentiated by autograd."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..scatter.reference import added_in_order
from ..table_checks import check_positions, check_reach, check_tables

FEATURES = (32, 64, 128)
MOST_RADIAL = 128
NORM_FLOOR = 1e-8
WEIGHTS_OF_ALL, WEIGHTS_OF_A_LAYER = 6, 15


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
    """Return what `openmm_density.kernels.messages.messages` returns, with the same arguments."""
    check_call("messages", positions, box, offsets, neighbors, shifts, sent, vectors, filter, cutoff)
    first, second, d = _near_pairs(positions.double(), box, offsets, neighbors, shifts, cutoff)
    scalars, moved = _messages(first, second, d, sent.double(), vectors.double(), filter.double(), cutoff)
    return scalars.to(sent.dtype), moved.to(sent.dtype)


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
    check_network(positions, box, offsets, neighbors, shifts, kinds, weights, cutoff)
    weights = [weight.detach().double() for weight in weights]
    with torch.enable_grad():
        x = positions.detach().double().requires_grad_()
        first, second, d = _near_pairs(x, box, offsets, neighbors, shifts, cutoff)
        scalars = weights[0][kinds.long()]
        vectors = scalars.new_zeros((len(x), 3, scalars.shape[1]))
        for begin in range(WEIGHTS_OF_ALL, len(weights), WEIGHTS_OF_A_LAYER):
            d1, _, b1, d2, _, b2, filter, mix, _, d3, _, b3, d4, _, b4 = weights[
                begin : begin + WEIGHTS_OF_A_LAYER
            ]
            sent = torch.nn.functional.silu(scalars @ d1 + b1) @ d2 + b2
            received, moved = _messages(first, second, d, sent, vectors, filter, cutoff)
            scalars, vectors = scalars + received, vectors + moved
            p, q = (vectors @ mix).chunk(2, dim=-1)
            length = torch.sqrt((q * q).sum(dim=1) + NORM_FLOOR)
            gates = torch.nn.functional.silu(torch.cat([scalars, length], dim=-1) @ d3 + b3) @ d4 + b4
            grown, added, turned = gates.chunk(3, dim=-1)
            scalars, vectors = scalars + added + turned * (p * q).sum(dim=1), vectors + grown[:, None] * p
        _, r1, _, c1, r2, c2 = weights[:WEIGHTS_OF_ALL]
        energy = (torch.nn.functional.silu(scalars @ r1 + c1) @ r2 + c2).sum()
        (gradient,) = torch.autograd.grad(energy, x, allow_unused=True)
    gradient = torch.zeros_like(x) if gradient is None else gradient
    return energy.detach(), gradient.detach().to(positions.dtype)


def _near_pairs(
    x: Tensor, box: Tensor | None, offsets: Tensor, neighbors: Tensor, shifts: Tensor, cutoff: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return both atoms of each pair within the cut-off, and the vector from the first to the second."""
    first = torch.repeat_interleave(torch.arange(len(x), device=x.device), offsets.diff().long())
    second, codes = neighbors[: first.numel()].long(), shifts[: first.numel()].long()
    vectors = x[second] - x[first]
    if box is not None:
        steps = []
        for _ in range(2):
            steps.append(((codes + 512) & 1023) - 512)
            codes = (codes - steps[-1]) >> 10
        vectors = vectors + torch.stack([*steps, codes], dim=1).double() @ box.detach().double()
    near = vectors.detach().square().sum(dim=1) < cutoff * cutoff
    return first[near], second[near], vectors[near]


def _messages(
    first: Tensor, second: Tensor, d: Tensor, sent: Tensor, vectors: Tensor, filter: Tensor, cutoff: float
) -> tuple[Tensor, Tensor]:
    r = torch.sqrt(d.square().sum(dim=1).clamp(min=1e-24))
    orders = torch.arange(1, len(filter), dtype=d.dtype, device=d.device)
    waves = torch.sin(orders * math.pi / cutoff * r[:, None]) / r[:, None]
    envelope = 0.5 * (torch.cos(math.pi / cutoff * r) + 1)
    basis = torch.cat([waves, torch.ones_like(r)[:, None]], dim=1) * envelope[:, None]
    w, along, carried = ((basis @ filter) * sent[second]).chunk(3, dim=1)
    by_direction = along[:, None] * (d / r[:, None])[:, :, None] + carried[:, None] * vectors[second]
    scalars = added_in_order(torch.zeros_like(sent[:, : w.shape[1]]), first, w)
    return scalars, added_in_order(torch.zeros_like(vectors), first, by_direction)


def check_list(
    operator: str,
    positions: Tensor,
    box: Tensor | None,
    offsets: Tensor,
    neighbors: Tensor,
    shifts: Tensor,
    cutoff: float,
) -> None:
    """Check shapes, types and numbers of what describes the pairs, but not what tables hold."""
    check_positions(operator, positions)
    room = (neighbors.numel(),)
    tables = {
        "offsets": (offsets, torch.int32, (len(positions) + 1,)),
        "neighbors": (neighbors, torch.int32, room),
        "shifts": (shifts, torch.int32, room),
    }
    check_tables(operator, tables)
    check_reach(operator, box, cutoff)


def check_call(
    operator: str,
    positions: Tensor,
    box: Tensor | None,
    offsets: Tensor,
    neighbors: Tensor,
    shifts: Tensor,
    sent: Tensor,
    vectors: Tensor,
    filter: Tensor,
    cutoff: float,
) -> None:
    """Check the arguments of a message, but not what tables hold."""
    check_list(operator, positions, box, offsets, neighbors, shifts, cutoff)
    features = sent.shape[1] // 3 if sent.dim() == 2 else 0
    check_features(operator, features)
    n_atoms = len(positions)
    tables = {
        "sent": (sent, torch.float32, (n_atoms, 3 * features)),
        "vectors": (vectors, torch.float32, (n_atoms, 3, features)),
    }
    check_tables(operator, tables)
    check_radial(operator, len(filter) - 1 if filter.dim() == 2 else 0)
    check_tables(operator, {"filter": (filter, torch.float32, (len(filter), 3 * features))})


def check_features(operator: str, features: int) -> None:
    """Raise a ValueError where there is no kernel for so many features."""
    if features not in FEATURES:
        raise ValueError(f"{operator}: there may be 32, 64 or 128 features, not {features}")


def check_radial(operator: str, n_radial: int) -> None:
    """Raise a ValueError where there are no or too many radial functions."""
    if not 1 <= n_radial <= MOST_RADIAL:
        raise ValueError(f"{operator}: there may be 1 to {MOST_RADIAL} radial functions, not {n_radial}")


def check_network(
    positions: Tensor,
    box: Tensor | None,
    offsets: Tensor,
    neighbors: Tensor,
    shifts: Tensor,
    kinds: Tensor,
    weights: Sequence[Tensor],
    cutoff: float,
) -> None:
    """Check the arguments of a network, but not what tables hold."""
    check_list("painn", positions, box, offsets, neighbors, shifts, cutoff)
    layers, rest = divmod(len(weights) - WEIGHTS_OF_ALL, WEIGHTS_OF_A_LAYER)
    if layers < 1 or rest:
        raise ValueError(
            f"painn: there must be {WEIGHTS_OF_ALL} weights and {WEIGHTS_OF_A_LAYER} for each layer, not {len(weights)}"
        )
    if weights[0].dim() != 2:
        raise ValueError("painn: weight 0 must have a row for each kind of atom")
    n_kinds, f = weights[0].shape
    check_features("painn", f)
    n_basis = len(weights[WEIGHTS_OF_ALL + 6]) if weights[WEIGHTS_OF_ALL + 6].dim() == 2 else 1
    check_radial("painn", n_basis - 1)
    shapes: list[tuple[int, ...]] = [(n_kinds, f), (f, f // 2), (f // 2, f), (f // 2,), (f // 2,), (1,)]
    for _ in range(layers):
        shapes += [
            (f, f),
            (f, f),
            (f,),
            (f, 3 * f),
            (3 * f, f),
            (3 * f,),
            (n_basis, 3 * f),
            (f, 2 * f),
            (2 * f, f),
        ]
        shapes += [(2 * f, f), (f, 2 * f), (f,), (f, 3 * f), (3 * f, f), (3 * f,)]
    tables = {
        f"weight {k}": (weight, torch.float32, shape)
        for k, (weight, shape) in enumerate(zip(weights, shapes))
    }
    check_tables("painn", tables | {"kinds": (kinds, torch.int32, (len(positions),))})
