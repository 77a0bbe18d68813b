"""The search for an ensemble after the fit of one model: replicas part and settle, and are judged beside one model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import openmm
from openmm import unit

from ...base.errors import InputError
from ...base.units import positions_in_angstrom
from ...fitting.checkpoints import RunFolder
from ...fitting.fit_result import FitResult
from ...fitting.flexible_fit import FlexibleFit
from ...fitting.interrupts import Stop
from ...fitting.platforms import make_context
from ...fitting.protocols import Stage
from ...maps.density_map import DensityMap
from .crossing import best_pair, first_states
from .free_data import HALF_MAPS, FreeData, WeightedModels, compare_ensembles
from .replica_run import ReplicaRun, ReplicaState
from .replica_systems import Copies, ReplicaSystems
from .residue_widths import refined_b_factors
from .saved_search import SearchState, load_search, save_search
from .stages import parting_stages, refinement_stages
from .starts import known_models, soft_modes, starting_models
from .states import Conformation, conformations, fluctuations, trace_of
from .two_places import find_two_places
from .verdict import MainConformation, Verdict, n_conformations

MOST_PARTICLES = 4_000_000
"""Of all replicas: more take more memory than machines have."""
REFINEMENT = 0.4
"""Of the steps of the search are those of a refinement against another map."""
PART, TWO, MANY, ONE, WHOLE = "part", "two replicas", "ensemble", "one model", "whole map"
"""The legs of a search: replicas part, two of them are refined, then all, beside them one model; and all with the whole map."""
PARTING = 4
"""Replicas that look for conformations together, of which the best two go on."""
RELAXATION = 200
"""Iterations in which a model that was put together or deformed is relaxed."""
CLONES_APART = 0.5
"""Å, the RMSD along a soft mode of replicas that begin in one state."""
START_BLUR = 1.5
"""Å added to the resolution at which the starts of replicas are chosen."""
_KT = (unit.MOLAR_GAS_CONSTANT_R * 300 * unit.kelvin).value_in_unit(unit.kilojoule_per_mole)
_LEAST_STRENGTH = 2.0

Progress = Callable[[int, int, str, Any], None]


@dataclass(frozen=True)
class EnsembleResult:
    """What a search ends with: R `models` (R, N, 3) in Å, their `weights` (R,), `conformations`, and `fluctuations`
    (n_residues,): RMSF in Å.

    `cc_single`, `cc_ensemble`: CC of the fitted model and of the ensemble with the whole map, over the voxels near an atom of
    either; `strength` and `strength_of_noise`, that of the noise of half maps, which it does not exceed, in kJ/mol per fitted
    atom; `rows`: leg, stage, step, similarity and weights after each block of steps; `ligands`: what is known of ligands with
    a learned potential, model by model, see `openmm_density.fitting.ligand_watch.WatchedLigand`.
    """

    models: np.ndarray
    weights: np.ndarray
    conformations: list[Conformation]
    fluctuations: np.ndarray
    verdict: Verdict
    cc_single: float
    cc_ensemble: float
    strength: float
    strength_of_noise: float | None
    rows: list[dict[str, Any]]
    ligands: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class _Leg:
    """Replicas that are refined against a map."""

    name: str
    run: ReplicaRun
    begin: Callable[[SearchState], ReplicaState]


class EnsembleSearch:
    """Search for the conformations that a map is an average of, from a `fit` whose run has ended with `result`.

    `half_maps`: two, as they were read, by default those of the fit, or none: the replicas are then fitted to the map without
    its finest shells, and judged by these; `steps` that every replica makes: as many as the fit by default. Raises InputError
    if there are fewer than 2 replicas, the fit was in water, the half maps are none, or the replicas more than fits in memory.
    """

    def __init__(
        self,
        fit: FlexibleFit,
        result: FitResult,
        replicas: int,
        half_maps: Sequence[DensityMap] | None = None,
        steps: int | None = None,
    ) -> None:
        check_replicas(replicas, len(result.final))
        self._fit, self._result, self.replicas = fit, result, replicas
        halves = fit.half_maps
        if half_maps is not None:
            halves = [fit.corrections.apply(each) for each in half_maps]
        self.data = data = FreeData.of(fit.density_map, halves, fit.fit_map.resolution)
        self._topology = result.prepared.topology
        self.strength_of_noise = self._strength_of_noise()
        full = result.final_strength or result.strength or _LEAST_STRENGTH
        limit = np.inf if self.strength_of_noise is None else self.strength_of_noise
        self.strength = float(np.clip(full, _LEAST_STRENGTH, max(limit, _LEAST_STRENGTH)))
        resolution = data.resolution
        self._copies = Copies(fit._systems, fit.protocol, fit.platform, result.final)
        steps = fit.protocol.steps if steps is None else steps
        refinement = refinement_stages(round(REFINEMENT * steps))
        parting = parting_stages(resolution, steps - round(REFINEMENT * steps))
        work, whole = (data.work, resolution), (fit.density_map, data.full_resolution)
        strength = self.strength
        legs = [
            # The noise is not that of the blurred maps, in which replicas part.
            _Leg(PART, self._run(*work, parting, full, 1), self._apart),
            _Leg(TWO, self._run(*work, refinement, strength, 2), self._crossed),
            _Leg(MANY, self._run(*work, refinement, strength, 3), self._many),
            _Leg(ONE, self._run(*work, refinement, strength, 4), self._single),
            _Leg(WHOLE, self._run(*whole, refinement, strength, 5), self._together),
        ]
        self._legs = tuple(leg for leg in legs if leg.name != MANY or replicas > 2)

    @property
    def steps(self) -> int:
        """Of all legs."""
        return sum(leg.run.steps for leg in self._legs)

    def run(
        self, folder: RunFolder | None, stop: Stop, progress: Progress | None = None
    ) -> EnsembleResult | None:
        """Run the search, or go on with one; None after a request to stop.

        `folder`: where it is saved after each block of steps; `progress` as for `FlexibleFit.run`. Raises SimulationError if
        it blows up again and again.
        """
        state = None if folder is None else load_search(folder.path, len(self._result.final))
        state = state or SearchState()
        while state.leg < len(self._legs):
            state = self._leg(state, folder, stop, progress or (lambda *_: None))
            if stop.requested:
                return None
        if progress is not None:
            progress(self.steps, self.steps, "ensemble: free data", None)
        return self._judged(state)

    def _leg(
        self, state: SearchState, folder: RunFolder | None, stop: Stop, progress: Progress
    ) -> SearchState:
        leg = self._legs[state.leg]
        before = sum(each.run.steps for each in self._legs[: state.leg])
        if state.running is None:
            progress(before, self.steps, f"{leg.name}: starts", None)
        latest = leg.begin(state) if state.running is None else state.running

        def told(done: int, stage: str) -> None:
            progress(before + done, self.steps, f"{leg.name}: {stage}", None)

        for each in leg.run.run(latest, stop, told):
            latest = each
            state = SearchState(state.leg, latest, state.ended)
            self._save(folder, state)
        if stop.requested:
            return state
        told(leg.run.steps, "minimize")
        state = state.after_leg(leg.run.minimized(latest, self._fit.protocol.minimize_last))
        self._save(folder, state)
        return state

    def _save(self, folder: RunFolder | None, state: SearchState) -> None:
        if folder is not None:
            save_search(folder.path, state)
            folder.save_times(self._fit.stopwatch)

    def _run(
        self,
        density_map: DensityMap,
        resolution: float,
        stages: Sequence[Stage],
        strength: float,
        number: int,
    ) -> ReplicaRun:
        fit = self._fit
        systems = ReplicaSystems(self._copies, fit._systems, density_map, resolution, fit.protocol.match_blur)
        return ReplicaRun(
            systems, fit.protocol, stages, strength, 1000 * number + fit.seed, fit._run.engine.platform
        )

    def _leg_named(self, name: str) -> _Leg:
        return next(leg for leg in self._legs if leg.name == name)

    def _end_of(self, state: SearchState, name: str) -> ReplicaState:
        return state.ended[self._legs.index(self._leg_named(name))]

    def _apart(self, state: SearchState) -> ReplicaState:
        result, run = self._result, self._leg_named(PART).run
        blurred = run.systems.density(self.data.resolution + START_BLUR)
        models = starting_models(
            blurred, self._topology, result.final, result.initial, PARTING, self._two_places
        )
        return run.begin(self._relaxed(models), np.full(PARTING, 1 / PARTING))

    @cached_property
    def _two_places(self) -> list[np.ndarray]:
        """The two models that fit the map best with domains as rigid bodies, relaxed; none of a molecule without domains."""
        result, systems = self._result, self._leg_named(PART).run.systems
        fits = [systems.density(stage.resolution) for stage in self._leg_named(PART).run.stages]
        starts = known_models(self._topology, result.final, result.initial)
        found = find_two_places([*fits, systems.density()], self._topology, starts)
        return [] if found is None else self._relaxed(found.models)

    def _relaxed(self, models: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return models (Å) that were put together from others, or deformed, relaxed without density and constraints."""
        engine = self._fit._run.engine
        context = make_context(
            engine.systems.without_density, openmm.VerletIntegrator(0.001), engine.platform
        )
        engine.systems.release_restraints(context, self._fit.protocol.stages[-1])
        found = []
        for model in models:
            if model is not self._result.final:
                engine.minimizer.place(context, model, RELAXATION)
                state = context.getState(positions=True)
                model = positions_in_angstrom(state.getPositions(asNumpy=True))
            found.append(model)
        return found

    def _crossed(self, state: SearchState) -> ReplicaState:
        # Dynamics in blurred maps may lose what rigid bodies had found, or find what they cannot.
        models, weights = self._best_pair([*self._end_of(state, PART).models, *self._two_places])
        return self._leg_named(TWO).run.begin(self._relaxed(models), weights)

    def _best_pair(self, models: Sequence[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
        density = self._leg_named(TWO).run.systems.density()
        return best_pair(density, self._topology, models)

    def _many(self, state: SearchState) -> ReplicaState:
        models, weights = self._best_pair(list(self._end_of(state, TWO).models))
        states = first_states(weights, self.replicas)
        shared = np.array([weights[own] / states.count(own) for own in states])
        modes = soft_modes(self._topology, models[0], max(self.replicas // 2, 1)) or [0.0]
        begun = []
        for number, own in enumerate(states):
            earlier = states[:number].count(own)
            sign = 0.0 if earlier == 0 else (-1.0) ** earlier
            begun.append(models[own] + sign * CLONES_APART * modes[(earlier - 1) // 2 % len(modes)])
        return self._leg_named(MANY).run.begin(self._relaxed(begun), shared)

    def _single(self, state: SearchState) -> ReplicaState:
        return self._leg_named(ONE).run.begin([self._result.final], np.ones(1))

    def _together(self, state: SearchState) -> ReplicaState:
        ended = self._refined(state)
        return self._leg_named(WHOLE).run.begin(list(ended.models), ended.weights)

    def _refined(self, state: SearchState) -> ReplicaState:
        """Return the ensemble that was refined against what is not free."""
        return self._end_of(state, MANY if self.replicas > 2 else TWO)

    def _strength_of_noise(self) -> float | None:
        """Return the strength at which the energy is kT times −ln of the likelihood, in kJ/mol per fitted atom."""
        data, density = self.data, self._fit.density
        if data.noise is None or not data.noise.is_known:
            return None
        mask = data.free.mask_around(self._result.final[density.atoms], 3.0)
        return _KT * data.noise.likelihood_scale(data.work, mask) / density.n_fitted_atoms

    def _judged(self, state: SearchState) -> EnsembleResult:
        together = self._end_of(state, WHOLE)
        verdict = self._verdict(self._refined(state), self._end_of(state, ONE))
        models, weights = together.models, together.weights
        fit, topology = self._fit, self._topology
        with_map = compare_ensembles(
            WeightedModels(self._result.final[None], np.ones(1)),
            WeightedModels(models, weights),
            topology,
            fit.density_map,
            self.data.full_resolution,
        )
        rows = [{"leg": leg.name, **row} for leg, each in zip(self._legs, state.ended) for row in each.rows]
        return EnsembleResult(
            models,
            weights,
            conformations(models, weights, trace_of(topology), self.data.full_resolution),
            fluctuations(models, weights, topology),
            verdict,
            *with_map.correlations,
            self.strength,
            self.strength_of_noise,
            rows,
            together.ligands,
        )

    def _verdict(self, apart: ReplicaState, single: ReplicaState) -> Verdict:
        data, topology = self.data, self._topology
        plain = [WeightedModels(each.models, each.weights) for each in (single, apart)]
        density = self._leg_named(ONE).run.systems.density()

        def widened(models: np.ndarray, weights: np.ndarray) -> WeightedModels:
            b_factors = refined_b_factors(density, topology, models, weights, data.full_resolution)
            return WeightedModels(models, weights, b_factors)

        with_b = [widened(each.models, each.weights) for each in plain]
        free, free_b = (
            compare_ensembles(*each, topology, data.free, data.full_resolution, data.band)
            for each in (plain, with_b)
        )
        work = compare_ensembles(*with_b, topology, data.work, data.resolution)
        found = conformations(apart.models, apart.weights, trace_of(topology), data.full_resolution)
        main = None
        if n_conformations(found) > 1:
            own = found[0].replicas
            alone = widened(apart.models[own], apart.weights[own] / found[0].weight)
            told = compare_ensembles(alone, with_b[1], topology, data.free, data.full_resolution, data.band)
            main = MainConformation(told.correlations[0], told.error)
        band = (None if data.kind == HALF_MAPS else data.resolution), data.full_resolution
        return Verdict(
            data.kind,
            band,
            *free.correlations,
            *free_b.correlations,
            free_b.error,
            *work.correlations,
            n_conformations(found),
            main,
        )


def check_replicas(replicas: int, n_atoms: int) -> None:
    """Refuse numbers of replicas that are no ensemble, or more than fits in memory."""
    if replicas < 2:
        raise InputError(
            "must be 2 or more for an ensemble",
            argument="replicas",
            found=replicas,
            remedy="give a number such as 4",
        )
    if replicas * n_atoms > MOST_PARTICLES:
        raise InputError(
            f"of {n_atoms} atoms are more than fits in memory",
            argument="replicas",
            found=replicas,
            remedy=f"give at most {max(MOST_PARTICLES // n_atoms, 1)}",
        )
