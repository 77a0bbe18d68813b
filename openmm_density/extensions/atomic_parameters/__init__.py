"""``--b-factors`` and ``--occupancies``: what is refined of atoms beside positions at the end of a fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...fitting.extension import FitExtension, Option, Told

if TYPE_CHECKING:
    from ...base.page_blocks import Block
    from ...fitting.checkpoints import RunFolder
    from ...fitting.fit_result import FitResult, Progress
    from ...fitting.flexible_fit import FlexibleFit
    from ...fitting.interrupts import Stop
    from ...fitting.protocols import Protocol

_GROUP = "B factors and occupancies, at the end"


class AtomicParameters(FitExtension):
    """B factors and occupancies as the map shows them, where the protocol asks for them."""

    answers = ("b_factors", "occupancies")

    options = (
        Option(
            "b_factors",
            "refine B factors at the end: of the finest level that the resolution and half maps support, or of each atom, "
            "residue or chain (auto; off with --protocol quick)",
            choices=("off", "auto", "atom", "residue", "group"),
            group=_GROUP,
        ),
        Option(
            "occupancies",
            "refine occupancies at the end: of ligands, waters and side-chains, or some of these separated by commas (off)",
            metavar="LIST",
            group=_GROUP,
        ),
    )

    def protocol(self, protocol: Protocol, asked: Mapping[str, Any]) -> Protocol:
        """Return the protocol with what is to be refined."""
        given = {name: asked[name] for name in ("b_factors", "occupancies") if asked.get(name) is not None}
        return replace(protocol, **given)

    def after(
        self, fit: FlexibleFit, result: FitResult, folder: RunFolder | None, stop: Stop, progress: Progress
    ) -> FitResult:
        """Refine them where the model is."""
        wanted = fit.protocol.b_factors != "off" or fit.protocol.occupancies != "off"
        # A model that was kept as it was keeps these too, as does one on its way.
        if not wanted or result.interrupted or result.simulated is not None:
            return result
        # SciPy's optimisers are loaded by fits that need them only.
        from .refinement import with_refined_atoms

        with fit.stopwatch.part("b_factors"):
            of = fit.solute, fit.fit_map, fit.protocol, fit.half_maps, fit.density.operators
            return with_refined_atoms(result, *of)

    def residues(self, result: FitResult) -> Mapping[str, Sequence[Any]]:
        """Return the mean B factor of each residue."""
        from .output import residue_b_factors

        return residue_b_factors(result)

    def told(self, fit: FlexibleFit, result: FitResult) -> Told:
        """Return both with their deviations."""
        from .output import atoms_told

        return atoms_told(result)

    def blocks(self, summary: Mapping[str, Any], residues: Sequence[Mapping[str, Any]]) -> Sequence[Block]:
        """Return the B factors by residue, refined or not, and refined occupancies."""
        from .output import b_factor_blocks

        return b_factor_blocks(summary, residues)

    def lines(self, summary: Mapping[str, Any]) -> Sequence[str]:
        """Return a line on refined B factors."""
        refined = summary["b_factors"]
        if refined is None:
            return ()
        return (
            f"B factors per {refined['level']}: {refined['least_b']:.0f} to {refined['largest_b']:.0f} Å², CC with them "
            f"{refined['cc']:.3f}, {refined['cc_uniform']:.3f} with the best uniform one",
        )
