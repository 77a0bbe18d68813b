"""The residues of a model that stand out by one measure or another, as pages list them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base.page_blocks import Item, Spot
from ..validation.named_residues import ResidueFinder

OUTLIERS = (
    ("Ramachandran outliers", "ramachandran_outliers"),
    ("Rotamer outliers", "rotamer_outliers"),
    ("Cβ deviations", "c_beta_outliers"),
    ("Sugar pucker outliers", "pucker_outliers"),
    ("Sugars with an unusual ring", "pyranose_outliers"),
    ("Suite outliers", "suite_outliers"),
    ("Wrong-handed centres", "wrong_centres"),
)
"""What pages list of a geometry: its name, and the key of a report."""
_MOST = 12


def outliers_of(geometry: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """Return the outliers in a report of a geometry, by what they are called."""
    return {name: geometry[key] or [] for name, key in OUTLIERS}


def places_to_look(lists: Mapping[str, Sequence[str]], finder: ResidueFinder) -> list[Item]:
    """Return lists of residues or atoms, by what they are called, each with a button; empty ones are left out."""
    return [
        Item(f"{name}:", [Spot(each, finder.named_in(each)) for each in found[:_MOST]])
        for name, found in lists.items()
        if found
    ]
