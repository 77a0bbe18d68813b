"""Contacts of a unit with its images in plain PyTorch and float64, image by image."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..neighbors.reference import FARTHEST
from ..table_checks import check_positions
from .forms import FORMS, NONBONDED

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
    check_call(positions, parameters, images, excluded, cutoff, settings)
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


def check_call(
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
    for name, table, dtype, shape in (
        ("parameters", parameters, torch.float32, (n, 3)),
        ("images", images, torch.float64, (images.shape[0], 3, 4)),
        ("excluded", excluded, torch.int32, (excluded.shape[0], 3)),
    ):
        if table.shape != shape or table.dtype != dtype or not table.is_contiguous():
            raise ValueError(
                f"mate_contacts: {name} must be a contiguous tensor of {dtype} of shape {list(shape)}, but has shape "
                f"{list(table.shape)} and type {table.dtype}"
            )
    if not (math.isfinite(cutoff) and cutoff > 0):
        raise ValueError(f"mate_contacts: cutoff must be a positive length, not {cutoff:g}")
    if len(settings) != 3:
        raise ValueError(f"mate_contacts: there must be 3 settings, not {len(settings)}")
