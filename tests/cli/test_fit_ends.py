"""A fit whose parts are made to take an hour, holding Python as OpenMM does, ends soon after a signal, with what there is."""

import importlib
import multiprocessing
import os
import signal
import sys
import time

import mdtraj
import pytest

from openmm_density.cli import main
from openmm_density.fitting.checkpoints import RunFolder
from openmm_density.fitting.end_within import VARIABLE

from ..fitting.test_end_within import HOLDS_PYTHON

ANSWERS = 'import time; print("stuck", flush=True); time.sleep(3600)'
# What takes an hour, after so many calls that do not.
PHASES = {
    "set-up": ("openmm_density.fitting.options", "prepare", 0),
    "System": ("openmm_density.models.preparation.prepared", "Prepared.system", 0),
    "between stages": ("openmm_density.fitting.stage_run", "StageRun.segment", 1),
    "writing": ("openmm_density.fitting.output.folder", "write_summary", 0),
}
SLOW_IMPORTS = ["openmm_density.fitting.flexible_fit", "openmm_density.fitting.output", "tests.conftest"]


def fit_with_stuck(phase, said, arguments):
    """Fit, in a process of its own, with a phase that takes an hour; what it says goes into a file."""
    file = os.open(said, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(file, stream.fileno())
    os.environ[VARIABLE] = "0.5"
    module, names, calls = PHASES[phase]
    *owners, name = names.split(".")
    owner = importlib.import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    original, left = getattr(owner, name), [None] * calls

    def stuck(*given, **named):
        if left:
            left.pop()
            return original(*given, **named)
        exec(ANSWERS if phase == "System" else HOLDS_PYTHON)

    setattr(owner, name, stuck)
    sys.exit(main(arguments))


@pytest.fixture(scope="module")
def ended(small, tmp_path_factory):
    """Return, of each phase, the folder of a fit that a signal ended in it, its status, and the last that it said."""
    folder = tmp_path_factory.mktemp("ended")
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(SLOW_IMPORTS)
    short = ["--steps", "40", "--report-interval", "20", "--protocol", "quick", "--threads", "1"]
    given = ["fit", str(small / "model.pdb"), str(small / "target.mrc"), "--resolution", "5", *short]
    running, found = {}, {}
    for phase in PHASES:
        output, said = folder / phase.replace(" ", "_"), folder / f"{phase}.txt"
        process = processes.Process(
            target=fit_with_stuck, args=(phase, said, [*given, "--output", str(output)])
        )
        process.start()
        running[phase] = output, said, process
    for phase, (output, said, process) in running.items():
        while not (said.exists() and "stuck\n" in said.read_text()):
            assert process.is_alive(), said.read_text()
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGTERM)
        process.join(60)
        found[phase] = output, process.exitcode, said.read_text().splitlines()[-1]
        process.kill()
    return found


@pytest.mark.parametrize("phase", PHASES)
def test_it_ends_with_what_there_is(ended, phase):
    output, status, said = ended[phase]
    if phase == "System":
        # In fits, unlike what comes before them, a signal is noted only, but not where there is nothing to save.
        assert status == 130 and said == "openmm-density fit: interrupted; nothing was written"
        assert not output.exists()
        return
    assert status == -signal.SIGKILL
    run = RunFolder(output / "unfinished")
    if phase == "set-up":
        assert said == "openmm-density fit: stopped; no fit has begun"
        assert not run.holds_a_state and not (output / "fitted.cif").exists()
        return
    assert said == f"openmm-density fit: stopped; openmm-density fit --resume {output} goes on"
    n_atoms = len(run.load().positions)
    # Models come first, and what has its name is whole.
    if phase == "writing":
        assert mdtraj.load(str(output / "fitted.cif")).n_atoms == n_atoms
    else:
        assert not (output / "fitted.cif").exists()
    assert not (output / "summary.json").exists()
