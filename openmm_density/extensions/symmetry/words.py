"""What a user writes for a symmetry: ``C4``, ``D7``, ``T``, ``O``, ``I``, ``helical:RISE,TWIST`` or ``auto``."""

from __future__ import annotations

import re
from typing import NamedTuple

from ...base.errors import InputError
from .groups import helix, point_group

_HELIX = re.compile(r"helical:(?P<rise>[^,]+),(?P<twist>[^,]+)", re.IGNORECASE)


class SymmetryWord(NamedTuple):
    """A symmetry as it was asked for: a point group, ``helical`` with `rise` and `twist` (Å and degrees, else 0), or ``auto``."""

    group: str
    rise: float = 0.0
    twist: float = 0.0

    def __str__(self) -> str:
        return f"helical:{self.rise:g},{self.twist:g}" if self.group == "helical" else self.group


def parse_symmetry(text: str) -> SymmetryWord:
    """Read a symmetry.

    Parameters
    ----------
    text : str

    Raises
    ------
    InputError
        If it is no symmetry, or a helix without a rise.
    """
    word = text.strip()
    if word.lower() == "auto":
        return SymmetryWord("auto")
    if helical := _HELIX.fullmatch(word):
        try:
            rise, twist = float(helical["rise"]), float(helical["twist"])
        except ValueError:
            pass
        else:
            helix(rise, twist, 0, 0)
            return SymmetryWord("helical", rise, twist)
    try:
        point_group(word)
    except InputError:
        raise InputError(
            "must be a symmetry",
            argument="symmetry",
            found=text,
            remedy="use C4, D7, T, O, I, helical:RISE,TWIST (in Å and degrees) or auto",
        ) from None
    return SymmetryWord(word.upper())
