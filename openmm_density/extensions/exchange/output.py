"""What became of replicas that exchanged, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...base.errors import as_argument

# Where fewer attempts are accepted than this part, models hardly move between these rungs.
_RARE = 0.05


def exchange_note(exchange: Sequence[Mapping[str, Any]]) -> str | None:
    """Return a sentence where replicas hardly exchanged, saying how many would; None where they did."""
    rare = [
        each
        for each in exchange
        if each["replicas_needed"] is not None
        and min(part for part in each["acceptance"] if part is not None) < _RARE
        and each["replicas_needed"] > each["replicas"]
    ]
    if not rare:
        return None
    needed = max(each["replicas_needed"] for each in rare)
    return (
        f"Some neighbours among the replicas hardly exchanged: about {needed} replicas ({as_argument('replicas', needed)}) would "
        "between the same strengths, or as many as now between strengths that differ less."
    )


def exchanged_in_words(exchange: Sequence[Mapping[str, Any]]) -> str | None:
    """Return a line on the replicas of a fit.

    As in ``8 replicas of 20 to 200 kJ/mol per fitted atom, 12 to 45% of exchanges accepted, 3 round trips, rung
    6 of 8 went on; 40 s``; None if there were none.
    """
    lines = []
    for each in exchange:
        strengths, parts = each["strengths"], [part for part in each["acceptance"] if part is not None]
        accepted = "none tried"
        if parts:
            accepted = f"{100 * min(parts):.0f} to {100 * max(parts):.0f}% of exchanges accepted"
        went_on = f", rung {each['chosen'] + 1} of {each['replicas']} went on" if "chosen" in each else ""
        trips = each["round_trips"]
        lines.append(
            f"{each['replicas']} replicas of {strengths[0]:.3g} to {strengths[-1]:.3g} kJ/mol per fitted atom, {accepted}, "
            f"{trips} round trip{'' if trips == 1 else 's'}{went_on}; {each['seconds']:.0f} s"
        )
    return "; ".join(lines) or None
