"""The fit of a model to a map: minimise, the stages of a protocol, minimise, through interruptions and blow-ups."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import openmm
import torch
from openmm import unit

from ..chemistry.planes import find_planes
from ..chemistry.side_chains import SIDE_CHAINS
from ..energies.density_fit import STRENGTH_BOUNDS, DensityFit
from ..errors import DeveloperWarning, InputError, SimulationError
from ..maps.corrections import MapCorrections
from ..maps.density_map import DensityMap
from ..models.preparation import prepare
from ..models.structure_files import prepared_header
from ..models.structures import Model
from ..restraints.planarity import SIGMA
from ..stopwatch import Stopwatch
from ..units import ANGSTROM_PER_NANOMETER, in_angstrom, positions_in_angstrom
from ..validation.correlation import MapCorrelation
from ..validation.geometry import geometry_report
from ..validation.map_checks import MapChecks, check_map_units
from .checkpoints import RunFolder, Trajectory, cut_trajectory
from .checks import check_pressures, check_resolutions, check_seed, check_start, checked_interval
from .convergence import Plateau
from .dynamics import Dynamics, set_temperature
from .fit_result import FitResult, Progress, Row
from .fit_systems import FitSystems
from .improvement import why_not_better
from .interrupts import Deadline, StopRequest
from .locks import FolderLock
from .map_examination import placed_and_checked
from .measurements import Measurements, density_milliseconds
from .minimization import Minimizer
from .placement import Placement
from .platforms import check_platform, platform_named
from .protocols import UPDATE_INTERVAL, Protocol, Stage, find_protocol
from .rebuilding import Changes, Rebuilding, SearchPlan, Share
from .relaxation import Strain
from .run_state import RunState
from .solvation import solvated
from .stability import Safeguard, Unstable

REPORT_INTERVAL = 200
SAVE_INTERVAL = 2000
# What an automatic strength is weighed on: forces of a model that is warm, in K and steps, whatever the protocol does.
WARM, WARM_STEPS = 300.0, 100
# The root mean square force of the density over that of the force field.
FORCE_RATIO = 0.5
# Enough to bring warm atoms to rest, and turned side chains into place.
REBUILDING_MINIMIZATION = 100
MOST_BLOW_UPS = 3
# Of a model that blew up, before it is warmed again.
WARM_UP_MINIMIZATION = 100
# After Ctrl-C, which is waited for, and a batch system's signal, which is not waited for long: iterations and seconds.
HASTY_MINIMIZATION, HASTY_SECONDS = 100, 2.0

_CONSTRAINT_TOLERANCE = 1e-6


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
        the density, or beside its own. Or where it was placed before.
    forcefield : str or sequence of str
        "amber14", "charmm36", or OpenMM force field files.
    solvent : {"none", "obc", "gbn2", "water"}
        See `openmm_density.models.force_fields`. In water the fit begins with an equilibration at constant pressure.
    ligand_forcefield : {"openff", "gaff"}, optional
        What parametrises ligands that the force field does not know; by default they are kept rigid. See
        `openmm_density.models.ligands`.
    ligands : mapping of str to str, optional
        SMILES by residue name; by default those of the dictionaries.
    search : {"off", "auto", "full"}, optional
        In place of the protocol's, see `Protocol`.
    restrain_to : Model, optional
        Another model of the same molecule, whose distances the restraint "distance" keeps in place of those of the start.
    reference : Model, optional
        A model of the target, to report the distance to. It has no part in the fit.
    free_map : DensityMap, optional
        Another map of the same, such as the other half map, to report the correlation with. It has no part in the fit.
    corrections : MapCorrections, optional
        What the maps are corrected for first: voxel size, hand, sign.
    map_checks : MapChecks, optional
        What was found out about the map before, as of a fit that goes on: neither map nor place is then looked at again.
    planarity : float, Quantity or None
        σ in Å with which flat groups are held flat; None leaves them to the force field.
    dictionaries : path or sequence of paths
        Restraint dictionaries of ligands, which tell what is flat in them.
    allow_scripts : bool
        Whether force field files that are not OpenMM's own may run the Python code that they hold.
    stopwatch : Stopwatch, optional
        That of the program around this fit; by default its own, which counts its construction, run and writing.
    **density_options
        Passed to `DensityFit`: ``similarity``, ``weights``, ``atoms``, ``mask`` …

    Attributes
    ----------
    protocol : Protocol
    density_map : DensityMap
        The target, corrected.
    corrections : MapCorrections
    map_checks : MapChecks
        What was found out about the map with the model where it starts.
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
    stopwatch : Stopwatch
        What took how long.
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
        search: str | None = None,
        restrain_to: Model | None = None,
        reference: Model | None = None,
        free_map: DensityMap | None = None,
        corrections: MapCorrections | None = None,
        map_checks: MapChecks | None = None,
        planarity: Any = SIGMA,
        dictionaries: Sequence[str | os.PathLike[str]] | str | os.PathLike[str] = (),
        allow_scripts: bool = False,
        stopwatch: Stopwatch | None = None,
        **density_options: Any,
    ) -> None:
        self.stopwatch = stopwatch or Stopwatch()
        self.stopwatch.begin("preparation")
        check_seed(seed)
        check_platform(platform, threads)
        self.seed, self.platform, self.threads = seed, platform, threads
        self.forcefield = [forcefield] if isinstance(forcefield, str) else list(forcefield)
        self.corrections = corrections = corrections or MapCorrections()
        read = density_map
        self.density_map = density_map = corrections.apply(density_map)
        free_map = None if free_map is None else corrections.apply(free_map)
        self.reference = reference
        self.dictionaries = dictionaries
        resolution = in_angstrom(resolution, "resolution")
        check_map_units(density_map, model.topology, model.positions)
        check_start(model, density_map, resolution)
        if map_checks is not None or isinstance(place, Placement):
            self.map_checks = map_checks or MapChecks()
            self.placement = place if isinstance(place, Placement) else None
        else:
            with self.stopwatch.part("placement"):
                self.map_checks, self.placement = placed_and_checked(
                    model, read, density_map, resolution, place, corrections
                )
        if self.placement is not None:
            model = self.placement.apply(model)
        if (
            model.space_group and not density_map.periodic
        ):  # whatever crystal the model comes from, it is not in it here
            model = replace(model, space_group="")
        self.prepared = self.solute = prepare(
            model,
            forcefield,
            solvent=solvent,
            platform=platform,
            ligand_forcefield=ligand_forcefield,
            ligands=ligands,
            dictionaries=dictionaries,
            allow_scripts=allow_scripts,
        )
        if solvent == "water":
            self.prepared = solvated(self.solute, density_map, platform=platform)
        self.planes = find_planes(
            model.topology, model.positions, SIGMA if planarity is None else planarity, dictionaries
        )
        if not isinstance(protocol, Protocol):
            protocol = find_protocol(protocol, resolution)
        # Scored is what the user gave, atom for atom: hydrogens that were built have no say.
        correlation = MapCorrelation(density_map, model.topology, resolution)
        self._cc_initial = correlation.cc_mask(model.positions)
        protocol = protocol.from_start(self._cc_initial)
        if search is not None:
            protocol = replace(protocol, search=search)
        self.protocol = protocol = protocol.in_water() if solvent == "water" else protocol
        check_pressures(protocol, solvent)
        self._systems = systems = FitSystems(
            self.prepared,
            density_map,
            resolution,
            protocol,
            cc_initial=self._cc_initial,
            seed=seed,
            platform=platform,
            restrain_to=restrain_to,
            planarity=planarity,
            dictionaries=dictionaries,
            density_options=density_options,
        )
        self.restraints, self.planarity, self.notes = systems.restraints, systems.planarity, systems.notes
        self.density, self.system, self.force_backend = systems.density, systems.system, systems.force_backend
        self.report_interval = checked_interval("report_interval", report_interval, protocol)
        self.save_interval = checked_interval("save_interval", save_interval, protocol)
        check_resolutions(protocol, self.density.resolution, density_map)
        self._platform = platform_named(platform, threads)
        self._safeguard = Safeguard(self.prepared.topology, self.system)
        self._dynamics = Dynamics(protocol, self.system, seed, self._safeguard)
        self._minimizer = Minimizer(systems, self._safeguard, *self._platform)
        self._measurements = Measurements(
            self.prepared, self.density, correlation, self.planes, reference, free_map
        )
        self._searches = SearchPlan(
            [(stage, self._has_density(stage)) for stage in protocol.stages],
            protocol.search,
            self.prepared.topology.getNumAtoms(),
            sum(residue.name in SIDE_CHAINS for residue in self.prepared.topology.residues()),
            registers=solvent != "water",
        )
        backbone = [a.index for a in self.prepared.topology.atoms() if a.name in ("CA", "P")]
        self._traced = np.array(backbone or range(self.prepared.topology.getNumAtoms()))
        self.stopwatch.end()

    @property
    def timestep(self) -> float:
        """The time step in ps."""
        return self.protocol.timestep / 1000

    @cached_property
    def start_strain(self) -> Strain:
        """What is bad in the geometry of the start, with what was built, so that it is relaxed in stages."""
        return self._minimizer.strain(self.prepared.positions)

    def rebuilds_before(self, number: int) -> bool:
        """Whether parts of the model are rebuilt before a stage of the protocol, by its number from 0."""
        share = self._searches.before(number)
        return share is not None and not share.is_nothing

    @property
    def unsearched(self) -> list[str]:
        """The stages before which something is not searched for, as the fit has few steps."""
        shares = ((stage.name, self._searches.before(n)) for n, stage in enumerate(self.protocol.stages))
        return [name for name, share in shares if share is not None and share.left_out]

    def _has_density(self, stage: Stage) -> bool:
        """Whether a stage has a density that searches can be made in."""
        return stage.strength[0] > 0 and self.density.measure.compares_widths

    def run(
        self,
        folder: RunFolder | None = None,
        progress: Progress | None = None,
        on_interrupt: Callable[[], None] | None = None,
        on_end: Callable[[], None] | None = None,
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
        on_end : callable, optional
            Called when a second one comes, before it ends the process.

        Raises
        ------
        InputError
            If a fit is running in the folder, or its state is not one of this fit.
        SimulationError
            If the simulation becomes unstable again and again.
        KeyboardInterrupt
            After SIGINT or SIGTERM before the dynamics began. Later these end the fit, and give what there is.
        """
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        say = progress or (lambda *_: None)
        holding = nullcontext() if folder is None else FolderLock(folder.path)
        with (
            self.stopwatch.part("dynamics"),
            holding,
            StopRequest(on_interrupt, on_end) as stop,
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore", DeveloperWarning)
            if folder is not None and folder.holds_a_state:
                state = folder.load()
                self._check_state(folder, state)
                self.stopwatch.add(folder.load_times(self.stopwatch))
            else:
                say(0, self.protocol.steps, "minimize", None)
                try:
                    with self.stopwatch.part("minimization"):
                        state = self._begun(stop)
                except Unstable as error:
                    raise self._blown_up(f"from the start ({error})") from None
                self._save(folder, state)
            while state.stage < len(self.protocol.stages) and not stop.requested:
                try:
                    state = self._segment(state, folder, say, stop)
                except Unstable as error:
                    state = self._rolled_back(state, folder, str(error))
                if not stop.requested:
                    self._save(folder, state)
            say(state.step, self.protocol.steps, "minimize", None)
            try:
                with self.stopwatch.part("minimization"):
                    result = self._ended(state, stop)
            except Unstable as error:
                raise self._blown_up(f"at the end ({error})") from None
            if result.interrupted and folder is not None:
                # The time since the last saved state was spent as well.
                folder.save_times(self.stopwatch)
            return result

    def _blown_up(self, when: str) -> SimulationError:
        return SimulationError(
            f"{self.prepared.model.path}: the simulation blows up {when}: look for clashes in the model there."
        )

    def _begun(self, stop: StopRequest) -> RunState:
        """Minimise without density and without constraints; give all a first velocity."""
        context = openmm.Context(
            self._systems.without_density, openmm.VerletIntegrator(0.001), *self._platform
        )
        self._systems.let_go(context, self.protocol.stages[0])
        self._minimizer.place(context, self.prepared.positions, self.protocol.minimize_first, stop)
        if stop.requested:
            raise KeyboardInterrupt
        relaxed = _numbers(context.getState(positions=True).getPositions(asNumpy=True), unit.nanometer)
        state = RunState(positions=relaxed, velocities=np.zeros_like(relaxed), relaxed=relaxed)
        context, _ = self._context(state, self.protocol.stages[0])
        context.applyConstraints(_CONSTRAINT_TOLERANCE)
        state.rows.append(self._row(context, state, "minimize"))
        context.setVelocitiesToTemperature(self.protocol.stages[0].temperature[0], self._dynamics.seed(state))
        self._take(context, state)
        return state

    def _segment(
        self, before: RunState, folder: RunFolder | None, say: Progress, stop: StopRequest
    ) -> RunState:
        """Run to the next state to be saved, or the end of the stage, whichever comes first; leave the state before as it was."""
        state = before.next_segment()
        stage = self.protocol.stages[state.stage]
        self._safeguard.begin(state.positions)
        context, density = self._context(state, stage)
        adaptive, plateau = state.adaptive, state.plateau
        if state.strength is None and stage.strength[1] > 0:
            state.strength = self._full_strength(state, stage, stop)
        if state.rolled_back:
            self._settle(context, density, state, stage, stop)
            state.rolled_back = False
        if state.stage_step == 0 and not stop.requested:
            share = self._searches.before(state.stage, state.rebuilding)
            if share is not None:
                with self.stopwatch.part("searches"):
                    self._rebuild(context, density, state, stage, share, say, stop)
        last = min(stage.steps, state.stage_step + self.save_interval - state.step % self.save_interval)
        converged = False
        with self._trajectory(folder, state) as trajectory:
            while state.stage_step < last and not converged:
                block = state.stage_step // UPDATE_INTERVAL
                part = min((block + 0.5) * UPDATE_INTERVAL / stage.steps, 1.0)
                factor = adaptive.factor if stage.adaptive else 1.0
                self._set_strength(context, density, state, stage.strength_at(part) * factor)
                set_temperature(context.getIntegrator(), stage.temperature_at(part))
                ends = ((block + 1) * UPDATE_INTERVAL, last)
                to_report = self.report_interval - state.step % self.report_interval
                length = min(min(ends) - state.stage_step, to_report)
                begun = time.perf_counter()
                done = self._dynamics.step(context, length, stop)
                state.seconds += time.perf_counter() - begun
                state.step, state.stage_step = state.step + done, state.stage_step + done
                self._dynamics.checked(context, state.step, stage)
                if stop.requested:
                    break
                if state.step % self.report_interval == 0:
                    row = self._row(context, state, stage.name)
                    state.rows.append(row)
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
            state.stage, state.stage_step, state.plateau = state.stage + 1, 0, Plateau()
        return state

    def _ended(self, state: RunState, stop: StopRequest) -> FitResult:
        """Minimise with the density, and say what came out."""
        interrupted = stop.requested
        index = max(state.stage - 1, 0) if interrupted else len(self.protocol.stages) - 1
        stage = replace(self.protocol.stages[index], resolution=None, pressure=None)
        context, density = self._context(state, stage)
        part = 0.0 if state.strength is None else stage.strength[1]
        self._set_strength(context, density, state, part)
        density_ms = density_milliseconds(context)
        self._systems.hold_flat(context, stage)
        iterations = HASTY_MINIMIZATION if interrupted else self.protocol.minimize_last
        try:
            self._minimizer.minimize(context, iterations, Deadline(HASTY_SECONDS) if interrupted else stop)
            if not stop.requested:
                self._minimizer.part_contacts(context, density, iterations, stop)
        except SimulationError as error:  # the dynamics were sound
            state.blow_ups.append(f"The last minimisation was undone: {error}")
        # Resumed, a minimisation that was cut short is made again.
        interrupted = stop.requested
        last = self._row(context, state, "minimize")
        final = self._positions(context)
        rows = [*state.rows, last]
        initial = self.prepared.positions
        cc_reference = None
        if self.reference is not None:
            with self.stopwatch.part("scoring"):
                correlation = MapCorrelation(
                    self.density_map, self.reference.topology, self.density.resolution
                )
                cc_reference = correlation.cc_mask(self.reference.positions)
        result = FitResult(
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
            ca_rmsd_initial=self._measurements.ca_rmsd(initial),
            ca_rmsd_final=last.ca_rmsd,
            ms_per_step=1000 * state.seconds / max(state.step, 1),
            density_ms_per_step=density_ms,
            wall_seconds=self.stopwatch.seconds,
            force_backend=self.force_backend,
        )
        return self._better(result)

    def _better(self, result: FitResult) -> FitResult:
        """Keep the model as it was where the fit came to its end and did not make it better."""
        if result.interrupted or not result.strength:
            return result
        topology = self.solute.topology
        with self.stopwatch.part("scoring"):
            geometry = [
                geometry_report(topology, positions[: topology.getNumAtoms()])
                for positions in (result.initial, result.final)
            ]
        because = why_not_better(result.cc_initial, result.cc_final, *geometry)
        return result if because is None else result.keeping_before(because)

    def _rebuild(
        self,
        context: openmm.Context,
        density: DensityFit,
        state: RunState,
        stage: Stage,
        share: Share,
        say: Progress,
        stop: StopRequest,
    ) -> None:
        """Shift stretches of a Context's model and turn side chains, as far as there is time for; warm what comes out."""
        begun = time.perf_counter()

        def tell(doing: str) -> None:
            say(state.step, self.protocol.steps, doing, None)

        def note(changes: Changes, undone: bool, tried: float) -> None:
            state.rebuilding.append(
                {
                    "stage": stage.name,
                    "step": state.step,
                    **changes.as_dict(),
                    "undone": undone,
                    "left_out": list(share.left_out),
                    "work": self._searches.work(share, tried),
                    "wall_seconds": time.perf_counter() - begun,
                }
            )

        if share.is_nothing:
            note(Changes(), False, 0.0)
            return
        tell("rebuild")
        # What fits is told best at full strength.
        self._set_strength(context, density, state, 1.0)
        strength = context.getParameter(density.parameter_name)
        rebuilding = Rebuilding(
            self.prepared, self._systems.force_field, self.density_map, density, strength, self.threads, tell
        )
        undone = False
        try:
            self._minimizer.minimize(context, REBUILDING_MINIMIZATION, stop)
            if share.register:
                shifted = rebuilding.with_shifted_stretches(self._positions(context), stop, share.register)
                self._minimizer.place(context, shifted, REBUILDING_MINIMIZATION, stop)
            turned = rebuilding.with_fitted_rotamers(self._positions(context), stop)
            self._minimizer.place(context, turned, REBUILDING_MINIMIZATION, stop)
            self._warm(context, stage.temperature[0], state, stop=stop)
            undone = stop.requested  # before all of it was minimised
        except (Unstable, SimulationError):  # it was better as it was
            undone = True
        finally:
            if undone:
                if state.box is not None:
                    context.setPeriodicBoxVectors(*state.box)
                context.setPositions(state.positions)
                context.setVelocities(state.velocities)
            note(rebuilding.changes, undone, rebuilding.work)

    def _rolled_back(self, state: RunState, folder: RunFolder | None, what: str) -> RunState:
        """Return the last good state, to go on with more care."""
        caution = state.caution + 1
        if caution > MOST_BLOW_UPS:
            where = "" if folder is None else f" (the last good model is {folder.last_good})"
            raise SimulationError(
                f"the simulation became unstable {caution} times, though step and strength were halved each time; the last time "
                f"{what}{where}: lower the strength, or look for clashes in the model."
            )
        if folder is not None:
            cut_trajectory(folder.trajectory, state.frames)
        state = state.next_segment()
        state.caution, state.rolled_back = caution, True
        state.blow_ups.append(
            f"The simulation became unstable ({what}); it was taken back to step {state.step}, and went on with "
            f"{self.protocol.timestep / 2**caution:g} fs and strength / {2**caution}."
        )
        return state

    def _settle(
        self, context: openmm.Context, density: DensityFit, state: RunState, stage: Stage, stop: StopRequest
    ) -> None:
        """Bring a Context to rest from which the last segment blew up, and begin anew with small steps."""
        part = (state.stage_step + 0.5) / max(stage.steps, 1)
        self._set_strength(context, density, state, stage.strength_at(min(part, 1.0)))
        self._minimizer.settle(context, WARM_UP_MINIMIZATION, stop)
        self._warm(context, stage.temperature_at(min(part, 1.0)), state, stop=stop)

    def _warm(self, context: openmm.Context, kelvin: float, state: RunState, **how: Any) -> None:
        """Warm a Context up, see `Dynamics.warm`; what blows up is brought to rest before it is warmed in smaller steps."""
        ways = (self._minimizer.settle, self._minimizer.relax)
        relax = [partial(way, context, WARM_UP_MINIMIZATION, how.get("stop")) for way in ways]
        self._dynamics.warm(context, kelvin, self._dynamics.seed(state), relax, **how)

    def _context(self, state: RunState, stage: Stage) -> tuple[openmm.Context, DensityFit]:
        """Make a Context at a state, with what the stage holds, and give its density force, whose strength is 0."""
        positions = state.positions * ANGSTROM_PER_NANOMETER
        density, system = self._systems.of_stage(stage, positions)
        context = openmm.Context(system, self._dynamics.integrator(state, stage), *self._platform)
        if state.box is not None:
            context.setPeriodicBoxVectors(*state.box)
        context.setPositions(state.positions)
        context.setVelocities(state.velocities)
        context.setParameter(density.parameter_name, 0.0)
        self._systems.let_go(context, stage)
        self._systems.hold_flat(context, stage, self._dynamics.timestep(state))
        return context, density

    def _full_strength(self, state: RunState, stage: Stage, stop: StopRequest) -> float | None:
        """Return k in kJ/mol per fitted atom; None where it is to be calibrated and a request to stop comes before."""
        if self.protocol.strength != "auto":
            return float(self.protocol.strength)
        # The density at its full resolution is weighed against the force field alone, with planarity or without.
        held = tuple(name for name in stage.restraints if name != "planarity")
        context, _ = self._context(state, replace(stage, resolution=None, restraints=held))
        # At a minimum, or in a cold model, there are hardly any forces to weigh against.
        self._warm(context, WARM, state, steps=WARM_STEPS, part=1.0, stop=stop)
        if stop.requested:  # it is not warm
            return None
        calibrated = self.density.calibrate(context, FORCE_RATIO, STRENGTH_BOUNDS)
        return calibrated / self.density.n_fitted_atoms

    def _set_strength(
        self, context: openmm.Context, density: DensityFit, state: RunState, part: float
    ) -> None:
        per_atom = part * (state.strength or 0.0) / 2**state.caution
        context.setParameter(density.parameter_name, per_atom * density.n_fitted_atoms)

    def _positions(self, context: openmm.Context) -> np.ndarray:
        return positions_in_angstrom(context.getState(positions=True).getPositions(asNumpy=True))

    def _take(self, context: openmm.Context, state: RunState) -> None:
        """Put a Context's positions, velocities and box into a state."""
        found = context.getState(positions=True, velocities=True)
        state.positions = _numbers(found.getPositions(asNumpy=True), unit.nanometer)
        state.velocities = _numbers(found.getVelocities(asNumpy=True), unit.nanometer / unit.picosecond)
        if self.system.usesPeriodicBoundaryConditions():
            state.box = _numbers(found.getPeriodicBoxVectors(asNumpy=True), unit.nanometer)

    def _save(self, folder: RunFolder | None, state: RunState) -> None:
        if folder is not None:
            with self.stopwatch.part("writing"):
                prepared = self.prepared
                folder.save(state, prepared.topology, prepared.b_factors, prepared_header(prepared))
                folder.save_times(self.stopwatch)

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

    def _row(self, context: openmm.Context, state: RunState, stage: str) -> Row:
        motion = self._safeguard.check(context)
        with self.stopwatch.part("scoring"):
            row = self._measurements.row(
                context, state.step, stage, self._dynamics.temperature(motion.velocities)
            )
        if not np.isfinite(row.potential_energy):
            raise self._safeguard.explained(context)
        return row


def _numbers(quantity: Any, in_unit: unit.Unit) -> np.ndarray:
    return np.array(quantity.value_in_unit(in_unit), dtype=np.float64)
