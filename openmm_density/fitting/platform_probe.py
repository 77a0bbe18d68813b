"""Whether a platform is here and runs, asked of another process: before OpenMM, torch or a GPU are taken into this one."""

from __future__ import annotations

import json
import subprocess
import sys

from ..base.program_process import command_of, environment_of
from .platform_errors import refuse_platform

ALWAYS_HERE = ("CPU", "Reference")
"""Platforms that every OpenMM has, and that run everywhere."""
KNOWN = (*ALWAYS_HERE, "OpenCL", "CUDA", "HIP")
"""Those of OpenMM; others come as plugins."""
# Seconds for an answer: a GPU that takes longer is left to the fit.
_PATIENCE = 120.0


def check_platform_beside(name: str) -> None:
    """Refuse a platform that is not here or does not run, in about half a second."""
    if name in ALWAYS_HERE:
        return
    try:
        asked = subprocess.run(
            command_of(__name__, name),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            env=environment_of(),
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    try:
        found = json.loads(asked.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        found = {"names": [name], "failure": f"a process that tried it ended with status {asked.returncode}"}
    refuse_platform(name, found["names"], found["failure"])


def main() -> None:
    """Print which platforms are here, and why the one that the argument names does not run."""
    from ..base.plugins import defer_torch

    defer_torch()
    from ..base.plugins import platform_names
    from .platforms import failure_of

    names, name = platform_names(), sys.argv[1]
    print(json.dumps({"names": names, "failure": failure_of(name) if name in names else None}))
