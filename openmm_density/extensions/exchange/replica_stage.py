"""A stage of a fit in which replicas exchange: the one on the last rung is followed, and the best of them goes on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import openmm
from openmm import app

from ...base.errors import SimulationError
from ...fitting.dynamics import STEPS_AT_ONCE
from ...fitting.engine import FitParts
from ...fitting.fit_map import FitMap
from ...fitting.installed_extensions import function_of_extension
from ...fitting.interrupts import StopRequest
from ...fitting.ligand_watch import LigandWatch
from ...fitting.platforms import repeats_itself
from ...fitting.protocols import Protocol, Stage
from ...fitting.run_state import RunState
from ...fitting.stability import Unstable, is_blow_up
from ...fitting.stage_context import StageContext
from ..replica_exchange import ExchangeRecord, ExchangeState, Ladder, LeftDensity, ReplicaExchange, Rung

# Enough that energies tell which model is best: what is left is far less than a misplaced side chain.
_MINIMIZATION = 200
NAME, _RAISES = "exchange", "ladder_raises"
"""By which a state has what became of the replicas of each stage: of the stage in progress, so far."""
LIGANDS = "ligands"
"""What is known of the ligands of each replica, in a state in the middle of a stage."""
# What the lowest strength is multiplied by where a replica left its density.
RAISED = 2.0


@dataclass(frozen=True)
class HeldLigands:
    """What is known of the ligands of one replica: its Context holds those that their potentials do not know."""

    watch: LigandWatch
    states: list[dict[str, Any]]  # See `LigandWatch.begun`

    def __call__(self, context: openmm.Context) -> None:
        """Hold them in a Context, and no others."""
        self.watch.apply(context, self.states)


class ReplicaLost(Unstable):
    """A replica left its density, which pulled too little on the lower rungs."""

    def amended(self, state: RunState, protocol: Protocol, where: str) -> str:
        """Raise the lowest strength of replicas for a state that is rolled back to."""
        stage, replicas = protocol.stages[state.stage], protocol.replicas
        before = ladder_at(state, stage, replicas)
        state.found[_RAISES] = [state.stage, _raises(state) + 1]
        ladder = ladder_at(state, stage, replicas)
        if ladder == before:
            raise SimulationError(
                f"{self}, at step {state.step}, though all replicas had the highest strength{where}: raise the strength of "
                f'stage "{stage.name}", or of the fit.'
            )
        return (
            f"A replica left its density; the fit was rolled back to step {state.step}, and went on with replicas from "
            f"{ladder.strengths[0]:.3g} kJ/mol per fitted atom on."
        )


class ReplicaStage:
    """The replicas of a stage, from one saved state to the next.

    `running`: all replicas begin in it, and the one on the last rung is shown there after every step, for log and trajectory.
    `careful`: whether the last segment blew up, so that all are brought to rest and begin with small steps. Raises Unstable if
    one of them blows up in these.
    """

    def __init__(
        self, parts: FitParts, running: StageContext, state: RunState, careful: bool = False
    ) -> None:
        engine, protocol, threads = parts.engine, parts.protocol, parts.options.threads
        best = function_of_extension("best_of_models", _lowest)
        self._best_of = partial(best, parts.fit_map, engine.systems.prepared.topology)
        self._interval = protocol.exchange_interval
        self._roll_backs = state.caution, _raises(state)
        self._repeats_itself = repeats_itself(*engine.platform)
        self._saved: np.ndarray | None = None
        self._ligands = engine.ligands
        self.go_on(running, state)
        ladder = ladder_at(state, running.stage, protocol.replicas)
        parameters = {
            name: value
            for name, value in running.context.getParameters().items()
            if name != running.density.parameter_name
        }
        platform, properties = engine.platform
        if "Threads" in properties or platform.getName() == "CPU":
            properties = {**properties, "Threads": "1"}
        # Not those of the state, which a search before the stage has changed.
        start: Any = running.positions()
        if self._earlier is not None:
            # A copy: the state is rolled back to if this segment blows up, and a record grows.
            record = ExchangeRecord(**deepcopy(self._earlier["record"]))
            start = ExchangeState(
                state.replica_positions, state.replica_velocities, self._earlier["rounds"], record
            )
        self._exchange = ReplicaExchange(
            running.context.getSystem(),
            running.density,
            ladder,
            start,
            planarity=engine.systems.planarity,
            parameters=parameters,
            friction=protocol.friction,
            timestep=engine.dynamics.timestep(state, running.stage),
            seed=engine.dynamics.seed(state),
            platform=(platform, properties),
            threads=min(threads or os.cpu_count() or 1, len(ladder)),
        )
        if self._ligands.placed:
            known = [state.ligands] * len(ladder)
            if self._earlier is not None and LIGANDS in self._earlier:
                known = self._earlier[LIGANDS]
            self._exchange.set_up([HeldLigands(self._ligands, each) for each in known])
        if careful:
            with _told_as_unstable():
                self._exchange.settle()

    def is_at(self, running: StageContext, state: RunState) -> bool:
        """Return whether these are where a state was saved, and go on without new Contexts; never where bits are repeated."""
        return (
            not self._repeats_itself
            and self._saved is not None
            and self._saved is state.replica_positions
            and self._density is running.density
            and self._roll_backs == (state.caution, _raises(state))
        )

    def go_on(self, running: StageContext, state: RunState) -> None:
        """Go on from a saved state, shown in another Context."""
        self._running, self._density, self._began = running, running.density, time.perf_counter()
        self._earlier = state.found[NAME][-1] if state.replica_positions is not None else None
        running.set_scale(state, running.stage.strength[1])

    def step(self, stage_step: int, length: int, stop: StopRequest) -> int:
        """Run so many steps of each replica, exchange where it is time, and show the replica on the last rung."""
        done = 0
        with _told_as_unstable():
            while done < length and not stop.requested:
                to_exchange = self._interval - (stage_step + done) % self._interval
                steps = min(STEPS_AT_ONCE, length - done, to_exchange)
                self._exchange.step(steps)
                done += steps
                if steps == to_exchange:
                    self._exchange.exchange()
            self._show(-1)
        return done

    def look_at_ligands(self, state: RunState) -> None:
        """Note whether the ligands' potentials know them in each replica; hold those that are not known, and release others."""
        if not self._ligands.placed:
            return
        now = [
            self._ligands.seen(positions, known.states, state.step)
            for positions, known in zip(self._exchange.state.positions, self._watched())
        ]
        self._exchange.set_up([HeldLigands(self._ligands, each) for each in now])
        state.ligands = now[-1]

    def _watched(self) -> list[HeldLigands]:
        return cast("list[HeldLigands]", self._exchange.set_ups)

    def update(self, state: RunState) -> None:
        """Put the replicas into a state, as its stage goes on."""
        found = self._exchange.state
        state.replica_positions, state.replica_velocities = found.positions, found.velocities
        self._saved = found.positions
        self._note(
            state, {LIGANDS: [each.states for each in self._watched()]} if self._ligands.placed else {}
        )

    def finish(
        self, state: RunState, stop: StopRequest, ca_rmsd: Callable[[np.ndarray], float | None]
    ) -> None:
        """Let the best replica go on, once all are minimised as on the last rung.

        The lower its energy and, where the map shows it, the more the density beside its backbone speaks for its register, the
        better it is: weighed as by the search for registers, where that is installed. `ca_rmsd`: distance to a reference in Å of
        positions in Å, to be reported; None where there is none.
        """
        chosen, told = len(self._exchange.ladder) - 1, {}
        if not stop.requested:
            with _told_as_unstable():
                models, energies = self._exchange.minimized(_MINIMIZATION)
            chosen, evidence = self._best_of(models, energies)
            density = self._density
            told = {
                "energies": energies.tolist(),
                "evidence": None if evidence is None else evidence.tolist(),
                "similarities": [density.similarity(model) for model in models],
                "ca_rmsd": [ca_rmsd(model) for model in models],
            }
        if self._ligands.placed:
            watched = self._watched()
            told["held_ligands"] = [
                {"residue": of_each[0]["label"], "held_times": [ligand["held_times"] for ligand in of_each]}
                for of_each in zip(*(each.states for each in watched))
            ]
            state.ligands = watched[chosen].states
        self._note(state, {"chosen": chosen, **told})
        self._show(chosen)
        state.replica_positions = state.replica_velocities = None

    def _note(self, state: RunState, more: dict[str, Any]) -> None:
        exchange, earlier = self._exchange, self._earlier
        spent = time.perf_counter() - self._began + (0.0 if earlier is None else earlier["seconds"])
        record = exchange.record
        found = {
            "stage": self._running.stage.name,
            "replicas": len(exchange.ladder),
            "strengths": exchange.ladder.strengths.tolist(),
            "temperatures": exchange.ladder.temperatures.tolist(),
            "rounds": exchange.round,
            "acceptance": record.acceptance,
            "round_trips": sum(record.round_trips),
            "replicas_needed": record.rungs_needed,
            "record": asdict(record),
            "seconds": spent,
            **more,
        }
        before = state.found.get(NAME, [])
        # A new list: a state that is rolled back to has the other.
        state.found[NAME] = [*(before if earlier is None else before[:-1]), found]

    def _show(self, rung: int) -> None:
        found = self._exchange.state
        if self._ligands.placed:
            self._watched()[rung](self._running.context)
        self._running.context.setPositions(found.positions[rung])
        self._running.context.setVelocities(found.velocities[rung])


def _lowest(_fit_map: FitMap, _topology: app.Topology, _models: np.ndarray, energies: np.ndarray) -> Any:
    """Return which model has the lowest energy, and no evidence."""
    return int(np.argmin(energies)), None


def ladder_at(state: RunState, stage: Stage, replicas: int) -> Ladder:
    """Return the ladder of a stage at a state: weaker, or from a stronger pull on, where the fit was rolled back for that."""
    full_strength = (state.strength or 0.0) / 2**state.strength_halvings
    low, high = stage.strength
    low = min(low * RAISED ** _raises(state), high)
    first, last = (Rung(full_strength * part, kelvin) for part, kelvin in zip((low, high), stage.temperature))
    return Ladder.between(first, last, replicas)


def _raises(state: RunState) -> int:
    """Return how often the lowest strength was raised for the stage in progress, as a replica had left its density."""
    stage, times = state.found.get(_RAISES, (None, 0))
    return times if stage == state.stage else 0


@contextmanager
def _told_as_unstable() -> Iterator[None]:
    """Report what goes wrong with replicas as a fit does."""
    try:
        yield
    except LeftDensity as error:
        raise ReplicaLost("a replica left its density") from error
    except SimulationError as error:
        raise Unstable(f"a replica became unstable ({error})") from None
    except openmm.OpenMMException as error:
        if not is_blow_up(error):
            raise
        raise Unstable(f"a replica became unstable ({error})") from None
