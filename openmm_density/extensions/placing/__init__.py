"""Chains and domains placed in a map one by one, and what a fit says of how sure their places are."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...fitting.extension import FitExtension, Told

if TYPE_CHECKING:
    from ...base.page_blocks import Section
    from ...fitting.fit_result import FitResult
    from ...fitting.flexible_fit import FlexibleFit

__all__ = ["Placing"]


class Placing(FitExtension):
    """Say where bodies were placed, and which of them may lie elsewhere."""

    files = ("placed.cif", "placed.json")

    def write(self, folder: Path, fit: FlexibleFit, result: FitResult) -> None:
        """Write what the fit began with; remove that of an earlier fit where nothing was placed."""
        of_fit = _files(fit)
        for name in self.files:
            if of_fit is None:
                (folder / name).unlink(missing_ok=True)
            elif not (folder / name).exists() or not (folder / name).samefile(of_fit / name):
                shutil.copyfile(of_fit / name, folder / name)

    def told(self, fit: FlexibleFit, result: FitResult) -> Told:
        """Return the places, and doubts on those that are no better than wrong ones, or than another."""
        of_fit = _files(fit)
        if of_fit is None:
            return Told({"placing": None})
        from .output import placing_told

        return placing_told(self.name, json.loads((of_fit / self.files[1]).read_text(encoding="utf-8")))

    def sections(self, summary: Mapping[str, Any]) -> Sequence[Section]:
        """Return the table of places."""
        if not summary.get("placing"):
            return ()
        from .output import placing_section

        return (placing_section(summary["placing"]),)

    def lines(self, summary: Mapping[str, Any]) -> Sequence[str]:
        """Return a line on the bodies."""
        found = summary.get("placing")
        if not found:
            return ()
        scores = [each["score"] for each in found["bodies"]]
        return (
            f"rigid bodies placed: {len(scores)}, {min(scores):.1f} to {max(scores):.1f} standard deviations above wrong places",
        )


def _files(fit: FlexibleFit) -> Path | None:
    """Return the folder of the files of a fit whose model was placed."""
    path = Path(fit.prepared.model.path)
    there = path.name == Placing.files[0] and path.with_suffix(".json").exists()
    return path.parent if there else None
