"""Wheels carry the operators, which live in a folder of their own, and their C++."""

import subprocess
import sys
import zipfile

from .conftest import PROJECT


def test_a_wheel_holds_every_module_and_source(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(PROJECT)],
        check=True, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    for package, folder in (("openmm_density", "openmm_density"), ("openmm_density/kernels", "kernels")):
        for path in (PROJECT / folder).rglob("*"):
            if path.suffix in (".py", ".cpp", ".h", ".typed"):
                name = f"{package}/{path.relative_to(PROJECT / folder)}"
                assert name in held, name
    assert any(name.endswith("entry_points.txt") for name in held)
