"""Numbers in files, kept as written while they are still right."""

from __future__ import annotations

import math

TOLERANCE = 0.5001
"""Units of the last decimal by which a number may deviate."""


def leading_number(text: str) -> float:
    """Return the number at the start of a text, as `gemmi` reads ``12.345(6)``; NaN where there is none."""
    try:
        return float(text.partition("(")[0])
    except ValueError:
        return math.nan


def rewritten(text: str, value: float, decimals: int, width: int = 0) -> str:
    """Return a text unchanged where it equals a value rounded to some decimals, else the rounded value."""
    if abs(leading_number(text) - value) <= TOLERANCE * 10.0**-decimals:
        return text
    return f"{value:{width}.{decimals}f}"
