"""The searches before stages of a fit: what no dynamics finds is rebuilt, and warmed, or undone."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from typing import Any

import openmm

from openmm_density.kernels import compilation

from ...base.errors import SimulationError
from ...base.stopwatch import counted_as
from ...energies.density_fit import DensityFit
from ...fitting.engine import FitParts
from ...fitting.extension import FitExtension
from ...fitting.interrupts import StopRequest
from ...fitting.protocols import ALIKE, REGISTERED
from ...fitting.run_state import RunState
from ...fitting.stability import Unstable
from ...fitting.stage_context import StageContext
from ...fitting.stage_run import Watch
from ...validation.correlation import MapCorrelation
from .bonded_terms import BondedTerms
from .changes import FlippedSugar
from .peptide_search import PEPTIDES_SEEN
from .rebuilding import Rebuilding
from .search_plan import SearchPlan, Share
from .side_chain_evidence import evidence_in
from .surrounding_mates import SurroundingMates
from .trial_workers import TrialWorkers

# Of a quench after which warm atoms are at rest.
_HALTS = 3
# Iterations in which what was rebuilt makes room for its hydrogens.
_MINIMIZATION = 50


class Searches(FitExtension):
    """Rebuild parts of the model before the stages that ask for it, as far as there is time for.

    `name` by which a state notes what was done.
    """

    def __init__(self, name: str, parts: FitParts) -> None:
        engine, protocol, fit_map = parts.engine, parts.protocol, parts.fit_map
        prepared, density = engine.systems.prepared, engine.systems.density
        self.name, self._parts, self._engine, self._fit_map = name, parts, engine, fit_map
        self._held: list[dict[str, Any]] = []
        # The density, its strength, and what was made of them for the last search.
        self._known: tuple[DensityFit | None, float, Rebuilding | None] = None, 0.0, None
        self._workers = TrialWorkers(parts.options.threads, prepared.topology.getNumResidues())
        searchable = density.measure.compares_widths
        self._plan = SearchPlan(
            [(stage, searchable and stage.strength[0] > 0) for stage in protocol.stages],
            protocol.search,
            prepared.topology.getNumAtoms(),
            on_gpu=engine.platform[0].getName() not in ("CPU", "Reference"),
            registers=prepared.solvent != "water",
            peptides=fit_map.resolution <= PEPTIDES_SEEN,
        )

    @contextmanager
    def running(self, state: RunState) -> Iterator[None]:
        """Load the kernel that trials need while others compute, if there is a search to come; end what tries them."""
        coming = map(self.rebuilds_before, range(state.stage, len(self._parts.protocol.stages)))
        platform = self._engine.platform[0].getName()
        self._hold_sugars(state, None)
        with self._workers:
            # On CUDA nothing here goes on beside what loads code for the GPU; the first of the processes compiles it.
            if any(coming):
                if platform != "CUDA":
                    compilation.load_kernels_ahead(("local_dynamics",))
                if platform not in ("CPU", "Reference"):  # the cores have little else to do
                    self._workers.start()
            yield

    def rebuilds_before(self, number: int) -> bool:
        """Whether there is a search before a stage."""
        return self._plan.before(number) is not None

    def before_stage(
        self, running: StageContext, state: RunState, asked: Mapping[str, Any], watch: Watch
    ) -> None:
        """Make the search before a stage, where there is one."""
        # A state that was rolled back may hold others.
        self._hold_sugars(state, running.context)
        made = state.found.get(self.name, [])
        share = self._plan.before(state.stage, made)
        if share is not None:
            with self._parts.stopwatch.part("searches"):
                done = self._made(running, state, share, lambda doing: watch.say(state, doing), watch.stop)
                state.found[self.name] = [*made, done]

    def _hold_sugars(self, state: RunState, context: openmm.Context | None, *more: FlippedSugar) -> None:
        """Hold sugars and bases where the searches of a state, and more flips, left them."""
        made = [
            sugar for each in state.found.get(self.name, ()) if not each["undone"] for sugar in each["sugars"]
        ]
        made += map(asdict, more)
        if made == self._held:
            return
        prepared, held = self._engine.systems.prepared, {"pucker": {}, "base": {}}
        given = [atom.residue.index for atom in prepared.model.topology.atoms()]
        residues = [atom.residue.index for atom in prepared.topology.atoms()]
        of_row = {given[a]: residues[b] for b, a in enumerate(prepared.input_index.tolist()) if a >= 0}
        for sugar in made:
            held[sugar["kind"]][of_row[sugar["row"]]] = math.radians(sugar["after"])
        self._engine.systems.hold_sugars(held, context)
        self._engine.contexts.forget()
        self._held = made

    def _made(
        self,
        running: StageContext,
        state: RunState,
        share: Share,
        say: Callable[[str], None],
        stop: StopRequest,
    ) -> dict[str, Any]:
        """Shift stretches, flip peptides and fit rotamers of a Context's model, and warm it; return what was done."""
        started = time.perf_counter()
        say("rebuild")
        rebuilding = self._rebuilding(running, state, share.work, say)
        before = running.context.getState(positions=True, velocities=True)
        try:
            rebuilt = self._rebuild(rebuilding, running, state, share, stop)
            undone = stop.requested  # before all of it was minimised
        except (Unstable, SimulationError):  # it was better as it was
            rebuilt, undone = False, True
        if undone or not rebuilt:
            running.context.setPositions(before.getPositions())
            running.context.setVelocities(before.getVelocities())
            self._hold_sugars(state, running.context)
        return {
            "stage": running.stage.name,
            "step": state.step,
            **rebuilding.changes.as_dict(),
            "undone": undone,
            "left_out": rebuilding.changes.left_out,
            "work": self._plan.work(rebuilding.work),
            "wall_seconds": time.perf_counter() - started,
        }

    def _rebuilding(
        self, running: StageContext, state: RunState, room: float, say: Callable[[str], None]
    ) -> Rebuilding:
        # What fits is told best at full strength.
        running.set_scale(state, 1.0)
        systems, resolution = self._engine.systems, self._fit_map.resolution
        made = state.found.get(self.name, [])
        again = any(each.get("places_tried") and not each.get("undone") for each in made)
        density, strength, known = self._known
        if known is not None and density is running.density and strength == running.strength:
            return known.renewed(say, again, room)
        mates, correlation = self._mates(running)
        found = Rebuilding(
            systems.prepared,
            self._force_field,
            correlation,
            running.density,
            running.strength,
            self._workers,
            say,
            evidence_in(self._fit_map, systems.prepared.topology),
            # Between them the energy does not tell, and beyond nothing else does, where a protocol asks for it.
            by_energy=not ALIKE <= resolution <= REGISTERED,
            again=again,
            mates=mates,
            room=room,
        )
        if mates is None:  # which are where the model was
            self._known = running.density, running.strength, found
        return found

    def _mates(self, running: StageContext) -> tuple[SurroundingMates | None, MapCorrelation]:
        """Return the symmetry mates around the model as it is, and what correlates both with the map."""
        systems, resolution = self._engine.systems, running.density.resolution
        topology = systems.prepared.topology
        if systems.operators is None:
            return None, self._fit_map.correlation(topology, resolution)
        links = systems.symmetry_links
        mates = SurroundingMates(topology, running.positions(), systems.operators, links)
        return mates, MapCorrelation(self._fit_map.density_map, mates.topology, resolution)

    @cached_property
    def _force_field(self) -> BondedTerms:
        # Of a large model it takes a second to read, and is the same for all searches.
        return BondedTerms(self._engine.systems.force_field)

    def _rebuild(
        self,
        rebuilding: Rebuilding,
        running: StageContext,
        state: RunState,
        share: Share,
        stop: StopRequest,
    ) -> bool:
        """Search the model at rest, and warm it again if anything was rebuilt; return whether it was."""
        with counted_as("settling"):
            running.come_to_rest(_HALTS, stop)
        found = before = running.positions()
        if share.register:
            with counted_as("register"):
                found = rebuilding.with_shifted_stretches(found, stop, share.by_energy)
        if share.peptides:
            with counted_as("peptides"):
                found = rebuilding.with_flipped_peptides(found, stop)
        if share.flips:
            with counted_as("peptides"):
                found = rebuilding.with_flipped_sugars(found, stop, share.peptides)
        with counted_as("side_chains"):
            # Before heat, and as more is to be shifted, what is in each other's way changes anyway.
            found = rebuilding.with_fitted_rotamers(found, stop, packed=running.stage.rotamers)
        if found is before or stop.requested:
            return False
        # At once, or what was flipped would be pulled back.
        self._hold_sugars(state, running.context, *rebuilding.changes.sugars)
        with counted_as("settling"):
            self._engine.minimizer.place(running.context, found, _MINIMIZATION, stop)
            running.warm(state, running.stage.temperature[0], stop)
        return True
