"""Checks of the numbers of a protocol."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from ...base.errors import InputError


def answered_by_extension(default: Any) -> Any:
    """Return a field for what an extension does; a file that asks for it is refused where none does, see `FitExtension`."""
    return field(default=default, metadata={"by_extension": True})


def is_number(value: Any) -> bool:
    """Return whether a value is a number, infinite ones among them."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)


def check_count(argument: str, value: Any, least: int, source: str | None = None) -> None:
    """Refuse a value that is not a whole number of at least so many; ``source`` names the stage that it is of."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(
            f"must be a whole number of at least {least}",
            argument=argument,
            source=source,
            found=repr(value),
            remedy="give another number",
        )


def check_number(argument: str, value: Any, example: str, source: str | None = None) -> None:
    """Refuse a value that is not a positive number, with an example of one; ``source`` names the stage that it is of."""
    if not is_number(value) or not 0 < value < math.inf:
        raise InputError(
            "must be positive",
            argument=argument,
            source=source,
            found=repr(value),
            remedy=f"give {example}",
        )


def check_choice(argument: str, value: Any, choices: Sequence[str]) -> None:
    """Refuse a value that is none of some names."""
    if value not in choices:
        raise InputError(
            f"must be one of {', '.join(choices)}",
            argument=argument,
            found=repr(value),
            remedy="choose one of these",
        )


def check_flag(argument: str, value: Any, source: str | None = None) -> None:
    """Refuse a value that is neither true nor false; ``source`` names the stage that it is of."""
    if not isinstance(value, bool):
        raise InputError(
            "must be true or false",
            argument=argument,
            source=source,
            found=repr(value),
            remedy="give one of them",
        )


def number_pair(argument: str, value: Any, least: float, source: str | None = None) -> tuple[float, float]:
    """Return the first and the last value of a stage; one number stands for both."""
    pair = (value, value) if is_number(value) else value
    if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not all(map(is_number, pair)):
        problem = "must be a number, or two for its begin and end"
    elif not all(least <= one < math.inf for one in pair):
        problem = f"must be {least:g} or more"
    else:
        return float(pair[0]), float(pair[1])
    raise InputError(
        problem, argument=argument, source=source, found=repr(value), remedy="give another number, or two"
    )
