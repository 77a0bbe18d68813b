"""The fit of a model to a map: minimise, molecular dynamics with the density from weak to strong, anneal, minimise."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openmm
import torch
from openmm import app, unit

from .analysis import ca_rmsd, match_alpha_carbons
from .correlation import MapCorrelation
from .density_fit import DensityFit
from .errors import InputError, SimulationError
from .maps import DensityMap
from .planarity import SIGMA, PlanarityRestraint
from .planes import find_planes
from .preparation import Prepared, prepare
from .restraints import (
    SECONDARY_STRUCTURE_STRENGTH,
    chirality_restraint,
    peptide_restraint,
    secondary_structure_restraint,
)
from .structures import Model
from .units import ANGSTROM_PER_NANOMETER

FORCE_FIELD_GROUP, RESTRAINT_GROUP, DENSITY_GROUP = 0, 1, 2

# With hydrogens this heavy, and their bonds constrained, 4 fs are stable.
HYDROGEN_MASS = 3.0
TIMESTEP = 0.004
# How close the oscillations out of a plane may come to the longest stable step.
STABLE_FRACTION = 0.95
TIMINGS = 10


@dataclass(frozen=True)
class Protocol:
    """How a fit runs.

    Attributes
    ----------
    steps : int
        Of molecular dynamics, of 4 fs.
    strength : float or "auto"
        k at the end of the ramp, in kJ/mol per fitted atom; "auto" calibrates it on the thermalised model.
    weak : float
        k at the start of the ramp, as a part of that.
    release : float
        Helices and strands are held as they are until k has grown to this part of its full strength.
    warm_up, ramp, hold : float
        Parts of the steps without density, with k growing, and with k at its full strength; what remains is the annealing.
    temperature : float
        In K.
    cold : float
        Where the annealing ends, in K.
    friction : float
        In 1/ps.
    report_interval : int
        Steps between rows of the log and frames of the trajectory.
    minimize_first, minimize_last : int
        Most iterations of the minimisations before and after.
    platform : str
        OpenMM's platform.
    seed : int
        Of velocities and noise.
    threads : int, optional
        Of the CPU platform and of the density; all cores by default. The same seed gives the same fit, bit for bit, on Reference,
        and on CPU with one thread.
    """

    steps: int = 20000
    strength: float | str = "auto"
    weak: float = 0.1
    release: float = 0.5
    warm_up: float = 0.02
    ramp: float = 0.38
    hold: float = 0.25
    temperature: float = 300.0
    cold: float = 10.0
    friction: float = 1.0
    report_interval: int = 250
    minimize_first: int = 300
    minimize_last: int = 1000
    platform: str = "CPU"
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"steps must be at least 1, found {self.steps}.")
        if self.report_interval < 1:
            raise InputError(f"report_interval must be at least 1 step, found {self.report_interval}.")
        if isinstance(self.strength, str) and self.strength != "auto":
            raise InputError(
                f'strength must be "auto" or a number of kJ/mol per fitted atom, found "{self.strength}".'
            )
        if not (np.isfinite(self.temperature) and self.temperature > 0):
            raise InputError(
                f"temperature must be positive, found {self.temperature:g}: give K, such as 300."
            )
        if not 0 <= self.seed < 2**31 - 1:
            raise InputError(f"seed must be from 0 to {2**31 - 2}, found {self.seed}.")
        if self.threads is not None and self.threads < 1:
            raise InputError(f"threads must be at least 1, found {self.threads}.")
        names = [openmm.Platform.getPlatform(i).getName() for i in range(openmm.Platform.getNumPlatforms())]
        if self.platform not in names:
            raise InputError(f'platform="{self.platform}" is not here: use one of {", ".join(names)}.')


@dataclass(frozen=True)
class Row:
    """One row of the log: energies in kJ/mol, temperature in K, RMSD and deviation from planarity in Å."""

    step: int
    stage: str
    potential_energy: float
    density_energy: float
    strength: float
    similarity: float
    cc: float
    temperature: float
    planarity_rms: float
    ca_rmsd: float | None = None


@dataclass
class FitResult:
    """What a fit ends with.

    Attributes
    ----------
    prepared : Prepared
        The model as it was simulated.
    initial, relaxed, final : np.ndarray, shape (N, 3)
        Its positions before, at the force field's own minimum nearby, and after, in Å.
    rows : list of Row
        The log.
    strength : float
        k at full strength, in kJ/mol per fitted atom.
    cc_initial, cc_final, similarity_initial, similarity_final : float
    cc_reference, ca_rmsd_initial, ca_rmsd_final : float, optional
        With a reference.
    ms_per_step, density_ms_per_step : float
        Wall time of a step, and of its density force.
    wall_seconds : float
    force_backend : str
    """

    prepared: Prepared
    initial: np.ndarray
    relaxed: np.ndarray
    final: np.ndarray
    rows: list[Row]
    strength: float
    cc_initial: float
    cc_final: float
    similarity_initial: float
    similarity_final: float
    cc_reference: float | None
    ca_rmsd_initial: float | None
    ca_rmsd_final: float | None
    ms_per_step: float
    density_ms_per_step: float
    wall_seconds: float
    force_backend: str


Progress = Callable[[int, int, str, Row | None], None]


class FlexibleFit:
    """Fit a model flexibly into a map, without solvent.

    Parameters
    ----------
    model : Model
        From `read_model`.
    density_map : DensityMap
        The target.
    resolution : float or Quantity
        Of the map, in Å.
    protocol : Protocol
        How the fit runs.
    reference : Model, optional
        A model of the target, to report the distance to. It has no part in the fit.
    planarity : float, Quantity or None
        σ in Å with which flat groups are held flat; None leaves them to the force field.
    dictionaries : path or sequence of paths
        Restraint dictionaries of ligands, which tell what is flat in them.
    **density_options
        Passed to `DensityFit`: ``similarity``, ``weights``, ``atoms``, ``mask`` …

    Attributes
    ----------
    prepared : Prepared
        The model with what it lacked.
    density : DensityFit
        The density force.
    system : openmm.System
        Force field, restraints of ω torsions, chirality, secondary structure and planarity, and the density force, in three
        force groups.
    planarity : PlanarityRestraint, optional
        What holds flat groups flat.
    planes : PlaneSet
        The flat groups of the model as it was read, without what was added to it: what is reported on.

    Raises
    ------
    InputError
        One sentence on the model, map or argument that cannot be used.
    """

    def __init__(
        self,
        model: Model,
        density_map: DensityMap,
        resolution: Any,
        protocol: Protocol | None = None,
        *,
        reference: Model | None = None,
        planarity: Any = SIGMA,
        dictionaries: Sequence[str | os.PathLike[str]] | str | os.PathLike[str] = (),
        **density_options: Any,
    ) -> None:
        self.protocol = protocol or Protocol()
        self.density_map = density_map
        self.reference = reference
        self.prepared = prepare(model, platform=self.protocol.platform)
        topology, positions = self.prepared.topology, self.prepared.positions
        self.planes = find_planes(
            model.topology, model.positions, SIGMA if planarity is None else planarity, dictionaries
        )
        self.planarity = None
        if planarity is not None:
            self.planarity = PlanarityRestraint(
                topology,
                planarity,
                positions=positions,
                dictionaries=dictionaries,
                force_group=RESTRAINT_GROUP,
                periodic=False,
            )
        self.system = self._restrained(hydrogen_mass=HYDROGEN_MASS)
        strength = self.protocol.strength
        self.density = DensityFit(
            density_map,
            topology,
            resolution,
            positions=positions,
            system=self.system,
            strength=strength,
            force_group=DENSITY_GROUP,
            **density_options,
        )
        force = self.density.create_force(parameter_derivative=False)
        self.force_backend = type(force).__name__
        self.system.addForce(force)
        # Scored is what the user gave, atom for atom: hydrogens that were built have no say.
        self._correlation = MapCorrelation(density_map, model.topology, resolution)
        self._pairs = None
        if reference is not None:
            self._pairs = match_alpha_carbons(
                topology, reference.topology, positions=positions, reference_positions=reference.positions
            )

    def _restrained(self, **options: Any) -> openmm.System:
        """Give force field and restraints, without the density."""
        topology, positions = self.prepared.topology, self.prepared.positions
        system = self.prepared.system(**options)
        system.addForce(peptide_restraint(topology, positions, force_group=RESTRAINT_GROUP))
        system.addForce(chirality_restraint(topology, positions, force_group=RESTRAINT_GROUP))
        system.addForce(secondary_structure_restraint(topology, positions, force_group=RESTRAINT_GROUP))
        if self.planarity is not None:
            system.addForce(self.planarity.create_force(parameter_derivative=False))
        return system

    def run(self, trajectory: str | Path | None = None, progress: Progress | None = None) -> FitResult:
        """Run the fit.

        Parameters
        ----------
        trajectory : path, optional
            Where the frames go, as DCD.
        progress : callable, optional
            Called with step, number of steps, stage and the newest row of the log.

        Raises
        ------
        SimulationError
            If the simulation becomes unstable.
        """
        started = time.perf_counter()
        protocol = self.protocol
        if protocol.threads is not None:
            torch.set_num_threads(protocol.threads)
        integrator = openmm.LangevinMiddleIntegrator(protocol.temperature, protocol.friction, TIMESTEP)
        random_seed = protocol.seed + 1  # to OpenMM, 0 means any
        integrator.setRandomNumberSeed(random_seed)
        simulation = app.Simulation(
            self.prepared.topology,
            self.system,
            integrator,
            openmm.Platform.getPlatformByName(protocol.platform),
            self._platform_properties(),
        )
        context = simulation.context
        initial = self.prepared.positions
        rows: list[Row] = []
        stages = self._stages()
        total = sum(length for _, length in stages)

        def report(stage: str) -> Row:
            rows.append(self._row(simulation, stage))
            if progress is not None:
                progress(simulation.currentStep, total, stage, rows[-1])
            return rows[-1]

        try:
            self._set_strength(context, 0.0)  # and so it stays during the warm-up
            self._set_planarity(context, self._stable_planarity())
            if progress is not None:
                progress(0, total, "minimize", None)
            context.setPositions(self._relaxed())
            context.applyConstraints(_CONSTRAINT_TOLERANCE)
            relaxed = self._positions(simulation)
            report("minimize")
            context.setVelocitiesToTemperature(protocol.temperature, random_seed)
            if trajectory is not None:
                simulation.reporters.append(app.DCDReporter(str(trajectory), self._report_interval))
            strength, seconds = self._dynamics(simulation, stages, report)
            density_ms = self._time_density(context)
            if progress is not None:
                progress(total, total, "minimize", rows[-1])
            self._set_planarity(context, 1.0)
            simulation.minimizeEnergy(maxIterations=protocol.minimize_last)
            last = report("minimize")
        except openmm.OpenMMException as error:
            if "KeyboardInterrupt" in str(error):  # raised inside a force, and wrapped by OpenMM
                raise KeyboardInterrupt from None
            if "NaN" not in str(error):
                raise
            raise SimulationError(
                f"the simulation became unstable at step {simulation.currentStep}: lower the strength, or look for clashes "
                "in the model."
            ) from error
        simulation.reporters.clear()

        final = self._positions(simulation)
        cc_reference = initial_rmsd = None
        if self.reference is not None:
            cc_reference = MapCorrelation(
                self.density_map, self.reference.topology, self.density.resolution
            ).cc_mask(self.reference.positions)
            initial_rmsd = ca_rmsd(initial, self.reference.positions, self._pairs)
        return FitResult(
            prepared=self.prepared,
            initial=initial,
            relaxed=relaxed,
            final=final,
            rows=rows,
            strength=strength,
            cc_initial=self._correlation.cc_mask(self.prepared.model.positions),
            cc_final=last.cc,
            similarity_initial=self.density.similarity(initial),
            similarity_final=last.similarity,
            cc_reference=cc_reference,
            ca_rmsd_initial=initial_rmsd,
            ca_rmsd_final=last.ca_rmsd,
            ms_per_step=1000 * seconds / protocol.steps,
            density_ms_per_step=density_ms,
            wall_seconds=time.perf_counter() - started,
            force_backend=self.force_backend,
        )

    def _relaxed(self) -> unit.Quantity:
        """Give the positions minimised without density, and without constraints, at which the minimiser may stall."""
        system = self._restrained(constraints=None, rigidWater=False)
        platform = openmm.Platform.getPlatformByName(self.protocol.platform)
        context = openmm.Context(
            system, openmm.VerletIntegrator(TIMESTEP), platform, self._platform_properties()
        )
        context.setPositions(self.prepared.positions / ANGSTROM_PER_NANOMETER)
        openmm.LocalEnergyMinimizer.minimize(context, maxIterations=self.protocol.minimize_first)
        return context.getState(positions=True).getPositions()

    @property
    def _report_interval(self) -> int:
        """Give the steps between reports: at least one report a fit."""
        return min(self.protocol.report_interval, self.protocol.steps)

    def _platform_properties(self) -> dict[str, str]:
        if self.protocol.platform != "CPU":
            return {}
        threads = {} if self.protocol.threads is None else {"Threads": str(self.protocol.threads)}
        return {"DeterministicForces": "true", **threads}

    def _stages(self) -> list[tuple[str, int]]:
        protocol = self.protocol
        parts = np.cumsum([protocol.warm_up, protocol.ramp, protocol.hold, 1.0])
        ends = np.minimum(np.round(parts * protocol.steps).astype(int), protocol.steps)
        ends[-1] = protocol.steps
        lengths = np.diff(ends, prepend=0)
        return list(zip(("warm up", "ramp", "hold", "anneal"), (int(length) for length in lengths)))

    def _dynamics(
        self, simulation: app.Simulation, stages: list[tuple[str, int]], report: Callable[[str], Row]
    ) -> tuple[float, float]:
        """Run all stages; give the full strength per fitted atom and the seconds that stepping took."""
        protocol, context = self.protocol, simulation.context
        seconds = 0.0
        strength = 0.0
        for stage, length in stages:
            if stage == "ramp":
                if protocol.strength == "auto":
                    # The density is weighed against the force field alone, with planarity or without.
                    self._set_planarity(context, 0.0)
                    strength = self.density.calibrate(context) / self.density.n_fitted_atoms
                    self._set_planarity(context, self._stable_planarity())
                else:
                    strength = float(protocol.strength)
            first, done = simulation.currentStep, 0
            while done < length:
                part = min((done + 0.5 * self._report_interval) / length, 1.0)
                if stage == "ramp":
                    grown = protocol.weak ** (1 - part)
                elif stage != "warm up":
                    grown = 1.0
                if stage != "warm up":
                    self._set_strength(context, strength * grown)
                    held = SECONDARY_STRUCTURE_STRENGTH if grown < protocol.release else 0.0
                    context.setParameter("secondary_structure_strength", held)
                if stage == "anneal":
                    cooling = part * (protocol.temperature - protocol.cold)
                    simulation.integrator.setTemperature(protocol.temperature - cooling)
                to_report = self._report_interval - simulation.currentStep % self._report_interval
                begun = time.perf_counter()
                simulation.step(min(length - done, to_report))
                seconds += time.perf_counter() - begun
                done = simulation.currentStep - first
                if simulation.currentStep % self._report_interval == 0:
                    report(stage)
        return strength, seconds

    def _set_strength(self, context: openmm.Context, per_atom: float) -> None:
        context.setParameter(self.density.parameter_name, per_atom * self.density.n_fitted_atoms)

    def _set_planarity(self, context: openmm.Context, strength: float) -> None:
        if self.planarity is not None:
            context.setParameter(self.planarity.parameter_name, strength)

    def _stable_planarity(self) -> float:
        """Give the strength of planarity that the time step bears: 1, or less where planes share light atoms."""
        if self.planarity is None:
            return 0.0
        return min(1.0, (STABLE_FRACTION * self.planarity.stable_timestep(self.system) / TIMESTEP) ** 2)

    def _positions(self, simulation: app.Simulation) -> np.ndarray:
        state = simulation.context.getState(positions=True)
        return state.getPositions(asNumpy=True).value_in_unit(unit.angstrom)

    def _row(self, simulation: app.Simulation, stage: str) -> Row:
        context = simulation.context
        state = context.getState(energy=True, positions=True)
        positions = state.getPositions(asNumpy=True).value_in_unit(unit.angstrom)
        density = context.getState(energy=True, groups={DENSITY_GROUP})
        in_input = self.prepared.input_positions(positions)
        kinetic = state.getKineticEnergy().value_in_unit(unit.kilojoule_per_mole)
        return Row(
            step=simulation.currentStep,
            stage=stage,
            potential_energy=state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole),
            density_energy=density.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole),
            strength=context.getParameter(self.density.parameter_name) / self.density.n_fitted_atoms,
            similarity=self.density.similarity(positions),
            cc=self._correlation.cc_mask(in_input),
            temperature=2 * kinetic / (self._degrees_of_freedom() * _GAS_CONSTANT),
            planarity_rms=self.planes.rms(in_input),
            ca_rmsd=None
            if self.reference is None
            else ca_rmsd(positions, self.reference.positions, self._pairs),
        )

    def _degrees_of_freedom(self) -> int:
        masses = (
            self.system.getParticleMass(i).value_in_unit(unit.dalton)
            for i in range(self.system.getNumParticles())
        )
        return 3 * sum(mass > 0 for mass in masses) - self.system.getNumConstraints()

    def _time_density(self, context: openmm.Context) -> float:
        """Give the median milliseconds of evaluating the density force alone."""
        context.getState(forces=True, groups={DENSITY_GROUP})
        ticks = []
        for _ in range(TIMINGS + 1):
            ticks.append(time.perf_counter())
            context.getState(forces=True, groups={DENSITY_GROUP})
        return 1000 * float(np.median([b - a for a, b in itertools.pairwise(ticks)]))


_CONSTRAINT_TOLERANCE = 1e-6
_GAS_CONSTANT = unit.MOLAR_GAS_CONSTANT_R.value_in_unit(unit.kilojoule_per_mole / unit.kelvin)
