"""Stretches moved along their chain, by any number of residues, to where the density beside the backbone speaks for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...fitting.interrupts import StopRequest
from ...validation.stretches import runs_of
from .molecule import Molecule
from .register_search import LONGEST, ChainShift, Stretch
from .search_plan import pair_work
from .side_chain_evidence import ENERGY_PER_NAT
from .stretch_trial import Built, Trial, TrialPlace, TrialTools
from .trial_workers import TrialWorkers

FARTHEST = 4
"""Places along the chain up to which residues are looked for."""
SHIFTS = np.array([0, *(sign * by for by in range(1, FARTHEST + 1) for sign in (-1, 1))])
_COLUMN = {by: column for column, by in enumerate(SHIFTS.tolist())}
SIDE_BY_SIDE = 3
"""Models that are followed: what gains most at first may lead astray."""
LEAST_GAIN = 2.5
"""By how much, in natural logarithms, evidence and energy have to be better together."""

HOPELESS = -2.0
"""What is worse by this once it was built is not annealed: of 22 shifts in four models, those that gained in the end had -1.0.
What has less evidence than this once its backbone was built is given up before its side chains are."""

# What each change of shift costs in the assignments that are tried: those of low cost hold more changes.
_CHANGES = (1.5, 3.0, 6.0)
# Evidence against a place beyond the end of the chain.
_BEYOND = -1.5
_SHORTEST, _LEAST_PROMISED = 5, 0.5
# For each shift so many stretches that overlap by less than this part of the longer one.
_PER_SHIFT, _OVERLAP = 5, 0.6
# Residues that the ends of a stretch are also moved by.
_ENDS = ((0, 0), (-2, 0), (0, 2), (2, -2))
# Residues of an end that is drawn in, and by how many places its last one is.
_END_LENGTHS, _END_SHIFTS = (5, 8, 12, 16, 20), (2, 4, 6, 8)
# Rounds in all, and in a row in which nothing is found; shifts tried in each, and those of ends among them.
_MOST_ROUNDS, _MOST_IN_VAIN, _PER_ROUND, _ENDS_PER_ROUND = 12, 2, 16, 8
# Loops from which several residues were taken, or into which they were put, need longer to close.
_ANNEALED_LONGER = 2
# Of those that were built so many are annealed, and of those so many that are nearly the same.
_ANNEALED, _MOST_ALIKE = 6, 2

ChainShiftKey = tuple[int, tuple[float, ...]]
_Failed = tuple[ChainShiftKey, bytes]
Progress = Callable[[Stretch, int, int], None]
"""Called with a stretch that is being tried, its number, and of how many."""


class Moved(NamedTuple):
    """A shift that was made."""

    shift: ChainShift
    evidence: float  # By how much it raised the evidence, in natural logarithms
    energy: float  # And the energy, kJ/mol

    @property
    def gain(self) -> float:
        """What it is better by, in natural logarithms."""
        return self.evidence - self.energy / ENERGY_PER_NAT


class ShiftTrial(Trial):
    """Build a shift, minimised as the stretch where it was is; what it gains is a natural logarithm."""

    gain = -math.inf

    def __init__(self, molecule: Molecule, positions: np.ndarray, shift: ChainShift) -> None:
        super().__init__(molecule, positions, shift.stretch.region)
        self.shift = shift
        self.moved: Moved | None = None

    @property
    def stretch(self) -> Stretch:
        """Where the residues that are shifted are."""
        return self.shift.stretch

    def run(self, place: TrialPlace) -> tuple[Moved, Built, Built] | None:
        """Build the backbone, and side chains where the evidence supports it; return what that gains, and both conformations."""
        shifted = place.minimized(place.shifted(self.shift), soft=True)
        if not self._evidence(place, shifted.places) - self._evidence(place, place.own) >= HOPELESS:
            return None
        own = place.minimized(place.own, soft=True)
        return self._compared(place, *(place.turned([each.places])[0] for each in (shifted, own)))

    def take(self, found: tuple[Moved, Built, Built] | None) -> None:
        """Note what `run` returned."""
        if found is not None:
            self.moved, *self.built = found
            self.gain, self._best = self.moved.gain, self.built[0].places

    def _compared(self, place: TrialPlace, shifted: Built, own: Built) -> tuple[Moved, Built, Built] | None:
        if not np.isfinite([shifted.energy, own.energy]).all():
            return None
        before = max(self._evidence(place, each) for each in (place.own, own.places))
        evidence = self._evidence(place, shifted.places) - before
        return Moved(self.shift, evidence, shifted.energy - own.energy), shifted, own

    def _evidence(self, place: TrialPlace, places: np.ndarray) -> float:
        return place.tools.evidence.nearby(place.whole(places), self.shift.chain, self.region)


class AnnealedShift(ShiftTrial):
    """Anneal a shift that another trial built, and the stretch where it was as well."""

    is_divisible = True

    def __init__(self, trial: ShiftTrial) -> None:
        super().__init__(trial._molecule, trial._positions, trial.shift)
        self._starts = [each.places for each in trial.built]

    def run(self, place: TrialPlace) -> tuple[Moved, Built, Built] | None:
        """Anneal both, and return what the shift gains."""
        starts = [(each, 1) for each in self._starts]
        return self._compared(place, *place.each_annealed(starts, _ANNEALED_LONGER * self.annealing_steps))


class EvidenceSearch:
    """Move stretches along their chains where the `SideChainEvidence` of a model rises by it more than its energy.

    At 3.5 to 4 Å the side chains of a stretch fit as well a residue on, and the energy does not tell which register is right. The
    types of its residues do, taken together. They propose where each stretch may belong: by Viterbi's path through the places of
    all residues of a chain, of several stretches at once, and as the stretch of most evidence for each shift. Each is built and
    annealed in a `LocalSystem`; then the evidence is taken anew, on the backbone as it came to lie.

    `tools`: with the model's evidence; `side_by_side`: how many models are followed; `chains`: which, by default all. What
    comes out does not depend on the number of `workers`. Attributes: `work`, the `pair_work` of what was tried so far; `tried`:
    how many shifts these were.
    """

    def __init__(
        self,
        tools: TrialTools,
        workers: TrialWorkers,
        side_by_side: int = SIDE_BY_SIDE,
        chains: Sequence[np.ndarray] | None = None,
    ) -> None:
        self._tools, self._workers = tools, workers
        self._side_by_side = side_by_side
        self._chains = tools.fitted_chains if chains is None else chains
        self.work, self.tried = 0.0, 0
        self._left: set[tuple[int, int, int]] = set()

    @property
    def left(self) -> int:
        """How many stretches were not shifted, or not annealed, in every way that was proposed, for want of room."""
        return len(self._left)

    def is_called_for(self, positions: np.ndarray) -> bool:
        """Return whether evidence speaks for any shift in a model (N, 3)."""
        return any(self._untried(_Candidate(positions), chain) for chain in self._chains)

    def improved(
        self,
        positions: np.ndarray,
        stop: StopRequest,
        room: float = math.inf,
        progress: Progress = lambda *_: None,
    ) -> tuple[np.ndarray, list[Moved]]:
        """Return positions (N, 3) in Å with stretches moved, and these in the order in which they were; the same array if none.

        `positions` (N, 3) in Å.
        """
        moved: list[Moved] = []
        for chain in self._chains:
            found = self._best_of_chain(_Candidate(positions), chain, stop, room, progress)
            positions = found.positions
            moved += found.moved
        return positions, moved

    def _best_of_chain(
        self, start: _Candidate, chain: np.ndarray, stop: StopRequest, room: float, progress: Progress
    ) -> _Candidate:
        """Shift stretches of one chain, one after the other, of some models side by side, and return the best."""
        models, failed = [start], set[_Failed]()
        for _ in range(_MOST_ROUNDS):
            following: list[_Candidate] = []
            for model in [each for each in models if each.in_vain < _MOST_IN_VAIN]:
                if stop.requested:
                    return models[0]
                shifts = self._untried(model, chain)
                if not shifts:
                    model.in_vain = _MOST_IN_VAIN
                    continue
                model.tried.update(map(_key, shifts))
                # Nothing takes the place of what failed in another model: less would speak for it.
                shifts = [each for each in shifts if self._failure(model, each) not in failed]
                children = self._round(model, shifts, room, stop, progress, failed)
                model.in_vain = 0 if children else model.in_vain + 1
                following += children
            models = _best_different([*models, *following])[: self._side_by_side]
            if all(each.in_vain == _MOST_IN_VAIN for each in models):
                break
        return models[0]

    def _untried(self, model: _Candidate, chain: np.ndarray) -> list[ChainShift]:
        odds = self._tools.evidence.log_odds(model.positions, chain)
        shifts = [shift for shift in proposed_shifts(chain, odds) if _key(shift) not in model.tried]
        ends = [shift for shift in proposed_ends(chain, odds) if _key(shift) not in model.tried]
        return ends[:_ENDS_PER_ROUND] + shifts[:_PER_ROUND]

    def _failure(self, model: _Candidate, shift: ChainShift) -> _Failed:
        """Return what tells that a shift failed in a model, or in another one with the same stretch."""
        atoms = self._tools.registers.atoms_of(shift.stretch.region)
        return _key(shift), model.positions[atoms].tobytes()

    def _has_room(self, stretch: Stretch, room: float, annealed: bool = False) -> bool:
        region = stretch.region
        moving = int(self._tools.molecule.is_heavy[self._tools.registers.atoms_of(region)].sum())
        work = pair_work(moving, len(region), annealed)
        if self.work + work > room:
            self._left.add((int(stretch.chain[0]), stretch.first, stretch.last))
            return False
        self.work += work
        self.tried += not annealed
        return True

    def _round(
        self,
        model: _Candidate,
        shifts: Sequence[ChainShift],
        room: float,
        stop: StopRequest,
        progress: Progress,
        failed: set[_Failed],
    ) -> list[_Candidate]:
        """Try some shifts of a chain; return models with those that gain most, and with all of them that do not overlap."""
        shifts = [shift for shift in shifts if self._has_room(shift.stretch, room)]
        built = [ShiftTrial(self._tools.molecule, model.positions, shift) for shift in shifts]
        if not self._run(model.positions, built, stop, progress):
            return []
        chosen = [
            each for each in _to_be_annealed(built) if self._has_room(each.stretch, room, annealed=True)
        ]
        trials = [AnnealedShift(each) for each in chosen]
        if not self._run(model.positions, trials, stop, progress):
            return []
        good = sorted((each for each in trials if each.gain >= LEAST_GAIN), key=lambda trial: -trial.gain)
        won = {id(each.shift) for each in good}
        failed.update(self._failure(model, each.shift) for each in built if id(each.shift) not in won)
        together: list[ShiftTrial] = []
        for trial in good:
            if not any(np.isin(trial.region, other.region).any() for other in together):
                together.append(trial)
        sets = [together, *([trial] for trial in good[: self._side_by_side] if together != [trial])]
        return [self._with(model, each) for each in sets if each]

    def _run(
        self, positions: np.ndarray, trials: Sequence[ShiftTrial], stop: StopRequest, progress: Progress
    ) -> bool:
        """Run trials; return whether there was time."""
        done = set[int]()

        def told(number: int | None) -> None:
            if number is not None:
                done.add(number)
            left = [each for each in range(len(trials)) if each not in done]
            if left:
                progress(trials[left[0]].stretch, len(done) + 1, len(trials))

        told(None)
        return self._workers.run(self._tools, positions, trials, stop, told) and not stop.requested

    def _with(self, model: _Candidate, trials: Sequence[ShiftTrial]) -> _Candidate:
        positions, tried = model.positions.copy(), set(model.tried)
        for trial in trials:
            atoms = self._tools.registers.atoms_of(trial.region)
            positions[atoms] = trial.shifted()[atoms]
            # Around it everything else is possible again.
            tried = {key for key in tried if not _overlap(key, trial.stretch)}
        return _Candidate(positions, (*model.moved, *(trial.moved for trial in trials)), tried)


@dataclass
class _Candidate:
    """A model with some stretches shifted, what was tried to shift further, and how often in vain."""

    positions: np.ndarray
    moved: tuple[Moved, ...] = ()
    tried: set[ChainShiftKey] = field(default_factory=set)
    in_vain: int = 0

    @property
    def gain(self) -> float:
        return sum(each.gain for each in self.moved)


def _to_be_annealed(trials: Sequence[ShiftTrial]) -> list[ShiftTrial]:
    """Return the trials that promise most as they were built, few of each shift of one stretch."""
    chosen: list[ShiftTrial] = []
    for trial in sorted(trials, key=lambda each: -each.gain):
        alike = [
            other
            for other in chosen
            if other.shift.usual == trial.shift.usual
            and np.isin(trial.shift.residues, other.shift.residues).mean() > _OVERLAP
        ]
        if trial.gain > HOPELESS and len(alike) < _MOST_ALIKE:
            chosen.append(trial)
    return chosen[:_ANNEALED]


def _best_different(models: Sequence[_Candidate]) -> list[_Candidate]:
    """Return models, the best first, and of those in which the same stretches were shifted one."""
    kept: dict[frozenset[ChainShiftKey], _Candidate] = {}
    for model in sorted(models, key=lambda each: -each.gain):
        kept.setdefault(frozenset(_key(each.shift) for each in model.moved), model)
    return list(kept.values())


def proposed_shifts(
    chain: np.ndarray, log_odds: np.ndarray, least: float = _LEAST_PROMISED
) -> list[ChainShift]:
    """Return the shifts of stretches of a chain that evidence speaks for by so much, those that promise most first."""
    gains = gains_of_shifts(log_odds)
    found: dict[ChainShiftKey, tuple[float, ChainShift]] = {}

    def add(first: int, by: Sequence[int]) -> None:
        columns = [_COLUMN[each] for each in by]
        gain = float(gains[np.arange(first, first + len(by)), columns].sum())
        jumps = np.abs(np.diff([0, *by, 0])).sum() / 2
        shift = ChainShift(chain, first, tuple(by))
        if gain - jumps > least:
            found.setdefault(_key(shift), (gain - jumps, shift))

    for change in _CHANGES:
        path = SHIFTS[lowest_path(-gains, SHIFTS, change)]
        for first, last in runs_of(path != 0):
            if _SHORTEST <= last - first + 1 <= LONGEST:
                add(first, path[first : last + 1].tolist())
    for column, by in enumerate(SHIFTS.tolist()):
        for first, last in stretches_of_most(gains[:, column]) if by else ():
            for begin, end in _ends(first, last, len(chain)):
                add(begin, (by,) * (end - begin + 1))
    return [shift for _, shift in sorted(found.values(), key=lambda each: -each[0])]


def lowest_path(energies: np.ndarray, shifts: np.ndarray, change: float) -> np.ndarray:
    """Choose a column for each row so that the sum of energies, and of `change` times what the shift changes by, is lowest.

    By dynamic programming (Viterbi 1967). Half of it counts where a path begins or ends shifted: one that is shifted all along
    changes once in all.

    `energies` (N, K); `shifts` int (K,) of each column. Of equal paths it is that with the first columns.
    """
    if not len(energies):
        return np.zeros(0, dtype=np.int64)
    steps = change * np.abs(shifts[:, None] - shifts)
    at_ends = 0.5 * change * np.abs(shifts)
    came_from = []
    total = at_ends + energies[0]
    for own in energies[1:]:
        paths = total[:, None] + steps
        came_from.append(paths.argmin(axis=0))
        total = paths.min(axis=0) + own
    path = [int((total + at_ends).argmin())]
    for before in reversed(came_from):
        path.append(int(before[path[-1]]))
    return np.array(path[::-1])


def proposed_ends(chain: np.ndarray, log_odds: np.ndarray) -> list[ChainShift]:
    """Return shifts of the ends of a chain that draw them in, where evidence speaks against their residues, the worst first.

    An end that was traced too far, or into the density of another, is drawn along the chain the more the nearer a residue is to
    it: what was stretched becomes a helix again.
    """
    size = len(chain)
    found = []
    for length in _END_LENGTHS:
        if 2 * length > size:
            continue
        falling = 1 - np.arange(length) / length
        for first, part, inward in (
            (0, falling, 1),
            (size - length, falling[::-1], -1),
        ):
            places = np.arange(first, first + length)
            against = -float(log_odds[places, places].sum())
            if against > 0:
                found += [
                    (against, ChainShift(chain, first, tuple((inward * most * part).round(2).tolist())))
                    for most in _END_SHIFTS
                ]
    return [shift for _, shift in sorted(found, key=lambda each: -each[0])]


def gains_of_shifts(log_odds: np.ndarray) -> np.ndarray:
    """Return by how much each residue's evidence (n, n) is better at each of the `SHIFTS` than where it is, shape (n, K)."""
    size = len(log_odds)
    places = np.arange(size)
    gains = np.full((size, len(SHIFTS)), _BEYOND)
    for column, by in enumerate(SHIFTS.tolist()):
        within = places[(places + by >= 0) & (places + by < size)]
        gains[within, column] = log_odds[within, within + by] - log_odds[within, within]
    return gains


def stretches_of_most(gains: np.ndarray) -> list[tuple[int, int]]:
    """Return the first and last places of the stretches of largest sum, that do not overlap by much, largest first."""
    sums = np.concatenate([[0.0], np.cumsum(gains)])
    firsts, lasts = np.triu_indices(len(gains), _SHORTEST - 1)
    short = lasts - firsts < LONGEST
    firsts, lasts = firsts[short], lasts[short]
    totals = sums[lasts + 1] - sums[firsts]
    kept: list[tuple[int, int]] = []
    for number in np.argsort(-totals, kind="stable").tolist():
        first, last = int(firsts[number]), int(lasts[number])
        if totals[number] <= _LEAST_PROMISED or len(kept) == _PER_SHIFT:
            break
        if all(
            min(last, end) - max(first, begin) + 1 < _OVERLAP * (max(last - first, end - begin) + 1)
            for begin, end in kept
        ):
            kept.append((first, last))
    return kept


def _key(shift: ChainShift) -> ChainShiftKey:
    return shift.first, shift.by


def _overlap(key: ChainShiftKey, around: Stretch) -> bool:
    first, by = key
    return first <= around.last + FARTHEST and first + len(by) > around.first - FARTHEST


def _ends(first: int, last: int, size: int) -> Iterator[tuple[int, int]]:
    for before, behind in _ENDS:
        begin, end = max(first + before, 0), min(last + behind, size - 1)
        if end - begin >= _SHORTEST - 2:
            yield begin, end
