"""``--replicas``: an ensemble after the fit of one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.errors import InputError, as_argument
from ...fitting.extension import FitExtension, Option, Told
from ...fitting.installed_extensions import Unfinished

if TYPE_CHECKING:
    from ...base.page_blocks import Section
    from ...fitting.checkpoints import RunFolder
    from ...fitting.fit_result import FitResult, Progress
    from ...fitting.flexible_fit import FlexibleFit
    from ...fitting.interrupts import Stop
    from ...fitting.protocols import Protocol

_CANNOT_BE = (
    ("solvent", "water", "of one map cannot be in water: each would need a box of its own"),
    ("similarity", "map-potential", "share their mean density, which this similarity does not know"),
    (
        "similarity",
        "inner-product",
        "share their mean density, of which this similarity is the mean of theirs: the best replica would have all the weight",
    ),
)
"""What does not go with replicas that share a map, and why."""


class Ensemble(FitExtension):
    """Replicas whose mean density is fitted to the map, and whether the map gives a reason for them."""

    options = (
        Option(
            "replicas",
            "an ensemble that shares the map, after one model",
            int,
            "N",
            not_with=("symmetry", "amplitudes"),
        ),
    )
    files = ("ensemble.cif",)

    def protocol(self, protocol: Protocol, asked: Mapping[str, Any]) -> Protocol:
        """Refuse what no ensemble can have."""
        replicas = _replicas(protocol, asked)
        if replicas is None:
            return protocol
        if replicas < 2:
            raise InputError(
                "must be 2 or more for an ensemble",
                argument="replicas",
                found=replicas,
                remedy="give a number such as 4, or leave it out",
            )
        for name, value, problem in _CANNOT_BE:
            if asked.get(name) == value:
                raise InputError(
                    problem, argument="replicas", found=as_argument(name, value), remedy="take another one"
                )
        return protocol

    def after(
        self, fit: FlexibleFit, result: FitResult, folder: RunFolder | None, stop: Stop, progress: Progress
    ) -> FitResult:
        """Search for the ensemble."""
        replicas = _replicas(fit.protocol, fit.asked)
        if replicas is None or result.interrupted:
            return result
        from .search import EnsembleSearch

        with fit.stopwatch.part(self.name):
            found = EnsembleSearch(fit, result, replicas).run(folder, stop, progress)
        if found is not None:
            return result.with_found(ensemble=found)
        remedy = "go on with the fit to have the ensemble, and whether the map asks for one"
        return replace(result, interrupted=True, unfinished=Unfinished("the search for an ensemble", remedy))

    def write(self, folder: Path, fit: FlexibleFit, result: FitResult) -> None:
        """Write all replicas as models of one file."""
        from .output import write_ensemble

        write_ensemble(folder / self.files[0], result.prepared, result.found.get("ensemble"))

    def residues(self, result: FitResult) -> Mapping[str, Sequence[Any]]:
        """Return the RMSF of each residue."""
        from .output import rmsf_of_input

        ensemble = result.found.get("ensemble")
        return {} if ensemble is None else {"rmsf": rmsf_of_input(ensemble, result.prepared)}

    def told(self, fit: FlexibleFit, result: FitResult) -> Told:
        """Return the figures of the ensemble, and what is to be known of its ligands."""
        from .output import ensemble_told

        return ensemble_told(result.found.get("ensemble"), result.prepared)

    def sections(self, summary: Mapping[str, Any]) -> Sequence[Section]:
        """Return the section "One model, or many?"."""
        from .output import ensemble_section

        section = ensemble_section(summary)
        return () if section is None else (section,)


def _replicas(protocol: Protocol, asked: Mapping[str, Any]) -> int | None:
    """Return how many replicas are to share the map; None where there are none, or they exchange."""
    return None if any(stage.exchange for stage in protocol.stages) else asked.get("replicas")
