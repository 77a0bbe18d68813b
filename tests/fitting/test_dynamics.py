"""Multiple time steps, temperatures and blow-ups of the dynamics of a fit."""

import numpy as np
import openmm
import pytest
from openmm import app, unit
from openmm.mtsintegrator import MTSIntegrator

from openmm_density import DensityFit
from openmm_density.fitting import FlexibleFit
from openmm_density.fitting.dynamics import Dynamics, set_temperature
from openmm_density.fitting.fit_systems import DENSITY_GROUP
from openmm_density.fitting.interrupts import StopRequest
from openmm_density.fitting.protocols import Protocol, Stage
from openmm_density.fitting.run_state import RunState
from openmm_density.fitting.stability import Safeguard, Unstable
from openmm_density.fitting.stage_context import StageContext

from ..fragments import RESOLUTION


@pytest.fixture
def argon():
    """A few free atoms, two of them joined, and one that is nailed down."""
    system = openmm.System()
    for mass in (39.9, 39.9, 39.9, 0.0):
        system.addParticle(mass)
    system.addConstraint(0, 1, 1.0)
    return system


POSITIONS = np.array([[0.0, 0, 0], [1, 0, 0], [0, 0, 3], [0, 3, 3]])


def topology_of(n_atoms):
    topology = app.Topology()
    residue = topology.addResidue("ARG", topology.addChain("A"), "7")
    for number in range(n_atoms):
        topology.addAtom(f"AR{number}", app.element.argon, residue)
    return topology


def dynamics_of(system, protocol):
    return Dynamics(protocol, system, 3, Safeguard(topology_of(4), system))


def temperature_of(dynamics, context):
    velocities = context.getState(velocities=True).getVelocities(asNumpy=True)
    return dynamics.temperature(velocities.value_in_unit(unit.nanometer / unit.picosecond))


def context_of(system, dynamics, platform="Reference", **stage):
    state = RunState(positions=POSITIONS, velocities=np.zeros((4, 3)), relaxed=POSITIONS)
    integrator = dynamics.integrator(state, Stage("hold", 40, **stage))
    context = openmm.Context(system, integrator, openmm.Platform.getPlatformByName(platform))
    context.setPositions(POSITIONS)
    return context


@pytest.mark.parametrize("interval", [1, 4])
def test_the_temperature_is_that_of_what_moves(argon, interval):
    dynamics = dynamics_of(argon, Protocol((Stage("hold", 40),), density_interval=interval))
    context = context_of(argon, dynamics, temperature=250.0)
    set_temperature(context.getIntegrator(), 400.0)
    if interval == 1:
        assert context.getIntegrator().getTemperature().value_in_unit(unit.kelvin) == 400.0
    context.setVelocitiesToTemperature(300.0, 1)
    twice = 2 * context.getState(energy=True).getKineticEnergy()
    expected = twice / (8 * unit.MOLAR_GAS_CONSTANT_R)  # three atoms, and a bond that does not stretch
    assert temperature_of(dynamics, context) == pytest.approx(expected.value_in_unit(unit.kelvin), rel=1e-6)


def test_what_is_far_too_hot_or_no_number_is_unstable(argon):
    stage = Stage("hold", 40)
    dynamics = dynamics_of(argon, Protocol((stage,)))
    context = context_of(argon, dynamics)
    context.setVelocities(np.full((4, 3), 0.1))
    dynamics.checked(context, 40, stage)
    context.setVelocities(np.full((4, 3), 1.0))
    with pytest.raises(Unstable, match=r"at step 40 it was \d+ K hot"):
        dynamics.checked(context, 40, stage)
    force = openmm.CustomExternalForce("sqrt(-1 - x^2)")
    force.addParticle(1)
    argon.addForce(force)
    for platform in ("CPU", "Reference"):  # of which one notices, and the other does not
        context = context_of(argon, dynamics, platform)
        with pytest.raises(Unstable, match="A ARG 7 AR0, A ARG 7 AR1 are not numbers"):
            dynamics.step(context, 40)
            dynamics.checked(context, 40, stage)


def test_steps_end_after_a_request_to_stop(argon):
    class Stop:
        requested = True

    dynamics = dynamics_of(argon, Protocol((Stage("hold", 40),)))
    context = context_of(argon, dynamics)
    assert dynamics.step(context, 35, StopRequest()) == 35 == context.getStepCount()
    assert dynamics.step(context, 35, Stop) == 0


def test_the_first_steps_of_what_was_built_are_small(argon):
    dynamics = dynamics_of(argon, Protocol((Stage("hold", 40),), timestep=2.0))
    context = context_of(argon, dynamics)
    dynamics.warm(context, 300.0, 1, ())
    assert context.getIntegrator().getStepSize().value_in_unit(unit.femtosecond) == pytest.approx(2.0)
    elapsed = context.getState().getTime().value_in_unit(unit.femtosecond)
    assert elapsed == pytest.approx(80 * 0.5) and temperature_of(dynamics, context) > 0


def test_energy_is_conserved_with_the_density_every_fourth_step(fitted):
    prepared, density_map = fitted[0].prepared, fitted[0].density_map
    system = prepared.system(nonbonded_method=app.NoCutoff, constraints=None, rigidWater=False)
    fit = DensityFit(
        density_map, prepared.topology, RESOLUTION, positions=prepared.positions, strength=30.0, force_group=1
    )
    system.addForce(fit.create_force(parameter_derivative=False))
    integrator = MTSIntegrator(0.004, [(1, 1), (0, 4)])
    platform = openmm.Platform.getPlatformByName("CPU")
    context = openmm.Context(system, integrator, platform, {"Threads": "1"})
    context.setPositions(prepared.positions / 10)
    openmm.LocalEnergyMinimizer.minimize(context, maxIterations=100)
    context.setVelocitiesToTemperature(300, 1)
    integrator.step(100)
    totals, density = [], []
    for _ in range(50):
        integrator.step(10)
        state = context.getState(energy=True)
        total = state.getPotentialEnergy() + state.getKineticEnergy()
        totals.append(total.value_in_unit(unit.kilojoule_per_mole))
        density.append(context.getState(energy=True, groups={1}).getPotentialEnergy()._value)
    drift = np.polyfit(np.arange(50) * 0.04, totals, 1)[0] * 10  # per 10 ps
    # 72 to 165 kJ/mol, and a drift of up to 0.006, in 24 runs; a drift of 0.02 is 4 kJ/mol in 2 ps.
    assert np.ptp(density) > 30.0
    assert abs(drift) / (8.314e-3 * 300) / system.getNumParticles() < 0.02


def test_the_integrator_of_a_fit_acts_in_impulses(fitted):
    """One outer step without friction: a kick of n dt/2 by the density, n steps without it, and another kick."""
    interval = 4
    protocol = Protocol(
        (Stage("hold", 40, restraints=()),),
        strength=50.0,
        friction=1e-9,
        density_interval=interval,
        match_blur=False,
    )
    model, density_map = fitted[0].prepared.model, fitted[0].density_map
    options = {"platform": "Reference", "threads": 1, "report_interval": 40, "planarity": None}
    fit = FlexibleFit(model, density_map, RESOLUTION, protocol, **options)
    state = fit._run.initial_state(StopRequest())
    state.strength = 50.0
    running = StageContext(fit._run.engine, state, protocol.stages[0])
    running.set_scale(state, 1.0)
    context = running.context

    def kicked(context, velocities):
        forces = context.getState(forces=True, groups={DENSITY_GROUP}).getForces(asNumpy=True)
        acceleration = (
            np.array(forces.value_in_unit(unit.kilojoule_per_mole / unit.nanometer))
            / fit._run.engine.safeguard.masses[:, None]
        )
        return velocities + 0.5 * interval * fit.timestep * acceleration

    inner = openmm.LangevinMiddleIntegrator(300, 1e-9, fit.timestep)
    inner.setIntegrationForceGroups({0, 1})
    by_hand = openmm.Context(fit.system, inner, openmm.Platform.getPlatformByName("Reference"))
    by_hand.setPositions(state.positions)
    by_hand.setVelocities(state.velocities)
    by_hand.setParameter("density_strength", context.getParameter("density_strength"))
    by_hand.setVelocities(kicked(by_hand, state.velocities))
    inner.step(interval)
    context.getIntegrator().step(1)
    found, expected = (
        each.getState(positions=True).getPositions(asNumpy=True)._value for each in (context, by_hand)
    )
    moved = np.abs(expected - state.positions).max()
    # Constraints are met at other moments, and kicks along constrained bonds then differ.
    assert np.abs(found - expected).max() < 0.02 * moved
