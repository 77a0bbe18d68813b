"""Steps of fits that end where a test wants them to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import openmm
import pytest
from openmm import unit

from openmm_density.fitting.dynamics import Dynamics


def change_after_steps(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[np.ndarray, int], None]
) -> list[float]:
    """Have a function change the positions (nm) that each block of steps leaves; return the sizes of the steps in fs.

    The function is told the number of the block, from 1.
    """
    steps, sizes = Dynamics.step, []

    def changed(self: Dynamics, context: openmm.Context, *given: object) -> int:
        done = steps(self, context, *given)
        sizes.append(context.getIntegrator().getStepSize().value_in_unit(unit.femtosecond))
        positions = np.array(context.getState(positions=True).getPositions(asNumpy=True)._value)
        before = positions.copy()
        change(positions, len(sizes))
        if not np.array_equal(positions, before):
            context.setPositions(positions)
        return done

    monkeypatch.setattr(Dynamics, "step", changed)
    return sizes


def blow_up_in(
    monkeypatch: pytest.MonkeyPatch, times: float = np.inf, atoms: tuple[int, ...] = (5, 6)
) -> list[float]:
    """Make the first blocks of steps leave atoms at NaN, which CUDA does not notice; return the sizes of all steps in fs."""

    def blown(positions: np.ndarray, number: int) -> None:
        if number <= times:
            positions[list(atoms)] = np.nan

    return change_after_steps(monkeypatch, blown)


def shake_after_steps(monkeypatch: pytest.MonkeyPatch, by: float) -> None:
    """Make each block of steps leave all atoms displaced at random, by so many nm along each axis."""

    def shaken(positions: np.ndarray, _: int) -> None:
        positions += np.random.default_rng(0).normal(0.0, by, positions.shape)

    change_after_steps(monkeypatch, shaken)
