"""The dynamics of a fit: Langevin's, with the density every nth step; they can be stopped, and a blow-up is noticed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import openmm
from openmm import unit
from openmm.mtsintegrator import MTSLangevinIntegrator

from .final_geometry import STIFF_TIMESTEP
from .fit_systems import DENSITY_GROUP, FORCE_FIELD_GROUP, RESTRAINT_GROUP
from .interrupts import StopRequest
from .protocols import Protocol, Stage
from .run_state import RunState
from .stability import Motion, Safeguard, Unstable, hottest_bearable, is_blow_up

# Between these a request to stop is looked for: a tenth of a second for small models, a second for large ones.
STEPS_AT_ONCE = 10
# The first steps after parts were rebuilt, what part of the full time step they have, and those of each further attempt of them.
SMALL_STEPS, SMALL_STEP = 80, 0.25
# Steps between two halts of a quench: half a period of the slower angles.
_STEPS_TO_HALT = 20

_GAS_CONSTANT = unit.MOLAR_GAS_CONSTANT_R.value_in_unit(unit.kilojoule_per_mole / unit.kelvin)


class Dynamics:
    """Make and run the integrators of a fit, by its protocol, the constraints of its System, and the noise's seed."""

    def __init__(self, protocol: Protocol, system: openmm.System, seed: int, safeguard: Safeguard) -> None:
        self._protocol, self._seed, self._safeguard = protocol, seed, safeguard
        self._freedom = 3 * int((safeguard.masses > 0).sum()) - system.getNumConstraints()

    @property
    def full_timestep(self) -> float:
        """The time step of the protocol in ps."""
        return self._protocol.timestep / 1000

    def timestep(self, state: RunState, stage: Stage) -> float:
        """Return the time step in ps: shorter where the geometry is stiff, and halved each time that the fit is rolled back."""
        longest = self.full_timestep * (STIFF_TIMESTEP if stage.final else 1.0)
        return longest / 2**state.caution

    def seed(self, state: RunState) -> int:
        """Return other noise to every segment; to OpenMM, 0 means any."""
        drawn = np.random.SeedSequence([self._seed, state.segment]).generate_state(1)[0]
        return 1 + int(drawn) % (2**31 - 2)

    def integrator(self, state: RunState, stage: Stage) -> openmm.Integrator:
        """Build the integrator of a stage, at the temperature that it begins with."""
        protocol, interval = self._protocol, self._protocol.density_interval
        temperature = stage.temperature[0]
        step = self.timestep(state, stage)
        if interval == 1:
            integrator = openmm.LangevinMiddleIntegrator(temperature, protocol.friction, step)
        else:
            groups = [(DENSITY_GROUP, 1), (FORCE_FIELD_GROUP, interval), (RESTRAINT_GROUP, interval)]
            integrator = MTSLangevinIntegrator(temperature, protocol.friction, interval * step, groups)
        integrator.setRandomNumberSeed(self.seed(state))
        return integrator

    def step(self, context: openmm.Context, length: int, stop: StopRequest | None = None) -> int:
        """Run so many steps, or fewer after a request to stop; return how many."""
        interval = self._protocol.density_interval
        at_once = max(STEPS_AT_ONCE // interval, 1) * interval
        done = 0
        try:
            while done < length and not (stop is not None and stop.requested):
                steps = min(at_once, length - done)
                context.getIntegrator().step(steps // interval)
                done += steps
        except openmm.OpenMMException as error:
            if not is_blow_up(error):
                raise
            raise self._safeguard.explained(context) from None
        return done

    def quench(self, context: openmm.Context, halts: int, stop: StopRequest | None = None) -> None:
        """Bring warm atoms to rest by dynamics at 0 K that is halted so often.

        Ten halts are 200 evaluations of the forces, after which the energy is lower than after the 670 of 200 iterations of
        OpenMM's minimiser, which makes springs of constraints and begins anew with stiffer ones until they hold.
        """
        set_temperature(context.getIntegrator(), 0.0)
        motionless = np.zeros((context.getSystem().getNumParticles(), 3))
        for _ in range(halts):
            context.setVelocities(motionless)
            self.step(context, _STEPS_TO_HALT, stop)

    def warm(
        self,
        context: openmm.Context,
        kelvin: float,
        seed: int,
        relax: Sequence[Callable[[], object]],
        steps: int = SMALL_STEPS,
        part: float = SMALL_STEP,
        stop: StopRequest | None = None,
    ) -> None:
        """Draw velocities of a temperature (K), and begin with small steps; where these blow up, smaller ones after relaxing."""
        integrator = context.getIntegrator()
        full_step = integrator.getStepSize()

        def attempt(number: int) -> None:
            if number:
                relax[number - 1]()
            set_temperature(integrator, kelvin)
            context.setVelocitiesToTemperature(kelvin, seed)
            integrator.setStepSize(part * SMALL_STEP**number * full_step)
            try:
                self.step(context, steps, stop)
            finally:
                integrator.setStepSize(full_step)

        attempts = [partial(attempt, number) for number in range(1 + len(relax))]
        self._safeguard.run(context, attempts, hottest_bearable(kelvin))

    def temperature(self, velocities: np.ndarray) -> float:
        """Return the temperature in K of velocities in nm/ps."""
        twice_kinetic = float(self._safeguard.masses @ np.einsum("ij,ij->i", velocities, velocities))
        return twice_kinetic / (max(self._freedom, 1) * _GAS_CONSTANT)

    def checked(self, context: openmm.Context, step: int, stage: Stage) -> Motion:
        """Return positions and velocities of a Context after some steps."""
        hottest = hottest_bearable(max(stage.temperature))
        motion = self._safeguard.check(context, hottest)
        kelvin = self.temperature(motion.velocities)
        if not kelvin < hottest:
            raise Unstable(f"at step {step} it was {kelvin:.4g} K hot")
        return motion


def set_temperature(integrator: openmm.Integrator, kelvin: float) -> None:
    """Set the temperature in K that an integrator of `Dynamics` keeps."""
    if isinstance(integrator, openmm.CustomIntegrator):
        integrator.setGlobalVariableByName("kT", _GAS_CONSTANT * kelvin)
    else:
        integrator.setTemperature(kelvin)


def copy_course(source: openmm.Integrator, target: openmm.Integrator) -> None:
    """Set the time step and temperature of an integrator of `Dynamics` to those of another of the same kind."""
    target.setStepSize(source.getStepSize())
    if isinstance(source, openmm.CustomIntegrator):
        target.setGlobalVariableByName("kT", source.getGlobalVariableByName("kT"))
    else:
        target.setTemperature(source.getTemperature())
