"""Terms of OpenMM's forces as plain numbers: adding hundreds of thousands of them with units takes minutes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
