"""The example runs, and does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "planarity_ligand.py"


def test_the_ligand_is_flat_only_with_planarity(tmp_path):
    run = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    rms = {
        title.strip(): float(value)
        for title, value in re.findall(r"^(.*?)\s+RMS (\S+) Å", run.stdout, re.MULTILINE)
    }
    assert list(rms) == ["puckered", "minimised without planarity", "minimised with planarity"]
    assert rms["puckered"] > 0.2
    assert rms["minimised without planarity"] > 0.05
    assert rms["minimised with planarity"] < 0.002
    assert not list(tmp_path.iterdir())
