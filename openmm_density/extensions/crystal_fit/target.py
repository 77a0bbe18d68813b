"""Which atoms are compared with the map of a crystal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BY_DEFAULT = "heavy"
ALL_HEAVY = "not (element H or element D)"
"""Ordered waters and ions as well: a crystal's map shows them, and a model without them explains less of the amplitudes."""


def fitted_selection(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the option of a fit that says which atoms are fitted, where it does not ask for some itself."""
    return {"atoms": ALL_HEAVY} if given.get("atoms", _BY_DEFAULT) == _BY_DEFAULT else {}
