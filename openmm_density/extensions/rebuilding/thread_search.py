"""Whole chains led through the helices of a map, in the registers that the density beside them speaks for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...fitting.interrupts import StopRequest
from ...validation.stretches import runs_of
from .evidence_search import LEAST_GAIN, Moved, Progress, proposed_shifts
from .helix_threading import Thread, proposed_threads
from .map_helices import helices_along
from .molecule import Molecule
from .register_search import FLANK, ChainShift, RegisterSearch, Stretch
from .search_plan import place_work
from .side_chain_evidence import ENERGY_PER_NAT
from .stretch_trial import Built, Trial, TrialPlace, TrialTools
from .threaded_model import Lead, ThreadBuilder
from .trial_workers import TrialWorkers

# Iterations of the first minimisation, in which loops that were drawn out close, and how much longer than a stretch all is
# annealed.
_CLOSING, _ANNEALED_LONGER = 300, 2
# By how much the evidence of what was placed, and what it gains once it was minimised, may be worse; so many of the same residues
# are built, and so many of these annealed.
_HOPELESS, _BUILT, _ANNEALED = -10.0, 10, 8
# A helix is moved where so many of its residues are moved by more than this, in Å: a residue on is 3.8, half a one is 2.
_MOVED, _FEWEST = 1.5, 3
# Residues between two places that move, up to which they are tried as one.
_JOINED = 2 * FLANK
# Residues that are tried at once; of a chain of that length, all are where more than this part of it moves.
_MOST_AT_ONCE, _WHOLE = 200, 0.5
# Residues of a stretch for which `LEAST_GAIN` was set: for more, what annealing leaves to chance grows with the square root.
_USUAL = 20
# The evidence that a stretch of so many residues has to promise elsewhere, as a natural logarithm, for a chain to be looked at.
_SUSPICIOUS, _AS_HELIX = 4.0, 9
# Once a chain was led elsewhere other threads may be better.
_ROUNDS = 2


class ThreadTrial(Trial):
    """Minimise one model of some residues, whose heavy atoms that move ``start`` elsewhere (n, 3), in Å; or anneal it."""

    def __init__(
        self,
        molecule: Molecule,
        positions: np.ndarray,
        region: np.ndarray,
        start: np.ndarray,
        annealed: bool = False,
    ) -> None:
        super().__init__(molecule, positions, region)
        self._start, self._annealed = start, annealed
        self.built = Built(math.inf, start)

    def run(self, place: TrialPlace) -> Built:
        """Return it annealed, or minimised until loops that were drawn out are closed, with its side chains turned."""
        if self._annealed:
            return place.annealed(self._start, _ANNEALED_LONGER * self.annealing_steps)
        soft = place.minimized(self._start, _CLOSING, soft=True)
        return place.turned([soft.places])[0]

    def take(self, found: Built) -> None:
        """Note what `run` returned."""
        self.built, self._best = found, found.places


class ThreadPlace:
    """Some models (N, 3), in Å, of the same residues of a chain, and these where they are: the best is to be found."""

    def __init__(
        self,
        tools: TrialTools,
        positions: np.ndarray,
        chain: np.ndarray,
        region: np.ndarray,
        models: Sequence[np.ndarray],
    ) -> None:
        self.region, self._tools, self._positions, self._chain = region, tools, positions, chain
        places = np.flatnonzero(np.isin(chain, region))
        self.stretch = Stretch(chain, int(places[0]), int(places[-1]), ())
        self.moving = np.flatnonzero(tools.molecule.is_heavy & np.isin(tools.molecule.residue_of, region))
        # To be run: of the residues where they are, and of each model; later those of them that are annealed.
        self.trials = [self._trial(model[self.moving]) for model in (positions, *models)]
        self._best = self.trials[0]
        self.evidence_gain, self.energy, self.gain = 0.0, 0.0, -math.inf

    def anneal(self) -> None:
        """Keep what promises most as it was built, to be annealed."""
        own, *built = self.trials
        ranked = sorted(built, key=lambda trial: -self._gain(trial, own)[0])
        promising = [trial for trial in ranked if self._gain(trial, own)[0] > _HOPELESS]
        chosen = [own, *promising[:_ANNEALED]] if promising and np.isfinite(own.built.energy) else []
        self.trials = [self._trial(trial.built.places, annealed=True) for trial in chosen]

    def compare(self) -> None:
        """Find what gains most of what was annealed."""
        if self.trials and np.isfinite(self.trials[0].built.energy):
            own, *annealed = self.trials
            self._best = max(annealed, key=lambda trial: self._gain(trial, own)[0])
            self.gain, self.evidence_gain, self.energy = self._gain(self._best, own)

    def shifted(self) -> np.ndarray:
        """Return the positions (N, 3) in Å with the best model."""
        return self._best.shifted()

    def _trial(self, start: np.ndarray, annealed: bool = False) -> ThreadTrial:
        return ThreadTrial(self._tools.molecule, self._positions, self.region, start, annealed)

    def _gain(self, trial: ThreadTrial, own: ThreadTrial) -> tuple[float, float, float]:
        """Return what is gained in all, and in evidence, and by how much the energy is higher."""
        if not np.isfinite(trial.built.energy):
            return -math.inf, 0.0, 0.0
        before = max(map(self._total, (self._positions[self.moving], own.built.places)))
        evidence, energy = self._total(trial.built.places) - before, trial.built.energy - own.built.energy
        return evidence - energy / ENERGY_PER_NAT, evidence, energy

    def _total(self, places: np.ndarray) -> float:
        positions = self._positions.copy()
        positions[self.moving] = places
        return self._tools.evidence.nearby(positions, self._chain, self.region)


class _Proposal(NamedTuple):
    """Residues that move, where they are instead, and what that promises, as a natural logarithm."""

    region: np.ndarray
    positions: np.ndarray
    promise: float


class ThreadSearch:
    """Lead chains through the helices of a map where evidence and energy together are better than as they run.

    A de novo model often follows the density and still has helices that are drawn out, pressed together, or entered some residues
    early or late, several in a row, and ends in the density of each other. Shifts of one stretch find no way out: neighbours have
    to move as well. What the map does show are the helices themselves. They are found along the chain (`helices_along`), the
    sequence is threaded through them by the evidence (`proposed_threads`), the chain is led there (`ThreadBuilder`), and it is
    annealed as a whole.

    `tools`: with the model's evidence; `chains`: which, by default all. What comes out does not depend on the number of
    `workers`. Attributes: `work`, the `place_work` of what was tried so far; `tried`, `left`: how many threads were tried, and
    how many were not for want of room.
    """

    def __init__(
        self,
        tools: TrialTools,
        workers: TrialWorkers,
        chains: Sequence[np.ndarray] | None = None,
    ) -> None:
        self._tools, self._evidence, self._workers = tools, tools.evidence, workers
        self._builder = ThreadBuilder(tools.registers, tools.evidence.density_map)
        self._chains = tools.fitted_chains if chains is None else chains
        self.work, self.tried, self.left = 0.0, 0, 0

    def is_called_for(self, positions: np.ndarray) -> bool:
        """Return whether evidence speaks against the register of a chain in a model (N, 3)."""
        return any(self._is_suspicious(positions, chain) for chain in self._chains)

    def improved(
        self,
        positions: np.ndarray,
        stop: StopRequest,
        room: float = math.inf,
        progress: Progress = lambda *_: None,
    ) -> tuple[np.ndarray, list[Moved]]:
        """Return positions (N, 3) in Å with chains led elsewhere, and what was moved; the same array if nothing was.

        `positions` (N, 3) in Å.
        """
        moved: list[Moved] = []
        for chain in self._chains:
            for _ in range(_ROUNDS):
                places = self._places(positions, chain, room)
                if not places or stop.requested:
                    break
                progress(places[0].stretch, 1, len(places))
                if not self._run(positions, places, stop):
                    break
                for place in places:
                    place.anneal()
                if not self._run(positions, places, stop):
                    break
                for place in places:
                    place.compare()
                positions, found = self._with_best(positions, chain, places)
                if not found:
                    break
                moved += found
        return positions, moved

    def _run(self, positions: np.ndarray, places: Sequence[ThreadPlace], stop: StopRequest) -> bool:
        """Run the trials of some places; return whether there was time."""
        trials = [trial for place in places for trial in place.trials]
        done = self._workers.run(self._tools, positions, trials, stop, lambda _: None)
        return done and not stop.requested

    def _places(self, positions: np.ndarray, chain: np.ndarray, room: float) -> list[ThreadPlace]:
        """Return what may be tried of a chain: of the same residues one place."""
        proposals = self._proposals(positions, chain)
        together: dict[bytes, list[_Proposal]] = {}
        for proposal in sorted(proposals, key=lambda each: -each.promise):
            same = together.setdefault(proposal.region.tobytes(), [])
            if len(same) < _BUILT:
                same.append(proposal)
        places = []
        for same in together.values():
            region = same[0].region
            place = ThreadPlace(self._tools, positions, chain, region, [each.positions for each in same])
            work = place_work(len(place.moving), len(region), len(same))
            if self.work + work > room:
                self.left += len(same)
                continue
            self.work += work
            self.tried += len(same)
            places.append(place)
        return places

    def _is_suspicious(self, positions: np.ndarray, chain: np.ndarray) -> bool:
        promised = proposed_shifts(chain, self._evidence.log_odds(positions, chain), _SUSPICIOUS)
        return any(len(shift.by) >= _AS_HELIX for shift in promised)

    def _proposals(self, positions: np.ndarray, chain: np.ndarray) -> list[_Proposal]:
        # A chain that is in register is led nowhere else, and most of the time goes into its helices.
        if not self._is_suspicious(positions, chain):
            return []
        helices = helices_along(self._evidence.density_map, self._evidence.backbone(positions, chain))
        odds = [self._evidence.log_odds_in(helix.backbone[:, :4], chain) for helix in helices]
        before = self._evidence.total(positions, [chain])
        found: dict[bytes, _Proposal] = {}
        for thread in proposed_threads(odds, helices):
            lead = self._builder.lead(positions, chain, helices, thread)
            for region in _regions(chain, thread, lead):
                changed = self._builder.built(positions, chain, lead, region)
                gain = self._evidence.total(changed, [chain]) - before
                if gain > _HOPELESS:
                    found.setdefault(changed.tobytes(), _Proposal(region, changed, gain + thread.score))
        return list(found.values())

    def _with_best(
        self, positions: np.ndarray, chain: np.ndarray, places: Sequence[ThreadPlace]
    ) -> tuple[np.ndarray, list[Moved]]:
        """Return the positions with what gains most, and all that does not overlap with it, and what was moved."""
        result, taken, moved = positions, np.zeros(0, dtype=np.int64), []
        for place in sorted(places, key=lambda each: -each.gain):
            if place.gain < least_gain(len(place.region)) or np.isin(place.region, taken).any():
                continue
            atoms = self._tools.registers.atoms_of(place.region)
            after = result.copy()
            after[atoms] = place.shifted()[atoms]
            shifts = _shifts_between(self._tools.registers, chain, result, after)
            if not shifts:  # it went back to where it was
                continue
            taken = np.union1d(taken, place.region)
            count = sum(len(shift.by) for shift in shifts)
            for shift in shifts:
                part = len(shift.by) / count
                moved.append(Moved(shift, part * place.evidence_gain, part * place.energy))
            result = after
        return result, moved


def least_gain(residues: int) -> float:
    """Return by how much so many residues have to be better elsewhere, as a natural logarithm."""
    return LEAST_GAIN * math.sqrt(max(residues / _USUAL, 1.0))


def _regions(chain: np.ndarray, thread: Thread, lead: Lead) -> list[np.ndarray]:
    """Return the residues that move with a thread: those of helices that do, and all up to what stays.

    All at once, where they are few enough to be annealed so; else each group of them by itself.
    """
    size = len(chain)
    in_helix = np.zeros(size, dtype=bool)
    for helix in np.unique(thread.helices).tolist():
        residues = thread.residues[thread.helices == helix]
        moves = residues[lead.distances[residues] > _MOVED]
        if len(moves) >= _FEWEST:
            in_helix[moves] = True
    if not in_helix.any():
        return []
    moving = in_helix.copy()
    stays = np.zeros(size, dtype=bool)
    stays[thread.residues] = True
    stays &= ~in_helix
    for first, last in runs_of(in_helix):
        before = np.flatnonzero(stays[:first])
        behind = np.flatnonzero(stays[last:])
        begin = before[-1] + 1 if len(before) else 0
        end = last + behind[0] - 1 if len(behind) else size - 1
        moving[max(begin - FLANK, 0) : end + FLANK + 1] = True
    for first, last in list(runs_of(~moving)):
        if last - first < _JOINED and first > 0 and last < size - 1:
            moving[first : last + 1] = True
    if size <= _MOST_AT_ONCE and moving.mean() > _WHOLE:
        return [chain]
    if moving.sum() <= _MOST_AT_ONCE:
        return [chain[moving]]
    groups = [chain[first : last + 1] for first, last in runs_of(moving)]
    return [group for group in groups if len(group) <= _MOST_AT_ONCE]


def _shifts_between(
    registers: RegisterSearch, chain: np.ndarray, before: np.ndarray, after: np.ndarray
) -> list[ChainShift]:
    """Return the longer stretches that were moved, and for each residue how many places on the one is that lay there."""
    old, new = registers.alphas(before, chain), registers.alphas(after, chain)
    there = np.linalg.norm(new[:, None] - old[None], axis=2).argmin(axis=1) - np.arange(len(chain))
    moved = np.linalg.norm(new - old, axis=1) > _MOVED
    runs = sorted(runs_of(moved), key=lambda run: run[0] - run[1])
    kept = [run for run in runs if run[1] - run[0] + 1 >= _FEWEST] or runs[:1]
    return [ChainShift(chain, first, tuple(there[first : last + 1].tolist())) for first, last in sorted(kept)]
