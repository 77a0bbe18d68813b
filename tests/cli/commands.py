"""Commands as users give them, in this process and in one of their own."""

import subprocess
import sys
import time

from openmm_density.cli import main

SMALL = 12
"""Residues of a fragment that is quick to fit."""
# In the folder of model and map.
FIT = (sys.executable, "-m", "openmm_density", "fit", "model.pdb", "target.mrc", "--resolution", "5")


def run(*arguments):
    return main([str(argument) for argument in arguments])


def fit(folder, output, *extra):
    return run(
        "fit", folder / "model.pdb", folder / "target.mrc", "--resolution", 5, "--reference", folder / "target.pdb",
        "--platform=CPU", "--output", output, "--steps", 600, "--report-interval", 100, "--strength", 30, *extra,
    )  # fmt: skip


def started(folder, output, *extra):
    """Start a long fit in a process of its own."""
    return subprocess.Popen(
        [*FIT, "--platform", "CPU", "--output", str(output), *extra],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(path, process, seconds=120):
    """Wait until a process has made a file; say what it said where it ends without."""
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, process.stderr.read()
        if time.monotonic() > deadline:
            process.kill()
            raise AssertionError(f"{path} did not come: {process.communicate()[1]}")
        time.sleep(0.005)
