"""Table 1 of every fit, and what its model's file says of the refinement."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...fitting.extension import FitExtension

if TYPE_CHECKING:
    from ...fitting.agreement import ModelAgreement
    from ...fitting.fit_result import FitResult
    from ...fitting.flexible_fit import FlexibleFit


class Deposition(FitExtension):
    """What a paper and a deposition ask of a fit."""

    def write(self, folder: Path, fit: FlexibleFit, result: FitResult) -> None:
        """Begin what takes long of Table 1, where it is done beside the fit."""
        from .table_files import figures_beside

        if fit.beside.has_processes and not result.interrupted:
            figures_beside(fit, result)

    def complete(
        self,
        folder: Path,
        fit: FlexibleFit,
        result: FitResult,
        agreement: ModelAgreement,
        summary: dict[str, Any],
        crystal: Callable[[], Any] | None,
    ) -> None:
        """Write ``table1.md`` and the categories on the refinement of ``fitted.cif``; the summary gets ``table1``."""
        from .table_files import write_table_one

        write_table_one(folder, fit, result, agreement, summary, crystal)
