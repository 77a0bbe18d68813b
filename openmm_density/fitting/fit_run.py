"""A fit from its start to its result: minimise, the stages, minimise, through interruptions and blow-ups."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from hashlib import sha256
from typing import Any

import numpy as np
import openmm
from openmm import unit

from ..base.errors import DeveloperWarning, InputError, SimulationError
from ..base.garbage import return_memory, without_collection
from ..base.stopwatch import Stopwatch
from ..base.units import ANGSTROM_PER_NANOMETER
from ..models.preparation import Prepared
from ..models.structure_files import Header, prepared_header
from ..validation.geometry import GeometryReport
from .checkpoints import RunFolder
from .engine import Engine, FitParts
from .final_trials import FinalTrials
from .fit_map import FitMap
from .fit_result import FitResult, Progress, Row
from .fit_systems import FitSystems
from .helper_processes import HelperProcesses
from .improvement import why_not_better
from .installed_extensions import extensions
from .interrupts import Deadline, StopRequest
from .ligand_watch import check_same_potentials
from .locks import FolderLock
from .measurements import NO_GROUP, Measurements, density_milliseconds
from .options import RunOptions
from .platforms import make_context
from .protocols import Protocol
from .run_state import RunState
from .stability import Unstable
from .stage_context import StageContext, array_in
from .stage_run import StageRun, Watch

# After Ctrl-C, which is waited for, and a batch system's signal, which is not waited for long: iterations and seconds.
HASTY_MINIMIZATION, HASTY_SECONDS = 100, 2.0

_CONSTRAINT_TOLERANCE = 1e-6


class FitRun:
    """Run a fit, or go on with one. `solute`: the model without solvent; `beside`: what writes models of saved states."""

    def __init__(
        self,
        systems: FitSystems,
        fit_map: FitMap,
        protocol: Protocol,
        options: RunOptions,
        measurements: Measurements,
        solute: Prepared,
        stopwatch: Stopwatch,
        beside: HelperProcesses,
    ) -> None:
        self.engine = Engine(systems, protocol, options)
        self._parts = FitParts(self.engine, protocol, options, fit_map, solute, stopwatch)
        self.extensions = [extension.in_fit(self._parts) for extension in extensions()]
        self._trials = FinalTrials(self.engine, protocol, solute.topology, systems.dictionaries)
        self.stages = StageRun(self._parts, self.extensions, measurements, self._trials)
        self._protocol, self._measurements, self._stopwatch = protocol, measurements, stopwatch
        self._prepared = systems.prepared
        self._explain_time, self._beside = options.explain_time, beside
        self._geometry: dict[bytes, GeometryReport] = {}

    def run(
        self,
        folder: RunFolder | None,
        progress: Progress | None,
        on_interrupt: Callable[[], None] | None,
        on_end: Callable[[], None] | None,
    ) -> FitResult:
        """Run to the end or a signal; see `FlexibleFit.run`."""
        holding = nullcontext() if folder is None else FolderLock(folder.path)
        with (
            self._stopwatch.part("dynamics"),
            holding,
            StopRequest(on_interrupt, on_end) as stop,
            ExitStack() as running,
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore", DeveloperWarning)
            watch = Watch(progress or (lambda *_: None), stop, self._protocol.steps)
            state = self._first_state(folder, watch)
            if self._beside.has_processes and state.final_strength is None:
                self._trials.find_bounds_beside(state)
            for extension in self.extensions:
                running.enter_context(extension.running(state))
            while state.stage < len(self._protocol.stages) and not stop.requested:
                try:
                    state = self.stages.segment(state, folder, watch, partial(self._save, folder))
                except Unstable as error:
                    state = self.stages.rolled_back(state, folder, error)
                if not stop.requested:
                    self._save(folder, state)
            watch.say(state, "minimize")
            try:
                with self._stopwatch.part("minimization"):
                    result = self._finalize(state, stop)
            except Unstable as error:
                raise self._blown_up(f"at the end ({error})") from None
            self.engine.forget()
            if folder is not None:
                folder.finish()
            if result.interrupted and folder is not None:
                # The time since the last saved state was spent as well.
                folder.save_times(self._stopwatch)
            return result

    def _first_state(self, folder: RunFolder | None, watch: Watch) -> RunState:
        """Return the state that a folder holds, or begin."""
        if folder is not None and folder.holds_a_state:
            state = folder.load()
            self._check(state, folder)
            stopwatch = self._stopwatch
            stopwatch.add(folder.load_times(stopwatch), folder.load_times_within(stopwatch))
            return state
        watch.progress(0, self._protocol.steps, "minimize", None)
        try:
            with self._stopwatch.part("minimization"):
                state = self.initial_state(watch.stop)
        except Unstable as error:
            raise self._blown_up(f"from the start ({error})") from None
        self._save(folder, state)
        return state

    @without_collection()
    def initial_state(self, stop: StopRequest) -> RunState:
        """Minimise without density and without constraints; draw the first velocities."""
        engine, first = self.engine, self._protocol.stages[0]
        with stop.raising():
            context = make_context(
                engine.systems.without_density, openmm.VerletIntegrator(0.001), engine.platform
            )
            engine.systems.release_restraints(context, first)
            ligands = engine.ligands.begun(self._prepared.positions / ANGSTROM_PER_NANOMETER)
            engine.ligands.apply(context, ligands)
        engine.minimizer.place(context, self._prepared.positions, self._protocol.minimize_first, stop)
        relaxed = array_in(context.getState(positions=True).getPositions(asNumpy=True), unit.nanometer)
        # They would lie beside the next ones: half a gigabyte of a large model, and a third.
        del context
        engine.minimizer.forget_first()
        return_memory()
        with stop.raising():
            return self._relaxed_state(relaxed, ligands)

    def _relaxed_state(self, relaxed: np.ndarray, ligands: list[dict[str, Any]]) -> RunState:
        """Return the state that a fit begins with, once its model is minimised, at positions in nm."""
        engine, first = self.engine, self._protocol.stages[0]
        state = RunState(
            positions=relaxed, velocities=np.zeros_like(relaxed), relaxed=relaxed, ligands=ligands
        )
        running = StageContext(engine, state, first)
        running.look_at_ligands(state)
        running.context.applyConstraints(_CONSTRAINT_TOLERANCE)
        state.rows.append(self.stages.row(running, state, "minimize").result())
        running.context.setVelocitiesToTemperature(first.temperature[0], engine.dynamics.seed(state))
        running.update(state)
        return state

    def _finalize(self, state: RunState, stop: StopRequest) -> FitResult:
        """Minimise with the density, measure what came out, and keep the better model."""
        interrupted = stop.requested
        stages = self._protocol.stages
        last_run = stages[max(state.stage - 1, 0)] if interrupted else stages[-1]
        stage = replace(last_run, resolution=None, pressure=None)
        running = StageContext(self.engine, state, stage)
        running.set_scale(state, 0.0 if state.strength is None else stage.strength[1])
        density_ms = density_milliseconds(running.context)
        by_force = self._milliseconds_by_force(running)
        self._minimize_last(running, state, stop)
        found = self._found_at_end(running, state, stop)
        # Resumed, a minimisation that was cut short is made again.
        interrupted = stop.requested
        running.look_at_ligands(state, holds=False)
        with self._stopwatch.part("scoring"):
            last = self.stages.row(running, state, "minimize").result()
        result = self._result(state, last, running, density_ms, interrupted)
        return self._better(replace(result, ms_by_force=by_force).with_found(**found))

    def _found_at_end(self, running: StageContext, state: RunState, stop: StopRequest) -> dict[str, Any]:
        """Return what extensions find in the Context of the minimised model, by name."""
        found: dict[str, Any] = {}
        for extension in self.extensions:
            found |= extension.at_end(self._parts, running, state, stop)
        return found

    def _milliseconds_by_force(self, running: StageContext) -> dict[str, float] | None:
        """Return what each force takes, where it was asked for."""
        if not self._explain_time:
            return None
        system = self.engine.systems.with_density(running.density, running.stage.final)
        return milliseconds_by_force(system, running.context, self.engine.platform)

    def _minimize_last(self, running: StageContext, state: RunState, stop: StopRequest) -> None:
        running.restrain_planarity_fully()
        try:
            if stop.requested:
                hasty = HASTY_MINIMIZATION, Deadline(HASTY_SECONDS)
                self.engine.minimizer.minimize(running.context, *hasty)
            else:
                self._trials.come_to_rest(running, self._protocol.minimize_last, stop)
        except SimulationError as error:  # the dynamics were sound
            state.blow_ups.append(f"The last minimisation was undone: {error}")

    def _result(
        self, state: RunState, last: Row, running: StageContext, density_ms: float, interrupted: bool
    ) -> FitResult:
        measurements, initial = self._measurements, self._prepared.positions
        with self._stopwatch.part("scoring"):
            cc_reference = measurements.cc_reference()
        return FitResult(
            prepared=self._prepared,
            initial=initial,
            relaxed=state.relaxed * ANGSTROM_PER_NANOMETER,
            final=running.positions(),
            rows=[*state.rows, last],
            stages=state.ended,
            blow_ups=state.blow_ups,
            ligands=state.ligands,
            interrupted=interrupted,
            steps=state.step,
            strength=state.strength or 0.0,
            final_strength=last.strength,
            final_search=state.final_search,
            cc_initial=measurements.cc_initial,
            cc_final=last.cc,
            similarity_initial=self.engine.systems.density.similarity(initial),
            similarity_final=last.similarity,
            cc_reference=cc_reference,
            ca_rmsd_initial=measurements.ca_rmsd(initial),
            ca_rmsd_final=last.ca_rmsd,
            ms_per_step=1000 * state.seconds / max(state.step, 1),
            density_ms_per_step=density_ms,
            wall_seconds=self._stopwatch.seconds,
            force_backend=self.engine.systems.force_backend,
            found=state.found,
        )

    def geometry(self, positions: np.ndarray) -> GeometryReport:
        """Return the geometry of the model without solvent, at positions (N, 3) in Å, found once for each."""
        key = sha256(positions.tobytes()).digest()
        if key not in self._geometry:
            self._geometry[key] = self._trials.geometry(positions)
        return self._geometry[key]

    def _better(self, result: FitResult) -> FitResult:
        """Keep the model as it was where the fit came to its end and did not make it better."""
        if result.interrupted or not result.strength:
            return result
        with self._stopwatch.part("scoring"):
            geometry = [self.geometry(positions) for positions in (result.initial, result.final)]
            fell = not result.cc_final >= result.cc_initial
            noise = self._measurements.cc_noise(result.initial, result.cc_initial) if fell else 0.0
        because = why_not_better(result.cc_initial, result.cc_final, *geometry, noise)
        if because is None:
            return result
        return result.keeping_before(because)

    @cached_property
    def _header(self) -> Header:
        return prepared_header(self._prepared)

    def _save(self, folder: RunFolder | None, state: RunState) -> None:
        if folder is not None:
            with self._stopwatch.part("writing"):
                prepared = self._prepared
                folder.save(state, prepared.topology, prepared.b_factors, self._header, self._beside)
                folder.save_times(self._stopwatch)

    def _check(self, state: RunState, folder: RunFolder) -> None:
        if state.positions.shape != self._prepared.positions.shape or state.stage > len(
            self._protocol.stages
        ):
            raise InputError(
                "its state is not one of this fit", source=folder.path, remedy="start the fit again"
            )
        check_same_potentials(state.ligands, self.engine.ligands.placed, folder.path)

    def _blown_up(self, when: str) -> SimulationError:
        return SimulationError(
            f"{self._prepared.model.path}: the simulation blows up {when}: look for clashes in the model there."
        )


FORCES = {
    "NonbondedForce": "nonbonded",
    "CustomNonbondedForce": "nonbonded",
    "GBSAOBCForce": "solvent",
    "CustomGBForce": "solvent",
    "HarmonicBondForce": "bonds",
    "HarmonicAngleForce": "angles",
    "PeriodicTorsionForce": "torsions",
    "RBTorsionForce": "torsions",
    "CMAPTorsionForce": "torsions",
    "CustomTorsionForce": "torsions",
    "RamachandranRestraint": "Ramachandran",
    "PlanarityRestraint": "planarity",
    "DensityFit": "density",
}
"""What forces are called in messages, by their names in a System; others are the rest."""
REST = "rest"

# Of which the fastest counts.
_ROUNDS, _STEPS = 3, 4


def milliseconds_by_force(
    system: openmm.System, context: openmm.Context, platform: tuple[openmm.Platform, dict[str, str]]
) -> dict[str, float]:
    """Return the milliseconds that an evaluation of each kind of force takes, those of none deducted; the longest first."""
    kinds = sorted({_kind(force) for force in system.getForces()})
    for force in system.getForces():
        force.setForceGroup(kinds.index(_kind(force)))
    # In steps that move nothing: what a State of the forces takes is more than the forces of a large model do on a GPU.
    timed = make_context(system, openmm.VerletIntegrator(1e-9), platform)
    timed.setState(context.getState(positions=True, parameters=True))
    nothing = _milliseconds(timed, NO_GROUP)
    found = {kind: max(_milliseconds(timed, group) - nothing, 0.0) for group, kind in enumerate(kinds)}
    return dict(sorted(found.items(), key=lambda each: (each[0] == REST, -each[1])))


def _milliseconds(context: openmm.Context, group: int) -> float:
    """Return the time of a step in which one force group acts."""
    integrator = context.getIntegrator()
    integrator.setIntegrationForceGroups({group})
    ticks = []
    for _ in range(_ROUNDS + 1):  # the first one allocates, compiles or records
        ticks.append(time.perf_counter())
        integrator.step(_STEPS)
        context.getState(positions=True)  # a GPU has done them then
    return 1000 * float(np.diff([*ticks[1:], time.perf_counter()]).min()) / _STEPS


def _kind(force: openmm.Force) -> str:
    return FORCES.get(force.getName(), REST)
