"""What a user sees of `make`, and what the continuous integration runs: with stand-ins for Python, pip and apt."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import PROJECT

PYTHON = """#!/usr/bin/env bash
case "$*" in
    "-m venv "*)
        echo "venv speaks"
        mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    "-m pip install "*)
        echo "WARNING: a flood that no user needs"
        echo "Collecting torch==2.9.*"
        echo "  Downloading torch-2.9.1-cp311-cp311-manylinux_2_28_x86_64.whl (899.7 MB)"
        echo "  Downloading rich-15.0.0-py3-none-any.whl (243 kB)"
        echo "Installing collected packages: torch, rich"
        echo "DEPRECATION: and this" >&2
        [ -z "$PIP_FAILS" ] || { echo "ERROR: no space left on device"; exit 1; } ;;
    *) echo "compiled ${*: -1}" ;;
esac
"""


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def make(folder: Path, target: str, **environment: str) -> subprocess.CompletedProcess[str]:
    python = executable(folder / "python", PYTHON)
    # The tests may run in a recipe of make's.
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        ["make", f"PYTHON={python}", f"ENVIRONMENT={folder / 'env'}", str(folder / "env" / target)],
        cwd=PROJECT, env=plain | environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_a_first_run_shows_what_is_downloaded_and_keeps_the_rest_in_a_log(tmp_path: Path) -> None:
    done = make(tmp_path, "installed")
    assert done.returncode == 0, done.stderr
    log = tmp_path / "env" / "install.log"
    first, *downloads, unpacking, last = done.stdout.splitlines()
    assert "4 GB of downloads" in first and "minutes" in first
    assert downloads == ["  Downloading torch 2.9.1, 899.7 MB"] and unpacking == "  Unpacking"
    assert last.startswith("Installed in ") and last.endswith(f"what pip said is in {log}.")
    assert done.stderr == ""
    kept = log.read_text()
    assert all(words in kept for words in ("venv speaks", "WARNING", "DEPRECATION", "rich-15.0.0"))
    constraints = (tmp_path / "env" / "constraints.txt").read_text().split()
    assert [each.partition("==")[0] for each in constraints] == ["torch", "openmm", "openmmtorch"]
    again = make(tmp_path, "installed")
    assert "up to date" in again.stdout


def test_where_pip_fails_make_fails_with_the_end_of_the_log(tmp_path: Path) -> None:
    done = make(tmp_path, "installed", PIP_FAILS="yes")
    assert done.returncode == 2
    assert (
        "ERROR: no space left on device" in done.stderr
        and str(tmp_path / "env" / "install.log") in done.stderr
    )
    assert "Installed in" not in done.stdout and not (tmp_path / "env" / "installed").exists()


def test_a_python_that_is_not_there_is_told(tmp_path: Path) -> None:
    done = subprocess.run(
        ["make", "PYTHON=/nowhere/python", f"ENVIRONMENT={tmp_path}/env", f"{tmp_path}/env/installed"],
        cwd=PROJECT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2 and "There is no /nowhere/python" in done.stderr


def test_every_kernel_is_compiled_beforehand(tmp_path: Path) -> None:
    done = make(tmp_path, "compiled")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith("compilation.load_all()")


FIRST = ["make test", "make docs"]
INSTALLING = ["apt-get update --quiet", "apt-get install"]


@pytest.mark.parametrize(
    ("user", "has_browser", "expected"),
    [
        ("0", False, [*FIRST, *INSTALLING, "make test-opencl", "make test-browser"]),
        # They ran with all others.
        ("0", True, [*FIRST, *INSTALLING, "make test-opencl"]),
        ("1000", False, FIRST),
        ("1000", True, FIRST),
    ],
)
def test_the_readmes_command_comes_before_anything_is_installed(
    tmp_path: Path, user: str, has_browser: bool, expected: list[str]
) -> None:
    (tmp_path / ".ci").mkdir()
    script = shutil.copy(PROJECT / ".ci" / "run", tmp_path / ".ci")
    for name in ("make", "apt-get"):
        executable(tmp_path / "bin" / name, f'#!/usr/bin/env bash\necho "{name} $*" >>"{tmp_path}/calls"\n')
    executable(tmp_path / "bin" / "id", f"#!/usr/bin/env bash\necho {user}\n")
    # Nothing else, such as a browser that this machine has.
    for name in ("bash", "dirname"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    if has_browser:
        executable(tmp_path / "bin" / "chromium", "#!/usr/bin/env bash\n")
    path = str(tmp_path / "bin")
    done = subprocess.run(
        [script], env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == len(expected)
    assert all(call.startswith(start) for call, start in zip(calls, expected, strict=True))
    assert user == "0" or "OpenCL is not tested" in done.stdout
    assert ("not tested in a browser" in done.stdout) == (user != "0" and not has_browser)
