"""The fit of a model to a map: minimise, the stages of a protocol, minimise, through interruptions and blow-ups."""

from __future__ import annotations

import copy
import itertools
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import openmm
import torch
from openmm import unit
from openmm.mtsintegrator import MTSLangevinIntegrator

from ..energies.density_fit import STRENGTH_BOUNDS, DensityFit
from ..energies.forces import best_backend
from ..energies.form_factors import SIGMA_PER_RESOLUTION
from ..energies.planarity import SIGMA, PlanarityRestraint
from ..energies.planes import find_planes
from ..errors import InputError, SimulationError
from ..maps.density_map import DensityMap
from ..models.clashes import parted
from ..models.matching import ca_rmsd, match_alpha_carbons
from ..models.preparation import Prepared, prepare
from ..models.structures import Model, residue_kind, residue_label
from ..restraints import PositionalRestraint, Restraint, make_restraints
from ..restraints.contacts import ContactRestraint
from ..units import ANGSTROM_PER_NANOMETER, in_angstrom
from ..validation.correlation import MapCorrelation
from ..wording import listing, one_line
from .checkpoints import RunFolder, RunState, Trajectory, cut_trajectory
from .convergence import Plateau
from .interrupts import StoppableMinimization, StopRequest
from .locks import FolderLock
from .placement import Placement, placed
from .protocols import COARSE, NEAR_CC, UPDATE_INTERVAL, Protocol, Stage, find_protocol
from .rebuilding import Rebuilding
from .solvation import solvated
from .strength import AdaptiveStrength
from .unseen import unseen_residues

FORCE_FIELD_GROUP, RESTRAINT_GROUP, DENSITY_GROUP = 0, 1, 2

REPORT_INTERVAL = 200
SAVE_INTERVAL = 2000
# How close the oscillations out of a plane may come to the longest stable step.
STABLE_FRACTION = 0.95
TIMINGS = 10
BLURS = (1.0, 1.1, 1.2, 1.35, 1.5)
"""Widths that an atom's Gaussian may have, in those of the map's resolution. Many maps show atoms wider than their resolution
says; narrower ones crowd where the density is highest, into clashes."""
# Measures whose values for narrow and for wide Gaussians can be compared.
BLURRED_SIMILARITIES = ("cross-correlation", "least-squares")
# What an automatic strength is weighed on: forces of a model that is warm, in K and steps, whatever the protocol does.
WARM, WARM_STEPS = 300.0, 100
# The root mean square force of the density over that of the force field.
FORCE_RATIO = 0.5
# Between these a request to stop is looked for: a tenth of a second for small models, a second for large ones.
STEPS_AT_ONCE = 10
# Enough to bring warm atoms to rest, and turned side chains into place.
REBUILDING_MINIMIZATION = 100
# Atoms that stay pressed together are parted by so many times the usual repulsion.
CONTACT_STRENGTHS = (1.0, 4.0, 16.0)
# The first steps after it, and what part of the usual step they have.
SMALL_STEPS, SMALL_STEP = 80, 0.25
MOST_BLOW_UPS = 3
# With many more, the threads cannot be made, and the process ends without a word.
MOST_THREADS = 1024
# Hotter than this, in K and in the temperature that is wanted, a simulation has blown up, whatever it does next.
HOT, TIMES_TOO_HOT = 1500.0, 4.0
# After Ctrl-C, which is waited for.
HASTY_MINIMIZATION = 100
# Where the minimiser cannot be told of a Ctrl-C.
MINIMIZED_AT_ONCE = 200


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
    cc_free: float | None = None


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
    stages : list of dict
        Of each stage that was begun: its name, the steps done, its resolution, the strength and whether it converged.
    blow_ups : list of str
        A sentence on each time that the simulation became unstable and was taken back.
    rebuilding : list of dict
        Of each search before a stage: ``stage``, ``step``, what `Changes.as_dict` gives, ``undone`` (whether the model was put
        back, as it did not bear it) and ``wall_seconds``.
    interrupted : bool
        Whether the fit was stopped before its end.
    steps : int
        Done.
    strength : float
        k at full strength, in kJ/mol per fitted atom.
    cc_initial, cc_final, similarity_initial, similarity_final : float
    cc_reference, ca_rmsd_initial, ca_rmsd_final : float, optional
        With a reference.
    ms_per_step, density_ms_per_step : float
        Wall time of a step, and of its density force.
    wall_seconds : float
        Of all parts of a fit that was interrupted; of a part that was killed, up to its last saved state.
    force_backend : str
    """

    prepared: Prepared
    initial: np.ndarray
    relaxed: np.ndarray
    final: np.ndarray
    rows: list[Row]
    stages: list[dict[str, Any]]
    blow_ups: list[str]
    rebuilding: list[dict[str, Any]]
    interrupted: bool
    steps: int
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
    """Fit a model flexibly into a map.

    Parameters
    ----------
    model : Model
        From `read_model`.
    density_map : DensityMap
        The target.
    resolution : float or Quantity
        Of the map, in Å.
    protocol : Protocol or str
        How the fit runs: the name of a built-in protocol, the path of a TOML file, or a `Protocol`.
    seed : int
        Of velocities and noise.
    platform : str
        OpenMM's platform.
    threads : int, optional
        Of the CPU platform and of the density; all cores by default. The same seed gives the same fit, bit for bit, on Reference,
        and on CPU with one thread.
    report_interval : int
        Steps between rows of the log and frames of the trajectory.
    save_interval : int
        Steps between saved states, at each of which a new Context is made.
    place : {"auto", "on", "off"} or Placement
        Whether the model is first placed in the map as a rigid body, see `fitting.placement`; ``auto``: if it lies outside
        the density. Or where it was placed before.
    forcefield : str or sequence of str
        "amber14", "charmm36", or OpenMM force field files.
    solvent : {"none", "obc", "gbn2", "water"}
        See `openmm_density.models.force_fields`. In water the fit begins with an equilibration at constant pressure.
    ligand_forcefield : {"openff", "gaff"}, optional
        What parametrises ligands that the force field does not know; by default they are kept rigid. See
        `openmm_density.models.ligands`.
    ligands : mapping of str to str, optional
        SMILES by residue name; by default those of the dictionaries.
    restrain_to : Model, optional
        Another model of the same molecule, whose distances the restraint "distance" keeps in place of those of the start.
    reference : Model, optional
        A model of the target, to report the distance to. It has no part in the fit.
    free_map : DensityMap, optional
        Another map of the same, such as the other half map, to report the correlation with. It has no part in the fit.
    planarity : float, Quantity or None
        σ in Å with which flat groups are held flat; None leaves them to the force field.
    dictionaries : path or sequence of paths
        Restraint dictionaries of ligands, which tell what is flat in them.
    **density_options
        Passed to `DensityFit`: ``similarity``, ``weights``, ``atoms``, ``mask`` …

    Attributes
    ----------
    protocol : Protocol
    placement : Placement, optional
        How the model was placed, where it was.
    prepared : Prepared
        The model with what it lacked.
    solute : Prepared
        The same without the water around it.
    density : DensityFit
        The density force at the resolution of the map.
    system : openmm.System
        Force field, restraints, and that density force, in three force groups.
    restraints : list of Restraint
        What some stage of the protocol holds as it was.
    planarity : PlanarityRestraint, optional
        What holds flat groups flat.
    dictionaries : path or sequence of paths
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
        protocol: Protocol | str = "standard",
        *,
        seed: int = 0,
        platform: str = "CPU",
        threads: int | None = None,
        report_interval: int = REPORT_INTERVAL,
        save_interval: int = SAVE_INTERVAL,
        place: str | Placement = "auto",
        forcefield: str | Sequence[str] = "amber14",
        solvent: str = "none",
        ligand_forcefield: str | None = None,
        ligands: Mapping[str, str] | None = None,
        restrain_to: Model | None = None,
        reference: Model | None = None,
        free_map: DensityMap | None = None,
        planarity: Any = SIGMA,
        dictionaries: Sequence[str | os.PathLike[str]] | str | os.PathLike[str] = (),
        **density_options: Any,
    ) -> None:
        _check_run(seed, platform, threads)
        self.seed, self.platform, self.threads = seed, platform, threads
        self.forcefield = [forcefield] if isinstance(forcefield, str) else list(forcefield)
        self.density_map = density_map
        self.reference = reference
        self.dictionaries = dictionaries
        _check_start(model, density_map, in_angstrom(resolution, "resolution"))
        self.placement = (
            place
            if isinstance(place, Placement)
            else placed(model, density_map, in_angstrom(resolution, "resolution"), place)
        )
        if self.placement is not None:
            model = self.placement.apply(model)
        self.prepared = self.solute = prepare(
            model,
            forcefield,
            solvent=solvent,
            platform=platform,
            ligand_forcefield=ligand_forcefield,
            ligands=ligands,
            dictionaries=dictionaries,
        )
        if solvent == "water":
            self.prepared = solvated(self.solute, density_map, platform=platform)
        self.planes = find_planes(
            model.topology, model.positions, SIGMA if planarity is None else planarity, dictionaries
        )
        self.planarity: PlanarityRestraint | None = None
        self._planarity_options = None if planarity is None else (planarity, dictionaries)
        self._density_options = density_options
        if not isinstance(protocol, Protocol):
            protocol = find_protocol(protocol, in_angstrom(resolution, "resolution"))
        # Scored is what the user gave, atom for atom: hydrogens that were built have no say.
        self._correlation = MapCorrelation(density_map, model.topology, in_angstrom(resolution, "resolution"))
        self._cc_initial = self._correlation.cc_mask(model.positions)
        protocol = protocol.from_start(self._cc_initial)
        self.protocol = protocol = protocol.in_water() if solvent == "water" else protocol
        if solvent != "water" and any(stage.pressure is not None for stage in protocol.stages):
            raise InputError('a stage with a pressure needs a box of water: give solvent="water".')
        held = dict.fromkeys(name for stage in protocol.stages for name in stage.restraints)
        self.restraints: list[Restraint] = make_restraints(
            [name for name in held if name != "planarity"],
            self.prepared.topology,
            self.prepared.positions,
            force_group=RESTRAINT_GROUP,
            options=_restraint_options(held, solvent, restrain_to),
        )
        self.notes: list[str] = []
        self._anchors = self._anchored(in_angstrom(resolution, "resolution"))
        bare = self._restrained(hydrogen_mass=protocol.hydrogen_mass)
        self.density = self._density(density_map, resolution, bare)
        self.report_interval = _interval("report_interval", report_interval, protocol)
        self.save_interval = _interval("save_interval", save_interval, protocol)
        for stage in protocol.stages:
            if stage.resolution is not None and stage.resolution < self.density.resolution:
                raise InputError(
                    f'stage "{stage.name}" asks for {stage.resolution:g} Å, but the map has {self.density.resolution:g} Å: '
                    "give that or more, or leave it out."
                )
        # Which density force, and the System that holds it, by resolution, pressure and blur.
        self._systems: dict[tuple[float, float | None, float], tuple[DensityFit, openmm.System]] = {}
        self._blurred: dict[float, DensityFit] = {1.0: self.density}
        self.system = self._system_at(None)[1]
        particles = range(self.system.getNumParticles())
        self._masses = np.array(
            [self.system.getParticleMass(i).value_in_unit(unit.dalton) for i in particles]
        )
        self._freedom = 3 * int((self._masses > 0).sum()) - self.system.getNumConstraints()
        self._free_correlation = None
        if free_map is not None:
            self._free_correlation = MapCorrelation(free_map, model.topology, self.density.resolution)
        self._pairs = None
        if reference is not None:
            try:
                self._pairs = match_alpha_carbons(
                    self.prepared.topology,
                    reference.topology,
                    positions=self.prepared.positions,
                    reference_positions=reference.positions,
                )
            except InputError as error:
                raise InputError(f"{reference.path}: {error}") from None
        backbone = [a.index for a in self.prepared.topology.atoms() if a.name in ("CA", "P")]
        self._traced = np.array(backbone or range(self.prepared.topology.getNumAtoms()))

    @property
    def timestep(self) -> float:
        """The time step in ps."""
        return self.protocol.timestep / 1000

    def rebuilds_before(self, stage: Stage) -> bool:
        """Whether parts of the model are rebuilt before a stage of the protocol."""
        wanted = stage.register or stage.rotamers
        return wanted and stage.strength[0] > 0 and self.density.similarity_measure in BLURRED_SIMILARITIES

    def run(
        self,
        folder: RunFolder | None = None,
        progress: Progress | None = None,
        on_interrupt: Callable[[], None] | None = None,
    ) -> FitResult:
        """Run the fit, or go on with one.

        Parameters
        ----------
        folder : RunFolder, optional
            Where states and trajectory are kept. If it holds a state of this fit, the fit goes on from there.
        progress : callable, optional
            Called with step, number of steps, stage or what is being done before it (as ``register: A 61-72 (12 of 40)``), and
            the newest row of the log, or None where there is none since the last.
        on_interrupt : callable, optional
            Called when the first SIGINT or SIGTERM comes, before what is under way is finished.

        Raises
        ------
        InputError
            If a fit is running in the folder, or its state is not one of this fit.
        SimulationError
            If the simulation becomes unstable again and again.
        KeyboardInterrupt
            After SIGINT or SIGTERM before the dynamics began. Later these end the fit, and give what there is.
        """
        started = time.perf_counter()
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        say = progress or (lambda *_: None)
        holding = nullcontext() if folder is None else FolderLock(folder.path)
        with holding, StopRequest(on_interrupt) as stop:
            if folder is not None and folder.holds_a_state:
                state = folder.load()
                self._check_state(folder, state)
                started -= state.wall_seconds
            else:
                say(0, self.protocol.steps, "minimize", None)
                state = self._begun(stop)
                self._save(folder, state, started)
            saved = state
            while state.stage < len(self.protocol.stages) and not stop.requested:
                try:
                    state = self._segment(state, folder, say, stop)
                except _Unstable as error:
                    state = self._taken_back(state, folder, str(error))
                if not stop.requested:
                    self._save(folder, state, started)
                    saved = state
            say(state.step, self.protocol.steps, "minimize", None)
            result = self._ended(state, stop, started)
            if result.interrupted:
                # The time since the last saved state was spent as well.
                self._save(folder, saved, started)
            return result

    def _density(self, density_map: DensityMap, resolution: Any, system: openmm.System) -> DensityFit:
        return DensityFit(
            density_map,
            self.prepared.topology,
            resolution,
            positions=self.prepared.positions,
            system=system,
            force_group=DENSITY_GROUP,
            **self._density_options,
        )

    def _anchored(self, resolution: float) -> list[Restraint]:
        """Hold where they are residues that a coarse map does not show where a model that lies in it has them."""
        if self._cc_initial < NEAR_CC or resolution < COARSE or not self.restraints:
            return []
        topology, positions = self.prepared.topology, self.prepared.positions
        correlation = MapCorrelation(self.density_map, topology, resolution)
        unseen = unseen_residues(topology, correlation.residue_correlations(positions))
        if not len(unseen):
            return []
        residues = list(topology.residues())
        names = listing([residue_label(residues[index]) for index in unseen])
        self.notes.append(f"Not seen in the map where the model has them, and so held there: {names}.")
        backbone = [a.index for i in unseen for a in residues[i].atoms() if a.name in ("N", "CA", "C")]
        periodic = self.prepared.solvent == "water"
        options = {"parameter_name": "unseen_strength", "force_group": RESTRAINT_GROUP, "periodic": periodic}
        return [PositionalRestraint(topology, positions, atoms=backbone, **options)]

    def _restrained(self, **options: Any) -> openmm.System:
        """Give force field and restraints, without the density."""
        topology, positions = self.prepared.topology, self.prepared.positions
        system = self.prepared.system(**options)
        for restraint in (*self.restraints, *self._anchors):
            system.addForce(restraint.create_force())
        if self._planarity_options is not None:
            sigma, dictionaries = self._planarity_options
            if self.planarity is None:
                self.planarity = PlanarityRestraint(
                    topology,
                    sigma,
                    positions=positions,
                    dictionaries=dictionaries,
                    force_group=RESTRAINT_GROUP,
                    system=system,
                )
            system.addForce(self.planarity.create_force(**self._force_options()))
        return system

    @cached_property
    def _bare(self) -> openmm.System:
        """Force field and restraints, without constraints, at which the minimiser may stall."""
        return self._restrained(constraints=None, rigidWater=False)

    @cached_property
    def _force_field(self) -> openmm.System:
        """The same without restraints."""
        return self.prepared.system(constraints=None, rigidWater=False)

    def _force_options(self) -> dict[str, bool]:
        """Say how the forces of our own are made: nobody asks for their derivatives, and graphs save what launching costs."""
        graphs = self.platform == "CUDA" and best_backend() != "PythonTorchForce"
        return {"parameter_derivative": False, "cuda_graphs": graphs}

    def _system_at(
        self, resolution: float | None, pressure: float | None = None, blur: float = 1.0
    ) -> tuple[DensityFit, openmm.System]:
        """Give the density force at a resolution, which is that of the map or coarser, and the System with it."""
        own = self.density.resolution
        resolution = own if resolution is None else resolution
        if (resolution, pressure, blur) not in self._systems:
            density = self._blurred[blur]
            if resolution > own:
                sigma = SIGMA_PER_RESOLUTION * np.sqrt(resolution**2 - own**2)
                blurred = self.density_map.gaussian_filter(sigma)
                bare = self._restrained(hydrogen_mass=self.protocol.hydrogen_mass)
                density = self._density(blurred, resolution, bare)
            system = self._with_density(density)
            if pressure is not None:
                barostat = openmm.MonteCarloBarostat(pressure, self.protocol.stages[0].temperature[0])
                barostat.setRandomNumberSeed(self.seed + 1)
                system.addForce(barostat)
            self._systems[resolution, pressure, blur] = density, system
        return self._systems[resolution, pressure, blur]

    def _with_density(self, density: DensityFit) -> openmm.System:
        """Give force field and restraints, and a density force."""
        system = self._restrained(hydrogen_mass=self.protocol.hydrogen_mass)
        force = density.create_force(**self._force_options())
        self.force_backend = type(force).__name__
        system.addForce(force)
        return system

    def _system_for(self, state: RunState, stage: Stage) -> tuple[DensityFit, openmm.System]:
        """Give the density force and the System of a stage, with Gaussians as wide as the map shows the model at this state."""
        blur = 1.0
        fixed = stage.resolution is not None or stage.strength[1] == 0
        if self.protocol.match_blur and not fixed and self.density.similarity_measure in BLURRED_SIMILARITIES:
            positions = state.positions * ANGSTROM_PER_NANOMETER
            blur = max(BLURS, key=lambda width: self._density_blurred(width).similarity(positions))
        return self._system_at(stage.resolution, stage.pressure, blur)

    def _density_blurred(self, blur: float) -> DensityFit:
        if blur not in self._blurred:
            # Not the map, the atoms are blurred: wider Gaussians are those of a coarser resolution.
            coarser = blur * self.density.resolution
            self._blurred[blur] = self._density(self.density_map, coarser, self.system)
        return self._blurred[blur]

    def _begun(self, stop: StopRequest) -> RunState:
        """Minimise without density and without constraints; give all a first velocity."""
        context = openmm.Context(self._bare, openmm.VerletIntegrator(0.001), *self._platform())
        self._let_go(context, self.protocol.stages[0])
        positions = self.prepared.positions / ANGSTROM_PER_NANOMETER
        context.setPositions(parted(self._bare, positions, *self._platform()))
        self._minimize(context, self.protocol.minimize_first, stop)
        if stop.requested:
            raise KeyboardInterrupt
        relaxed = _numbers(context.getState(positions=True).getPositions(asNumpy=True), unit.nanometer)
        state = RunState(positions=relaxed, velocities=np.zeros_like(relaxed), relaxed=relaxed)
        context, _ = self._context(state, self.protocol.stages[0])
        context.applyConstraints(_CONSTRAINT_TOLERANCE)
        state.rows.append(asdict(self._row(context, state, "minimize")))
        context.setVelocitiesToTemperature(self.protocol.stages[0].temperature[0], self._random_seed(state))
        self._take(context, state)
        return state

    def _segment(
        self, before: RunState, folder: RunFolder | None, say: Progress, stop: StopRequest
    ) -> RunState:
        """Run to the next state to be saved, or the end of the stage, whichever comes first; leave the state before as it was."""
        state = copy.deepcopy(before)
        state.segment += 1
        stage = self.protocol.stages[state.stage]
        context, density = self._context(state, stage)
        adaptive, plateau = AdaptiveStrength(**state.adaptive), Plateau(**state.plateau)
        if state.strength is None and stage.strength[1] > 0:
            state.strength = self._full_strength(state, stage)
        if state.stage_step == 0 and self.rebuilds_before(stage):
            self._rebuild(context, density, state, stage, say, stop)
        last = min(stage.steps, state.stage_step + self.save_interval - state.step % self.save_interval)
        converged = False
        with self._trajectory(folder, state) as trajectory:
            while state.stage_step < last and not converged:
                block = state.stage_step // UPDATE_INTERVAL
                part = min((block + 0.5) * UPDATE_INTERVAL / stage.steps, 1.0)
                factor = adaptive.factor if stage.adaptive else 1.0
                self._set_strength(context, density, state, stage.strength_at(part) * factor)
                _set_temperature(context.getIntegrator(), stage.temperature_at(part))
                ends = ((block + 1) * UPDATE_INTERVAL, last)
                to_report = self.report_interval - state.step % self.report_interval
                length = min(min(ends) - state.stage_step, to_report)
                begun = time.perf_counter()
                done = self._step(context, length, stop)
                state.seconds += time.perf_counter() - begun
                state.step, state.stage_step = state.step + done, state.stage_step + done
                self._check_stable(context, state, stage)
                if stop.requested:
                    break
                if state.step % self.report_interval == 0:
                    row = self._row(context, state, stage.name)
                    state.rows.append(asdict(row))
                    if trajectory is not None:
                        self._take(context, state)
                        trajectory.add(state.positions, state.box)
                        state.frames += 1
                    say(state.step, self.protocol.steps, stage.name, row)
                else:
                    say(state.step, self.protocol.steps, stage.name, None)
                if (stage.adaptive or stage.until_converged) and state.stage_step % UPDATE_INTERVAL == 0:
                    positions = self._positions(context)
                    similarity = density.similarity(positions)
                    if stage.adaptive:
                        adaptive.update(similarity, UPDATE_INTERVAL * self.timestep)
                    if stage.until_converged:
                        converged = plateau.update(similarity, positions[self._traced], UPDATE_INTERVAL)
        self._take(context, state)
        state.adaptive, state.plateau = asdict(adaptive), asdict(plateau)
        if state.stage_step >= stage.steps or converged or stop.requested:
            state.ended.append(
                {
                    "name": stage.name,
                    "steps": state.stage_step,
                    "resolution": stage.resolution or self.density.resolution,
                    "blur": density.resolution / (stage.resolution or self.density.resolution),
                    "strength": context.getParameter(density.parameter_name) / density.n_fitted_atoms,
                    "converged": converged,
                }
            )
            state.stage, state.stage_step, state.plateau = state.stage + 1, 0, {}
        return state

    def _ended(self, state: RunState, stop: StopRequest, started: float) -> FitResult:
        """Minimise with the density, and say what came out."""
        interrupted = stop.requested
        index = max(state.stage - 1, 0) if interrupted else len(self.protocol.stages) - 1
        stage = replace(self.protocol.stages[index], resolution=None, pressure=None)
        context, density = self._context(state, stage)
        part = 0.0 if state.strength is None else stage.strength[1]
        self._set_strength(context, density, state, part)
        density_ms = self._time_density(context)
        if "planarity" in stage.restraints:
            self._set_planarity(context, 1.0)
        iterations = HASTY_MINIMIZATION if interrupted else self.protocol.minimize_last
        self._minimize(context, iterations)
        if not interrupted:
            self._part_contacts(context, density, iterations)
        last = self._row(context, state, "minimize")
        final = self._positions(context)
        rows = [*(Row(**row) for row in state.rows), last]
        initial = self.prepared.positions
        cc_reference = initial_rmsd = None
        if self.reference is not None:
            cc_reference = MapCorrelation(
                self.density_map, self.reference.topology, self.density.resolution
            ).cc_mask(self.reference.positions)
            initial_rmsd = ca_rmsd(initial, self.reference.positions, self._pairs)
        return FitResult(
            prepared=self.prepared,
            initial=initial,
            relaxed=state.relaxed * ANGSTROM_PER_NANOMETER,
            final=final,
            rows=rows,
            stages=state.ended,
            blow_ups=state.blow_ups,
            rebuilding=state.rebuilding,
            interrupted=interrupted,
            steps=state.step,
            strength=state.strength or 0.0,
            cc_initial=self._cc_initial,
            cc_final=last.cc,
            similarity_initial=self.density.similarity(initial),
            similarity_final=last.similarity,
            cc_reference=cc_reference,
            ca_rmsd_initial=initial_rmsd,
            ca_rmsd_final=last.ca_rmsd,
            ms_per_step=1000 * state.seconds / max(state.step, 1),
            density_ms_per_step=density_ms,
            wall_seconds=time.perf_counter() - started,
            force_backend=self.force_backend,
        )

    def _part_contacts(self, context: openmm.Context, density: DensityFit, iterations: int) -> None:
        """Minimise on with the repulsion that the force field lacks for atoms that a density presses together."""
        contacts = ContactRestraint(
            self.prepared.topology, self._positions(context), force_group=RESTRAINT_GROUP
        )
        if not contacts.violations(self._positions(context)):
            return
        system = self._with_density(density)
        system.addForce(contacts.create_force())
        apart = openmm.Context(system, openmm.VerletIntegrator(0.001), *self._platform())
        apart.setPositions(context.getState(positions=True).getPositions())
        for name, value in context.getParameters().items():
            apart.setParameter(name, value)
        for times in CONTACT_STRENGTHS:
            apart.setParameter(contacts.parameter_name, times * contacts.default_strength)
            self._minimize(apart, iterations)
            if not contacts.violations(self._positions(apart)):
                break
        context.setPositions(apart.getState(positions=True).getPositions())

    def _minimize(self, context: openmm.Context, iterations: int, stop: StopRequest | None = None) -> None:
        if iterations == 0:  # to the minimiser, no limit
            return
        # While it minimises with a reporter OpenMM does not let go of Python, for which PythonForce waits in another thread on a
        # GPU: there it minimises in stretches instead, and looks between them whether to stop.
        in_stretches = self.force_backend == "PythonForce" and self.platform not in ("CPU", "Reference")
        stretch = MINIMIZED_AT_ONCE if in_stretches else iterations
        reporter = None if stop is None or in_stretches else StoppableMinimization(stop)
        try:
            for done in range(0, iterations, stretch):
                if in_stretches and stop is not None and stop.requested:
                    break
                at_once = min(stretch, iterations - done)
                openmm.LocalEnergyMinimizer.minimize(context, maxIterations=at_once, reporter=reporter)
        except openmm.OpenMMException as error:
            if "NaN" not in str(error):
                raise
            raise SimulationError(
                f"{self.prepared.model.path}: the energy cannot be minimised: look for clashes in the model, or lower the "
                "strength."
            ) from None

    def _rebuild(
        self,
        context: openmm.Context,
        density: DensityFit,
        state: RunState,
        stage: Stage,
        say: Progress,
        stop: StopRequest,
    ) -> None:
        """Shift stretches of a Context's model and turn side chains, as the stage asks for; warm what comes out."""
        begun = time.perf_counter()

        def tell(doing: str) -> None:
            say(state.step, self.protocol.steps, doing, None)

        tell("rebuild")
        # What fits is told best at full strength.
        self._set_strength(context, density, state, 1.0)
        strength = context.getParameter(density.parameter_name)
        rebuilding = Rebuilding(
            self.prepared, self._force_field, self.density_map, density, strength, self.threads, tell
        )
        undone = False
        try:
            self._minimize(context, REBUILDING_MINIMIZATION)
            if stage.register and self.prepared.solvent != "water":
                self._place(context, rebuilding.with_shifted_stretches(self._positions(context), stop))
            if stop.requested:
                return
            self._place(context, rebuilding.with_turned_side_chains(self._positions(context)))
            self._warm(context, stage.temperature[0], self._random_seed(state))
        except (_Unstable, SimulationError):  # it was better as it was
            undone = True
            context.setPositions(state.positions)
            context.setVelocities(state.velocities)
        finally:
            state.rebuilding.append(
                {
                    "stage": stage.name,
                    "step": state.step,
                    **rebuilding.changes.as_dict(),
                    "undone": undone,
                    "wall_seconds": time.perf_counter() - begun,
                }
            )

    def _place(self, context: openmm.Context, positions: np.ndarray) -> None:
        """Put atoms where they were built (Å), and minimise what does not fit together there."""
        context.setPositions(parted(self._bare, positions / ANGSTROM_PER_NANOMETER, *self._platform()))
        self._minimize(context, REBUILDING_MINIMIZATION)

    def _warm(self, context: openmm.Context, kelvin: float, seed: int) -> None:
        """Give velocities, and begin with small steps, as what was built is strained."""
        integrator = context.getIntegrator()
        usual = integrator.getStepSize()
        _set_temperature(integrator, kelvin)
        context.setVelocitiesToTemperature(kelvin, seed)
        integrator.setStepSize(SMALL_STEP * usual)
        try:
            self._step(context, SMALL_STEPS, StopRequest())
        finally:
            integrator.setStepSize(usual)

    def _taken_back(self, state: RunState, folder: RunFolder | None, what: str) -> RunState:
        """Give the last good state, to go on with more care."""
        caution = state.caution + 1
        if caution > MOST_BLOW_UPS:
            where = "" if folder is None else f" (the last good model is {folder.last_good})"
            raise SimulationError(
                f"the simulation became unstable {caution} times, though step and strength were halved each time; the last time "
                f"{what}{where}: lower the strength, or look for clashes in the model."
            )
        if folder is not None:
            cut_trajectory(folder.trajectory, state.frames)
        state = copy.deepcopy(state)
        state.caution = caution
        state.segment += 1
        state.blow_ups.append(
            f"The simulation became unstable ({what}); it was taken back to step {state.step}, and went on with "
            f"{self.protocol.timestep / 2**caution:g} fs and strength / {2**caution}."
        )
        return state

    def _context(self, state: RunState, stage: Stage) -> tuple[openmm.Context, DensityFit]:
        """Make a Context at a state, with what the stage holds, and give its density force, whose strength is 0."""
        density, system = self._system_for(state, stage)
        context = openmm.Context(system, self._integrator(state, stage), *self._platform())
        if state.box is not None:
            context.setPeriodicBoxVectors(*state.box)
        context.setPositions(state.positions)
        context.setVelocities(state.velocities)
        context.setParameter(density.parameter_name, 0.0)
        self._let_go(context, stage)
        self._set_planarity(
            context, self._stable_planarity(state) if "planarity" in stage.restraints else 0.0
        )
        return context, density

    def _let_go(self, context: openmm.Context, stage: Stage) -> None:
        """Take the strength of what a stage does not hold."""
        for restraint in self.restraints:
            if restraint.name not in stage.restraints:
                context.setParameter(restraint.parameter_name, 0.0)

    def _integrator(self, state: RunState, stage: Stage) -> openmm.Integrator:
        protocol, interval = self.protocol, self.protocol.density_interval
        temperature = stage.temperature[0]
        step = self.timestep / 2**state.caution
        if interval == 1:
            integrator = openmm.LangevinMiddleIntegrator(temperature, protocol.friction, step)
        else:
            groups = [(DENSITY_GROUP, 1), (FORCE_FIELD_GROUP, interval), (RESTRAINT_GROUP, interval)]
            integrator = MTSLangevinIntegrator(temperature, protocol.friction, interval * step, groups)
        integrator.setRandomNumberSeed(self._random_seed(state))
        return integrator

    def _random_seed(self, state: RunState) -> int:
        """Give other noise to every segment; to OpenMM, 0 means any."""
        drawn = np.random.SeedSequence([self.seed, state.segment]).generate_state(1)[0]
        return 1 + int(drawn) % (2**31 - 2)

    def _platform(self) -> tuple[openmm.Platform, dict[str, str]]:
        platform = openmm.Platform.getPlatformByName(self.platform)
        return platform, platform_properties(platform, self.threads)

    def _step(self, context: openmm.Context, length: int, stop: StopRequest) -> int:
        """Make so many steps, or fewer after a request to stop; give how many."""
        interval = self.protocol.density_interval
        at_once = max(STEPS_AT_ONCE // interval, 1) * interval
        done = 0
        try:
            while done < length and not stop.requested:
                steps = min(at_once, length - done)
                context.getIntegrator().step(steps // interval)
                done += steps
        except openmm.OpenMMException as error:
            if "NaN" not in str(error):
                raise
            raise _Unstable("positions are not numbers any more") from None
        return done

    def _check_stable(self, context: openmm.Context, state: RunState, stage: Stage) -> None:
        velocities = context.getState(velocities=True).getVelocities(asNumpy=True)
        kelvin = self._temperature(_numbers(velocities, unit.nanometer / unit.picosecond))
        if not kelvin < max(HOT, TIMES_TOO_HOT * max(stage.temperature)):
            raise _Unstable(f"at step {state.step} it was {kelvin:.4g} K hot")

    def _full_strength(self, state: RunState, stage: Stage) -> float:
        if self.protocol.strength != "auto":
            return float(self.protocol.strength)
        # The density at its full resolution is weighed against the force field alone, with planarity or without.
        held = tuple(name for name in stage.restraints if name != "planarity")
        context, _ = self._context(state, replace(stage, resolution=None, restraints=held))
        # At a minimum, or in a cold model, there are hardly any forces to weigh against.
        _set_temperature(context.getIntegrator(), WARM)
        context.setVelocitiesToTemperature(WARM, self._random_seed(state))
        self._step(context, WARM_STEPS, StopRequest())
        calibrated = self.density.calibrate(context, FORCE_RATIO, STRENGTH_BOUNDS)
        return calibrated / self.density.n_fitted_atoms

    def _set_strength(
        self, context: openmm.Context, density: DensityFit, state: RunState, part: float
    ) -> None:
        per_atom = part * (state.strength or 0.0) / 2**state.caution
        context.setParameter(density.parameter_name, per_atom * density.n_fitted_atoms)

    def _set_planarity(self, context: openmm.Context, strength: float) -> None:
        if self.planarity is not None:
            context.setParameter(self.planarity.parameter_name, strength)

    def _stable_planarity(self, state: RunState) -> float:
        """Give the strength of planarity that the time step bears: 1, or less where planes share light atoms."""
        if self.planarity is None:
            return 0.0
        step = self.timestep / 2**state.caution
        return min(1.0, (STABLE_FRACTION * self.planarity.stable_timestep(self.system) / step) ** 2)

    def _positions(self, context: openmm.Context) -> np.ndarray:
        return _numbers(context.getState(positions=True).getPositions(asNumpy=True), unit.angstrom)

    def _take(self, context: openmm.Context, state: RunState) -> None:
        """Put a Context's positions, velocities and box into a state."""
        found = context.getState(positions=True, velocities=True)
        state.positions = _numbers(found.getPositions(asNumpy=True), unit.nanometer)
        state.velocities = _numbers(found.getVelocities(asNumpy=True), unit.nanometer / unit.picosecond)
        if self.system.usesPeriodicBoundaryConditions():
            state.box = _numbers(found.getPeriodicBoxVectors(asNumpy=True), unit.nanometer)

    def _save(self, folder: RunFolder | None, state: RunState, started: float) -> None:
        if folder is not None:
            state.wall_seconds = time.perf_counter() - started
            folder.save(state, self.prepared.topology, self.prepared.b_factors)

    def _trajectory(
        self, folder: RunFolder | None, state: RunState
    ) -> AbstractContextManager[Trajectory | None]:
        if folder is None:
            return nullcontext()
        topology = self.prepared.topology
        return Trajectory(folder.trajectory, topology, self.timestep, self.report_interval, state.frames)

    def _check_state(self, folder: RunFolder, state: RunState) -> None:
        if state.positions.shape != self.prepared.positions.shape or state.stage > len(self.protocol.stages):
            raise InputError(f"{folder.path}: its state is not one of this fit: start it anew.")

    def _row(self, context: openmm.Context, run: RunState, stage: str) -> Row:
        state = context.getState(energy=True, positions=True, velocities=True)
        positions = _numbers(state.getPositions(asNumpy=True), unit.angstrom)
        velocities = _numbers(state.getVelocities(asNumpy=True), unit.nanometer / unit.picosecond)
        density = context.getState(energy=True, groups={DENSITY_GROUP})
        in_input = self.prepared.input_positions(positions)
        strength = context.getParameter(self.density.parameter_name)
        return Row(
            step=run.step,
            stage=stage,
            potential_energy=state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole),
            density_energy=density.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole),
            strength=strength / self.density.n_fitted_atoms,
            similarity=self.density.similarity(positions),
            cc=self._correlation.cc_mask(in_input),
            temperature=self._temperature(velocities),
            planarity_rms=self.planes.rms(in_input),
            ca_rmsd=None
            if self.reference is None
            else ca_rmsd(positions, self.reference.positions, self._pairs),
            cc_free=None if self._free_correlation is None else self._free_correlation.cc_mask(in_input),
        )

    def _temperature(self, velocities: np.ndarray) -> float:
        twice_kinetic = float((self._masses[:, None] * velocities**2).sum())
        return twice_kinetic / (max(self._freedom, 1) * _GAS_CONSTANT)

    def _time_density(self, context: openmm.Context) -> float:
        """Give the median milliseconds of evaluating the density force alone."""
        context.getState(forces=True, groups={DENSITY_GROUP})
        ticks = []
        for _ in range(TIMINGS + 1):
            ticks.append(time.perf_counter())
            context.getState(forces=True, groups={DENSITY_GROUP})
        return 1000 * float(np.median([b - a for a, b in itertools.pairwise(ticks)]))


def _numbers(quantity: Any, in_unit: unit.Unit) -> np.ndarray:
    return np.array(quantity.value_in_unit(in_unit), dtype=np.float64)


def _set_temperature(integrator: openmm.Integrator, kelvin: float) -> None:
    if isinstance(integrator, openmm.CustomIntegrator):
        integrator.setGlobalVariableByName("kT", _GAS_CONSTANT * kelvin)
    else:
        integrator.setTemperature(kelvin)


def _restraint_options(
    held: Iterable[str], solvent: str, restrain_to: Model | None
) -> dict[str, dict[str, Any]]:
    """Give what restraints are told beside the start."""
    options: dict[str, dict[str, Any]] = {}
    if solvent == "water" and "position" in held:
        options["position"] = {"periodic": True}
    if restrain_to is not None:
        if "distance" not in held:
            raise InputError('restrain_to is for the restraint "distance": add it, or leave restrain_to out.')
        options["distance"] = {"reference": restrain_to}
    return options


def platform_properties(platform: openmm.Platform, threads: int | None = None) -> dict[str, str]:
    """Give what a Context asks of a platform: the same forces each time and sums in double precision, where it can choose.

    Parameters
    ----------
    platform : openmm.Platform
    threads : int, optional
        Of the CPU platform; all cores by default.
    """
    wanted = {"Precision": "mixed", "DeterministicForces": "true"}
    if threads is not None:
        wanted["Threads"] = str(threads)
    return {name: value for name, value in wanted.items() if name in platform.getPropertyNames()}


def _check_start(model: Model, density_map: DensityMap, resolution: float) -> None:
    """Refuse what would be found out late, or never."""
    kinds = ((residue_kind(residue), len(residue)) for residue in model.topology.residues())
    if all(kind == "water" or (kind == "other" and size == 1) for kind, size in kinds):
        raise InputError(f"{model.path}: it holds no atoms but those of water and ions: give a molecule.")
    voxel, side = density_map.voxel_size.max(), (density_map.size * density_map.voxel_size).max()
    if 0 < resolution < voxel:
        raise InputError(
            f"resolution={resolution:g} is finer than the map's voxels of {voxel:.2f} Å can hold: give that of the map, which is "
            f"{2 * voxel:.1f} Å at best."
        )
    if side < resolution:
        raise InputError(
            f"resolution={resolution:g} is coarser than the map is wide, {side:.0f} Å: give that of the map."
        )


def _check_run(seed: int, platform: str, threads: int | None) -> None:
    if not 0 <= seed < 2**31 - 1:
        raise InputError(f"seed must be from 0 to {2**31 - 2}, found {seed}.")
    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise InputError(f"threads must be from 1 to {MOST_THREADS}, found {threads}.")
    names = [openmm.Platform.getPlatform(i).getName() for i in range(openmm.Platform.getNumPlatforms())]
    if platform not in names:
        raise InputError(f'platform="{platform}" is not here: use one of {", ".join(names)}.')
    found = openmm.Platform.getPlatformByName(platform)
    system = openmm.System()
    system.addParticle(1.0)
    try:
        openmm.Context(system, openmm.VerletIntegrator(0.001), found, platform_properties(found))
    except openmm.OpenMMException as error:  # a plugin without a device
        raise InputError(
            f'platform="{platform}" does not run here ({one_line(error)}): use another, such as CPU; openmm-density doctor '
            "says what runs."
        ) from None


def _interval(name: str, steps: int, protocol: Protocol) -> int:
    """Check a number of steps between two events; at least one of them falls into a fit."""
    if steps < 1:
        raise InputError(f"{name} must be at least 1 step, found {steps}.")
    if steps % protocol.density_interval:
        raise InputError(
            f"{name} must be a multiple of density_interval, which is {protocol.density_interval}, found {steps}."
        )
    return min(steps, protocol.steps)


class _Unstable(Exception):
    """The simulation blew up; the message says how, to stand inside a sentence."""


_CONSTRAINT_TOLERANCE = 1e-6
_GAS_CONSTANT = unit.MOLAR_GAS_CONSTANT_R.value_in_unit(unit.kilojoule_per_mole / unit.kelvin)
