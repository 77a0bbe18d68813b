"""Terms of OpenMM's forces as plain numbers: with units, adding hundreds of thousands of them takes minutes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import chain
from typing import Any
from xml.etree import ElementTree

import numpy as np
import openmm
from openmm import unit

# Elements of forces in OpenMM's XML that list terms; everything else are settings.
_LISTS = {
    *("Bonds", "Angles", "Torsions", "Particles", "Exceptions", "Exclusions"),
    *("Groups", "InteractionGroups", "Maps"),
}


def plain(values: Any) -> list[Any]:
    """Return a force method's result as plain numbers in OpenMM's units."""
    return [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    if unit.is_quantity(value):
        value = value.value_in_unit_system(unit.md_unit_system)
    return plain(value) if isinstance(value, (tuple, list)) else value


def terms_of(force: openmm.Force, kind: str, members: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the particles of all terms of a kind, as ``Bond``, shape (T, members), and their numbers, shape (T, P)."""
    count = getattr(force, f"getNum{kind}s")()
    if not count:  # as many columns as any kind of them has numbers
        return np.empty((0, members), dtype=np.int64), np.empty((0, 8))
    rows = map(bare(force, f"get{kind}Parameters"), range(count))
    if _holds_all(force, kind):
        found = _numbers(rows).reshape(count, -1)
        return found[:, :members].astype(np.int64), found[:, members:]
    listed = list(rows)
    particles = np.array([row[:members] for row in listed], dtype=np.int64).reshape(-1, members)
    return particles, _numbers(row[-1] for row in listed).reshape(count, -1)


def _holds_all(force: openmm.Force, kind: str) -> bool:
    """Return whether a term is given as numbers alone, not its parameters as a tuple."""
    return isinstance(bare(force, f"get{kind}Parameters")(0)[-1], (int, float))


def _numbers(rows: Iterable[Iterable[float]]) -> np.ndarray:
    return np.fromiter(chain.from_iterable(rows), dtype=np.float64)


def listed_terms(force: openmm.Force, kind: str) -> list[Any]:
    """Return the arguments with which each term of a kind was added, in OpenMM's units."""
    method = f"get{kind}Particles" if kind == "Exclusion" else f"get{kind}Parameters"
    found = list(map(bare(force, method), range(getattr(force, f"getNum{kind}s")())))
    # What a particle of these has is one argument.
    is_one = kind == "Particle" and isinstance(force, (openmm.CustomGBForce, openmm.CustomNonbondedForce))
    return [(values,) for values in found] if is_one else found


def without_terms(force: openmm.Force, but: Collection[str] = ()) -> ElementTree.Element:
    """Return the XML of a force with its lists of terms empty, some excepted: what is left are settings."""
    root = ElementTree.fromstring(openmm.XmlSerializer.serialize(force))
    for child in root:
        if child.tag in _LISTS and child.tag not in but:
            child.clear()
    return root


def constraints_of(system: openmm.System) -> tuple[np.ndarray, np.ndarray]:
    """Return the particles of all constraints, shape (C, 2), and their distances in nm."""
    rows = map(bare(system, "getConstraintParameters"), range(system.getNumConstraints()))
    found = _numbers(rows).reshape(-1, 3)
    return found[:, :2].astype(np.int64), found[:, 2].copy()


def masses_of(system: openmm.System) -> np.ndarray:
    """Return the masses of all particles in Da."""
    count = system.getNumParticles()
    return np.fromiter(map(bare(system, "getParticleMass"), range(count)), dtype=np.float64, count=count)


def call_for_each(owner: openmm.Force | openmm.System, method: str, *columns: np.ndarray | list[Any]) -> None:
    """Call a method, as ``addBond``, once for each row of columns, in OpenMM's units; an array (T, n) stands for n of them.

    A loop of Python's own, through methods that look for units, takes three to five times as long.
    """
    listed = [
        each
        for column in columns
        for each in ([column] if isinstance(column, list) else np.atleast_2d(column.T).tolist())
    ]
    deque(map(bare(owner, method), *listed), maxlen=0)


def bare(owner: openmm.Force | openmm.System, method: str) -> Callable[..., Any]:
    """Return a method of OpenMM's without the units that Python adds to each number, which take most of the time."""
    function = getattr(openmm._openmm, f"{type(owner).__name__}_{method}", None)
    if function is not None:
        return partial(function, owner)
    return lambda *arguments: plain([getattr(owner, method)(*arguments)])[0]
