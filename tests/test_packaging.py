"""What is built holds every file of the package without a list of them, and works where nothing of the clone is in reach."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import numpy
import pytest

from .conftest import PROJECT
from .fragments import copy_examples

BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"
README = (PROJECT / "README.md").read_text(encoding="utf-8")
SHORT = {"maxIterations=50": "maxIterations=2", "step(200)": "step(2)"}


def script():
    """Return the README's script, with few steps."""
    text = re.search(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)[1]
    for long, short in SHORT.items():
        assert long in text
        text = text.replace(long, short)
    return text


def run(*command, cwd, **variables):
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=os.environ | variables, capture_output=True, text=True, timeout=300
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the source archive of the package with an operator and a page more, and the wheel from the archive."""
    folder = tmp_path_factory.mktemp("built")
    project, tools = folder / "project", folder / "tools"
    for name in ("openmm_density", "kernels"):
        shutil.copytree(PROJECT / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, project)
    for new in (
        "kernels/distances/__init__.py",
        "kernels/distances/pairs.h",
        "openmm_density/page/parts/chart.js",
    ):
        (project / new).parent.mkdir(parents=True, exist_ok=True)
        (project / new).touch()
    install = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--target", tools)
    run(sys.executable, *install, "setuptools>=77", cwd=folder)
    run(sys.executable, "-c", BUILD, "build_sdist", folder, cwd=project, PYTHONPATH=str(tools))
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    run(sys.executable, "-c", BUILD, "build_wheel", folder / "wheel", cwd=unpacked, PYTHONPATH=str(tools))
    (wheel,) = (folder / "wheel").glob("*.whl")
    return project, wheel


def contents(wheel):
    with zipfile.ZipFile(wheel) as file:
        return {name: hashlib.sha256(file.read(name)).hexdigest() for name in file.namelist()}


def test_a_wheel_holds_every_file_and_those_that_are_new(built):
    project, wheel = built
    held = contents(wheel)
    for package, folder in (("openmm_density", "openmm_density"), ("openmm_density/kernels", "kernels")):
        for path in (project / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                name = f"{package}/{path.relative_to(project / folder)}"
                assert held.get(name) == hashlib.sha256(path.read_bytes()).hexdigest(), name
    assert {"openmm_density/kernels/distances/pairs.h", "openmm_density/page/parts/chart.js"} <= held.keys()
    assert any(name.endswith("entry_points.txt") for name in held)
    assert not any(name.startswith(("kernels/", "tests/", "examples/")) or "pycache" in name for name in held)


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """Install the wheel into an environment that borrows what it depends on, but not the clone, from this one."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", "--without-pip", "env", cwd=folder)
    python = folder / "env" / "bin" / "python"
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    # Files .pth of a folder that is named in one are not read, those of editable installations among them.
    (site / "dependencies.pth").write_text(f"{Path(numpy.__file__).parents[1]}\n")
    pip = ("-m", "pip", "--disable-pip-version-check", "--python", python)
    run(sys.executable, *pip, "install", "--quiet", "--no-deps", "--no-index", built[1], cwd=folder)
    copy_examples(folder, residues=20)
    return folder


def test_what_is_installed_runs_outside_the_clone(installed):
    program, python = installed / "env" / "bin" / "openmm-density", installed / "env" / "bin" / "python"
    where = "import openmm_density, openmm_density.kernels as k; print(openmm_density.__file__, k.__file__)"
    found = run(python, "-c", where, cwd=installed).stdout.split()
    assert all(Path(path).is_relative_to(installed) for path in found)
    for command in ([program], [python, "-m", "openmm_density"]):
        assert (
            run(*command, "--version", cwd=installed).stdout
            == f"openmm-density {version('openmm-density')}\n"
        )
        assert "usage: openmm-density [-h]" in run(*command, "--help", cwd=installed).stdout
    options = ("--resolution", 5, "--voxel-size", 2, "--output", "closed.mrc")
    run(program, "simulate", "examples/data/adk_closed.pdb", *options, cwd=installed)
    similarity = float(run(python, "-c", script(), cwd=installed).stdout)
    assert 0.0 < similarity < 1.0

    without = {"CXX": "/nonexistent", "OPENMM_DENSITY_CACHE": str(installed / "nothing compiled")}
    # OpenMM's threads end before Python does: torch aborts where one that has run its Python ends later. A Simulation and what
    # reports on it hold each other.
    ended = "\ndel simulation, integrator\nimport gc\ngc.collect()"
    done = run(python, "-c", script() + ended, cwd=installed, **without)
    assert float(done.stdout) == pytest.approx(similarity, abs=1e-3)
    assert "apt-get install g++" in done.stderr and "Plain PyTorch serves" in done.stderr


def test_what_is_installed_runs_in_the_clone(installed):
    # There Python finds the clone's package first, whose kernels lie beside it.
    where = "import openmm_density, openmm_density.kernels as k; print(openmm_density.__file__, k.__file__)"
    found = run(installed / "env" / "bin" / "python", "-c", where, cwd=PROJECT).stdout.split()
    assert found == [str(PROJECT / folder / "__init__.py") for folder in ("openmm_density", "kernels")]
