"""Numbers in files that stay as they are written there while they are still right."""

from __future__ import annotations

import math

TOLERANCE = 0.5001
"""Of the last decimal by which a number may be off."""


def leading_number(text: str) -> float:
    """Return the number that a text begins with, as `gemmi` reads ``12.345(6)``; NaN where it is none."""
    try:
        return float(text.partition("(")[0])
    except ValueError:
        return math.nan


def rewritten(text: str, value: float, decimals: int, width: int = 0) -> str:
    """Return a text as it is where it means a value, rounded to some decimals, else the value so rounded."""
    if abs(leading_number(text) - value) <= TOLERANCE * 10.0**-decimals:
        return text
    return f"{value:{width}.{decimals}f}"
