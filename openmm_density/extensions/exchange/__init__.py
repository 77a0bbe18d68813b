"""``--replicas`` with a protocol whose stages let replicas exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...fitting.extension import FitExtension, Option, Told

if TYPE_CHECKING:
    from ...fitting.engine import Engine
    from ...fitting.fit_result import FitResult
    from ...fitting.flexible_fit import FlexibleFit
    from ...fitting.options import RunOptions
    from ...fitting.protocols import Protocol
    from ...fitting.run_state import RunState
    from ...fitting.stage_context import StageContext
    from ...fitting.stage_run import StageDriver
    from ...report.blocks import Section


class Exchange(FitExtension):
    """Copies of the model that exchange."""

    drives = ("exchange",)

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
        """Return the protocol with so many replicas, where some exchange."""
        if asked.get("replicas") is None or not any(stage.exchange for stage in protocol.stages):
            return protocol
        return replace(protocol, replicas=asked["replicas"])

    def driver(
        self,
        engine: Engine,
        protocol: Protocol,
        options: RunOptions,
        running: StageContext,
        state: RunState,
        careful: bool,
    ) -> StageDriver | None:
        """Return the replicas of a stage that lets them exchange, at a state."""
        if not running.stage.exchange:
            return None
        from .replica_stage import ReplicaStage

        return ReplicaStage(engine, protocol, options.threads, running, state, careful)

    def told(self, fit: FlexibleFit, result: FitResult) -> Told:
        """Return what became of the replicas, and a note where they hardly exchanged."""
        from .output import exchange_note

        note = exchange_note(result.exchange)
        return Told({"exchange": result.exchange}, notes=[] if note is None else [note])

    def sections(self, summary: Mapping[str, Any]) -> Sequence[Section]:
        """Return the section "Did replicas exchange?"."""
        from ...report.blocks import Section, Text
        from .output import exchanged_in_words

        said = exchanged_in_words(summary.get("exchange") or ())
        return () if said is None else (Section("exchange", "Did replicas exchange?", [Text(said)]),)

    def lines(self, summary: Mapping[str, Any]) -> Sequence[str]:
        """Return a line on the replicas."""
        from .output import exchanged_in_words

        said = exchanged_in_words(summary["exchange"])
        return () if said is None else (f"exchanged: {said}",)
