"""Trials of the final strength: an annealed model is relaxed at one strength after another, each time for a short while."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from openmm import app

from ..base.errors import SimulationError
from ..base.units import ANGSTROM_PER_NANOMETER
from ..validation.geometry import GeometryReport, ModelGeometry
from .engine import Engine
from .final_strength import (
    MOST_TIMES,
    GeometryBounds,
    StrengthFound,
    StrengthTrial,
    find_final_strength,
    stiffer,
)
from .interrupts import StopRequest
from .protocols import UPDATE_INTERVAL, Protocol, Stage
from .run_state import RunState
from .stability import Unstable
from .stage_context import StageContext

TRIAL_STEPS, TRIAL_SHARE = 100, 0.02
"""Steps of a trial, at most, also as a part of those of the protocol: four times as many change RMSZ by half a hundredth."""
HALTS_BEFORE, HALTS_AFTER = 4, 6
"""Halts of the quenches before and after these: what becomes stiff all at once would be heat, and the geometry of a warm model
tells nothing."""
REST = 300
"""Iterations, at most, of each minimisation in ideal geometry that a trial ends with."""


class FinalTrials:
    """Find a fit's final strength by trials from its state; `topology` of the model without solvent, whose atoms come first."""

    def __init__(
        self, engine: Engine, protocol: Protocol, topology: app.Topology, dictionaries: Any = ()
    ) -> None:
        self._dictionaries = dictionaries
        self._engine, self._protocol, self._topology = engine, protocol, topology
        self._found_bounds: Future[GeometryBounds] | None = None
        interval = protocol.density_interval
        self._steps = interval * math.ceil(min(TRIAL_STEPS, TRIAL_SHARE * protocol.steps) / interval)

    def geometry(self, positions: np.ndarray) -> GeometryReport:
        """Return the geometry of the model with positions (N, 3) in Å."""
        return self._assessed.report(positions[: self._topology.getNumAtoms()])

    @cached_property
    def _assessed(self) -> ModelGeometry:
        return ModelGeometry(self._topology, self._dictionaries)

    def find_bounds_beside(self, state: RunState) -> None:
        """Begin to find the bounds of a run where these are needed, in a thread: OpenMM's steps leave Python to it."""
        if self._protocol.final_strength_sought != "auto":
            return
        finding = ThreadPoolExecutor(1, "bounds of the final strength")
        self._found_bounds = finding.submit(self.bounds, state)
        finding.shutdown(wait=False)

    def bounds(self, state: RunState) -> GeometryBounds:
        """Return the bounds that the relaxed model sets."""
        return GeometryBounds.of_relaxed(self.geometry(state.relaxed * ANGSTROM_PER_NANOMETER))

    def find(
        self, state: RunState, stage: Stage, say: Callable[[str], None], stop: StopRequest
    ) -> StrengthFound | None:
        """Return the final strength for the model of a state; None after a request to stop."""
        most = MOST_TIMES * (state.strength or 0.0) * self._protocol.scale_before_end
        if self._protocol.final_strength_limit is not None:
            most = min(most, self._protocol.final_strength_limit)
        running = StageContext(self._engine, state, replace(stage, steps=max(self._steps, 1)))

        def measured(strength: float) -> StrengthTrial | None:
            say(f"final strength: {strength:.0f} kJ/mol")
            try:
                self._relax(running, state, strength, stop)
                report = self.come_to_rest(running, REST, stop)
            except (Unstable, SimulationError):
                return StrengthTrial.of(strength, None)
            return None if stop.requested else StrengthTrial.of(strength, report)

        begun, self._found_bounds = self._found_bounds, None
        bounds = self.bounds(state) if begun is None else begun.result()
        found = find_final_strength(measured, bounds, most)
        self._engine.safeguard.begin(state.positions)
        return found

    def come_to_rest(
        self, running: StageContext, iterations: int, stop: StopRequest
    ) -> GeometryReport | None:
        """Minimise in ideal geometry as stiff as its bounds ask for; return what is reached, None where it was to stop before."""
        report = None

        def asked(positions: np.ndarray) -> tuple[float, float]:
            nonlocal report
            report = self.geometry(positions)
            return stiffer(report)

        if not stop.requested:
            running.rest_in_ideal_geometry(iterations, stop, asked)
        return report

    def _relax(self, running: StageContext, state: RunState, strength: float, stop: StopRequest) -> None:
        """Put a Context back to the state, run the steps of a trial, and bring it to rest in the force field."""
        dynamics, stage = self._engine.dynamics, running.stage
        self._engine.safeguard.begin(state.positions)
        self._engine.systems.set_stiff_restraints(running.context, stage, dynamics.timestep(state, stage))
        running.restore(state)
        # With what roll-backs halved, as the stage will run.
        at = replace(state, strength=strength, final_strength=strength, stage_step=0)
        running.apply(at)
        running.come_to_rest(HALTS_BEFORE, stop)
        while at.stage_step < stage.steps and not stop.requested:
            running.apply(at)
            length = min(UPDATE_INTERVAL, stage.steps - at.stage_step)
            at.stage_step += dynamics.step(running.context, length, stop)
            dynamics.checked(running.context, state.step, stage)
        running.come_to_rest(HALTS_AFTER, stop)
