"""``--conformers``: alternate conformers that are fitted with the model, where the map tells them apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...fitting.extension import FitExtension, Option, Told

if TYPE_CHECKING:
    from ...fitting.checkpoints import RunFolder
    from ...fitting.engine import FitParts
    from ...fitting.fit_result import FitResult, Progress
    from ...fitting.flexible_fit import FlexibleFit
    from ...fitting.interrupts import Stop
    from ...fitting.protocols import Protocol
    from ...fitting.run_state import RunState
    from ...fitting.stage_context import StageContext


class Conformers(FitExtension):
    """Alternate conformers, as copies of atoms that do not see each other."""

    answers = ("conformers",)

    options = (
        Option(
            "conformers",
            "fit alternate conformers at the end too: where the map tells them apart, all of them, or none, which then follow "
            "the major one rigidly (auto; major with --protocol quick)",
            choices=("auto", "both", "major"),
            group="B factors and occupancies, at the end",
        ),
    )

    def protocol(self, protocol: Protocol, asked: Mapping[str, Any]) -> Protocol:
        """Return the protocol with what is to be fitted of them."""
        given = asked.get("conformers")
        return protocol if given is None else replace(protocol, conformers=given)

    def at_end(
        self, parts: FitParts, running: StageContext, state: RunState, stop: Stop
    ) -> Mapping[str, Any]:
        """Fit them with the model."""
        from .last_stage import fit_conformers

        with parts.stopwatch.part("conformers"):
            return {"conformers": fit_conformers(parts, running, state, stop)}

    def after(
        self, fit: FlexibleFit, result: FitResult, folder: RunFolder | None, stop: Stop, progress: Progress
    ) -> FitResult:
        """Find out what they explain of the density, or, of a model that was kept as it was, what the map shows of its own."""
        judged = result if result.simulated is None else result.simulated
        found = judged.found.get("conformers")
        if found is None or result.interrupted or (result.simulated is not None and result.conformers):
            return result
        from .last_stage import kept_conformers, with_evidence

        with fit.stopwatch.part("conformers"):
            if result.simulated is None:
                return with_evidence(result, fit.solute, fit.fit_map, fit.density.operators)
            of = fit.prepared, fit.solute, fit.fit_map, fit.density.operators
            return result.with_found(conformers=kept_conformers(found, *of))

    def told(self, fit: FlexibleFit, result: FitResult) -> Told:
        """Return what was fitted, what the map does not show, and what became of the others."""
        from .output import conformers_told

        return conformers_told(result)
