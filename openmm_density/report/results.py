"""The files that a fit leaves in its folder, and whether a folder is free for those of another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..base.errors import InputError, as_argument
from ..fitting.installed_extensions import extensions

UNFINISHED = "unfinished"
"""The folder, in that of the results, of what a fit in progress needs to go on."""
COMMAND = "command.json"
"""In it: what the fit was asked to do."""
FITTED, SUMMARY, REPORT = "fitted.cif", "summary.json", "report.html"
TABLE_ONE = "table1.md"
FILES = (
    FITTED,
    "fitted.pdb",
    "trajectory.dcd",
    "log.csv",
    SUMMARY,
    "protocol.toml",
    "overview.png",
    "fitted_before.pdb",
    "fitted_map.mrc",
    "fitted.cxc",
    "fitted_coot.py",
    REPORT,
    TABLE_ONE,
)
FITTED_REFERENCE = "fitted_reference.pdb"
"""With a reference."""
CIF_FILES = ("fitted_input.cif", "fitted_before_input.cif", "fitted_reference_input.cif")
"""In place of fitted.pdb and those like it, where PDB cannot hold the model; the first also beside it, of an mmCIF input."""
AFTER_FILES = ("after.cif", "after.pdb", "after_input.cif")
"""The same of what the simulation made of a model that was better before, which is then what the files above hold."""


def model_with_input_atoms(path: Path, name: str = "fitted") -> Path | None:
    """Return the file of a fit's folder with the atoms of its input, alternates among them; None where there is none."""
    files = (path / f"{name}{ending}" for ending in ("_input.cif", ".pdb", ".cif"))
    return next((file for file in files if file.exists()), None)


def finished_summary(path: Path) -> dict[str, Any] | None:
    """Return the summary of a fit that is complete; None where there is none in a folder."""
    if (path / UNFINISHED).exists():
        return None
    try:
        summary = json.loads((path / SUMMARY).read_text(encoding="utf-8"))
        return None if summary["interrupted"] else summary
    except (OSError, ValueError, KeyError, TypeError):
        return None


BATCH_TABLE, SERIES_SETTINGS, CRYSTAL_SETTINGS = "batch.json", "series_settings.json", "crystal_fit.json"
"""By which the folders of many fits are known."""
CYCLES = "cycle_[0-9][0-9]"
"""The folders of a crystal's cycles, in that of its fit."""
_OF_MANY = {
    BATCH_TABLE: "a batch",
    SERIES_SETTINGS: "a series",
    CRYSTAL_SETTINGS: "a fit of a crystal by cycles",
}


def check_usable(path: Path, overwrite: bool = False, resume: bool = False) -> None:
    """Refuse a folder that cannot be that of a fit, whoever else uses it."""
    unfinished = path / UNFINISHED
    for name, whose in _OF_MANY.items():
        if (path / name).exists():
            raise InputError(
                f"it is the folder of {whose}, whose fits have folders of their own in it",
                source=path,
                remedy="choose another folder" if not resume else "give the folder of one fit",
            )
    if path.exists() and not path.is_dir():
        raise InputError("it is a file", source=path, remedy="give a folder for the results")
    if resume and not path.exists():
        raise InputError(
            "it does not exist", source=path, remedy="give the folder of a fit that was interrupted"
        )
    if resume and not unfinished.is_dir():
        raise InputError(
            "it holds no unfinished fit (a complete one cannot be resumed)",
            source=path,
            remedy="give the folder of one that was interrupted",
        )
    if not (overwrite or resume or unfinished.exists()):
        check_unused(path)


def check_unused(path: Path) -> None:
    """Refuse a folder that holds anything of an earlier fit."""
    if (path / UNFINISHED).exists():
        raise InputError(
            "it holds an unfinished fit",
            source=path,
            remedy=f"resume it by {as_argument('resume')} {path}, choose another folder, or pass "
            f"{as_argument('overwrite', True)}",
        )
    of_extensions = (name for extension in extensions() for name in extension.files)
    names = (*FILES, FITTED_REFERENCE, *CIF_FILES, *AFTER_FILES, *of_extensions)
    present = [name for name in names if (path / name).exists()]
    if present:
        raise InputError(
            f"it already holds {present[0]} of an earlier fit",
            source=path,
            remedy=f"choose another folder, or pass {as_argument('overwrite', True)}",
        )
