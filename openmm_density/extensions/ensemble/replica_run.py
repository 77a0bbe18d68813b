"""The dynamics of an ensemble, from one saved state to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import openmm
from openmm import unit

from ...base.errors import SimulationError
from ...base.units import ANGSTROM_PER_NANOMETER
from ...energies.replica_weights import ROUNDS
from ...fitting.interrupts import Stop
from ...fitting.ligand_watch import LOOK_INTERVAL
from ...fitting.platforms import make_context, repeats_itself
from ...fitting.protocols import Protocol, Stage
from ...fitting.stability import is_blow_up
from ...models.merging import masses_of
from ...models.merging.displacements import closest_approach
from .replica_systems import ReplicaSystem, ReplicaSystems

BLOCK = 1000
"""Steps between saved states, after each of which weights are refined."""
MOST_CAUTION = 4
"""Times that the time step is halved, and the block repeated, where it blows up."""
REACH = 1.0
"""nm: the cut-off of the force field. Replicas that come so near to each other side by side would interact."""
_UPDATE = 50
# Iterations in which new replicas are brought to rest.
_SETTLING = 300
# Of a refinement of weights between blocks, each of which goes on from the last.
_ROUNDS = 20
_HOTTEST = 3000.0
_GAS_CONSTANT = unit.MOLAR_GAS_CONSTANT_R.value_in_unit(unit.kilojoule_per_mole / unit.kelvin)


@dataclass(frozen=True)
class ReplicaState:
    """Where the replicas of a run are."""

    positions: np.ndarray  # `positions`, `velocities` (R, N, 3) in nm and nm/ps, in the frame of the map.
    velocities: np.ndarray
    weights: np.ndarray  # (R,)
    # `stage`, `stage_step`, `block`, `caution`: the number of the stage, steps done of it, blocks begun (each has
    # noise of its own), and how often the step was halved.
    stage: int = 0
    stage_step: int = 0
    block: int = 0
    caution: int = 0
    # A row after each block: ``stage``, ``step``, ``similarity``, ``weights``
    rows: list[dict[str, Any]] = field(default_factory=list)
    # What is known of ligands with a learned potential, replica by replica, see
    # `openmm_density.fitting.ligand_watch.WatchedLigand`; empty before the first block
    ligands: list[dict[str, Any]] = field(default_factory=list)

    @property
    def models(self) -> np.ndarray:
        """Positions in Å, shape (R, N, 3)."""
        return self.positions * ANGSTROM_PER_NANOMETER


class BlownUp(Exception):
    """A block of steps blew up."""


class ReplicaRun:
    """Run stages with replicas: `protocol` tells time step and friction, `strength` is the full k in kJ/mol per fitted atom."""

    def __init__(
        self,
        systems: ReplicaSystems,
        protocol: Protocol,
        stages: Sequence[Stage],
        strength: float,
        seed: int,
        platform: tuple[openmm.Platform, dict[str, str]],
    ) -> None:
        self.systems, self._protocol, self.stages = systems, protocol, tuple(stages)
        self._strength, self._seed, self._platform = strength, seed, platform
        self._kept: tuple[int, ReplicaSystem, openmm.Context] | None = None

    @property
    def steps(self) -> int:
        """Of all stages."""
        return sum(stage.steps for stage in self.stages)

    def begin(self, models: Sequence[np.ndarray], weights: np.ndarray) -> ReplicaState:
        """Return the state in which these models (Å) start, at rest."""
        positions = np.array(models) / ANGSTROM_PER_NANOMETER
        return ReplicaState(positions, np.zeros_like(positions), np.asarray(weights, dtype=np.float64))

    def run(
        self, state: ReplicaState, stop: Stop, progress: Callable[[int, str], None]
    ) -> Iterator[ReplicaState]:
        """Yield the state after each block of steps, until all stages are done, or after a request to stop."""
        while state.stage < len(self.stages) and not stop.requested:
            stage = self.stages[state.stage]
            if state.stage_step >= stage.steps:
                state = replace(state, stage=state.stage + 1, stage_step=0)
                continue
            progress(self._steps_before(state), stage.name)
            try:
                state = self._block(state, stage, stop)
            except BlownUp as error:
                self._kept = None
                if state.caution >= MOST_CAUTION:
                    raise SimulationError(f"the ensemble blows up again and again ({error})") from None
                state = replace(state, caution=state.caution + 1, block=state.block + 1)
                continue
            yield state

    def minimized(self, state: ReplicaState, iterations: int) -> ReplicaState:
        """Return the state at rest, with weights for it."""
        last = replace(self.stages[-1], temperature=(10.0, 10.0))
        system, context = self._context(replace(state, stage=len(self.stages) - 1), last, fresh=True)
        self.systems.restrain_planarity(context, last, None)
        self._set_strength(system, context, last.strength[1])
        if iterations:
            openmm.LocalEnergyMinimizer.minimize(context, maxIterations=iterations)
        positions = self._positions(system, context)
        if not np.isfinite(positions).all():
            return state
        state = replace(state, positions=positions, velocities=np.zeros_like(positions))
        return self._weighted(state, system)

    def _block(self, state: ReplicaState, stage: Stage, stop: Stop) -> ReplicaState:
        watch = self.systems.watch(len(state.positions))
        if not state.ligands:
            state = replace(state, ligands=watch.begun(np.concatenate(list(state.positions))))
        system, context = self._context(state, stage)
        ligands, before = state.ligands, self._steps_before(state)
        integrator = context.getIntegrator()
        length = min(BLOCK, stage.steps - state.stage_step)
        if state.block == 0 or not state.velocities.any():
            self._settle(context, system, stage, state)
        done = 0
        try:
            while done < length:
                part = (state.stage_step + done + 0.5 * _UPDATE) / stage.steps
                self._set_strength(system, context, stage.scale_at(min(part, 1.0)))
                integrator.setTemperature(stage.temperature_at(min(part, 1.0)))
                steps = min(_UPDATE, length - done)
                integrator.step(steps)
                done += steps
                if stop.requested:
                    # The saved state before it is where the run goes on.
                    return state
                if done % LOOK_INTERVAL == 0 or done == length:
                    ligands = watch.looked_at(context, ligands, before + done)
        except openmm.OpenMMException as error:
            if not is_blow_up(error):
                raise
            raise BlownUp(str(error)) from None
        return self._after(replace(state, ligands=ligands), stage, system, context, length)

    def _steps_before(self, state: ReplicaState) -> int:
        return sum(each.steps for each in self.stages[: state.stage]) + state.stage_step

    def _after(
        self, state: ReplicaState, stage: Stage, system: ReplicaSystem, context: openmm.Context, length: int
    ) -> ReplicaState:
        positions = self._positions(system, context)
        found = context.getState(velocities=True).getVelocities(asNumpy=True)
        velocities = np.array(system.merged.split(found.value_in_unit(unit.nanometer / unit.picosecond)))
        self._check(positions, velocities, system)
        state = replace(
            state,
            positions=positions,
            velocities=velocities,
            stage_step=state.stage_step + length,
            block=state.block + 1,
        )
        if stage.resolution is None:
            state = self._weighted(state, system, _ROUNDS)
            system.ensemble.set_weights(context, state.weights)
        row = {
            "stage": stage.name,
            "step": self._steps_before(state),
            "similarity": system.ensemble.similarity(state.models, state.weights),
            "weights": state.weights.tolist(),
        }
        return replace(state, rows=[*state.rows, row])

    def _weighted(self, state: ReplicaState, system: ReplicaSystem, rounds: int = ROUNDS) -> ReplicaState:
        weights = system.ensemble.refine_weights(state.models, state.weights, rounds=rounds)
        return replace(state, weights=weights)

    def _check(self, positions: np.ndarray, velocities: np.ndarray, system: ReplicaSystem) -> None:
        if not (np.isfinite(positions).all() and np.isfinite(velocities).all()):
            raise BlownUp("positions are not numbers")
        masses = self._masses(system)
        twice_kinetic = (masses[None, :, None] * velocities**2).sum(axis=(1, 2))
        kelvin = twice_kinetic / (3 * len(masses) * _GAS_CONSTANT)
        if kelvin.max() > _HOTTEST:
            raise BlownUp(f"a replica was {kelvin.max():.4g} K hot")
        moved = system.merged.displacements[:, None]
        if closest_approach(list(positions + moved)) < REACH:
            raise BlownUp("a replica left its density")

    def _masses(self, system: ReplicaSystem) -> np.ndarray:
        merged = system.merged
        return masses_of(merged.system)[: merged.first[1]]

    def _settle(
        self, context: openmm.Context, system: ReplicaSystem, stage: Stage, state: ReplicaState
    ) -> None:
        """Bring new replicas to rest, and draw velocities."""
        self._set_strength(system, context, stage.scale_at(0.0))
        context.applyConstraints(1e-6)
        openmm.LocalEnergyMinimizer.minimize(context, maxIterations=_SETTLING)
        context.setVelocitiesToTemperature(stage.temperature_at(0.0), self._number(state, 1))
        integrator = context.getIntegrator()
        full = integrator.getStepSize()
        integrator.setTemperature(stage.temperature_at(0.0))
        integrator.setStepSize(0.25 * full)
        try:
            integrator.step(80)
        except openmm.OpenMMException as error:
            raise BlownUp(str(error)) from None
        finally:
            integrator.setStepSize(full)

    def _set_strength(self, system: ReplicaSystem, context: openmm.Context, scale: float) -> None:
        ensemble = system.ensemble
        total = scale * self._strength * ensemble.fit.n_fitted_atoms * ensemble.replicas
        context.setParameter(ensemble.parameter_name, total)

    def _context(
        self, state: ReplicaState, stage: Stage, fresh: bool = False
    ) -> tuple[ReplicaSystem, openmm.Context]:
        """Return System and Context at a state: new ones where the platform repeats itself, for the same bits after a resume."""
        kept = self._kept
        timestep = self._protocol.timestep / 1000 / 2**state.caution
        usable = kept is not None and kept[0] == state.stage and not repeats_itself(*self._platform)
        if usable and not fresh:
            return kept[1], kept[2]
        self._kept = None
        system = self.systems.system(stage.resolution, list(state.models), state.weights)
        integrator = openmm.LangevinMiddleIntegrator(
            stage.temperature_at(0.0), self._protocol.friction, timestep
        )
        integrator.setRandomNumberSeed(self._number(state, 0))
        context = make_context(system.merged.system, integrator, self._platform)
        self.systems.restrain_planarity(context, stage, timestep)
        system.ensemble.set_weights(context, state.weights)
        self.systems.watch(len(state.positions)).apply(context, state.ligands)
        context.setPositions(system.merged.merged_positions(list(state.positions)))
        context.setVelocities(np.concatenate(list(state.velocities)))
        self._kept = state.stage, system, context
        return system, context

    def _positions(self, system: ReplicaSystem, context: openmm.Context) -> np.ndarray:
        found = context.getState(positions=True).getPositions(asNumpy=True).value_in_unit(unit.nanometer)
        return np.array(system.merged.separate_positions(found))

    def _number(self, state: ReplicaState, what_for: int) -> int:
        drawn = np.random.SeedSequence([self._seed, state.block, what_for, 3]).generate_state(1)[0]
        return 1 + int(drawn) % (2**31 - 2)
