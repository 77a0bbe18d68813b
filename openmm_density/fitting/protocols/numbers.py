"""What is asked of the numbers of a protocol."""

from __future__ import annotations

import math
from typing import Any

from ...errors import InputError


def is_number(value: Any) -> bool:
    """Say whether it is a number, infinite ones among them."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)


def check_count(name: str, value: Any, least: int) -> None:
    """Refuse what is not a whole number of at least so many."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, found {value!r}.")


def check_number(name: str, value: Any, example: str) -> None:
    """Refuse what is not a positive number, with an example of one."""
    if not is_number(value) or not 0 < value < math.inf:
        raise InputError(f"{name} must be positive, found {value!r}: give {example}.")


def number_pair(name: str, value: Any, least: float) -> tuple[float, float]:
    """Return begin and end; one number stands for both."""
    pair = (value, value) if is_number(value) else value
    if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not all(map(is_number, pair)):
        raise InputError(f"{name} must be a number, or two for its begin and end, found {value!r}.")
    if not all(least <= one < math.inf for one in pair):
        raise InputError(f"{name} must be {least:g} or more, found {value!r}.")
    return float(pair[0]), float(pair[1])
