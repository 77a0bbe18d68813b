"""A fit that died goes on without being told again what it was asked to do."""

import hashlib
import json
from contextlib import contextmanager
from pathlib import Path

import mdtraj
import numpy as np
import pytest

from openmm_density.base.errors import InputError
from openmm_density.cli.fit_record import read_command, read_force_field_files, write_command
from openmm_density.fitting.protocols import find_protocol
from openmm_density.report import FILES, FITTED_REFERENCE

from .commands import fit, run, started, wait_for


class Killed(BaseException):
    """As good as kill -9."""


@contextmanager
def killed_at_the_end(monkeypatch):
    """Let a fit die while its results are written."""

    def die(*_):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("openmm_density.report.folder.summarize", die)
        yield patch


def test_a_fit_that_dies_while_its_results_are_written_is_resumed(small, tmp_path, monkeypatch):
    output = tmp_path / "out"
    with killed_at_the_end(monkeypatch):
        fit(small, output, "--steps", 100, "--restrain-to", small / "target.pdb")
    assert (output / "trajectory.dcd").exists() and not (output / "summary.json").exists()
    told = json.loads((output / "unfinished" / "command.json").read_text())
    assert told["options"]["restrain_to"] == str(small / "target.pdb") in told["sha256"]
    assert run("fit", "--resume", output) == 0
    assert sorted(path.name for path in output.iterdir()) == sorted([*FILES, FITTED_REFERENCE])
    violated = json.loads((output / "summary.json").read_text())["restraints_violated"]
    # What the protocol's last stage holds, and distances.
    assert violated.keys() == {
        *("ss", "base-pairs", "sugar-puckers", "cis", "ramachandran", "rotamers", "chirality", "water"),
        "distance",
    }
    assert mdtraj.load(str(output / "trajectory.dcd"), top=str(output / "fitted.cif")).n_frames == 1


def test_a_killed_fit_is_resumed_to_the_same_end(small, tmp_path, capsys, forked):
    arguments = (
        "--steps", "600", "--strength", "30", "--threads", "1", "--report-interval", "40", "--save-interval", "40",
    )  # fmt: skip
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = started(small, killed, *arguments)
    wait_for(killed / "unfinished" / "state.previous.npz", process)
    again = (
        "fit",
        small / "model.pdb",
        small / "target.mrc",
        "--resolution",
        5,
        "--platform",
        "CPU",
        "--output",
    )
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


def test_a_fit_goes_on_on_the_platform_that_was_found_for_it(small, tmp_path, monkeypatch, capsys):
    output = tmp_path / "out"
    asked = ("fit", small / "model.pdb", small / "target.mrc", "--resolution", 5, "--protocol", "quick")
    with killed_at_the_end(monkeypatch) as patch:
        patch.setattr("openmm_density.fitting.platforms.platform_of_command", lambda named, say: "Reference")
        run(*asked, "--steps", 20, "--search", "off", "--output", output)
    assert "target.mrc at 5 Å on Reference\n" in capsys.readouterr().err
    told = json.loads((output / "unfinished" / "command.json").read_text())["options"]
    assert told["platform"] == "Reference" and told["asked"]["platform"] is None
    assert run("fit", "--resume", output) == 0
    summary = json.loads((output / "summary.json").read_text())
    assert summary["platform"] == "Reference" and "--platform" not in summary["command"]


@pytest.fixture
def somebody_elses(small, tmp_path):
    """Return a function that writes the small of a fit as its sender wants it, with a force field file in it."""
    output = tmp_path / "out"
    (output / "unfinished").mkdir(parents=True)
    find_protocol("quick", 5.0).write(output / "unfinished" / "protocol.toml")

    def write(body="", digests=None, **options):
        xml = output / "ligand.xml"
        xml.write_text(f"<ForceField>{body}</ForceField>")
        options = {
            "forcefield": ["amber14", str(xml)],
            "place": "off",
            "resolution": 5.0,
            "platform": "CPU",
            **options,
        }
        options |= {"model": str(small / "model.pdb"), "map": str(small / "target.mrc")}
        paths = [options["model"], options["map"], str(xml)] if digests is None else digests
        told = {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in paths}
        command = {"options": options, "sha256": told}
        (output / "unfinished" / "command.json").write_text(json.dumps(command))
        return output, xml

    return write


def test_code_in_a_folder_from_somebody_else_runs_only_where_it_is_allowed_now(
    somebody_elses, tmp_path, capsys, monkeypatch
):
    ran = tmp_path / "ran"
    code = f"<InitializationScript>open({str(ran)!r}, 'w')</InitializationScript>"
    output, xml = somebody_elses(code, allow_scripts=True)
    assert run("fit", "--resume", output) == 2
    refused = capsys.readouterr().err
    assert f"{xml}: it holds Python code" in refused and "--allow-scripts" in refused
    assert not ran.exists()
    # Allowed is what is given now.
    given = []
    monkeypatch.setattr("openmm_density.cli.fit._flexible_fit", lambda record, *_: given.append(record))
    with pytest.raises(AttributeError):
        run("fit", "--resume", output, "--allow-scripts")
    force_field = given[0].options.force_field
    assert force_field.allow_scripts is True and force_field.forcefield == ["amber14", str(xml)]


def test_the_force_field_of_a_resumed_fit_is_the_one_that_it_began_with(somebody_elses, capsys):
    output, xml = somebody_elses('<Include file="more.xml"/>', digests=[])
    (xml.parent / "more.xml").write_text("<ForceField/>")
    for path in ("model.pdb", "target.mrc"):
        assert run("fit", "--resume", output) == 2
        assert f"{path}: it is not one of the files that the fit began with" in capsys.readouterr().err
        written = json.loads((output / "unfinished" / "command.json").read_text())
        held = written["options"]["model" if path == "model.pdb" else "map"]
        written["sha256"][held] = hashlib.sha256(Path(held).read_bytes()).hexdigest()
        (output / "unfinished" / "command.json").write_text(json.dumps(written))
    for path in (xml, xml.parent / "more.xml"):
        assert run("fit", "--resume", output) == 2
        assert f"{path}: it is not one of the files" in capsys.readouterr().err
        written["sha256"][str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
        (output / "unfinished" / "command.json").write_text(json.dumps(written))
    (xml.parent / "more.xml").write_text("<ForceField><Residues/></ForceField>")
    assert run("fit", "--resume", output) == 2
    assert "more.xml: it has changed since the fit began" in capsys.readouterr().err


def test_a_model_that_was_placed_moves_with_its_folder(tmp_path, small):
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    (before / "placed.cif").write_text("data_placed")
    files = ("model", "map", "half_map")
    given = {"model": str(before / "placed.cif"), "map": str(small / "target.mrc"), "half_map": []}
    write_command(before, given, files)
    before.rename(after)
    read = read_command(after, files, lambda _: [])
    assert read == {**given, "model": str(after / "placed.cif")}
    (after / "placed.cif").write_text("data_other")
    with pytest.raises(InputError, match=r"after/placed\.cif: it has changed since the fit began"):
        read_command(after, files, lambda _: [])


CANNOT_BE_READ = "command.json: it cannot be read, so that the fit cannot be resumed"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('{"options": [], "sha256": {}}', CANNOT_BE_READ),
        ('{"options": {"model": [1]}, "sha256": {}}', CANNOT_BE_READ),
        ("[]", CANNOT_BE_READ),
        ("{", CANNOT_BE_READ),
        pytest.param("[" * 100_000, CANNOT_BE_READ, id="deep"),
        (
            '{"options": {}, "sha256": {"/dev/zero": ""}}',
            "/dev/zero: the fit needs it, and it cannot be read (it is a pipe or a device",
        ),
        (
            json.dumps({"options": {}, "sha256": {"a\0b": ""}}),
            r"a\x00b: the fit needs it, and it cannot be read (embedded null byte)",
        ),
    ],
)
def test_a_damaged_or_hostile_command_file_is_refused(tmp_path, text, part):
    (tmp_path / "command.json").write_text(text)
    with pytest.raises(InputError) as caught:
        read_command(tmp_path, ["model"], read_force_field_files)
    assert part in str(caught.value)
