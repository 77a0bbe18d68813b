"""A Context in which a stage of a fit runs: what the stage asks for acts here."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np
from openmm import unit

from ..base.units import ANGSTROM_PER_NANOMETER, positions_in_angstrom
from .dynamics import set_temperature
from .engine import Engine
from .fit_systems import LARGE
from .interrupts import StopRequest
from .minimization import Rest
from .protocols import UPDATE_INTERVAL, Stage
from .run_state import RunState
from .stability import hottest_bearable

WARM_UP_MINIMIZATION = 100
"""Iterations for a model that blew up, before it is warmed again."""


class StageContext:
    """A Context at the state of a fit, with what a stage of its protocol asks for.

    Whatever a field of `Stage` does to a Context is done or called from here: what belongs into the System (``resolution``,
    ``pressure``) and which restraints act by `FitSystems`, when it is made; strength (0 at first) and temperature by `apply`;
    what follows the similarity (``adaptive``, ``until_converged``) by `follow`.

    `state` of which positions, velocities and box are taken. Attributes: `density` at the resolution of the stage, with
    Gaussians as wide as the map shows the model there, or a map sharpened as much.
    """

    def __init__(self, engine: Engine, state: RunState, stage: Stage) -> None:
        self._engine, self.stage = engine, stage
        systems, dynamics = engine.systems, engine.dynamics
        positions = state.positions * ANGSTROM_PER_NANOMETER
        self.density, system = systems.of_stage(stage, positions, state.ended)
        self.context = engine.contexts.lend(self, system, dynamics.integrator(state, stage))
        self.restore(state)
        self.context.setParameter(self.density.parameter_name, 0.0)
        systems.release_restraints(self.context, stage)
        systems.set_stiff_restraints(self.context, stage, dynamics.timestep(state, stage))
        engine.ligands.apply(self.context, state.ligands)

    @property
    def strength(self) -> float:
        """The total k in kJ/mol now."""
        return self.context.getParameter(self.density.parameter_name)

    def set_scale(self, state: RunState, scale: float) -> None:
        """Set k to a part of the full strength, in a final stage of the final one; roll-backs of the fit halve it."""
        final = self.stage.final and state.final_strength is not None
        full = state.final_strength if final else state.strength
        per_atom = scale * (full or 0.0) / 2**state.strength_halvings
        self.context.setParameter(self.density.parameter_name, per_atom * self.density.n_fitted_atoms)

    def apply(self, state: RunState) -> None:
        """Set strength and temperature for the block of `UPDATE_INTERVAL` steps that a state is in."""
        block = state.stage_step // UPDATE_INTERVAL
        part = min((block + 0.5) * UPDATE_INTERVAL / self.stage.steps, 1.0)
        factor = state.adaptive.factor if self.stage.adaptive else 1.0
        self.set_scale(state, self.stage.scale_at(part) * factor)
        set_temperature(self.context.getIntegrator(), self.stage.temperature_at(part))

    def follow(self, state: RunState) -> bool:
        """Update, at the end of a block, what follows similarity and model; tell whether the stage has converged."""
        stage = self.stage
        if not (stage.adaptive or stage.until_converged) or state.stage_step % UPDATE_INTERVAL:
            return False
        positions = self.positions()
        # Evaluated, and not read from the energy, which has lost its last bits to k: a strength that follows it would differ.
        similarity = self.density.similarity(positions)
        if stage.adaptive:
            state.adaptive.update(similarity, UPDATE_INTERVAL * self._engine.dynamics.full_timestep)
        if not stage.until_converged:
            return False
        return state.plateau.update(similarity, positions[self._engine.trace], UPDATE_INTERVAL)

    def look_at_ligands(self, state: RunState, holds: bool = True) -> None:
        """Note in a state whether the ligands' potentials know them here; hold those that are not known, if so asked."""
        state.ligands = self._engine.ligands.looked_at(self.context, state.ligands, state.step, holds)

    def restrain_planarity_fully(self) -> None:
        """Restrain planarity in full, if the stage does, and not only by what is stable at its time step: for minimisations."""
        self._engine.systems.set_stiff_restraints(self.context, self.stage)

    def come_to_rest(self, halts: int, stop: StopRequest | None = None) -> None:
        """Quench the Context, see `Dynamics.quench`; what blows up is minimised."""
        minimizer, dynamics = self._engine.minimizer, self._engine.dynamics
        ways = (
            partial(dynamics.quench, self.context, halts, stop),
            partial(minimizer.settle, self.context, WARM_UP_MINIMIZATION, stop),
        )
        self._engine.safeguard.run(self.context, ways, hottest_bearable(0.0))

    @cached_property
    def _rest(self) -> Rest:
        """Where the model comes to rest in ideal geometry."""
        return self._engine.minimizer.rest_of(self.context, self.density, self.stage.final)

    def rest_in_ideal_geometry(
        self, iterations: int, stop: StopRequest, stiffer: Callable[[np.ndarray], tuple[float, float]]
    ) -> None:
        """Minimise in ideal geometry, see `Minimizer.bring_to_rest`: always in the same Context, but of a large model."""
        if not iterations:
            return
        if self.context.getSystem().getNumParticles() > LARGE:
            self.__dict__.pop("_rest", None)
        self._engine.minimizer.bring_to_rest(self.context, self._rest, iterations, stop, stiffer)

    def warm(self, state: RunState, kelvin: float, stop: StopRequest | None = None, **how: Any) -> None:
        """Draw velocities and begin with small steps, see `Dynamics.warm`; what blows up is first brought to rest."""
        minimizer, dynamics = self._engine.minimizer, self._engine.dynamics
        relax = [
            partial(way, self.context, WARM_UP_MINIMIZATION, stop)
            for way in (minimizer.settle, minimizer.relax)
        ]
        dynamics.warm(self.context, kelvin, dynamics.seed(state), relax, stop=stop, **how)

    def settle(self, state: RunState, stop: StopRequest, halts: int | None = None) -> None:
        """Bring the Context to rest, in so many halts, or with more care after a blow-up; begin again with small steps."""
        part = min((state.stage_step + 0.5) / max(self.stage.steps, 1), 1.0)
        self.set_scale(state, self.stage.scale_at(part))
        if halts is None:
            self._engine.minimizer.settle(self.context, WARM_UP_MINIMIZATION, stop)
        else:
            self.come_to_rest(halts, stop)
        self.warm(state, self.stage.temperature_at(part), stop)

    def outcome(self, state: RunState, converged: bool) -> dict[str, Any]:
        """Return what became of the stage, as in `FitResult.stages`."""
        resolution = self.stage.resolution or self._engine.systems.density.resolution
        return {
            "name": self.stage.name,
            "steps": state.stage_step,
            "resolution": resolution,
            "blur": self.density.resolution / resolution,
            "sharpened": self._engine.systems.sharpening(self.stage, state.ended),
            "strength": self.strength / self.density.n_fitted_atoms,
            "converged": converged,
        }

    def positions(self) -> np.ndarray:
        """Return positions (N, 3) in Å."""
        return positions_in_angstrom(self.context.getState(positions=True).getPositions(asNumpy=True))

    def update(self, state: RunState) -> None:
        """Put positions, velocities and box into a state."""
        found = self.context.getState(positions=True, velocities=True)
        state.positions = array_in(found.getPositions(asNumpy=True), unit.nanometer)
        state.velocities = array_in(found.getVelocities(asNumpy=True), unit.nanometer / unit.picosecond)
        if self.context.getSystem().usesPeriodicBoundaryConditions():
            state.box = array_in(found.getPeriodicBoxVectors(asNumpy=True), unit.nanometer)

    def restore(self, state: RunState) -> None:
        """Put a state's positions, velocities and box into the Context."""
        if state.box is not None:
            self.context.setPeriodicBoxVectors(*state.box)
        self.context.setPositions(state.positions)
        self.context.setVelocities(state.velocities)


def array_in(quantity: unit.Quantity, in_unit: unit.Unit) -> np.ndarray:
    """Return a copy of the values of a Quantity in a unit, in float64."""
    return np.array(quantity.value_in_unit(in_unit), dtype=np.float64)
