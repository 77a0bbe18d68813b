"""Whether a platform is here and runs, asked of another process: before OpenMM, torch or a GPU are taken into this one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from ..base.program_process import command_of, environment_of
from .platform_errors import refuse_platform, without_cuda

ALWAYS_HERE = ("CPU", "Reference")
"""Platforms that every OpenMM has, and that run everywhere."""
KNOWN = (*ALWAYS_HERE, "OpenCL", "CUDA", "HIP")
"""Those of OpenMM; others come as plugins."""
# Seconds for an answer, in which forces may be compiled: a GPU that takes longer is left to the fit.
_PATIENCE = 300.0


def check_platform_beside(name: str) -> None:
    """Refuse a platform that is not here or does not run, in about half a second."""
    if name in ALWAYS_HERE:
        return
    found = _asked(name)
    if found is not None:
        refuse_platform(name, found.get("names", [name]), found["failure"])


def platform_beside(say: Callable[[str], object]) -> str:
    """Return what `openmm_density.fitting.platforms.platform_of_command` does where none is named, asked of another process."""
    found = _asked() or {"failure": "a process that tried it gave no answer"}
    if "failure" in found:
        say(without_cuda(found["failure"]))
        return "CPU"
    for sentence in found["said"]:
        say(sentence)
    return found["platform"]


def _asked(*names: str) -> dict[str, Any] | None:
    """Return what `main` prints in another process; None where it cannot be asked, or gives no answer in time."""
    try:
        asked = subprocess.run(
            command_of(__name__, *names),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            env=environment_of(),
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    try:
        return json.loads(asked.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return {"failure": f"a process that tried it ended with status {asked.returncode}"}


def main() -> None:
    """Print which platforms are here, and why the one that the argument names does not run; without one, which is taken."""
    from ..base.plugins import defer_torch

    defer_torch()
    from ..base.plugins import platform_names
    from .platforms import failure_of, platform_of_command

    if len(sys.argv) == 1:
        said: list[str] = []
        print(json.dumps({"platform": platform_of_command(None, said.append), "said": said}))
        return
    names, name = platform_names(), sys.argv[1]
    print(json.dumps({"names": names, "failure": failure_of(name) if name in names else None}))
