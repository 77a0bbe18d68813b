"""What the README and the documentation show runs, with its own arguments, on the first residues of its models.

A block without a language holds commands, which run in their order; "python" is a snippet, whose last line prints a number
between 0 and 1; "toml" is a protocol. Commands in blocks of "console", which need what a test has not, are only parsed; notebooks
run where the documentation is built.
"""

import dataclasses
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import mdtraj
import pytest
from openmm import Platform, app

from openmm_density import cli
from openmm_density.analysis import load_trajectory
from openmm_density.fitting.protocols import Protocol, Stage, read_protocol

from ..conftest import PROJECT
from ..forked_processes import forking
from ..fragments import copy_examples
from .pages import DOCS, blocks, shown
from .parsers import commands

LINES = list(dict.fromkeys(line for block in shown("") for line in block.text.splitlines()))
COMMANDS = [shlex.split(line) for line in LINES if line.startswith("openmm-density")]
# An extension and how its package declares it are tested with extensions.
SNIPPETS = [block.text for block in shown("python") if "(FitExtension)" not in block.text]
PROTOCOLS = [block.text for block in shown("toml") if "entry-points" not in block.text]
FEW_STEPS = ["--steps", "60", "--report-interval", "30"]
# Shown as "console" alone; their own tests run them on less.
TAKING_MINUTES = {"distill"}
RESIDUES = 24

# One after the other in a fresh process: the first one's imports come as a user's would.
RUN_SNIPPETS = """
import contextlib, io, json, sys, traceback
outcomes = []
for code in json.load(sys.stdin):
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "snippet", "exec"), {"__name__": "__main__"})
        outcomes.append(("printed", printed.getvalue()))
    except Exception:
        outcomes.append(("failed", traceback.format_exc()))
json.dump(outcomes, sys.stdout)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shown")
    copy_examples(folder, RESIDUES)
    run(COMMANDS[0], folder)  # the map that the rest is about
    return folder


@pytest.fixture(scope="module")
def outcomes(folder):
    results = folder / "run"
    write_results(results, folder / "examples" / "data" / "adk_open.pdb")
    told = json.loads(run([sys.executable, "-c", RUN_SNIPPETS], folder, input=json.dumps(SNIPPETS)))
    shutil.rmtree(results)  # where the commands put their own
    return told


def write_results(folder, model):
    """Write two frames as a fit does."""
    folder.mkdir()
    one = load_trajectory(model)
    mdtraj.join([one, one]).save_dcd(str(folder / "trajectory.dcd"))
    with (folder / "fitted.cif").open("w") as file:
        app.PDBxFile.writeFile(one.topology.to_openmm(), one.openmm_positions(0), file)


def run(command, folder, **settings):
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PATH": paths},
        capture_output=True,
        text=True,
        timeout=600,
        **settings,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_python_snippets_run(number, outcomes):
    what, text = outcomes[number]
    assert what == "printed", text
    assert 0.0 < float(text.strip().splitlines()[-1]) < 1.0


def test_the_start_of_the_crystal_that_can_be_tried_is_off_by_half(tmp_path, monkeypatch):
    (block,) = (block for block in shown("py") if "start.pdb" in block.text)
    (tmp_path / "tests").symlink_to(PROJECT / "tests")
    monkeypatch.chdir(tmp_path)
    exec(compile(block.text, "snippet", "exec"), {})
    given = next((tmp_path / "tests" / "data").glob("xray_1g8a_P21/*.pdb"))
    moved, before = (
        app.PDBFile(str(path)).getPositions(asNumpy=True)._value for path in ("start.pdb", given)
    )
    assert 0.04 < ((moved - before) ** 2).sum(axis=1).mean() ** 0.5 < 0.1  # nm


def test_commands_run_in_their_order(folder, monkeypatch, capsys):
    # On the first platform alone, Reference: test_doctor.py tries them all.
    monkeypatch.setattr(
        "openmm_density.extensions.doctor.examination.Platform",
        SimpleNamespace(getNumPlatforms=lambda: 1, getPlatform=Platform.getPlatform),
    )
    monkeypatch.chdir(folder)
    assert COMMANDS[0][1] == "simulate"
    assert {command[1] for command in COMMANDS} == set(commands()) - TAKING_MINUTES
    for _, name, *arguments in COMMANDS[1:]:
        with forking():  # what the doctor tries
            status = cli.main([name, *arguments, *(FEW_STEPS if name == "fit" else [])])
        said = capsys.readouterr()
        assert status == 0 and said.out, said.err


def test_the_skill_for_assistants_is_short_and_runs(folder, monkeypatch, capsys):
    skill = PROJECT / "skills" / "openmm-density" / "SKILL.md"
    assert len(skill.read_text(encoding="utf-8").splitlines()) <= 150
    of = {
        language: [each.text for each in blocks(skill) if each.language == language]
        for language in ("", "python", "console")
    }
    ran, parsed = (
        [shlex.split(line) for text in of[kind] for line in text.splitlines()] for kind in ("", "console")
    )
    monkeypatch.chdir(folder)
    assert ran[0] == COMMANDS[0]  # the map that is there
    for _, name, *arguments in ran[1:]:
        assert cli.main([name, *arguments, *(FEW_STEPS if name == "fit" else [])]) == 0
    for _, *arguments in parsed:
        cli.build_parser().parse_args(arguments)
    for code in of["python"]:
        capsys.readouterr()
        exec(compile(code, "skill", "exec"), {})
        assert 0 < float(capsys.readouterr().out.split()[-1]) < 1


def test_protocol_files_are_read(tmp_path):
    assert PROTOCOLS
    for text in PROTOCOLS:
        (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
        assert read_protocol(tmp_path / "mine.toml").steps > 0


@pytest.mark.parametrize(
    ("heading", "kind"), [("key, of the fit", Protocol), ("key, of a `[[stage]]`", Stage)]
)
def test_the_keys_of_protocol_files_are_all_there_with_their_defaults(heading, kind, tmp_path):
    (tmp_path / "mine.toml").write_text("[[stage]]\nsteps = 1\n")
    protocol = read_protocol(tmp_path / "mine.toml")
    read = dataclasses.asdict(protocol if kind is Protocol else protocol.stages[0])
    read.pop("stages", None)
    page = (DOCS / "reference" / "protocol_files.md").read_text(encoding="utf-8")
    table = re.search(rf"^\| {re.escape(heading)} \|.*\n\|[- |]+\n((?:\|.*\n)+)", page, flags=re.MULTILINE)
    words = {"none": None, "needed": 1, "the file's name": "mine"}
    told = {}
    for row in table[1].splitlines():
        keys, defaults = row.split(" | ")[:2]
        for key, (literal, word) in zip(
            re.findall(r"`(\w+)`", keys), re.findall(rf"`([^`]+)`|({'|'.join(words)})", defaults), strict=True
        ):
            value = json.loads(literal) if literal else words[word]
            told[key] = tuple(value) if isinstance(value, list) else value
    assert told == read


def test_make_knows_its_targets():
    targets = [line.split() for line in LINES if line.startswith("make")]
    assert targets[:2] == [["make", "demo"], ["make", "test"]]
    for target in targets:
        assert run([*target, "--dry-run"], PROJECT)


def test_commands_that_do_not_run_here_are_understood():
    lines = [line for block in shown("console") for line in block.text.splitlines()]
    calls = [shlex.split(line) for line in lines if line.startswith("openmm-density ")]
    for _, *arguments in calls:
        cli.build_parser().parse_args(arguments)
