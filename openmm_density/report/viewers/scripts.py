"""The scripts of viewers as files of a fit's folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...base.atomic_files import write_text
from .chimerax import chimerax_script
from .coot import coot_script
from .scene import read_scene

CHIMERAX_SCRIPT, COOT_SCRIPT = "fitted.cxc", "fitted_coot.py"


def write_viewer_scripts(folder: Path, summary: Mapping[str, Any]) -> list[Path]:
    """Write the scripts that open a fit in ChimeraX and in Coot; return where.

    They name files of the folder only, and without a path, so that it can be moved. `folder`: that of a fit, with its models;
    `summary`: what its ``summary.json`` holds.
    """
    scene = read_scene(folder, summary)
    # Not known where nothing was installed; in somebody else's summary it may be anything, and must not end its line of code.
    version = re.sub(
        r"[^\w.+-]", "", str(summary["versions"]["openmm-density"] or "unknown"), flags=re.ASCII
    )[:40]
    written = []
    for name, script in ((CHIMERAX_SCRIPT, chimerax_script), (COOT_SCRIPT, coot_script)):
        write_text(folder / name, script(scene, version))
        written.append(folder / name)
    return written
