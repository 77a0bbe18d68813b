"""The command line, end to end on a fragment of adenylate kinase in a map of its own."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
import warnings

import gemmi
import mdtraj
import numpy as np
import pytest

from openmm_density import cli
from openmm_density.cli import main
from openmm_density.cli.outcome import print_outcome
from openmm_density.fitting.output import FILES

from .conftest import PROJECT

RESIDUES = 40
SUMMARY_KEYS = {
    "model", "map", "resolution", "n_atoms", "n_fitted_atoms", "similarity", "strength", "cc_initial", "cc_final",
    "cc_reference", "similarity_initial", "similarity_final", "ca_rmsd_initial", "ca_rmsd_final", "voxel_size", "resampled",
    "steps", "seed", "wall_seconds", "ms_per_step", "density_ms_per_step", "platform", "force_backend", "versions",
    "protocol", "stages", "placement", "half_maps", "interrupted", "blow_ups", "density_interval", "forcefield", "solvent",
    "restraints_violated",
}  # fmt: skip


def write_fragment(path, shift):
    structure = gemmi.read_structure(str(PROJECT / "examples" / "data" / "adk_closed.pdb"))
    structure.setup_entities()
    chain = structure[0][0]
    del chain[RESIDUES:]
    for residue in chain:
        for atom in residue:
            atom.pos += gemmi.Position(*shift)
    structure.write_pdb(str(path))


def run(*arguments):
    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fragment")
    write_fragment(folder / "target.pdb", (0, 0, 0))
    write_fragment(folder / "model.pdb", (1.5, -1.0, 0.8))
    arguments = ("--resolution", 5, "--voxel-size", 1.2, "--noise", 0.1, "--output", folder / "target.mrc")
    assert run("simulate", folder / "target.pdb", *arguments) == 0
    return folder


def fit(folder, output, *extra):
    return run(
        "fit", folder / "model.pdb", folder / "target.mrc", "--resolution", 5, "--reference", folder / "target.pdb",
        "--output", output, "--steps", 600, "--report-interval", 100, "--strength", 30, *extra,
    )  # fmt: skip


@pytest.fixture(scope="module")
def fitted(folder):
    assert fit(folder, folder / "run") == 0
    return folder / "run"


@pytest.fixture
def without_pictures(monkeypatch):
    """Leave the pictures empty: they take longer than a short fit."""
    for name in ("plot_overview", "plot_progress", "plot_residues"):
        monkeypatch.setattr(
            f"openmm_density.fitting.output.folder.{name}", lambda path, *_, **__: path.write_bytes(b"")
        )


def test_a_fit_leaves_all_its_files_and_nothing_else(fitted):
    assert sorted(path.name for path in fitted.iterdir()) == sorted(FILES)
    for name in ("overview.png", "progress.png", "residues.png"):
        assert (fitted / name).read_bytes().startswith(b"\x89PNG\r\n")


def test_the_summary_says_that_the_model_moved_into_the_map(fitted, folder):
    summary = json.loads((fitted / "summary.json").read_text())
    assert summary.keys() >= SUMMARY_KEYS
    assert summary["cc_initial"] < 0.8 < summary["cc_final"] < summary["cc_reference"]
    assert summary["ca_rmsd_initial"] == pytest.approx(np.linalg.norm((1.5, -1.0, 0.8)), abs=2e-3)
    assert summary["ca_rmsd_final"] < 0.7
    assert summary["similarity_final"] > summary["similarity_initial"]
    in_input = (folder / "model.pdb").read_text().count("\nATOM")
    assert summary["n_fitted_atoms"] == in_input + 1  # the terminal oxygen was missing
    assert summary["resampled"] is False and summary["platform"] == "CPU"
    assert summary["force_backend"] == "TorchForce"
    assert summary["peptide_flips"] == [] and summary["inverted_centres"] == []
    assert 0 < summary["density_ms_per_step"] < summary["ms_per_step"]
    assert [doubt for doubt in summary["doubts"] if "Ramachandran" not in doubt] == []
    assert summary["planarity_rms_final"] < 0.02 < summary["planarity_rms_initial"]
    assert summary["planarity_worst_final"] < summary["planarity_worst_initial"]


def test_planes_lists_what_is_flat_worst_first(folder, capsys):
    assert run("planes", folder / "target.pdb", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["n_planes"] == sum(row["n_planes"] for row in report["rows"])
    worst = [row["worst"] for row in report["rows"]]
    assert worst == sorted(worst, reverse=True) and report["worst"] == worst[0]
    assert {row["kind"] for row in report["rows"]} >= {"peptide", "carboxylate", "guanidinium"}
    assert run("planes", folder / "target.pdb") == 0
    assert f"{report['n_planes']} planes" in capsys.readouterr().out


def test_planarity_can_be_left_out(folder, tmp_path, without_pictures):
    options = ("--planarity", "off", "--steps", 100, "--protocol", "gentle", "--density-interval", 4)
    assert fit(folder, tmp_path / "off", *options) == 0
    summary = json.loads((tmp_path / "off" / "summary.json").read_text())
    assert summary["protocol"] == "gentle" and summary["density_interval"] == 4
    assert any("No half maps" in note for note in summary["notes"])
    assert summary["planarity"] is False and summary["planarity_rms_final"] > 0.02


def test_the_log_has_a_row_for_every_report(fitted):
    rows = list(csv.DictReader((fitted / "log.csv").read_text().splitlines()))
    assert [int(row["step"]) for row in rows] == [0, 100, 200, 300, 400, 500, 600, 600]
    assert float(rows[-1]["cc"]) == pytest.approx(
        json.loads((fitted / "summary.json").read_text())["cc_final"], abs=1e-5
    )
    assert float(rows[0]["density_energy"]) == 0.0 and float(rows[0]["strength"]) == 0.0
    assert float(rows[4]["strength"]) == pytest.approx(30.0)
    assert float(rows[-1]["ca_rmsd"]) < float(rows[0]["ca_rmsd"])


def test_the_trajectory_belongs_to_the_fitted_model(fitted):
    trajectory = mdtraj.load(str(fitted / "trajectory.dcd"), top=str(fitted / "fitted.cif"))
    assert trajectory.n_frames == 6
    last = mdtraj.load(str(fitted / "fitted.cif")).xyz[0]
    assert np.sqrt(((trajectory.xyz[-1] - last) ** 2).sum(axis=1).mean()) < 0.1


def test_the_fitted_pdb_has_the_atoms_of_the_input(fitted, folder):
    def names(path):
        return [line[12:27] for line in path.read_text().splitlines() if line.startswith("ATOM")]

    assert names(fitted / "fitted.pdb") == names(folder / "model.pdb")


def test_score_agrees_with_the_summary(fitted, folder, capsys):
    assert run("score", fitted / "fitted.pdb", folder / "target.mrc", "--resolution", 5, "--json") == 0
    scores = json.loads(capsys.readouterr().out)
    summary = json.loads((fitted / "summary.json").read_text())
    assert scores["cc_mask"][0] == pytest.approx(summary["cc_final"], abs=2e-3)
    without_hydrogens = ("score", fitted / "fitted.cif", folder / "target.mrc", "--resolution", 5, "--atoms")
    assert run(*without_hydrogens, "element != H", "--json") == 0
    assert json.loads(capsys.readouterr().out)["cc_mask"][0] == pytest.approx(summary["cc_final"], abs=2e-2)
    trajectory = ("score", fitted / "trajectory.dcd", folder / "target.mrc", "--resolution", 5)
    assert run(*trajectory, "--topology", fitted / "fitted.cif") == 0
    # Frames are counted from 0, as in JSON.
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("frame")]
    assert [int(row.split()[1]) for row in rows] == list(range(6))
    assert run(*trajectory, "--topology", fitted / "fitted.cif", "--json") == 0
    assert json.loads(capsys.readouterr().out)["frames"] == list(range(6))


def test_the_same_seed_gives_the_same_fit(folder, tmp_path, without_pictures):
    for name in ("a", "b"):
        assert fit(folder, tmp_path / name, "--steps", 100, "--seed", 3, "--threads", 1) == 0
    a, b = ((tmp_path / name / "fitted.cif").read_bytes() for name in "ab")
    assert a == b


def test_an_earlier_fit_is_not_overwritten(fitted, folder, capsys):
    before = {path.name: path.read_bytes() for path in fitted.iterdir()}
    assert fit(folder, fitted) == 2
    message = capsys.readouterr().err
    assert message.startswith("openmm-density fit: error: ") and message.count("\n") == 1
    assert "already holds" in message and "--overwrite" in message
    assert {path.name: path.read_bytes() for path in fitted.iterdir()} == before


def test_a_simulation_that_explodes_says_so_with_status_1_and_leaves_the_last_good_model(
    folder, tmp_path, capsys
):
    assert fit(folder, tmp_path / "out", "--strength", "1e9") == 1
    message = capsys.readouterr().err
    assert "unstable 4 times" in message and "last_good.cif" in message and message.count("\n") == 1
    good = mdtraj.load(str(tmp_path / "out" / "unfinished" / "last_good.cif"))
    start = mdtraj.load(str(folder / "model.pdb"))
    pairs = [each.topology.select("name CA") for each in (good, start)]
    assert np.abs(good.xyz[0, pairs[0]] - start.xyz[0, pairs[1]]).max() < 0.2
    assert not (tmp_path / "out" / "fitted.cif").exists()


def started(folder, output, *extra):
    """Start a long fit in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "openmm_density.cli",
        "fit",
        "model.pdb",
        "target.mrc",
        "--resolution",
        "5",
    ]
    return subprocess.Popen(
        [*command, "--output", str(output), *extra],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        # A background job of a shell ignores SIGINT, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
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


def test_an_interrupted_fit_writes_what_there_is_with_status_130(folder, tmp_path):
    process = started(folder, tmp_path / "out", "--steps", "100000000", "--threads", "1")
    wait_for(tmp_path / "out" / "unfinished" / "state.npz", process)
    process.send_signal(signal.SIGINT)
    lines = process.communicate(timeout=240)[1].splitlines()
    assert process.returncode == 130
    assert len(lines) == 1 and "--resume" in lines[0] and "of 100000000" in lines[0]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["interrupted"] is True and summary["steps"] < 10**6
    assert mdtraj.load(str(tmp_path / "out" / "fitted.cif")).n_atoms == summary["n_atoms"]


def test_an_interrupted_preparation_leaves_nothing(folder, tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        assert (tmp_path / "out").exists()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)  # until the signal comes

    monkeypatch.setattr("openmm_density.fitting.flexible_fit.prepare", interrupted)
    assert fit(folder, tmp_path / "out") == 130
    assert capsys.readouterr().err.splitlines() == ["openmm-density fit: interrupted; nothing was written"]
    assert not (tmp_path / "out").exists()


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
    assert violated.keys() == {"ss", "cis", "ramachandran", "rotamers", "chirality", "distance"}
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


def test_a_fit_that_goes_nowhere_is_doubted(folder, tmp_path, capsys, without_pictures):
    write_fragment(tmp_path / "away.pdb", (14.0, 14.0, 14.0))
    arguments = ("fit", tmp_path / "away.pdb", folder / "target.mrc", "--resolution", 5, "--steps", 20)
    assert run(*arguments, "--output", tmp_path / "out", "--strength", 1, "--place", "off") == 0
    doubts = json.loads((tmp_path / "out" / "summary.json").read_text())["doubts"]
    assert any("low" in doubt for doubt in doubts)
    assert "Doubt" in capsys.readouterr().out


def test_a_model_outside_its_density_is_placed_in_it(folder, tmp_path, without_pictures):
    write_fragment(tmp_path / "away.pdb", (60.0, -45.0, 30.0))
    arguments = ("fit", tmp_path / "away.pdb", folder / "target.mrc", "--resolution", 5, "--steps", 20)
    assert run(*arguments, "--output", tmp_path / "out", "--reference", folder / "target.pdb") == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["placement"]["moved_by"] == pytest.approx(np.linalg.norm((60, 45, 30)), abs=0.5)
    assert summary["ca_rmsd_initial"] < 0.5 and summary["cc_initial"] > 0.9
    assert "placed in the map" in summary["notes"][0]


def test_a_curve_that_does_not_fall_is_told_apart_in_the_table(fitted, capsys):
    summary = json.loads((fitted / "summary.json").read_text())
    shown = {}
    for falls, resolution in ((True, 4.5), (False, 4.5), (False, None), (None, None)):
        print_outcome(summary | {"fsc_falls_final": falls, "fsc_resolution_final": resolution}, fitted)
        (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("FSC"))
        before, reference = (
            f"{summary[f'fsc_resolution_{stage}']:.2f}" for stage in ("initial", "reference")
        )
        assert (
            line.startswith("FSC with the model 0.5 at (Å)") and before in line and line.endswith(reference)
        )
        shown[falls, resolution] = line.split(before, 1)[1].removesuffix(reference).strip()
    assert list(shown.values()) == ["4.50", "above to 4.50", "nowhere", ""]


def test_one_map_is_no_pair_of_half_maps(folder, tmp_path, capsys):
    halves = ("--half-map", folder / "target.mrc") * 2
    arguments = ("fit", folder / "model.pdb", folder / "target.mrc", "--resolution", 5)
    assert run(*arguments, "--output", tmp_path / "out", *halves) == 2
    message = capsys.readouterr().err
    assert (
        message.startswith("openmm-density fit: error: the two half maps are one map")
        and message.count("\n") == 1
    )
    assert not (tmp_path / "out").exists()


def test_a_map_too_coarse_for_its_resolution_is_warned_of(folder, tmp_path, capsys):
    arguments = ("--resolution", 4, "--voxel-size", 2.5, "--output", tmp_path / "coarse.mrc")
    assert run("simulate", folder / "target.pdb", *arguments) == 0
    assert capsys.readouterr().err == (
        "openmm-density: warning: voxels of 2.5 Å hold no detail finer than 5 Å: for a resolution of 4 Å they must be no larger "
        "than 2 Å\n"
    )


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        run("--version")
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith("openmm-density 0.")


def test_a_warning_is_given_once(folder, monkeypatch, capsys):
    def warned(_):
        for _ in range(3):
            warnings.warn("a segment's force is made", stacklevel=2)
            with warnings.catch_warnings():  # forgets what was said
                warnings.simplefilter("ignore")
        return 0

    monkeypatch.setitem(cli._COMMANDS, "doctor", warned)
    for _ in range(2):
        assert main(["doctor"]) == 0
        assert capsys.readouterr().err == "openmm-density: warning: a segment's force is made\n"


def test_simulate_does_not_overwrite(folder, capsys):
    arguments = ("--resolution", 5, "--voxel-size", 1.2, "--output", folder / "target.mrc")
    before = (folder / "target.mrc").read_bytes()
    assert run("simulate", folder / "target.pdb", *arguments) == 2
    assert "target.mrc" in capsys.readouterr().err
    assert (folder / "target.mrc").read_bytes() == before


def test_a_pipe_stays_quiet_and_its_lines_whole(folder, tmp_path):
    output = tmp_path / "a folder whose name is longer than the eighty columns that a pipe is said to have"
    command = [
        sys.executable,
        "-m",
        "openmm_density.cli",
        "fit",
        "model.pdb",
        "target.mrc",
        "--resolution",
        "5",
    ]
    options = ["--output", str(output), "--steps", "20", "--threads", "1"]
    done = subprocess.run([*command, *options], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert any(line.startswith("correlation (CC mask)") for line in lines)
    assert lines[-1].startswith(f"results are in {output}: see overview.png")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            (),
            "openmm-density: error: the following arguments are required: COMMAND (see openmm-density --help)",
        ),
        (("mend",), "openmm-density: error: COMMAND: invalid choice: 'mend'"),
        (
            ("fit", "a.pdb", "--steps", "many"),
            'openmm-density fit: error: --steps: found "many"; give a whole number (see openmm-density fit --help)',
        ),
        (
            ("score", "a.pdb", "b.mrc"),
            "openmm-density score: error: the following arguments are required: --resolution (see openmm-density score --help)",
        ),
        (
            ("planes", "a.pdb", "--colour"),
            'openmm-density planes: error: "--colour" is not understood (see openmm-density planes --help)',
        ),
        (
            ("simulate", "{model}", "--resolution=5", "--voxel-size=-1", "--output=new.mrc"),
            "openmm-density simulate: error: --voxel-size -1.0 is not a length; give a positive number of Å",
        ),
    ],
)
def test_an_error_is_one_sentence_in_the_words_of_the_command_line(folder, capsys, arguments, expected):
    arguments = [argument.format(model=folder / "model.pdb") for argument in arguments]
    try:
        status = run(*arguments)
    except SystemExit as stop:
        status = stop.code
    captured = capsys.readouterr()
    assert status == 2 and captured.out == ""
    assert captured.err.startswith(expected) and captured.err.count("\n") == 1


def test_a_disk_that_fails_and_too_little_memory_are_told(folder, monkeypatch, capsys):
    for error, status, said in (
        (OSError(28, "No space left on device", "x.mrc"), 2, "x.mrc: No space left on device"),
        (MemoryError("Unable to allocate 3 TiB"), 1, "not enough memory (Unable to allocate 3 TiB)"),
    ):

        def fails(*_, error=error, **__):
            raise error

        monkeypatch.setattr("openmm_density.maps.density_map.DensityMap.simulate", fails)
        arguments = ("--resolution", 5, "--voxel-size", 1.2, "--output", folder / "new.mrc")
        assert run("simulate", folder / "model.pdb", *arguments) == status
        message = capsys.readouterr().err
        assert message.startswith(f"openmm-density simulate: error: {said}") and message.count("\n") == 1
