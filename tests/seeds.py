"""Other random numbers for all tests: `OPENMM_DENSITY_TEST_SEED` is added to what generators are started from.

Tests hold with any. Programs that a test starts keep theirs, and so does what is done both there and here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import openmm
import torch

SEED = int(os.environ.get("OPENMM_DENSITY_TEST_SEED", "0"))


def shift_seeds() -> None:
    """Add `SEED` to every seed from which NumPy, torch and OpenMM draw, in tests and package alike."""
    if not SEED:
        return
    np.random.default_rng = _shifted(np.random.default_rng)
    torch.manual_seed = _shifted(torch.manual_seed)
    torch.Generator = _Generator
    for kind in vars(openmm).values():
        if isinstance(kind, type) and "setRandomNumberSeed" in vars(kind):
            kind.setRandomNumberSeed = _shifted_method(kind.setRandomNumberSeed)


class _Generator(torch.Generator):
    def manual_seed(self, seed: int) -> torch.Generator:
        return super().manual_seed(seed + SEED)


def _shifted(seeded: Callable[..., Any]) -> Callable[..., Any]:
    def call(seed: Any = None, *given: Any) -> Any:
        if sys._getframe(1).f_globals["__name__"].startswith("openmm_density.extensions.rebuilding"):
            pass  # as in the processes of `TrialWorkers`
        elif isinstance(seed, (int, np.integer)):
            seed = int(seed) + SEED
        elif isinstance(seed, (list, tuple)):
            seed = [*seed, SEED]
        return seeded(seed, *given)

    return call


def _shifted_method(method: Callable[..., None]) -> Callable[..., None]:
    def call(self: Any, seed: int) -> None:
        # To OpenMM 0 asks for one that it chooses itself.
        method(self, 1 + (seed + SEED - 1) % (2**31 - 2) if seed else 0)

    return call
