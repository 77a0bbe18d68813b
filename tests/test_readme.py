"""Every command and snippet of the README runs."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import PROJECT

README = (PROJECT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
COMMANDS = [
    shlex.split(line)
    for language, text in BLOCKS
    if language == ""
    for line in text.strip().splitlines()
    if line.startswith("openmm-density")
]
FEW_STEPS = ["--steps", "60", "--report-interval", "30"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readme")
    (folder / "examples").symlink_to(PROJECT / "examples")
    run(COMMANDS[0], folder)  # the map that the rest is about
    return folder


def run(command, folder):
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PATH": paths}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("code", [text for language, text in BLOCKS if language == "python"])
def test_python_snippets_run(code, folder):
    printed = float(run([sys.executable, "-c", code], folder).strip().splitlines()[-1])
    assert 0.0 < printed < 1.0


def test_commands_run_in_their_order(folder):
    assert COMMANDS[0][1] == "simulate"
    assert {command[1] for command in COMMANDS} == {"fit", "simulate", "score", "planes", "doctor"}
    for command in COMMANDS[1:]:
        assert run(command + (FEW_STEPS if command[1] == "fit" else []), folder)


def test_make_knows_the_two_commands():
    lines = [line for language, text in BLOCKS if language == "" for line in text.strip().splitlines()]
    assert [line for line in lines if line.startswith("make ")] == ["make demo", "make test"]
    for target in ("demo", "test"):
        assert run(["make", "--dry-run", target], PROJECT)


def test_every_file_that_the_readme_names_is_there():
    for name in re.findall(r"\]\((examples/[^)]+)\)", README):
        assert (PROJECT / name).exists(), name
