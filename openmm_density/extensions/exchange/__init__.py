"""``--replicas`` with a protocol whose stages let replicas exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...base.errors import InputError, as_argument
from ...fitting.extension import FitExtension, Option, Told

if TYPE_CHECKING:
    from ...base.page_blocks import Section
    from ...fitting.engine import FitParts
    from ...fitting.fit_result import FitResult
    from ...fitting.flexible_fit import FlexibleFit
    from ...fitting.protocols import Protocol
    from ...fitting.run_state import RunState
    from ...fitting.stage_context import StageContext
    from ...fitting.stage_run import StageDriver


class Exchange(FitExtension):
    """Copies of the model that exchange."""

    answers = ("exchange", "replicas", "exchange_interval")

    options = (
        Option(
            "replicas",
            "with --protocol exchange, copies that exchange (8)",
            int,
            "N",
            not_with=("symmetry", "amplitudes"),
        ),
    )

    def protocol(self, protocol: Protocol, asked: Mapping[str, Any]) -> Protocol:
        """Return the protocol with so many replicas, where some exchange; not in water, of which each would need its own box."""
        if not any(stage.exchange for stage in protocol.stages):
            return protocol
        if asked.get("solvent") == "water":
            raise InputError(
                "replicas exchange without water around them",
                remedy=f"give {as_argument('solvent', 'gbn2')} or none, or another {as_argument('protocol')}",
            )
        given = asked.get("replicas")
        return protocol if given is None else replace(protocol, replicas=given)

    def driver(
        self, parts: FitParts, running: StageContext, state: RunState, careful: bool
    ) -> StageDriver | None:
        """Return the replicas of a stage that lets them exchange, at a state."""
        if not running.stage.exchange:
            return None
        from .replica_stage import ReplicaStage

        return ReplicaStage(parts, running, state, careful)

    def told(self, fit: FlexibleFit, result: FitResult) -> Told:
        """Return what became of the replicas, and a note where they hardly exchanged."""
        exchanged = result.found.get(self.name, [])
        note = exchange_note(exchanged)
        return Told({"exchange": exchanged}, notes=[] if note is None else [note])

    def sections(self, summary: Mapping[str, Any]) -> Sequence[Section]:
        """Return the section "Did replicas exchange?"."""
        from ...base.page_blocks import Section, Text

        said = exchanged_in_words(summary.get("exchange") or ())
        return () if said is None else (Section("exchange", "Did replicas exchange?", [Text(said)]),)

    def lines(self, summary: Mapping[str, Any]) -> Sequence[str]:
        """Return a line on the replicas."""
        said = exchanged_in_words(summary["exchange"])
        return () if said is None else (f"exchanged: {said}",)


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
    """Return a line on a fit's replicas, their strengths, exchanges, round trips and the rung that went on; None without any."""
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
