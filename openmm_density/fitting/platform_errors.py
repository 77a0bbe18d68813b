"""What is wrong with a platform, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.errors import InputError


def refuse_platform(name: str, names: Sequence[str], failure: str | None) -> None:
    """Raise what is wrong with a platform, if anything."""
    if name not in names:
        raise InputError(
            "must be a platform of this OpenMM",
            argument="platform",
            found=f'"{name}"',
            remedy=f"use one of {', '.join(names)}",
        )
    if failure is not None:  # a plugin without a device
        raise InputError(
            f"must run on this machine ({failure})",
            argument="platform",
            found=f'"{name}"',
            remedy="use another one, such as CPU; openmm-density doctor says what runs",
        )


def without_cuda(problem: str) -> str:
    """Return that a command takes the CPU, and why."""
    return f"on the CPU, because CUDA does not run here ({problem}): openmm-density doctor says what to do"
