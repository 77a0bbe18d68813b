"""The searches before stages of a fit: what no dynamics finds is rebuilt, and warmed, or undone."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property

import numpy as np

from openmm_density.kernels import compilation

from ..base.errors import SimulationError
from ..base.stopwatch import counted
from ..models.chemistry.side_chains import SIDE_CHAINS
from ..models.chemistry.torsions import peptide_torsions
from ..validation.correlation import MapCorrelation
from .engine import Engine
from .fit_map import FitMap
from .interrupts import StopRequest
from .protocols import ALIKE, REGISTERED, Protocol
from .rebuilding import PEPTIDES_SEEN, Changes, Rebuilding, SearchPlan, Share, SideChainEvidence, TrialWorkers
from .rebuilding.bonded_terms import BondedTerms
from .rebuilding.register_search import RegisterSearch
from .rebuilding.surrounding_mates import SurroundingMates
from .run_state import RunState
from .stability import Unstable
from .stage_context import StageContext

# Iterations enough to bring warm atoms to rest, and fitted rotamers into place.
_MINIMIZATION = 100


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
            sum(residue.name in SIDE_CHAINS for residue in prepared.topology.residues()),
            registers=prepared.solvent != "water",
            n_peptides=len(peptide_torsions(prepared.topology)) if fit_map.resolution <= PEPTIDES_SEEN else 0,
            by_energy=fit_map.resolution < ALIKE,
        )

    def expect(self, first_stage: int) -> None:
        """Start the processes if they are needed before a stage, from one on: they load while others compute."""
        shares = [self.plan.before(number) for number in range(first_stage, self._n_stages)]
        wanted = [share for share in shares if share is not None and not share.is_nothing]
        if any(share.register or share.peptides for share in wanted):
            # On CUDA nothing goes on beside what loads code for the GPU; there the first of the processes compiles it.
            if self._engine.platform[0].getName() != "CUDA":
                compilation.load_kernels_ahead(("local_dynamics",))
            self.workers.start()

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
        changes, undone, tried = Changes(), False, 0.0
        if not share.is_nothing:
            say("rebuild")
            rebuilding = self._rebuilding(running, state, say)
            try:
                self._rebuild(rebuilding, running, state, share, stop)
                undone = stop.requested  # before all of it was minimised
            except (Unstable, SimulationError):  # it was better as it was
                undone = True
            if undone:
                running.restore(state)
            changes, tried = rebuilding.changes, rebuilding.work
        state.rebuilding.append(
            {
                "stage": running.stage.name,
                "step": state.step,
                **changes.as_dict(),
                "undone": undone,
                "left_out": list(share.left_out),
                "work": self.plan.work(share, tried),
                "wall_seconds": time.perf_counter() - started,
            }
        )

    def _rebuilding(self, running: StageContext, state: RunState, say: Callable[[str], None]) -> Rebuilding:
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
    ) -> None:
        with counted("settling"):
            self._engine.minimizer.minimize(running.context, _MINIMIZATION, stop)
        positions = running.positions()
        if share.register:
            with counted("register"):
                shifted = rebuilding.with_shifted_stretches(
                    positions, stop, share.register, by_energy=not share.only_evidence
                )
            positions = self._settled(running, positions, shifted, stop)
        if share.peptides:
            with counted("peptides"):
                flipped = rebuilding.with_flipped_peptides(positions, stop)
            positions = self._settled(running, positions, flipped, stop)
        with counted("side_chains"):
            # Before heat, and as more is to be shifted, what is in each other's way changes anyway.
            fitted = rebuilding.with_fitted_rotamers(positions, stop, packed=running.stage.rotamers)
        self._settled(running, positions, fitted, stop)
        with counted("settling"):
            running.warm(state, running.stage.temperature[0], stop)

    def _settled(
        self, running: StageContext, before: np.ndarray, found: np.ndarray, stop: StopRequest
    ) -> np.ndarray:
        """Return the positions in Å after what a search found was minimised; where it found nothing, as they were."""
        if found is before:
            return before
        with counted("settling"):
            self._engine.minimizer.place(running.context, found, _MINIMIZATION, stop)
        return running.positions()
