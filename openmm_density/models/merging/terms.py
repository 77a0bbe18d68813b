"""Terms of OpenMM's forces as plain numbers: adding hundreds of thousands of them with units takes minutes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import openmm
from openmm import unit


def plain(values: Any) -> list[Any]:
    """Return what a method of a force returned, without units: in those of OpenMM."""
    return [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    if unit.is_quantity(value):
        value = value.value_in_unit_system(unit.md_unit_system)
    return list(value) if isinstance(value, (tuple, list)) else value


def of_number(force: openmm.Force, kind: str) -> Callable[[int], Any]:
    """Return the method that gives a term, as ``getBondParameters``, by its number."""
    return getattr(force, f"get{kind}Parameters")


def terms_of(force: openmm.Force, kind: str, members: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the particles of all terms of a kind, as ``Bond``, shape (T, members), and their numbers, shape (T, P)."""
    method = of_number(force, kind)
    # Without the unit of each number, which take most of the time.
    bare = getattr(openmm._openmm, f"{type(force).__name__}_get{kind}Parameters", None)
    rows = [bare(force, k) if bare else plain(method(k)) for k in range(getattr(force, f"getNum{kind}s")())]
    particles = np.array([row[:members] for row in rows], dtype=np.int64).reshape(-1, members)
    numbers = [row[members:] if isinstance(row[-1], float) else row[-1] for row in rows]
    return particles, np.array(numbers, dtype=np.float64).reshape(len(rows), -1)


def masses_of(system: openmm.System) -> np.ndarray:
    """Return the masses of all particles in Da."""
    return np.array([system.getParticleMass(index)._value for index in range(system.getNumParticles())])
