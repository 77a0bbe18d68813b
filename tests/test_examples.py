"""The examples run, shortened."""

import subprocess
import sys

from .conftest import PROJECT


def test_fit_adenylate_kinase(tmp_path):
    script = PROJECT / "examples" / "fit_adenylate_kinase.py"
    command = [sys.executable, str(script), "--output", str(tmp_path), "--steps", "200"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.strip().splitlines()
    assert [line.split()[0] for line in lines] == ["start", "ramp", "hold", "end"]
    similarity = [float(line.split()[-1]) for line in lines]
    assert similarity[-1] > similarity[0]
    assert (tmp_path / "fitted.cif").exists() and (tmp_path / "adk_closed.mrc").exists()
