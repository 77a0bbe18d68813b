"""``--search``: before stages that ask for it, parts of the model are rebuilt where they then fit better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...fitting.extension import FitExtension, Option, Told

if TYPE_CHECKING:
    from ...base.page_blocks import Section
    from ...fitting.engine import FitParts
    from ...fitting.fit_result import FitResult
    from ...fitting.flexible_fit import FlexibleFit
    from ...fitting.protocols import Protocol


class Searched(FitExtension):
    """Searches for rotamers, flipped peptides and registers."""

    answers = ("search", "register", "rotamers")

    options = (
        Option(
            "search",
            "searches for rotamers, flipped peptides and registers: none, at most about as long as the rest of the fit takes, "
            "or without a limit (that of the protocol, auto)",
            choices=("off", "auto", "full"),
        ),
    )

    def protocol(self, protocol: Protocol, asked: Mapping[str, Any]) -> Protocol:
        """Return the protocol with the searches that are asked for."""
        given = asked.get("search")
        return protocol if given is None else replace(protocol, search=given)

    def in_fit(self, parts: FitParts) -> FitExtension:
        """Return the searches of a fit."""
        from .searches import Searches

        return Searches(self.name, parts)

    def residues(self, result: FitResult) -> Mapping[str, Sequence[Any]]:
        """Return whether each residue was rebuilt; what is not kept is in none of them."""
        from .changes import changed_residues

        made = [] if result.simulated else result.found.get(self.name, [])
        return changed_residues(result.prepared.model.topology.getNumResidues(), made)

    def told(self, fit: FlexibleFit, result: FitResult) -> Told:
        """Return what each search did, and a note where there was no time for all."""
        from .changes import left_out_in_words

        made = result.found.get(self.name, [])
        left_out = left_out_in_words(made, result.steps)
        figures = {"search": fit.protocol.search, self.name: made}
        return Told(figures, notes=[] if left_out is None else [left_out])

    def sections(self, summary: Mapping[str, Any]) -> Sequence[Section]:
        """Return the section "What was rebuilt?"."""
        from .changes import section_of

        return section_of(summary.get(self.name) or ())

    def lines(self, summary: Mapping[str, Any]) -> Sequence[str]:
        """Return a line on what was rebuilt."""
        from .changes import rebuilt_in_words

        said = rebuilt_in_words(summary[self.name])
        where = " in after.*" if summary.get("simulated") else ""
        return () if said is None else (f"rebuilt{where}: {said}",)
