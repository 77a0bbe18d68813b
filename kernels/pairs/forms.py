"""What the energy of a pair is, as a function of its distance: the numbers of the forms, and their formulas in float64.

A new form is a function here, one in forms.h and one in gpu_forms.py, and a number. What its settings become before any pair is
looked at is in `setting_of` (forms.h) and `numbers_of` (gpu_forms.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

LENNARD_JONES = 0
REACTION_FIELD = 1
NONBONDED = 2
SOFT_REPULSION = 3
MORSE = 4
FLAT_BOTTOM = 5

SETTINGS = 3
"""How many numbers a form takes at most besides the parameters of atoms."""
NEEDED = {LENNARD_JONES: 1, REACTION_FIELD: 2, NONBONDED: 3, SOFT_REPULSION: 0, MORSE: 1, FLAT_BOTTOM: 0}
"""How many of them each form uses: none has a number that would be right where it is left out."""

Energy = Callable[[Tensor, Tensor, Tensor, float, Sequence[float]], Tensor]


def _switch(r: Tensor, first: float, cutoff: float) -> Tensor:
    """Return 1 up to a distance, and from there what falls smoothly to 0 at the cut-off."""
    if first >= cutoff:
        return torch.ones_like(r)
    t = ((r - first) / (cutoff - first)).clamp(min=0.0)
    return 1 + t**3 * (-10 + t * (15 - 6 * t))


def _lennard_jones(r: Tensor, i: Tensor, j: Tensor, cutoff: float, settings: Sequence[float]) -> Tensor:
    sigma, epsilon = (i[:, 0] + j[:, 0]) / 2, torch.sqrt(i[:, 1] * j[:, 1])
    sixth = (sigma / r) ** 6
    return 4 * epsilon * (sixth * sixth - sixth) * _switch(r, settings[0], cutoff)


def _coulomb(r: Tensor, charges: Tensor, cutoff: float, constant: float, dielectric: float) -> Tensor:
    k = (dielectric - 1) / (2 * dielectric + 1) / cutoff**3
    c = 3 * dielectric / (2 * dielectric + 1) / cutoff
    return constant * charges * (1 / r + k * r * r - c)


def _reaction_field(r: Tensor, i: Tensor, j: Tensor, cutoff: float, settings: Sequence[float]) -> Tensor:
    return _coulomb(r, i[:, 0] * j[:, 0], cutoff, settings[0], settings[1])


def _nonbonded(r: Tensor, i: Tensor, j: Tensor, cutoff: float, settings: Sequence[float]) -> Tensor:
    charges = i[:, 2] * j[:, 2]
    return _lennard_jones(r, i, j, cutoff, settings) + _coulomb(r, charges, cutoff, settings[1], settings[2])


def _soft_repulsion(r: Tensor, i: Tensor, j: Tensor, cutoff: float, settings: Sequence[float]) -> Tensor:
    return 0.5 * torch.sqrt(i[:, 1] * j[:, 1]) * (i[:, 0] + j[:, 0] - r).clamp(min=0.0) ** 2


def _morse(r: Tensor, i: Tensor, j: Tensor, cutoff: float, settings: Sequence[float]) -> Tensor:
    depth, steepness = torch.sqrt(i[:, 1] * j[:, 1]), (i[:, 2] + j[:, 2]) / 2
    decay = torch.exp(-steepness * (r - i[:, 0] - j[:, 0]))
    return depth * decay * (decay - 2) * _switch(r, settings[0], cutoff)


def _flat_bottom(r: Tensor, i: Tensor, j: Tensor, cutoff: float, settings: Sequence[float]) -> Tensor:
    beyond = (r - i[:, 0] - j[:, 0]).abs() - i[:, 2] - j[:, 2]
    return 0.5 * torch.sqrt(i[:, 1] * j[:, 1]) * beyond.clamp(min=0.0) ** 2


FORMS: dict[int, Energy] = {
    LENNARD_JONES: _lennard_jones,
    REACTION_FIELD: _reaction_field,
    NONBONDED: _nonbonded,
    SOFT_REPULSION: _soft_repulsion,
    MORSE: _morse,
    FLAT_BOTTOM: _flat_bottom,
}
