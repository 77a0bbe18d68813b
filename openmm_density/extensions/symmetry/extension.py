"""What a fit with symmetry leaves of its assembly: the unit with its operators, all copies, and how they agree with the map."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...fitting.extension import FitExtension, Told

if TYPE_CHECKING:
    from ...fitting.agreement import ModelAgreement
    from ...fitting.fit_result import FitResult
    from ...fitting.flexible_fit import FlexibleFit


class Symmetry(FitExtension):
    """Copies of the unit that is fitted."""

    files = ("assembly.cif", "assembly_expanded.cif")

    def told(self, fit: FlexibleFit, result: FitResult) -> Told:
        """Return how all copies agree with the map."""
        import numpy as np

        from ...models.assembly import clashes_with_copies, copied_topology

        symmetry = fit.symmetry
        if symmetry is None:
            return Told({"assembly": None})
        operators = symmetry.operators
        # As of the unit: of the atoms that were given.
        prepared = result.prepared
        copies = copied_topology(prepared.model.topology, len(operators))
        correlation = fit.fit_map.correlation(copies)
        before, after = (
            correlation.cc_mask(operators.expanded(prepared.input_positions(positions)).reshape(-1, 3))
            for positions in (result.initial, result.final)
        )
        found = {
            **symmetry.as_dict(),
            "cc_initial": before,
            "cc_final": after,
            "clashes": clashes_with_copies(fit.solute.topology, result.final, operators),
            "rotations": np.round(operators.rotations, 10).tolist(),
            "translations": np.round(operators.translations, 6).tolist(),
        }
        return Told({"assembly": found})

    def complete(
        self,
        folder: Path,
        fit: FlexibleFit,
        result: FitResult,
        agreement: ModelAgreement,
        summary: dict[str, Any],
        crystal: Callable[[], Any] | None,
    ) -> None:
        """Write the assembly with all that the file of the fitted unit says; without symmetry earlier files are removed."""
        from ...report.results import FITTED
        from .assembly_file import write_assembly, write_expanded

        paths = [folder / name for name in self.files]
        if fit.symmetry is None:
            for path in paths:
                path.unlink(missing_ok=True)
            return
        operators, is_helical = fit.symmetry.operators, fit.symmetry.is_helical
        matrices = operators.rotations, operators.translations
        write_assembly(folder / FITTED, *matrices, paths[0], is_helical=is_helical)
        write_expanded(*paths)

    def lines(self, summary: Mapping[str, Any]) -> Sequence[str]:
        """Return a line on the copies."""
        found = summary.get("assembly")
        if found is None:
            return ()
        return (
            f"assembly of {found['copies']} copies ({found['symmetry']}): CC {found['cc_initial']:.3f} before, "
            f"{found['cc_final']:.3f} after, {found['clashes']} heavy atoms of the unit within 2.2 Å of a copy",
        )
