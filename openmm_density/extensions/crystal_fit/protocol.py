"""The protocol of one cycle, short, as the next one sees better phases; and which atoms are compared with its map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...base.errors import InputError
from ...fitting.protocols import Protocol, Stage
from ...fitting.protocols.stage import checked_restraints
from ...restraints.names import DEFAULT_STAGE_RESTRAINTS

STEPS = 2000
"""Of one cycle."""
STRENGTH = 80.0
"""kJ/mol per fitted atom: a search for the strength would take longer than a cycle."""
MOST_CYCLES = 99


def check_cycles(cycles: int) -> None:
    """Refuse a number of cycles that a fit cannot have."""
    if not isinstance(cycles, int) or not 1 <= cycles <= MOST_CYCLES:
        raise InputError(
            f"must be a whole number from 1 to {MOST_CYCLES}",
            argument="cycles",
            found=cycles,
            remedy="give a number such as 8",
        )


def cycle_protocol(steps: int = STEPS) -> Protocol:
    """Return the protocol of one cycle: drawn into the density at room temperature, then cooled at full strength."""
    settle, draw, hold = round(0.1 * steps), round(0.2 * steps), round(0.2 * steps)
    staggered = checked_restraints((*DEFAULT_STAGE_RESTRAINTS, "rotamers"))
    return Protocol(
        (
            Stage("settle", settle, (0.1, 0.5), (10.0, 300.0)),
            Stage("draw", draw, (0.5, 1.0)),
            Stage("hold", hold),
            Stage("anneal", steps - settle - draw - hold, temperature=(300.0, 10.0), restraints=staggered),
        ),
        strength=STRENGTH,
        final_strength=None,
        name="crystal",
        b_factors="auto",
    )


_BY_DEFAULT = "heavy"
ALL_HEAVY = "not (element H or element D)"
"""Ordered waters and ions as well: a crystal's map shows them, and a model without them explains less of the amplitudes."""


def fitted_selection(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the option of a fit that says which atoms are fitted, where it does not ask for some itself."""
    return {"atoms": ALL_HEAVY} if given.get("atoms", _BY_DEFAULT) == _BY_DEFAULT else {}
