"""Plain floats and ``openmm.unit`` quantities, brought to the unit that a docstring names."""

from __future__ import annotations

import math
import numbers
from typing import TYPE_CHECKING, Any

from .errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from openmm import unit

# Arguments are checked before NumPy and OpenMM are loaded, which takes a while: here they are imported where they are needed.

ANGSTROM_PER_NANOMETER = 10.0


def value_in(quantity: Any, default_unit: unit.Unit) -> Any:
    """Return a quantity's value in a unit; a plain number or array already is in that unit."""
    from openmm import unit

    if unit.is_quantity(quantity):
        return quantity.value_in_unit(default_unit)
    return quantity


def in_angstrom(length: Any, name: str = "length") -> float:
    """Return a length in Å; a plain float already is. ``name`` is the argument that an error names."""
    if isinstance(length, numbers.Real):
        return float(length)
    from openmm import unit

    return number_in(length, unit.angstrom, name)


def positive(value: float, argument: str, example: str) -> float:
    """Return a number that is positive and finite; raise InputError for others, naming the argument and an example of it."""
    if not 0 < value < math.inf:
        raise InputError("must be positive", argument=argument, found=value, remedy=f"give {example}")
    return value


def resolution_in_angstrom(resolution: Any) -> float:
    """Return the resolution of a map in Å; a plain number already is.

    Raises
    ------
    InputError
        If it is no positive length.
    """
    return positive(in_angstrom(resolution, "resolution"), "resolution", "Å, such as 3.5")


def checked_length(length: Any, argument: str, *, zero: bool = True) -> float:
    """Return a length in Å; plain numbers are taken to be in Å.

    Raises
    ------
    InputError
        Naming the argument, if the length is not finite, is negative, or is 0 where `zero` is False.
    """
    value = in_angstrom(length, argument)
    if not (math.isfinite(value) and (value >= 0 if zero else value > 0)):
        raise InputError(
            "must be a length, 0 or more" if zero else "must be a positive length",
            argument=argument,
            found=str(length),
            remedy="give Å",
        )
    return value


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


def positions_in_angstrom(positions: Any, n_atoms: int | None = None) -> np.ndarray:
    """Return positions as a float64 array of shape (N, 3) in Å.

    Parameters
    ----------
    positions : Quantity, sequence of Quantity or Vec3, or array_like, shape (N, 3)
        A plain array is taken to be in Å; anything with an OpenMM unit is converted.
    n_atoms : int, optional
        How many there must be: as many as the topology has atoms.

    Raises
    ------
    InputError
        If they are no numbers, of another shape, or not as many as there must be.
    """
    import numpy as np
    from openmm import unit

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
    if n_atoms is not None and len(array) != n_atoms:
        raise InputError(
            f"must be one for each of the {n_atoms} atoms of the topology",
            argument="positions",
            found=len(array),
            remedy="give those of the same model",
        )
    return array
