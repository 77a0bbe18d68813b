"""MolProbity's figures of a model by cctbx, where that is installed: in a process of its own, as it traps arithmetic errors."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ...base.wording import one_line

LONGEST = 900
"""Seconds that it may take."""
INSTALL = 'pip install "openmm-density[deposition]"'


def has_cctbx() -> bool:
    """Return whether cctbx is installed."""
    return importlib.util.find_spec("mmtbx") is not None


def cctbx_figures(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return MolProbity's figures of a model, by cctbx.

    Returns None where cctbx is not installed. Else its ``version``, ``figures`` by name (as `deposition.cctbx_program`
    lists them), and ``missing``, a sentence for each figure that could not be computed: several need data that the
    package has not.
    """
    if not has_cctbx():
        return None
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "figures.json"
        command = [
            sys.executable,
            "-m",
            "openmm_density.extensions.deposition.cctbx_program",
            os.fspath(path),
            str(found),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)
            return json.loads(found.read_text(encoding="utf-8"))
        except subprocess.TimeoutExpired:
            problem = f"it took more than {LONGEST} s"
        except (OSError, ValueError):
            problem = one_line((done.stderr.strip() or "it ended without a message").splitlines()[-1])
    return {"version": None, "figures": {}, "missing": {"all": f"cctbx could not be run: {problem}"}}
