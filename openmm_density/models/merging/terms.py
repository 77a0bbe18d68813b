"""Terms of OpenMM's forces as plain numbers: with units, adding hundreds of thousands of them takes minutes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import openmm
from openmm import unit


def plain(values: Any) -> list[Any]:
    """Return a force method's result as plain numbers in OpenMM's units."""
    return [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    if unit.is_quantity(value):
        value = value.value_in_unit_system(unit.md_unit_system)
    return plain(value) if isinstance(value, (tuple, list)) else value


def of_number(force: openmm.Force, kind: str) -> Callable[[int], Any]:
    """Return the method that gives a term by its index, such as ``getBondParameters``."""
    return getattr(force, f"get{kind}Parameters")


def terms_of(force: openmm.Force, kind: str, members: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the particles of all terms of a kind, such as ``Bond``, shape (T, members), and their parameters, shape (T, P)."""
    method = bare(force, f"get{kind}Parameters")
    rows = [method(k) for k in range(getattr(force, f"getNum{kind}s")())]
    particles = np.array([row[:members] for row in rows], dtype=np.int64).reshape(-1, members)
    numbers = [row[members:] if isinstance(row[-1], float) else row[-1] for row in rows]
    # Without terms, as many columns as any kind has parameters.
    return particles, np.array(numbers, dtype=np.float64).reshape(len(rows), -1 if rows else 8)


def constraints_of(system: openmm.System) -> tuple[np.ndarray, np.ndarray]:
    """Return the particles of all constraints, shape (C, 2), and their distances in nm."""
    method = bare(system, "getConstraintParameters")
    rows = [method(k) for k in range(system.getNumConstraints())]
    pairs = np.array([row[:2] for row in rows], dtype=np.int64).reshape(-1, 2)
    return pairs, np.array([row[2] for row in rows], dtype=np.float64)


def masses_of(system: openmm.System) -> np.ndarray:
    """Return the masses of all particles in Da."""
    return np.array(list(map(bare(system, "getParticleMass"), range(system.getNumParticles()))))


def bare(owner: openmm.Force | openmm.System, method: str) -> Callable[[int], Any]:
    """Return OpenMM's method without the units that Python adds to each number, which take most of the time."""
    function = getattr(openmm._openmm, f"{type(owner).__name__}_{method}", None)
    if function is not None:
        return partial(function, owner)
    return lambda index: plain([getattr(owner, method)(index)])[0]
