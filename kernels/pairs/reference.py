"""Energies of pairs in plain PyTorch and float64, differentiated by autograd."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..table_checks import check_positions
from .forms import FORMS, NEEDED, SETTINGS

MOST_FORCE, MOST_ENERGY = 1e9, 3.4e38
"""Of a pair: the largest force, and the energy beyond which float32 has no number for it, so that the pair adds nothing."""


def pairs(
    positions: Tensor,
    box: Tensor | None,
    offsets: Tensor,
    neighbors: Tensor,
    shifts: Tensor,
    parameters: Tensor,
    form: int,
    cutoff: float,
    settings: Sequence[float],
    excluded_offsets: Tensor | None = None,
    excluded: Tensor | None = None,
    both_ways: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `openmm_density.kernels.pairs.pairs` returns, with the same arguments."""
    check_call(
        positions,
        box,
        offsets,
        neighbors,
        shifts,
        parameters,
        form,
        cutoff,
        settings,
        excluded_offsets,
        excluded,
    )
    settings = [*settings, *[0.0] * (SETTINGS - len(settings))]
    n_atoms = positions.shape[0]
    first = torch.repeat_interleave(torch.arange(n_atoms, device=positions.device), offsets.diff().long())
    second, codes = neighbors[: first.numel()].long(), shifts[: first.numel()]
    keep = torch.ones_like(first, dtype=torch.bool)
    if excluded_offsets is not None and excluded is not None:
        of = torch.repeat_interleave(
            torch.arange(n_atoms, device=positions.device), excluded_offsets.diff().long()
        )
        keep = ~torch.isin(first * n_atoms + second, of * n_atoms + excluded.long())
    first, second, codes = first[keep], second[keep], codes[keep]
    with torch.enable_grad():
        x = positions.detach().double().requires_grad_()
        vectors = x[second] - x[first]
        if box is not None:
            vectors = vectors + _steps(codes).double() @ box.detach().double()
        near = vectors.detach().square().sum(dim=1) < cutoff * cutoff
        vectors, first, second = vectors[near], first[near], second[near]
        # Where two atoms are in one place the norm has no direction: a force of 0.
        r = torch.sqrt(vectors.square().sum(dim=1).clamp(min=1e-24))
        p = parameters.detach().double()
        energies = FORMS[form](r, p[first], p[second], cutoff, settings)
        energy = torch.where(energies.detach().abs() < MOST_ENERGY, energies, 0.0).sum()
        by_vector = torch.zeros_like(vectors)
        if vectors.numel():
            (by_vector,) = torch.autograd.grad(energy, vectors)
            by_vector *= (MOST_FORCE / by_vector.norm(dim=1, keepdim=True)).clamp(max=1.0)
    gradient = torch.zeros_like(x).detach()
    gradient.index_add_(0, first, -by_vector)
    gradient.index_add_(0, second, by_vector)
    virial = -(vectors.detach()[:, :, None] * by_vector[:, None, :]).sum(dim=0)
    # Each pair was added up as often as it is listed.
    share = 0.5 if both_ways else 1.0
    return share * energy.detach(), (share * gradient).to(positions.dtype), share * virial


def _steps(codes: Tensor) -> Tensor:
    code = codes.long()
    x = ((code + 512) & 1023) - 512
    code = (code - x) >> 10
    y = ((code + 512) & 1023) - 512
    return torch.stack([x, y, (code - y) >> 10], dim=1)


def check_call(
    positions: Tensor,
    box: Tensor | None,
    offsets: Tensor,
    neighbors: Tensor,
    shifts: Tensor,
    parameters: Tensor,
    form: int,
    cutoff: float,
    settings: Sequence[float],
    excluded_offsets: Tensor | None,
    excluded: Tensor | None,
) -> None:
    """Check shapes, types and numbers, but not what tables hold."""
    check_positions("pairs", positions)
    n_atoms = positions.shape[0]
    tables = {
        "offsets": (offsets, torch.int32, (n_atoms + 1,)),
        "neighbors": (neighbors, torch.int32, (neighbors.numel(),)),
        "shifts": (shifts, torch.int32, (neighbors.numel(),)),
        "parameters": (parameters, torch.float32, (n_atoms, 3)),
    }
    if (excluded_offsets is None) != (excluded is None):
        raise ValueError(
            "pairs: give excluded_offsets and excluded, or neither: take both from pack_exclusions"
        )
    if excluded_offsets is not None and excluded is not None:
        tables["excluded_offsets"] = (excluded_offsets, torch.int32, (n_atoms + 1,))
        tables["excluded"] = (excluded, torch.int32, (excluded.numel(),))
    for name, (tensor, dtype, shape) in tables.items():
        if tensor.dtype != dtype or tuple(tensor.shape) != shape or not tensor.is_contiguous():
            raise ValueError(
                f"pairs: {name} must be a contiguous tensor of {dtype} of shape {list(shape)}, "
                f"not {tensor.dtype} of shape {list(tensor.shape)}"
            )
    if box is not None and (tuple(box.shape) != (3, 3) or box.dtype not in (torch.float32, torch.float64)):
        raise ValueError(
            f"pairs: box must be a float32 or float64 tensor of shape (3, 3), not {box.dtype} of shape {list(box.shape)}"
        )
    if form not in FORMS:
        raise ValueError(f"pairs: form must be from 0 to {len(FORMS) - 1}, not {form}")
    if not (math.isfinite(cutoff) and cutoff > 0):
        raise ValueError(f"pairs: cutoff must be a positive length, not {cutoff:g}")
    if len(settings) > SETTINGS:
        raise ValueError(f"pairs: there may be {SETTINGS} settings, not {len(settings)}")
    if len(settings) < NEEDED[form]:
        raise ValueError(f"pairs: form {form} needs {NEEDED[form]} settings, not {len(settings)}")
