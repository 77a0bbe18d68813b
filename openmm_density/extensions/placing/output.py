"""What ``summary.json``, doubts and the page of a fit say of placed bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...base.page_blocks import Section, Table
from ...fitting.doubt import Doubt
from ...fitting.extension import Told
from .bodies import LEAST


def placing_told(name: str, found: Mapping[str, Any]) -> Told:
    """Return figures, and doubts on bodies that may not belong in the map, or not where they are."""
    doubts = []
    unsure = [each for each in found["bodies"] if each["score"] < LEAST]
    if unsure:
        listed = ", ".join(f"{_label(each)} ({each['score']:.1f})" for each in unsure)
        said = (
            f"{listed}: placed no more than {LEAST:g} standard deviations above wrong places, as are models that do not belong "
            "in the map. Check whether the map shows this model there."
        )
        doubts.append(Doubt(name, said))
    for each in found["bodies"]:
        other = each["other_place"]
        if other is not None:
            here, there = (", ".join(f"{x:.0f}" for x in place["centre"]) for place in (each, other))
            said = (
                f"{_label(each)} may lie as well at ({there}) Å, turned by {other['turned_by']:.0f}°, as at ({here}) Å, where it "
                f"is: the scores differ by {other['less']:.1f} standard deviations. Look at both places."
            )
            doubts.append(Doubt(name, said))
    return Told({"placing": found}, doubts=doubts, units={"centre": "Å", "turned_by": "°"})


def placing_section(found: Mapping[str, Any]) -> Section:
    """Return the table of bodies with their places."""
    rows = [
        (
            _label(each),
            [
                f"{each['score']:.1f}",
                ", ".join(f"{x:.1f}" for x in each["centre"]),
                ""
                if each["other_place"] is None
                else ", ".join(f"{x:.1f}" for x in each["other_place"]["centre"]),
            ],
        )
        for each in found["bodies"]
    ]
    headings = ["standard deviations above wrong places", "centre (Å)", "nearly as good (Å)"]
    return Section(
        "placing", "Where were its bodies placed?", [Table("Rigid bodies", headings, rows, about="Body")]
    )


def _label(each: Mapping[str, Any]) -> str:
    return f"{each['body']} as chain {' and '.join(each['chains'])}"
