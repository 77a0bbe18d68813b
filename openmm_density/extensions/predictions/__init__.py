"""Predicted models: what a fit says of their confidence beside the map's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...fitting.extension import FitExtension, Told
from ...fitting.protocols.stage import DEFAULT_STAGE_RESTRAINTS, Stage, checked_restraints

if TYPE_CHECKING:
    from ...base.page_blocks import Block
    from ...fitting.fit_result import FitResult
    from ...fitting.flexible_fit import FlexibleFit
    from ...fitting.protocols import Protocol

__all__ = ["Predictions"]


class Predictions(FitExtension):
    """Say how sure a prediction was of what was fitted, and where the map says otherwise."""

    def protocol(self, protocol: Protocol, asked: Mapping[str, Any]) -> Protocol:
        """Return the protocol with a prediction's torsions, and with errors its distances, in the usual stages."""
        confidence = asked.get("confidence")
        if confidence is None:
            return protocol
        more = ("torsion",) if confidence.errors is None else ("distance", "torsion")

        def held(stage: Stage) -> Stage:
            if not set(DEFAULT_STAGE_RESTRAINTS) <= set(stage.restraints):
                return stage
            return replace(stage, restraints=checked_restraints((*stage.restraints, *more)))

        return replace(protocol, stages=tuple(map(held, protocol.stages)))

    def residues(self, result: FitResult) -> Mapping[str, Sequence[Any]]:
        """Return the pLDDT of each residue."""
        from ...models.predictions import residue_confidence

        plddt = residue_confidence(result.prepared.model)
        if plddt is None:
            return {}
        return {"plddt": [round(each, 2) if each == each else None for each in plddt.tolist()]}

    def told(self, fit: FlexibleFit, result: FitResult) -> Told:
        """Return the confidence, and doubts where it and the map disagree; nothing for another model."""
        if result.prepared.model.confidence is None:
            return Told({"prediction": None})
        from .output import prediction_told

        return prediction_told(self.name, fit, result)

    def blocks(self, summary: Mapping[str, Any], residues: Sequence[Mapping[str, Any]]) -> Sequence[Block]:
        """Return the confidence by residue."""
        if not summary.get("prediction"):
            return ()
        from .output import confidence_blocks

        return confidence_blocks(summary)

    def lines(self, summary: Mapping[str, Any]) -> Sequence[str]:
        """Return a line on the confidence."""
        found = summary["prediction"]
        if found is None:
            return ()
        by = f" by {found['program']}" if found["program"] else ""
        return (
            f"Prediction{by}: mean pLDDT {found['mean_plddt']:.0f}, {found['unsure_residues']} residues below 50",
        )
