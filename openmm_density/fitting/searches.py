"""The searches before stages of a fit: what no dynamics finds is rebuilt, and warmed, or undone."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property

import numpy as np

from openmm_density.kernels import compilation

from ..base.errors import SimulationError
from ..base.stopwatch import counted
from ..validation.correlation import MapCorrelation
from .engine import Engine
from .fit_map import FitMap
from .interrupts import StopRequest
from .protocols import ALIKE, REGISTERED, Protocol
from .rebuilding import PEPTIDES_SEEN, Rebuilding, SearchPlan, Share, SideChainEvidence, TrialWorkers
from .rebuilding.bonded_terms import BondedTerms
from .rebuilding.register_search import RegisterSearch
from .rebuilding.surrounding_mates import SurroundingMates
from .run_state import RunState
from .stability import Unstable
from .stage_context import StageContext

# Of a quench after which warm atoms are at rest.
_HALTS = 3
# Iterations in which what was rebuilt makes room for its hydrogens.
_MINIMIZATION = 50


class Searches:
    """Rebuild parts of the model before the stages that ask for it, as far as there is time for.

    `threads`: processes that shift stretches and flip peptides; as many as there are processor cores by default.
    Attributes: `workers`: these processes.
    """

    def __init__(self, engine: Engine, protocol: Protocol, fit_map: FitMap, threads: int | None) -> None:
        prepared, density = engine.systems.prepared, engine.systems.density
        self._engine, self._fit_map = engine, fit_map
        self.workers = TrialWorkers(threads, prepared.topology.getNumResidues())
        self._n_stages = len(protocol.stages)
        searchable = density.measure.compares_widths
        self.plan = SearchPlan(
            [(stage, searchable and stage.strength[0] > 0) for stage in protocol.stages],
            protocol.search,
            prepared.topology.getNumAtoms(),
            on_gpu=engine.platform[0].getName() not in ("CPU", "Reference"),
            registers=prepared.solvent != "water",
            peptides=fit_map.resolution <= PEPTIDES_SEEN,
        )

    def expect(self, first_stage: int) -> None:
        """Load the kernel that trials need while others compute, if there is a search before a stage, from one on."""
        shares = [self.plan.before(number) for number in range(first_stage, self._n_stages)]
        # On CUDA nothing goes on beside what loads code for the GPU; there the first of the processes compiles it.
        if any(share is not None for share in shares) and self._engine.platform[0].getName() != "CUDA":
            compilation.load_kernels_ahead(("local_dynamics",))

    def before(self, state: RunState) -> Share | None:
        """Return what may be searched before the stage that a state begins; None where nothing is asked for."""
        return self.plan.before(state.stage, state.rebuilding)

    def make(
        self,
        running: StageContext,
        state: RunState,
        share: Share,
        say: Callable[[str], None],
        stop: StopRequest,
    ) -> None:
        """Shift stretches, flip peptides and fit rotamers of a Context's model, warm it, and note in the state what was done."""
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
        state.rebuilding.append(
            {
                "stage": running.stage.name,
                "step": state.step,
                **rebuilding.changes.as_dict(),
                "undone": undone,
                "left_out": rebuilding.changes.left_out,
                "work": self.plan.work(rebuilding.work),
                "wall_seconds": time.perf_counter() - started,
            }
        )

    def _rebuilding(
        self, running: StageContext, state: RunState, room: float, say: Callable[[str], None]
    ) -> Rebuilding:
        # What fits is told best at full strength.
        running.set_scale(state, 1.0)
        systems, resolution = self._engine.systems, self._fit_map.resolution
        mates, correlation = self._mates(running)
        return Rebuilding(
            systems.prepared,
            self._force_field,
            correlation,
            running.density,
            running.strength,
            self.workers,
            say,
            self._evidence(),
            # Between them the energy does not tell, and beyond nothing else does, where a protocol asks for it.
            by_energy=not ALIKE <= resolution <= REGISTERED,
            again=any(each.get("places_tried") and not each.get("undone") for each in state.rebuilding),
            mates=mates,
            room=room,
        )

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

    def _evidence(self) -> SideChainEvidence | None:
        if self._fit_map.resolution > REGISTERED:
            return None
        topology = self._engine.systems.prepared.topology
        return SideChainEvidence(topology, self._fit_map.density_map, self._fit_map.resolution)

    def evidence_of(self, models: np.ndarray) -> np.ndarray | None:
        """Return what the density beside the backbones of some models says for their registers.

        `models` (R, N, 3) in Å. Returns (R,), natural logarithms, see `SideChainEvidence`; None where the map does not
        show it.
        """
        evidence = self._evidence()
        if evidence is None:
            return None
        chains = RegisterSearch(self._engine.systems.prepared.topology).chains
        return np.array([evidence.total(model, chains) for model in models])

    def _rebuild(
        self,
        rebuilding: Rebuilding,
        running: StageContext,
        state: RunState,
        share: Share,
        stop: StopRequest,
    ) -> bool:
        """Search the model at rest, and warm it again if anything was rebuilt; return whether it was."""
        with counted("settling"):
            running.come_to_rest(_HALTS, stop)
        found = before = running.positions()
        if share.register:
            with counted("register"):
                found = rebuilding.with_shifted_stretches(found, stop, share.by_energy)
        if share.peptides:
            with counted("peptides"):
                found = rebuilding.with_flipped_peptides(found, stop)
        with counted("side_chains"):
            # Before heat, and as more is to be shifted, what is in each other's way changes anyway.
            found = rebuilding.with_fitted_rotamers(found, stop, packed=running.stage.rotamers)
        if found is before or stop.requested:
            return False
        with counted("settling"):
            self._engine.minimizer.place(running.context, found, _MINIMIZATION, stop)
            running.warm(state, running.stage.temperature[0], stop)
        return True
