"""Plain floats and ``openmm.unit`` quantities, brought to the unit that a docstring names."""

from __future__ import annotations

from typing import Any

import numpy as np
from openmm import unit

from .errors import InputError

ANGSTROM_PER_NANOMETER = 10.0


def value_in(quantity: Any, default_unit: unit.Unit) -> Any:
    """Return a quantity's value in a unit; a plain number or array already is in that unit."""
    if unit.is_quantity(quantity):
        return quantity.value_in_unit(default_unit)
    return quantity


def in_angstrom(length: Any, name: str = "length") -> float:
    """Return a length in Å; a plain float already is. ``name`` is the argument that an error names."""
    return number_in(length, unit.angstrom, name)


def number_in(quantity: Any, default_unit: unit.Unit, name: str) -> float:
    """Return a quantity's value in a unit as a float; a plain number already is in that unit.

    ``name`` is the argument that the error names.

    Raises
    ------
    InputError
        If it is no number, or one in another kind of unit.
    """
    try:
        return float(value_in(quantity, default_unit))
    except (TypeError, ValueError):
        raise InputError(
            f"must be a number of {default_unit.get_name()} or a Quantity",
            argument=name,
            found=repr(quantity),
            remedy="give one number",
        ) from None


def positions_in_angstrom(positions: Any) -> np.ndarray:
    """Return positions as a float64 array of shape (N, 3) in Å.

    Parameters
    ----------
    positions : Quantity, sequence of Quantity or Vec3, or array_like, shape (N, 3)
        A plain array is taken to be in Å; anything with an OpenMM unit is converted.

    Raises
    ------
    InputError
        If they are no numbers, or of another shape.
    """
    if unit.is_quantity(positions):
        positions = positions.value_in_unit(unit.angstrom)
    elif len(positions) and unit.is_quantity(positions[0]):
        positions = [position.value_in_unit(unit.angstrom) for position in positions]
    try:
        array = np.asarray(positions, dtype=np.float64)
    except (TypeError, ValueError):
        array = None
    if array is None or array.ndim != 2 or array.shape[1] != 3:
        raise InputError(
            "must be numbers of shape (N, 3)",
            argument="positions",
            found="something else" if array is None else f"shape {array.shape}",
            remedy="give x, y and z of each atom",
        )
    return array
