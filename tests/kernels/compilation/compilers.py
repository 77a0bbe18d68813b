"""Compilers that take no time, and loading with them in a process of its own."""

from __future__ import annotations

import shlex
import shutil
import warnings
from pathlib import Path

import pytest
import torch

from openmm_density.kernels import compilation
from openmm_density.kernels.neighbors import neighbors

from ..children import Child

REAL_COMPILER = shutil.which("g++")

needs_compiler = pytest.mark.skipif(REAL_COMPILER is None, reason="g++ is not installed")


def loaded_here(*folders):
    """Load in this process, and tell all there is to tell about it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded = [compilation.load(folder) for folder in folders]
    status = compilation.status()["neighbors"]
    return {
        "loaded": loaded,
        "warnings": [str(warning.message) for warning in caught],
        "cache": status.cache,
        "library": status.library,
        "flags": status.flags,
        "error": status.error,
        "error_text": compilation.error_text("neighbors"),
    }


def load(*folders, **variables):
    return Child(loaded_here, *folders, **variables).result()


def written_script(path, text):
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)
    return path


def compiler_script(path, compile_commands):
    """Write a compiler that answers --version and keeps a list of its compilations beside itself."""
    return written_script(
        path,
        f"""case "$*" in --version) echo "g++ (a script) 1"; exit 0;; esac
echo "$*" >> {shlex.quote(str(path))}.calls
{compile_commands}
""",
    )


def calls(compiler):
    log = Path(f"{compiler}.calls")
    return log.read_text().splitlines() if log.exists() else []


COPY = """
copy_to_output() {
    while [ $# -gt 0 ]; do
        if [ "$1" = -o ]; then cp "$LIBRARY" "$2"; fi
        shift
    done
}
"""


def copying_compiler(path, library, first=""):
    """Write a compiler that takes no time: it hands out a library compiled before."""
    return compiler_script(path, f'{COPY}\nLIBRARY={shlex.quote(str(library))}\n{first}\ncopy_to_output "$@"')


def leftovers(cache):
    return sorted(path.name for path in Path(cache).iterdir() if path.suffix not in (".so", ".json", ".lock"))


def listed_and_loaded():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        offsets = neighbors(torch.tensor([[0.0, 0, 0], [0.5, 0, 0], [3, 0, 0]]), None, 1.0, True)[0]
        report = loaded_here("neighbors", "density", "planarity")
    return offsets.tolist(), report, [str(warning.message) for warning in caught]
