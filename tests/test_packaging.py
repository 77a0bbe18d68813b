"""Wheels carry every package, the operators, which live in a folder of their own, and their C++, without a list of them."""

import shutil
import subprocess
import sys
import zipfile

from .conftest import PROJECT

SOURCES = (".py", ".cpp", ".h", ".typed")


def test_a_wheel_holds_every_module_and_source_and_an_operator_that_is_new(tmp_path):
    project = tmp_path / "project"
    for folder in ("openmm_density", "kernels"):
        shutil.copytree(PROJECT / folder, project / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, project)
    new = project / "kernels" / "distances"
    new.mkdir()
    for name in ("__init__.py", "cpu.cpp", "pairs.h"):
        (new / name).touch()
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(project)],
        check=True, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    for package, folder in (("openmm_density", "openmm_density"), ("openmm_density/kernels", "kernels")):
        for path in (project / folder).rglob("*"):
            if path.suffix in SOURCES:
                name = f"{package}/{path.relative_to(project / folder)}"
                assert name in held, name
    assert "openmm_density/kernels/distances/pairs.h" in held
    assert any(name.endswith("entry_points.txt") for name in held)
    assert not any(name.startswith(("kernels/", "tests/", "examples/")) for name in held)
