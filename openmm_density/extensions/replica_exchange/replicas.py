"""How replicas are simulated: each in a Context of its own, on threads, or all side by side in one Context, for a GPU.

A single small molecule leaves most of a GPU idle: a step takes as long as its kernels take to launch. Side by side, out of each
other's reach, many copies cost little more than one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import openmm
import torch
from openmm import unit

from openmm_density.kernels import compilation

from ...base.errors import InputError, SimulationError, as_argument
from ...energies.copies import copy_parameter_names, density_force, density_forces_of_copies
from ...energies.density_fit import DensityFit
from ...energies.forces import backend_problem
from ...fitting.platforms import make_context
from ...models.merging import MergedSystem, displacements_apart, merge_systems, unmergeable
from ...models.merging.displacements import closest_approach
from ...restraints import PlanarityRestraint
from .ladder import Ladder

DENSITY, PLANARITY = "DensityFit", "PlanarityRestraint"
"""Names of the forces of ours whose energies OpenMM does not see."""
SetUp = Callable[[openmm.Context], None]
"""What a model asks of the Context that it is in, such as springs that hold a part of it."""
FREE_SPACE = 3.0
"""nm between copies in one Context beyond the cut-off, into which they may move."""

_GAS_CONSTANT = unit.MOLAR_GAS_CONSTANT_R.value_in_unit(unit.kilojoule_per_mole / unit.kelvin)
_CONSTRAINT_TOLERANCE = 1e-6


class LeftDensity(SimulationError):
    """A replica went so far from its density that, side by side in one Context, it came within reach of another."""


@dataclass(frozen=True)
class ReplicaSetup:
    """What all replicas have in common."""

    system: openmm.System  # With its density force
    fits: tuple[DensityFit, ...]  # Of each rung
    ladder: Ladder
    planarity: PlanarityRestraint | None  # Where the System has one
    parameters: Mapping[str, float]  # What Contexts are set to, such as force constants of restraints
    friction: float  # `friction`, `timestep` of Langevin's dynamics, in 1/ps and ps.
    timestep: float
    platform: openmm.Platform
    properties: Mapping[str, str]  # Of the platform
    threads: int  # That simulate separate replicas

    @property
    def strengths(self) -> np.ndarray:
        """The total k of each rung in kJ/mol."""
        return self.ladder.strengths * [fit.n_fitted_atoms for fit in self.fits]

    def system_of(self, rung: int) -> openmm.System:
        """Return the System of a rung: as it was given, or with the density at the rung's resolution."""
        if self.ladder.has_one_resolution:
            return self.system
        system = self.without(DENSITY)
        fit = self.fits[rung]
        system.addForce(density_force(fit.create_module(), fit, fit.parameter_name, **self.backend))
        return system

    def context(self, system: openmm.System, integrator: openmm.Integrator) -> openmm.Context:
        """Build a Context on the platform, with what Contexts are set to."""
        context = make_context(system, integrator, (self.platform, dict(self.properties)))
        for name, value in self.parameters.items():
            context.setParameter(name, value)
        return context

    def without(self, *names: str) -> openmm.System:
        """Return a copy of the System without the forces of these names."""
        system = openmm.XmlSerializer.clone(self.system)
        for i in reversed(range(system.getNumForces())):
            if system.getForce(i).getName() in names:
                system.removeForce(i)
        return system

    def loss(self, rung: int, positions: np.ndarray) -> float:
        """Return the distance of the similarity from its largest, of positions in nm in the density of a rung."""
        fit = self.fits[rung]
        similarity = fit.similarity_of_fitted(torch.from_numpy(positions[fit.atoms]))
        return fit.measure.max_similarity - similarity

    @property
    def backend(self) -> dict[str, str]:
        """How forces of ours are made on the platform."""
        if self.platform.getName() == "CUDA":
            return {"backend": "CudaGraphForce"}
        native = backend_problem("NativeForce") is None and compilation.kernels_serve(
            ("density", "planarity")
        )
        return {"backend": "NativeForce"} if native else {}


class Replicas(ABC):
    """A ladder's replicas, in the slots of their rungs, or any if only strengths differ; (R, N, 3), nm and nm/ps; seed not 0."""

    def __init__(
        self, simulated: ReplicaSetup, positions: np.ndarray, velocities: np.ndarray, seed: int
    ) -> None:
        self.simulated = simulated
        # Strengths change places more cheaply than models.
        self._swaps_strengths = simulated.ladder.has_one_temperature and simulated.ladder.has_one_resolution
        self._slots = np.arange(len(simulated.ladder))
        self._set_ups: list[SetUp] = []
        self._make(seed, positions)
        self._place(positions, velocities)

    @property
    def set_ups(self) -> list[SetUp]:
        """What sets up the Context of the model on each rung; empty where nothing does."""
        return list(self._set_ups)

    def set_up(self, set_ups: Sequence[SetUp]) -> None:
        """Set up the Context of the model on each rung: each goes with its model, whatever exchanges."""
        self._set_ups = list(set_ups)
        self._set_up_contexts()

    @abstractmethod
    def step(self, steps: int) -> None:
        """Run so many steps of each replica."""

    def minimized(self, iterations: int) -> np.ndarray:
        """Return the positions on each rung in nm, minimised as on the last rung, shape (R, N, 3); replicas stay as they are."""
        positions, velocities = self.positions(), self.velocities()
        self._set_strengths_of_slots(np.full(len(positions), self.simulated.strengths[-1]))
        self._minimize(iterations)
        found = self.positions()
        self._place(positions, velocities)
        return found

    def settle(self, iterations: int, velocities: np.ndarray, steps: int, part: float) -> None:
        """Minimise each replica on its rung, and begin again with small steps from velocities (R, N, 3) in nm/ps."""
        self._minimize(iterations)
        self._place(self.positions(), velocities)
        full = self.simulated.timestep
        self._set_timestep(part * full)
        try:
            self.step(steps)
        finally:
            self._set_timestep(full)

    def positions(self) -> np.ndarray:
        """Return the positions on each rung in nm, shape (R, N, 3)."""
        found = self._positions()[self._slots]
        _check_finite(found)
        return found

    def losses(self) -> np.ndarray:
        """Return the distance of the similarity from its largest, of the model on each rung in its own density, shape (R,)."""
        return np.array([self.simulated.loss(rung, each) for rung, each in enumerate(self.positions())])

    def velocities(self) -> np.ndarray:
        """Return the velocities on each rung in nm/ps, shape (R, N, 3)."""
        return self._velocities()[self._slots]

    def exchange(self, order: np.ndarray) -> None:
        """Let each rung take the model of another, see `exchange_neighbours`."""
        if np.array_equal(order, np.arange(len(order))):
            return
        self._set_ups = [self._set_ups[k] for k in order] if self._set_ups else []
        if self._swaps_strengths:
            self._slots = self._slots[order]
            self._set_strengths()
            return
        kelvin = self.simulated.ladder.temperatures
        velocities = self._velocities()[order] * np.sqrt(kelvin / kelvin[order])[:, None, None]
        self._put(self._positions()[order], velocities)
        self._set_up_contexts()

    def _place(self, positions: np.ndarray, velocities: np.ndarray) -> None:
        """Put the model of each rung into the slot of its number, with what sets up its Context."""
        self._slots = np.arange(len(positions))
        self._put(positions, velocities)
        self._set_strengths()
        self._set_up_contexts()

    def _set_strengths(self) -> None:
        by_slot = np.empty(len(self._slots))
        by_slot[self._slots] = self.simulated.strengths
        self._set_strengths_of_slots(by_slot)

    @abstractmethod
    def _make(self, seed: int, positions: np.ndarray) -> None: ...

    @abstractmethod
    def _put(self, positions: np.ndarray, velocities: np.ndarray) -> None: ...

    @abstractmethod
    def _set_up_contexts(self) -> None: ...

    @abstractmethod
    def _minimize(self, iterations: int) -> None: ...

    @abstractmethod
    def _set_timestep(self, timestep: float) -> None: ...

    @abstractmethod
    def _positions(self) -> np.ndarray: ...

    @abstractmethod
    def _velocities(self) -> np.ndarray: ...

    @abstractmethod
    def _set_strengths_of_slots(self, strengths: np.ndarray) -> None: ...


class SeparateReplicas(Replicas):
    """Each replica in a Context of its own; threads share them out, and results do not depend on how many there are."""

    def step(self, steps: int) -> None:
        """See `Replicas.step`."""
        self._each(lambda context: context.getIntegrator().step(steps))

    def _make(self, seed: int, positions: np.ndarray) -> None:
        simulated = self.simulated
        # Each thread has one core: OpenMM's threads are set by its platform, those of torch for each thread.
        self._pool = None
        if simulated.threads > 1:
            self._pool = ThreadPoolExecutor(
                simulated.threads, initializer=torch.set_num_threads, initargs=(1,)
            )
        self._contexts = []
        for rung, kelvin in enumerate(simulated.ladder.temperatures):
            integrator = openmm.LangevinMiddleIntegrator(kelvin, simulated.friction, simulated.timestep)
            integrator.setRandomNumberSeed(1 + (seed + 7919 * rung) % (2**31 - 2))
            self._contexts.append(simulated.context(simulated.system_of(rung), integrator))

    def _put(self, positions: np.ndarray, velocities: np.ndarray) -> None:
        for context, placed, moving in zip(self._contexts, positions, velocities):
            context.setPositions(placed)
            context.applyConstraints(_CONSTRAINT_TOLERANCE)
            context.setVelocities(moving)

    def _positions(self) -> np.ndarray:
        return np.array([_state(context, positions=True) for context in self._contexts])

    def _velocities(self) -> np.ndarray:
        return np.array([_state(context, positions=False) for context in self._contexts])

    def _set_strengths_of_slots(self, strengths: np.ndarray) -> None:
        for context, fit, k in zip(self._contexts, self.simulated.fits, strengths):
            context.setParameter(fit.parameter_name, k)

    def _set_up_contexts(self) -> None:
        for slot, set_up in zip(self._slots, self._set_ups):
            set_up(self._contexts[slot])

    def _set_timestep(self, timestep: float) -> None:
        for context in self._contexts:
            context.getIntegrator().setStepSize(timestep)

    def _minimize(self, iterations: int) -> None:
        self._each(lambda context: openmm.LocalEnergyMinimizer.minimize(context, maxIterations=iterations))

    def _each(self, act: Callable[[openmm.Context], object]) -> None:
        list((map if self._pool is None else self._pool.map)(act, self._contexts))


class MergedReplicas(Replicas):
    """All replicas in one Context, side by side."""

    def step(self, steps: int) -> None:
        """See `Replicas.step`."""
        self._context.getIntegrator().step(steps)

    def _make(self, seed: int, positions: np.ndarray) -> None:
        simulated, rungs = self.simulated, len(self.simulated.ladder)
        self._cutoff = _longest_cutoff(simulated.system)
        apart = displacements_apart(list(positions), self._cutoff + FREE_SPACE)
        merged = merge_systems([simulated.system] * rungs, apart, without={DENSITY, PLANARITY})
        backend = simulated.backend.get("backend", "auto")
        self._names = copy_parameter_names(simulated.fits)
        self._density_group = _free_group(merged.system)
        for force in density_forces_of_copies(simulated.fits, merged, backend):
            force.setForceGroup(self._density_group)
            merged.system.addForce(force)
        if simulated.planarity is not None:
            first, n_particles = merged.first[:-1].tolist(), int(merged.first[-1])
            merged.system.addForce(simulated.planarity.create_force_of_copies(first, n_particles, backend))
        integrator = self._integrator(merged)
        integrator.setRandomNumberSeed(1 + seed % (2**31 - 2))
        self._merged = merged
        self._context = simulated.context(merged.system, integrator)

    def losses(self) -> np.ndarray:
        """See `Replicas.losses`: by the density's own force, so that positions stay on the GPU."""
        names = self._names
        for name in names:
            self._context.setParameter(name, 0.0)
        found = np.empty(len(names))
        for slot, name in enumerate(names):
            self._context.setParameter(name, 1.0)
            energy = self._context.getState(energy=True, groups={self._density_group}).getPotentialEnergy()
            found[slot] = energy.value_in_unit(unit.kilojoule_per_mole)
            self._context.setParameter(name, 0.0)
        self._set_strengths()
        _check_finite(found[self._slots])
        return found[self._slots]

    def _integrator(self, merged: MergedSystem) -> openmm.Integrator:
        simulated = self.simulated
        kelvin = simulated.ladder.temperatures
        if simulated.ladder.has_one_temperature:
            return openmm.LangevinMiddleIntegrator(kelvin[0], simulated.friction, simulated.timestep)
        n_particles = np.diff(merged.first)
        return langevin_of_many_temperatures(
            np.repeat(kelvin, n_particles), simulated.friction, simulated.timestep
        )

    def _put(self, positions: np.ndarray, velocities: np.ndarray) -> None:
        self._context.setPositions(self._merged.merged_positions(list(positions)))
        self._context.applyConstraints(_CONSTRAINT_TOLERANCE)
        self._context.setVelocities(np.concatenate(list(velocities)))

    def _set_up_contexts(self) -> None:
        if self._set_ups:
            raise InputError(
                "merged replicas share one Context, which cannot be set up for each of them",
                remedy=f"give {as_argument('layout', 'separate')}",
            )

    def _set_timestep(self, timestep: float) -> None:
        self._context.getIntegrator().setStepSize(timestep)

    def _minimize(self, iterations: int) -> None:
        openmm.LocalEnergyMinimizer.minimize(self._context, maxIterations=iterations)

    def _positions(self) -> np.ndarray:
        found = _state(self._context, positions=True)
        if np.isfinite(found).all() and closest_approach(self._merged.split(found)) < self._cutoff:
            raise LeftDensity(
                "a replica left its density so far that it came within reach of another: raise the lowest strength, or give "
                'layout="separate"'
            )
        return np.array(self._merged.separate_positions(found))

    def _velocities(self) -> np.ndarray:
        return np.array(self._merged.split(_state(self._context, positions=False)))

    def _set_strengths_of_slots(self, strengths: np.ndarray) -> None:
        for name, k in zip(self._names, strengths):
            self._context.setParameter(name, k)


def langevin_of_many_temperatures(
    kelvin: np.ndarray, friction: float, timestep: float
) -> openmm.CustomIntegrator:
    """Build the middle scheme (Zhang et al. 2019) with a temperature (N,) in K for each particle; friction 1/ps, timestep ps."""
    integrator = openmm.CustomIntegrator(timestep)
    integrator.addGlobalVariable("a", math.exp(-friction * timestep))
    integrator.addGlobalVariable("b", math.sqrt(1 - math.exp(-2 * friction * timestep)))
    integrator.addPerDofVariable("kT", 0.0)
    integrator.addPerDofVariable("x1", 0.0)
    integrator.addUpdateContextState()
    integrator.addComputePerDof("v", "v + dt*f/m")
    integrator.addConstrainVelocities()
    integrator.addComputePerDof("x", "x + 0.5*dt*v")
    integrator.addComputePerDof("v", "a*v + b*sqrt(kT/m)*gaussian")
    integrator.addComputePerDof("x", "x + 0.5*dt*v")
    integrator.addComputePerDof("x1", "x")
    integrator.addConstrainPositions()
    integrator.addComputePerDof("v", "v + (x - x1)/dt")
    thermal = _GAS_CONSTANT * np.asarray(kelvin, dtype=np.float64)
    integrator.setPerDofVariableByName("kT", np.repeat(thermal[:, None], 3, axis=1))
    return integrator


def _check_finite(values: np.ndarray) -> None:
    """Raise an error if what there is of a rung is not a number."""
    for rung, each in enumerate(values):
        if not np.isfinite(each).all():
            raise SimulationError(
                f"the replica on rung {rung} of the ladder became unstable: take a shorter time step, or a lower strength"
            )


def _free_group(system: openmm.System) -> int:
    """Return a force group that no force of a System is in."""
    taken = {force.getForceGroup() for force in system.getForces()}
    return min(set(range(32)) - taken)


def _longest_cutoff(system: openmm.System) -> float:
    cutoffs = [
        force.getCutoffDistance().value_in_unit(unit.nanometer)
        for force in system.getForces()
        if hasattr(force, "getCutoffDistance")
    ]
    return max(cutoffs, default=0.0)


def _state(context: openmm.Context, positions: bool) -> np.ndarray:
    found = context.getState(positions=positions, velocities=not positions)
    if positions:
        return found.getPositions(asNumpy=True).value_in_unit(unit.nanometer)
    return found.getVelocities(asNumpy=True).value_in_unit(unit.nanometer / unit.picosecond)


def best_layout(platform: openmm.Platform, system: openmm.System, fits: Sequence[DensityFit]) -> str:
    """Return how replicas are simulated fastest: merged on a GPU, unless they are in boxes of their own, or cannot be merged."""
    apart = system.usesPeriodicBoundaryConditions() or any(fit.periodic for fit in fits)
    apart = apart or bool(unmergeable(system, without={DENSITY, PLANARITY}))
    return "merged" if platform.getName() == "CUDA" and not apart else "separate"
