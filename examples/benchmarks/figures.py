"""Figures of a benchmark in a file, with when, where and of which commit they were measured."""

from __future__ import annotations

import json
import subprocess
from datetime import date
from pathlib import Path
from typing import Any

from interleaved import processor

from openmm_density.base.atomic_files import write_text


def write_figures(path: str | Path, figures: dict[str, Any] | list[Any], machine: str = "") -> None:
    """Write figures, or rows of figures, as JSON with what `docs/evidence/tables.py` says about them.

    `machine`: what they were measured on, such as a GPU; by default the processor.
    """
    figures = {"rows": figures} if isinstance(figures, list) else figures
    write_text(path, json.dumps({"measured": measured(machine), **figures}, indent=1) + "\n")


def measured(machine: str = "") -> dict[str, str]:
    """Return the date, the commit ("…, changed" where files differ from it) and the machine, by default the processor."""
    here = Path(__file__).parent
    described = subprocess.run(
        ["git", "describe", "--always", "--exclude=*", "--dirty=, changed"],
        cwd=here,
        capture_output=True,
        text=True,
    )
    return {
        "date": date.today().isoformat(),
        "commit": described.stdout.strip() or "no clone",
        "machine": machine or processor(),
    }
