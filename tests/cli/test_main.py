"""What every command has in common: its errors, warnings and version."""

import subprocess
import sys
import warnings

import pytest

from openmm_density.cli import main

from .commands import run


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        run("--version")
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith("openmm-density 0.")


def test_a_warning_is_given_once(capsys):
    def warned(_):
        for _ in range(3):
            warnings.warn("a segment's force is made", stacklevel=2)
            with warnings.catch_warnings():  # forgets what was said
                warnings.simplefilter("ignore")
        return 0

    for _ in range(2):
        assert main(["planes", "model.pdb"], {"planes": warned}) == 0
        assert capsys.readouterr().err == "openmm-density: warning: a segment's force is made\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            (),
            "openmm-density: error: the following arguments are required: COMMAND (see openmm-density --help)",
        ),
        (("mend",), "openmm-density: error: COMMAND must be one of fit, simulate, "),
        (
            ("fit", "a.pdb", "--search=ful"),
            'openmm-density fit: error: --search must be one of off, auto, full, found "ful": did you mean full? (see openmm',
        ),
        (
            ("fit", "a.pdb", "--steps", "many"),
            'openmm-density fit: error: --steps must be a whole number, found "many" (see openmm-density fit --help)',
        ),
        (
            ("planes", "a.pdb", "--colour"),
            'openmm-density planes: error: "--colour" is not understood (see openmm-density planes --help)',
        ),
        (
            ("fit", "a.pdb", "--resoluton=5"),
            'openmm-density fit: error: "--resoluton=5" is not understood: did you mean --resolution? (see openmm-density fit',
        ),
        (("fit", "a.pdb"), "openmm-density fit: error: MAP, --resolution, --output are required: give MODEL"),
        (
            ("simulate", "{model}", "--resolution=5", "--voxel-size=-1", "--output=new.mrc"),
            "openmm-density simulate: error: --voxel-size must be a positive length, found -1.0: give Å.",
        ),
    ],
)
def test_an_error_is_one_sentence_in_the_words_of_the_command_line(folder, capsys, arguments, expected):
    arguments = [argument.format(model=folder / "model.pdb", folder=folder) for argument in arguments]
    try:
        status = run(*arguments)
    except SystemExit as stop:
        status = stop.code
    captured = capsys.readouterr()
    assert status == 2 and captured.out == ""
    assert captured.err.startswith(expected) and captured.err.count("\n") == 1


def test_a_disk_that_fails_and_too_little_memory_are_told(folder, monkeypatch, capsys):
    for error, status, said in (
        (OSError(28, "No space left on device", "x.mrc"), 1, "x.mrc: No space left on device"),
        (PermissionError(13, "Permission denied", "x.mrc"), 2, "x.mrc: Permission denied"),
        (MemoryError("Unable to allocate 3 TiB"), 1, "not enough memory (Unable to allocate 3 TiB)"),
    ):

        def fails(*_, error=error, **__):
            raise error

        monkeypatch.setattr("openmm_density.maps.density_map.DensityMap.simulate", fails)
        arguments = ("--resolution", 5, "--voxel-size", 1.2, "--output", folder / "new.mrc")
        assert run("simulate", folder / "model.pdb", *arguments) == status
        message = capsys.readouterr().err
        assert message.startswith(f"openmm-density simulate: error: {said}") and message.count("\n") == 1


def test_after_ctrl_c_a_command_does_not_wait_for_what_threads_compute():
    program = """
import threading
from openmm_density.cli.startup import INTERRUPTED, end_process
threading.Thread(target=threading.Event().wait).start()
print("interrupted")
end_process(INTERRUPTED)
"""
    # It would never end.
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "interrupted\n", "")
