"""A fit whose parts are made to take an hour, holding Python as OpenMM does, ends soon after a signal, with what there is."""

import importlib
import os
import signal
import subprocess
import sys
import time

import mdtraj
import pytest

from openmm_density.cli import main
from openmm_density.fitting.checkpoints import RunFolder
from openmm_density.fitting.end_within import VARIABLE

# As OpenMM where it makes a Context: no thread of Python runs. The kernel gives a signal to a thread that takes it.
HOLDS_PYTHON = """
import ctypes, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
print("stuck", flush=True)
ctypes.PyDLL(None).sleep(3600)
"""
ANSWERS = 'import time; print("stuck", flush=True); time.sleep(3600)'
# What takes an hour, after so many calls that do not.
PHASES = {
    "set-up": ("openmm_density.fitting.options", "prepare", 0),
    "System": ("openmm_density.models.preparation.prepared", "Prepared.system", 0),
    "between stages": ("openmm_density.fitting.stage_run", "StageRun.segment", 1),
    "writing": ("openmm_density.report.folder", "write_summary", 0),
}
STOPPED = "openmm-density fit: stopped 0.5 s after the signal, before all was written"
STUCK = "import sys; from tests.cli.test_fit_ends import fit_with_stuck; fit_with_stuck(sys.argv[1], sys.argv[2:])"


def fit_with_stuck(phase, arguments):
    """Fit, with a phase that takes an hour."""
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
def ended(small, tmp_path_factory, forked):
    """Return, of each phase, the folder of a fit that a signal ended in it, its status, and the last that it said."""
    folder = tmp_path_factory.mktemp("ended")
    short = ["--steps", "40", "--protocol", "quick", "--platform", "CPU", "--threads", "1"]
    given = ["fit", str(small / "model.pdb"), str(small / "target.mrc"), "--resolution", "5", *short]
    running, found = {}, {}
    for phase in PHASES:
        output, said = folder / phase.replace(" ", "_"), folder / f"{phase}.txt"
        command = [sys.executable, "-c", STUCK, phase, *given, "--output", str(output)]
        with open(said, "w") as file:
            running[phase] = output, said, subprocess.Popen(command, stdout=file, stderr=file)
    for phase, (output, said, process) in running.items():
        while "stuck\n" not in said.read_text():
            assert process.poll() is None, said.read_text()
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        found[phase] = output, process.wait(60), said.read_text().splitlines()[-1]
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
        assert said == f"{STOPPED}: no fit has begun"
        assert not run.holds_a_state and not (output / "fitted.cif").exists()
        return
    assert said == f"{STOPPED} ({VARIABLE} sets more): openmm-density fit --resume {output} goes on"
    n_atoms = len(run.load().positions)
    # Models come first, and what has its name is whole.
    if phase == "writing":
        assert mdtraj.load(str(output / "fitted.cif")).n_atoms == n_atoms
    else:
        assert not (output / "fitted.cif").exists()
    assert not (output / "summary.json").exists()
