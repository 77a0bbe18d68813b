"""How the stages of a fit run: from each saved state to the next, stopped, or rolled back where the simulation blew up."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any
from typing import Protocol as Shape

import numpy as np

from ..base.errors import SimulationError
from ..energies.calibration import STRENGTH_BOUNDS
from .checkpoints import RunFolder, Trajectory, cut_trajectory
from .convergence import Plateau
from .engine import FitParts
from .final_trials import HALTS_BEFORE, FinalTrials
from .fit_result import Progress, Row
from .interrupts import StopRequest
from .ligand_watch import LOOK_INTERVAL
from .measurements import Measurements, PendingRow
from .platforms import repeats_itself
from .protocols import UPDATE_INTERVAL, Stage
from .run_state import RunState
from .stability import Unstable
from .stage_context import StageContext

# What an automatic strength is weighed on: forces of a model that is warm, in K and steps, whatever the protocol does.
WARM, WARM_STEPS = 300.0, 100
# The root mean square force of the density over that of the force field.
FORCE_RATIO = 0.5
MOST_BLOW_UPS = 3


class StageDriver(Shape):
    """What steps a stage; its Context shows the model that is followed after every step, for log and trajectory."""

    def is_at(self, running: StageContext, state: RunState) -> bool:
        """Return whether it can `go_on` from a saved state, without a new one being made."""

    def go_on(self, running: StageContext, state: RunState) -> None:
        """Go on from a saved state, shown in another Context."""

    def step(self, stage_step: int, length: int, stop: StopRequest) -> int:
        """Make so many steps; return how many were made."""

    def look_at_ligands(self, state: RunState) -> None:
        """See to ligands with a learned potential, see `StageContext.look_at_ligands`."""

    def update(self, state: RunState) -> None:
        """Put what it needs to go on into a state."""

    def finish(
        self, state: RunState, stop: StopRequest, ca_rmsd: Callable[[np.ndarray], float | None]
    ) -> None:
        """Show the model with which the fit goes on, once the stage has ended."""


@dataclass(frozen=True)
class Watch:
    """What a run tells of its progress, and listens to."""

    progress: Progress  # See `FlexibleFit.run`
    stop: StopRequest
    steps: int  # Of the whole protocol

    def say(self, state: RunState, doing: str, row: Row | None = None) -> None:
        """Tell where the fit is, what is being done, and the newest row of the log."""
        self.progress(state.step, self.steps, doing, row)


class StageRun:
    """Run the stages of a protocol in segments, each from a saved state to the next."""

    def __init__(
        self,
        parts: FitParts,
        extensions: Sequence[Any],
        measurements: Measurements,
        trials: FinalTrials,
    ) -> None:
        self._parts, self._extensions = parts, extensions
        self._engine, self._protocol, self._options, *_, self._stopwatch = parts
        self._measurements, self._trials = measurements, trials
        self._ongoing: StageDriver | None = None
        self._attempted: RunState | None = None
        # Of the segment in progress, those of which something is yet computed.
        self._unfinished: deque[PendingRow] = deque()

    def segment(
        self, before: RunState, folder: RunFolder | None, watch: Watch, save: Callable[[RunState], None]
    ) -> RunState:
        """Run to the next state to be saved, or the end of the stage, whichever comes first; `save` where a signal comes."""
        state = self._attempted = before.next_segment()
        self._unfinished.clear()
        stage = self._protocol.stages[state.stage]
        careful = state.rolled_back
        self._find_strengths(state, stage, watch)
        self._engine.safeguard.begin(state.positions)
        # A new one at every saved state, so that in one thread a resumed fit repeats the uninterrupted one bit for bit.
        running = StageContext(self._engine, state, stage)
        self._prepare(running, state, watch)
        driver = None if watch.stop.requested else self._driver(running, state, careful)
        interval = self._options.save_interval
        last = min(stage.steps, state.stage_step + interval - state.step % interval)
        converged = False
        with self._trajectory(folder, state) as trajectory:
            while state.stage_step < last and not converged:
                self._step(running, state, last, watch, driver)
                if watch.stop.requested:
                    break
                self._report(running, state, trajectory, watch)
                converged = running.follow(state)
        ended = state.stage_step >= stage.steps or converged or watch.stop.requested
        if driver is not None:
            if ended:
                driver.finish(state, watch.stop, self._measurements.ca_rmsd)
                self._ongoing = None
            else:
                driver.update(state)
        running.update(state)
        self._finish_rows(state, wait=True)
        # What a batch system ends goes on to the same bits, where any fit does.
        saves = watch.stop.by_user or (watch.stop.requested and not repeats_itself(*self._engine.platform))
        if saves and driver is None and before.stage_step < state.stage_step < last:
            save(state)
        if ended:
            for extension in self._extensions:
                extension.after_stage(running, state, self._engine.systems.asked, watch.stop)
            state.ended.append(running.outcome(state, converged))
            state.stage, state.stage_step, state.plateau = state.stage + 1, 0, Plateau()
            # What blew up is over: the way there, or a search's strain, of which the next stage knows nothing.
            state.caution = 0
        return state

    def rolled_back(self, state: RunState, folder: RunFolder | None, error: Unstable) -> RunState:
        """Return the last good state, to go on from with more care, after the segment from it blew up."""
        if folder is not None:
            folder.finish()
            cut_trajectory(folder.trajectory, state.frames)
        self._engine.contexts.forget()
        again = state.next_segment()
        self._keep_final_strength(again)
        is_kept = folder is not None and folder.last_good.exists()
        where = f" (the last good model is {folder.last_good})" if is_kept else ""
        otherwise = error.amended(again, self._protocol, where)
        if otherwise is None:
            self._take_care(again, error, where)
        else:
            again.blow_ups.append(otherwise)
        return again

    def _keep_final_strength(self, state: RunState) -> None:
        """Note in a state that is rolled back to what was found in the segment that blew up, and need not be found again."""
        tried = self._attempted
        if tried is not None and state.final_strength is None:
            state.final_strength, state.final_search = tried.final_strength, tried.final_search

    def _take_care(self, state: RunState, error: Unstable, where: str) -> None:
        """Halve the time step of a state that is rolled back to, and from the second time on the strength."""
        state.caution, state.rolled_back = state.caution + 1, True
        if state.caution > MOST_BLOW_UPS:
            raise SimulationError(
                f"the simulation became unstable {state.caution} times, though its steps were halved each time and then also "
                f"the strength; the last time {error}{where}: lower the strength, or look for clashes in the model."
            )
        stage = self._protocol.stages[state.stage]
        halved = state.strength_halvings
        timestep = 1000 * self._engine.dynamics.timestep(state, stage)
        state.blow_ups.append(
            f"The simulation became unstable ({error}); it was rolled back to step {state.step}, and went on with "
            f"{timestep:g} fs{f' and strength / {2**halved}' if halved else ''} to the end of the stage."
        )

    def row(self, running: StageContext, state: RunState, name: str) -> PendingRow:
        """Return the row of the log for a Context, once that is sound."""
        safeguard = self._engine.safeguard
        motion = safeguard.check(running.context)
        with self._stopwatch.part("scoring"):
            kelvin = self._engine.dynamics.temperature(motion.velocities)
            row = self._measurements.row(running.context, running.density, state.step, name, kelvin)
        if not np.isfinite(row.known.potential_energy):
            raise safeguard.explained(running.context)
        return row

    def _find_strengths(self, state: RunState, stage: Stage, watch: Watch) -> None:
        """Find, in Contexts that are free again for the stage, the strengths that it needs and the state does not have yet."""
        if state.strength is None and stage.strength[1] > 0:
            state.strength = self._full_strength(state, stage, watch.stop)
        if state.final_strength is None and stage.final and not watch.stop.requested:
            self._find_final_strength(state, stage, watch)

    def _prepare(self, running: StageContext, state: RunState, watch: Watch) -> None:
        """Do what comes before the steps of a segment: settle what was rolled back, and what extensions do."""
        # Where the geometry becomes stiff all at once, what it is strained by would be heat.
        stiffened = running.stage.final and state.stage_step == 0 and not watch.stop.requested
        if state.rolled_back or stiffened:
            # As trials of the final strength do: a GPU that minimises where there are constraints may go on on the CPU.
            running.settle(state, watch.stop, None if state.rolled_back else HALTS_BEFORE)
            state.rolled_back = False
        if state.stage_step == 0 and not watch.stop.requested:
            for extension in self._extensions:
                extension.before_stage(running, state, self._engine.systems.asked, watch)

    def _driver(self, running: StageContext, state: RunState, careful: bool) -> StageDriver | None:
        """Return what steps a stage in place of one model's dynamics, at a state: where it can, what stepped it up to there."""
        if self._ongoing is not None and self._ongoing.is_at(running, state):
            self._ongoing.go_on(running, state)
        else:
            of = self._parts, running, state, careful
            made = (extension.driver(*of) for extension in self._extensions)
            self._ongoing = next((each for each in made if each is not None), None)
        return self._ongoing

    def _step(
        self,
        running: StageContext,
        state: RunState,
        last: int,
        watch: Watch,
        driver: StageDriver | None,
    ) -> None:
        """Step to the next update of the strength, report, or end of the segment; check what came out."""
        interval = self._options.report_interval
        length = min(last - state.stage_step, interval - state.step % interval)
        if driver is None:
            running.apply(state)
            length = min(length, UPDATE_INTERVAL - state.stage_step % UPDATE_INTERVAL)
        started = time.perf_counter()
        if driver is None:
            done = self._engine.dynamics.step(running.context, length, watch.stop)
        else:
            done = driver.step(state.stage_step, length, watch.stop)
        state.seconds += time.perf_counter() - started
        state.step, state.stage_step = state.step + done, state.stage_step + done
        self._engine.dynamics.checked(running.context, state.step, running.stage)
        # A short fit has stages that end before that.
        if state.stage_step % LOOK_INTERVAL == 0 or state.stage_step >= running.stage.steps:
            (running if driver is None else driver).look_at_ligands(state)

    def _report(
        self, running: StageContext, state: RunState, trajectory: Trajectory | None, watch: Watch
    ) -> None:
        """Add a row and a frame where they are due, and tell of the rows that are complete."""
        if state.step % self._options.report_interval == 0:
            self._unfinished.append(self.row(running, state, running.stage.name))
            if trajectory is not None:
                running.update(state)
                trajectory.add(state.positions, state.box)
                state.frames += 1
        watch.say(state, running.stage.name, self._finish_rows(state))

    def _finish_rows(self, state: RunState, wait: bool = False) -> Row | None:
        """Put the rows that are complete, in their order, into a state, and return the newest of them; or wait for all."""
        row = None
        with self._stopwatch.part("scoring"):
            while self._unfinished and (wait or self._unfinished[0].is_done):
                row = self._unfinished.popleft().result()
                state.rows.append(row)
        return row

    def _trajectory(
        self, folder: RunFolder | None, state: RunState
    ) -> AbstractContextManager[Trajectory | None]:
        if folder is None:
            return nullcontext()
        topology, timestep = self._engine.systems.prepared.topology, self._engine.dynamics.full_timestep
        return Trajectory(folder.trajectory, topology, timestep, self._options.report_interval, state.frames)

    def _full_strength(self, state: RunState, stage: Stage, stop: StopRequest) -> float | None:
        """Return k in kJ/mol per fitted atom; None where it is to be calibrated and a request to stop comes before."""
        if self._protocol.strength != "auto":
            return float(self._protocol.strength)
        # The density at its full resolution is weighed against the force field alone, with planarity or without.
        restraints = tuple(name for name in stage.restraints if name != "planarity")
        warm = StageContext(self._engine, state, replace(stage, resolution=None, restraints=restraints))
        # At a minimum, or in a cold model, there are hardly any forces to weigh against.
        warm.warm(state, WARM, stop, steps=WARM_STEPS, part=1.0)
        if stop.requested:  # it is not warm
            return None
        density = self._engine.systems.density
        return density.calibrate(warm.context, FORCE_RATIO, STRENGTH_BOUNDS) / density.n_fitted_atoms

    def _find_final_strength(self, state: RunState, stage: Stage, watch: Watch) -> None:
        """Note in the state the final strength, and how it was found; nothing where a request to stop comes before."""
        sought = self._protocol.final_strength_sought
        if sought != "auto":
            state.final_strength = state.strength if sought is None else float(sought)
            return
        with self._stopwatch.part("final_strength"):
            found = self._trials.find(state, stage, lambda doing: watch.say(state, doing), watch.stop)
        if found is not None:
            state.final_strength, state.final_search = found.chosen, found.as_dict()
