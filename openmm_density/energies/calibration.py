"""The automatic strength of a density: total k from the ratio of its force to all others, within bounds per fitted atom."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from openmm.app import Topology

from ..base.errors import InputError, SimulationError
from ..base.units import as_number, in_unit
from ..base.wording import named_atoms

STRENGTH_PER_ATOM = 10.0
"""kJ/mol per fitted atom: by default, and before an automatic strength is calibrated."""
DEFAULT_RATIO = 0.2
STRENGTH_BOUNDS = (5.0, 200.0)
"""kJ/mol per fitted atom: what an automatic strength stays within. From 100 on fits to real maps were seen to spoil geometry."""


def strength_per_atom(strength: Any) -> float:
    """Return the strength that a new Context starts with, in kJ/mol per fitted atom."""
    if isinstance(strength, str):
        if strength != "auto":
            raise InputError(
                'must be a number or "auto"',
                argument="strength",
                found=f'"{strength}"',
                remedy="give kJ/mol per fitted atom, such as 10",
            )
        return STRENGTH_PER_ATOM
    per_atom = as_number(in_unit(strength, "kJ/mol", "strength"), "strength")
    if not math.isfinite(per_atom) or per_atom < 0:
        raise InputError(
            "must be 0 or more kJ/mol per fitted atom",
            argument="strength",
            found=per_atom,
            remedy=f"give {STRENGTH_PER_ATOM:g}, or another number",
        )
    return per_atom


def strength_from_forces(
    unit_forces: np.ndarray,
    forces: np.ndarray,
    density_strength: float,
    ratio: float = DEFAULT_RATIO,
    bounds: tuple[float, float] = STRENGTH_BOUNDS,
) -> float:
    """Return the total k for which the density's forces are a part of all others, by root mean squares.

    `unit_forces` (M, 3): the density's forces on the fitted atoms at k = 1, in nm⁻¹; some of them not 0. `forces` (M,
    3): all forces on these atoms, the density's among them, in kJ/mol/nm. `density_strength`: the total k in kJ/mol
    that the density has in these. `bounds`: least and largest k in kJ/mol per fitted atom.
    """
    others = forces - density_strength * unit_forces
    strength = ratio * np.sqrt((others**2).mean() / (unit_forces**2).mean())
    low, high = (bound * len(unit_forces) for bound in bounds)
    return float(np.clip(strength, low, high))


def check_numbers(what: str, found: np.ndarray, topology: Topology, atoms: np.ndarray | None = None) -> None:
    """Refuse to calibrate in a simulation that blew up. `found` (M, 3). `atoms` int (M,) of which atoms; of all by default."""
    lost = np.flatnonzero(~np.isfinite(found).all(axis=1))
    if len(lost):
        names = named_atoms(topology, lost if atoms is None else atoms[lost])
        raise SimulationError(
            f"strength cannot be calibrated: the {what} of {names} are not numbers, as the simulation in the Context blew up: "
            "minimise the model before, or make smaller steps."
        )
