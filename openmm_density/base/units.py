"""Plain numbers and ``openmm.unit`` quantities, brought to the unit that a docstring names."""

from __future__ import annotations

import functools
import inspect
import math
import numbers
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import InputError, check_keywords

if TYPE_CHECKING:
    import numpy as np
    from openmm import unit

# Arguments are checked before NumPy and OpenMM are loaded, which takes a while: here they are imported where they are needed.

ANGSTROM_PER_NANOMETER = 10.0

_Callable = TypeVar("_Callable", bound=Callable[..., Any])


def takes_units(*lengths: str, **others: str) -> Callable[[_Callable], _Callable]:
    """Return a decorator of a function, or of a class for its constructor, whose arguments may be quantities.

    The function gets plain numbers and arrays in the units that it works in; what has no unit, and what is no number, goes
    through as it is. Keyword arguments that it does not have are refused with the name that is meant. Every public argument that
    has a unit is named so: `test_units.py` looks for those that are not.
    `*lengths`: arguments in Å, positions among them; `**others`: the units of others by their symbols, as in
    ``strength="kJ/mol"``. Raises InputError by the function, naming the argument, if a quantity is of another kind.
    """
    units = {**dict.fromkeys(lengths, "Å"), **others}

    def decorate(target: _Callable) -> _Callable:
        if isinstance(target, type):
            target.__init__ = takes_units(**units)(target.__init__)
            return target
        parameters = inspect.signature(target).parameters
        names = list(parameters)
        takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        places = [(names.index(name), name, into) for name, into in units.items()]

        @functools.wraps(target)
        def converted(*arguments: Any, **keywords: Any) -> Any:
            if not takes_any and not keywords.keys() <= parameters.keys():
                own = [name for name in names if name not in ("self", "cls")]
                check_keywords(_called(target, arguments), keywords, own)
            given = list(arguments)
            for place, name, into in places:
                if place < len(given):
                    given[place] = in_unit(given[place], into, name)
                elif name in keywords:
                    keywords[name] = in_unit(keywords[name], into, name)
            return target(*given, **keywords)

        converted.units = {**getattr(target, "units", {}), **units}
        return converted

    return decorate


def _called(target: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    """Return what a user calls: of a constructor the class, which may be a subclass."""
    is_constructor = target.__name__ == "__init__" and arguments
    return type(arguments[0]).__name__ if is_constructor else target.__qualname__


def in_unit(value: Any, into: str | unit.Unit, argument: str) -> Any:
    """Return numbers in a unit, wherever in them quantities are; what has no unit already is in it."""
    # Most are one of these: to look in the table of all that are numbers takes ten times as long.
    if value is None or type(value) is float or isinstance(value, (numbers.Real, str)):
        return value
    if isinstance(value, (list, tuple)):
        found = [in_unit(each, into, argument) for each in value]
        if all(new is old for new, old in zip(found, value)):
            return value
        return found if isinstance(value, list) else tuple(found)
    import numpy as np
    from openmm import unit

    if isinstance(value, np.ndarray) and value.dtype == object:
        plain = np.array([in_unit(each, into, argument) for each in value.ravel()])
        return plain.reshape(value.shape + plain.shape[1:])
    if not unit.is_quantity(value):
        return value
    wanted = _unit(into) if isinstance(into, str) else into
    if not value.unit.is_compatible(wanted):
        symbol = into if isinstance(into, str) else into.get_symbol()
        raise InputError(
            f"must be in {symbol}, or in units that can be converted to it",
            argument=argument,
            found=value.unit.get_name(),
            remedy=f"give a number of {symbol}" if symbol != "dimensionless" else "give a plain number",
        )
    plain = np.asarray(value._value, dtype=np.float64) * value.unit.conversion_factor_to(wanted)
    return plain if plain.ndim else float(plain)


@functools.cache
def _unit(symbol: str) -> unit.Unit:
    """Return the unit of a symbol."""
    from openmm import unit

    energy = unit.kilojoule_per_mole
    return {
        "Å": unit.angstrom, "Å²": unit.angstrom**2, "nm": unit.nanometer, "°": unit.degree,
        "K": unit.kelvin, "bar": unit.bar, "fs": unit.femtosecond, "ps": unit.picosecond, "1/ps": unit.picosecond**-1,
        "Da": unit.dalton, "kJ/mol": energy, "kJ/mol/nm": energy / unit.nanometer,
    }[symbol]  # fmt: skip


def positive(value: float, argument: str, example: str) -> float:
    """Return a number that is positive and finite; raise InputError for others, naming the argument and an example of it."""
    if not 0 < (number := as_number(value, argument)) < math.inf:
        raise InputError("must be positive", argument=argument, found=value, remedy=f"give {example}")
    return number


def as_number(value: Any, argument: str) -> float:
    """Return a float; raise InputError, naming the argument, for what is not one number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(
            "must be a number or a Quantity", argument=argument, found=repr(value), remedy="give one number"
        ) from None


def resolution_in_angstrom(resolution: Any) -> float:
    """Return the resolution of a map in Å; a plain number already is. Raises InputError if it is no positive length."""
    return positive(in_unit(resolution, "Å", "resolution"), "resolution", "Å, such as 3.5")


def checked_length(length: Any, argument: str, *, zero: bool = True) -> float:
    """Return a length in Å; plain numbers are taken to be in Å."""
    value = as_number(in_unit(length, "Å", argument), argument)
    if not (math.isfinite(value) and (value >= 0 if zero else value > 0)):
        raise InputError(
            "must be a length, 0 or more" if zero else "must be a positive length",
            argument=argument,
            found=str(length),
            remedy="give Å",
        )
    return value


def positions_in_angstrom(positions: Any, n_atoms: int | None = None) -> np.ndarray:
    """Return positions as a float64 array of shape (N, 3) in Å.

    `positions` (N, 3): a plain array is taken to be in Å; anything with an OpenMM unit is converted. `n_atoms`: how
    many there must be: as many as the topology has atoms. Raises InputError if they are no numbers, of another shape,
    or not as many as there must be.
    """
    array = vectors(in_unit(positions, "Å", "positions"), "positions", "give x, y and z of each atom")
    if n_atoms is not None and len(array) != n_atoms:
        raise InputError(
            f"must be one for each of the {n_atoms} atoms of the topology",
            argument="positions",
            found=len(array),
            remedy="give those of the same model",
        )
    return array


def vectors(values: Any, argument: str, remedy: str) -> np.ndarray:
    """Return a float64 array of shape (N, 3); raise InputError, naming the argument, for anything else."""
    import numpy as np

    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        array = None
    if array is None or array.ndim != 2 or array.shape[1] != 3:
        raise InputError(
            "must be numbers of shape (N, 3)",
            argument=argument,
            found="something else" if array is None else f"shape {array.shape}",
            remedy=remedy,
        )
    return array
