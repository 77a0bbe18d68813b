"""The dynamics of a fit: Langevin's, with the density every nth step; they can be stopped, and a blow-up is noticed."""

from __future__ import annotations

import numpy as np
import openmm
from openmm import unit
from openmm.mtsintegrator import MTSLangevinIntegrator

from ..units import value_in
from .checkpoints import RunState
from .fit_systems import DENSITY_GROUP, FORCE_FIELD_GROUP, RESTRAINT_GROUP
from .interrupts import StopRequest
from .protocols import Protocol, Stage

# Between these a request to stop is looked for: a tenth of a second for small models, a second for large ones.
STEPS_AT_ONCE = 10
# The first steps after parts were rebuilt, and what part of the usual step they have.
SMALL_STEPS, SMALL_STEP = 80, 0.25
# Hotter than this, in K and in the temperature that is wanted, a simulation has blown up, whatever it does next.
HOT, TIMES_TOO_HOT = 1500.0, 4.0

_GAS_CONSTANT = unit.MOLAR_GAS_CONSTANT_R.value_in_unit(unit.kilojoule_per_mole / unit.kelvin)


class Unstable(Exception):
    """The simulation blew up; the message says how, to stand inside a sentence."""


class Dynamics:
    """Make and run the integrators of a fit.

    Parameters
    ----------
    protocol : Protocol
        Tells time step, friction, and how often the density acts.
    system : openmm.System
        Tells masses and constraints.
    seed : int
        Of the noise.

    Attributes
    ----------
    masses : np.ndarray, shape (N,)
        In dalton.
    """

    def __init__(self, protocol: Protocol, system: openmm.System, seed: int) -> None:
        self._protocol, self._seed = protocol, seed
        particles = range(system.getNumParticles())
        self.masses = np.array([system.getParticleMass(i).value_in_unit(unit.dalton) for i in particles])
        self._freedom = 3 * int((self.masses > 0).sum()) - system.getNumConstraints()

    def timestep(self, state: RunState) -> float:
        """Give the time step in ps, which is halved each time that the simulation is taken back."""
        return self._protocol.timestep / 1000 / 2**state.caution

    def seed(self, state: RunState) -> int:
        """Give other noise to every segment; to OpenMM, 0 means any."""
        drawn = np.random.SeedSequence([self._seed, state.segment]).generate_state(1)[0]
        return 1 + int(drawn) % (2**31 - 2)

    def integrator(self, state: RunState, stage: Stage) -> openmm.Integrator:
        """Make the integrator of a stage, at the temperature that it begins with."""
        protocol, interval = self._protocol, self._protocol.density_interval
        temperature = stage.temperature[0]
        step = self.timestep(state)
        if interval == 1:
            integrator = openmm.LangevinMiddleIntegrator(temperature, protocol.friction, step)
        else:
            groups = [(DENSITY_GROUP, 1), (FORCE_FIELD_GROUP, interval), (RESTRAINT_GROUP, interval)]
            integrator = MTSLangevinIntegrator(temperature, protocol.friction, interval * step, groups)
        integrator.setRandomNumberSeed(self.seed(state))
        return integrator

    def step(self, context: openmm.Context, length: int, stop: StopRequest | None = None) -> int:
        """Make so many steps, or fewer after a request to stop; give how many."""
        interval = self._protocol.density_interval
        at_once = max(STEPS_AT_ONCE // interval, 1) * interval
        done = 0
        try:
            while done < length and not (stop is not None and stop.requested):
                steps = min(at_once, length - done)
                context.getIntegrator().step(steps // interval)
                done += steps
        except openmm.OpenMMException as error:
            if "NaN" not in str(error):
                raise
            raise Unstable("positions are not numbers any more") from None
        return done

    def warm(self, context: openmm.Context, kelvin: float, seed: int) -> None:
        """Give velocities of a temperature (K), and begin with small steps, as what was built is strained."""
        integrator = context.getIntegrator()
        usual = integrator.getStepSize()
        set_temperature(integrator, kelvin)
        context.setVelocitiesToTemperature(kelvin, seed)
        integrator.setStepSize(SMALL_STEP * usual)
        try:
            self.step(context, SMALL_STEPS)
        finally:
            integrator.setStepSize(usual)

    def temperature(self, context: openmm.Context) -> float:
        """Give the temperature in K of a Context's velocities."""
        found = context.getState(velocities=True).getVelocities(asNumpy=True)
        velocities = np.array(value_in(found, unit.nanometer / unit.picosecond), dtype=np.float64)
        twice_kinetic = float((self.masses[:, None] * velocities**2).sum())
        return twice_kinetic / (max(self._freedom, 1) * _GAS_CONSTANT)

    def check_stable(self, context: openmm.Context, step: int, stage: Stage) -> None:
        """Raise `Unstable` where a Context is far too hot."""
        kelvin = self.temperature(context)
        if not kelvin < max(HOT, TIMES_TOO_HOT * max(stage.temperature)):
            raise Unstable(f"at step {step} it was {kelvin:.4g} K hot")


def set_temperature(integrator: openmm.Integrator, kelvin: float) -> None:
    """Set the temperature in K that an integrator of `Dynamics` keeps."""
    if isinstance(integrator, openmm.CustomIntegrator):
        integrator.setGlobalVariableByName("kT", _GAS_CONSTANT * kelvin)
    else:
        integrator.setTemperature(kelvin)
