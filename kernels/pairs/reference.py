"""Pair interactions, and contacts of a unit with its images, in plain PyTorch and float64: the oracles of the kernels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..neighbors.reference import FARTHEST
from ..table_checks import check_positions, check_reach, check_tables
from .forms import FORMS, NEEDED, NONBONDED, SETTINGS

MOST_FORCE, MOST_ENERGY = 1e9, 1e30
"""Of a pair: the largest force, and the most that is added for its energy, so that float32 has a number for the sum of many."""
IN_ONE_PLACE = 3.4e38
"""The energy beyond which float32 has no number for it, so that the pair adds nothing."""


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
        energies = torch.where(energies.detach().abs() < IN_ONE_PLACE, energies, 0.0)
        energy = energies.detach().clamp(max=MOST_ENERGY).sum()
        by_vector = torch.zeros_like(vectors)
        if vectors.numel():
            (by_vector,) = torch.autograd.grad(energies.sum(), vectors)
            by_vector *= (MOST_FORCE / by_vector.norm(dim=1, keepdim=True)).clamp(max=1.0)
    gradient = torch.zeros_like(x).detach()
    gradient.index_add_(0, first, -by_vector)
    gradient.index_add_(0, second, by_vector)
    virial = -(vectors.detach()[:, :, None] * by_vector[:, None, :]).sum(dim=0)
    # Each pair was added up as often as it is listed.
    share = 0.5 if both_ways else 1.0
    return share * energy, (share * gradient).to(positions.dtype), share * virial


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
    check_tables("pairs", tables)
    check_reach("pairs", box, cutoff)
    if form not in FORMS:
        raise ValueError(f"pairs: form must be from 0 to {len(FORMS) - 1}, not {form}")
    if len(settings) > SETTINGS:
        raise ValueError(f"pairs: there may be {SETTINGS} settings, not {len(settings)}")
    if len(settings) < NEEDED[form]:
        raise ValueError(f"pairs: form {form} needs {NEEDED[form]} settings, not {len(settings)}")


TANGENT_FROM = 0.6
"""Of the mean σ of two atoms: nearer than that the energy goes on along its tangent."""


def mate_contacts(
    positions: Tensor,
    parameters: Tensor,
    images: Tensor,
    excluded: Tensor,
    cutoff: float,
    settings: Sequence[float],
) -> tuple[Tensor, Tensor]:
    """Return what `openmm_density.kernels.pairs.mate_contacts` returns, with the same arguments."""
    check_contacts(positions, parameters, images, excluded, cutoff, settings)
    x, p = positions.detach().double(), parameters.double()
    acts = ((p[:, 1] != 0) | (p[:, 2] != 0)) & (x.abs() <= FARTHEST).all(dim=1)
    energy, gradient = torch.zeros((), dtype=torch.float64, device=x.device), torch.zeros_like(x)
    for number, image in enumerate(images):
        apart = acts[:, None] & acts[None, :]
        left_out = excluded[excluded[:, 1] == number].long()
        apart[left_out[:, 0], left_out[:, 2]] = False
        d = (x @ image[:, :3].T + image[:, 3])[None] - x[:, None]
        first, second = torch.nonzero(apart & (d.square().sum(dim=2) < cutoff**2), as_tuple=True)
        d = d[first, second]
        r = d.square().sum(dim=1).clamp(min=1e-12).sqrt()
        with torch.enable_grad():
            at = torch.maximum(r, TANGENT_FROM * (p[first, 0] + p[second, 0]) / 2).requires_grad_()
            at_tangent = FORMS[NONBONDED](at, p[first], p[second], cutoff, settings)
            (slope,) = torch.autograd.grad(at_tangent.sum(), at)
        energy = energy + 0.5 * (at_tangent.detach() + slope * (r - at.detach())).sum()
        gradient.index_add_(0, first, -(slope / r)[:, None] * d)
    return energy, gradient.to(positions.dtype)


def check_contacts(
    positions: Tensor,
    parameters: Tensor,
    images: Tensor,
    excluded: Tensor,
    cutoff: float,
    settings: Sequence[float],
) -> None:
    """Check shapes, types and numbers of the operator's arguments."""
    check_positions("mate_contacts", positions)
    n = positions.shape[0]
    tables = {
        "parameters": (parameters, torch.float32, (n, 3)),
        "images": (images, torch.float64, (images.shape[0], 3, 4)),
        "excluded": (excluded, torch.int32, (excluded.shape[0], 3)),
    }
    check_tables("mate_contacts", tables)
    check_reach("mate_contacts", None, cutoff)
    if len(settings) != 3:
        raise ValueError(f"mate_contacts: there must be 3 settings, not {len(settings)}")
