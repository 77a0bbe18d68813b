"""The examples run, on short models, and do what they say; what the benchmarks import is there."""

import ast
import re
import subprocess
import sys

import pytest

from .conftest import PROJECT
from .fragments import copy_examples

RESIDUES = 30
pytestmark = pytest.mark.usefixtures("forked")


def run(folder, name, *arguments):
    script = copy_examples(folder, RESIDUES) / name
    done = subprocess.run(
        [sys.executable, str(script), *arguments], cwd=folder, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_fit_adenylate_kinase(tmp_path):
    printed = run(tmp_path, "fit_adenylate_kinase.py", "--output", "fit", "--steps", "200")
    lines = printed.strip().splitlines()
    assert [line.split()[0] for line in lines] == ["start", "ramp", "hold", "end"]
    similarity = [float(line.split()[-1]) for line in lines]
    assert similarity[-1] > similarity[0]
    assert (tmp_path / "fit" / "fitted.cif").exists() and (tmp_path / "fit" / "adk_closed.mrc").exists()


def test_the_ligand_is_flat_only_with_planarity(tmp_path):
    printed = run(tmp_path, "planarity_ligand.py")
    rms = {
        title.strip(): float(value)
        for title, value in re.findall(r"^(.*?)\s+RMS (\S+) Å", printed, re.MULTILINE)
    }
    assert list(rms) == ["puckered", "minimised without planarity", "minimised with planarity"]
    assert rms["puckered"] > 0.2
    assert rms["minimised without planarity"] > 0.05
    assert rms["minimised with planarity"] < 0.002
    assert [path.name for path in tmp_path.iterdir()] == ["examples"]


def test_a_path_is_driven_towards_the_closed_form(tmp_path):
    printed = run(tmp_path, "adenylate_kinase_path.py", "--output", "path", "--frames", "2", "--steps", "50")
    left = [float(away) for away in re.findall(r"(\S+) Å to go", printed)]
    assert len(left) == 2 and left[0] > left[1]
    assert sorted(path.suffix for path in (tmp_path / "path").iterdir()) == [".cif", ".cif", ".mrc", ".mrc"]


@pytest.mark.parametrize("script", sorted((PROJECT / "examples").rglob("*.py")), ids=lambda path: path.stem)
def test_what_a_script_imports_of_this_package_is_there(script):
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("openmm_density"):
            exec(ast.unparse(node), {})
