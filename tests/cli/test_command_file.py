"""A fit that died goes on without being told again what it was asked to do."""

import json

import mdtraj
import numpy as np
import pytest

from openmm_density.fitting.output import FILES

from .commands import fit, run, started, wait_for


def test_a_fit_that_dies_while_its_results_are_written_is_resumed(folder, tmp_path, monkeypatch):
    class Killed(BaseException):
        """As good as kill -9."""

    def die(*_):
        raise Killed

    output = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("openmm_density.fitting.output.folder.plot_progress", die)
        with pytest.raises(Killed):
            fit(folder, output, "--steps", 100, "--restrain-to", folder / "target.pdb")
    assert (output / "trajectory.dcd").exists() and not (output / "summary.json").exists()
    told = json.loads((output / "unfinished" / "command.json").read_text())
    assert told["options"]["restrain_to"] == str(folder / "target.pdb") in told["sha256"]
    assert run("fit", "--resume", output) == 0
    assert sorted(path.name for path in output.iterdir()) == sorted(FILES)
    violated = json.loads((output / "summary.json").read_text())["restraints_violated"]
    # What the protocol's last stage holds, and distances.
    assert violated.keys() == {"ss", "cis", "ramachandran", "rotamers", "chirality", "water", "distance"}
    assert mdtraj.load(str(output / "trajectory.dcd"), top=str(output / "fitted.cif")).n_frames == 1


def test_a_killed_fit_is_resumed_to_the_same_end(folder, tmp_path, capsys, without_pictures):
    arguments = (
        "--steps", "600", "--strength", "30", "--threads", "1", "--report-interval", "40", "--save-interval", "40",
    )  # fmt: skip
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = started(folder, killed, *arguments)
    wait_for(killed / "unfinished" / "state.previous.npz", process)
    again = ("fit", folder / "model.pdb", folder / "target.mrc", "--resolution", 5, "--output")
    for intruder in ((*again, killed), (*again, killed, "--overwrite"), ("fit", "--resume", killed)):
        assert run(*intruder) == 2
        assert f"a fit is running in it (process {process.pid} on" in capsys.readouterr().err
    process.kill()
    process.communicate()
    assert not (killed / "fitted.cif").exists()
    assert run(*again, killed) == 2
    assert "--resume" in capsys.readouterr().err
    assert run("fit", "--resume", killed, "--steps", 10) == 2
    assert "leave out --steps" in capsys.readouterr().err
    assert run("fit", "--resume", killed) == 0
    assert run(*again, whole, *arguments) == 0
    assert (killed / "fitted.cif").read_bytes() == (whole / "fitted.cif").read_bytes()
    assert (killed / "log.csv").read_bytes() == (whole / "log.csv").read_bytes()
    frames = [
        mdtraj.load(str(each / "trajectory.dcd"), top=str(whole / "fitted.cif")).xyz
        for each in (killed, whole)
    ]
    assert np.array_equal(*frames) and len(frames[0]) == 15
    assert sorted(path.name for path in killed.iterdir()) == sorted(FILES)
    assert run("fit", "--resume", killed) == 2
    assert "no unfinished fit" in capsys.readouterr().err
