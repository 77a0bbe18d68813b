"""Contexts that are used again."""

from __future__ import annotations

import openmm
import pytest

from openmm_density.fitting.engine import KeptContexts
from openmm_density.fitting.platforms import platform_named


class User:
    pass


@pytest.fixture
def system() -> openmm.System:
    system = openmm.System()
    system.addParticle(12.0)
    force = openmm.CustomExternalForce("strength*x")
    force.addGlobalParameter("strength", 3.0)
    force.addParticle(0)
    system.addForce(force)
    return system


def integrator(kelvin: float, step: float) -> openmm.Integrator:
    return openmm.LangevinMiddleIntegrator(kelvin, 1.0, step)


def test_a_context_is_used_again_once_its_user_is_gone_and_is_then_as_new(system: openmm.System) -> None:
    contexts = KeptContexts(platform_named("CPU", 2))
    first, second = User(), User()
    one = contexts.lend(first, system, integrator(300.0, 0.002))
    other = contexts.lend(second, system, integrator(300.0, 0.002))
    assert one is not other
    one.setParameter("strength", 7.0)
    one.getIntegrator().setTemperature(600.0)
    del first
    third = User()
    again = contexts.lend(third, system, integrator(10.0, 0.001))
    assert again is one and again.getParameter("strength") == 3.0
    assert again.getIntegrator().getTemperature()._value == 10.0
    assert again.getIntegrator().getStepSize()._value == 0.001
    # Another System has Contexts of its own.
    del second
    another = openmm.System()
    another.addParticle(1.0)
    assert contexts.lend(User(), another, integrator(10.0, 0.001)) not in (one, other)
