"""Stretches moved along their chain, by any number of residues, to where the density beside the backbone speaks for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..interrupts import StopRequest
from . import stretch_trial
from .register_search import LONGEST, ChainShift, Stretch
from .search_plan import place_work
from .sequence_match import lowest_path
from .side_chain_evidence import SideChainEvidence
from .stretch_trial import Built, StretchTrial, Task, TrialTools
from .trial_workers import TrialWorkers

FARTHEST = 4
"""Places along the chain up to which residues are looked for."""
SHIFTS = np.array([0, *(sign * by for by in range(1, FARTHEST + 1) for sign in (-1, 1))])
_COLUMN = {by: column for column, by in enumerate(SHIFTS.tolist())}
ENERGY_PER_NAT = 400.0
"""kJ/mol of a shift's energy, right after its annealing, that outweigh a factor of e of evidence. Right shifts start strained, by
up to 1000 kJ/mol where a helix was shifted by three residues, which dynamics relieves; most wrong ones by more."""
LEAST_GAIN = 2.5
"""By how much, in natural logarithms, evidence and energy have to be better together."""

# What each change of shift costs in the assignments that are tried: those of low cost hold more changes.
_CHANGES = (1.5, 3.0, 6.0)
# Evidence against a place beyond the end of the chain.
_BEYOND = -1.5
_SHORTEST, _LEAST_PROMISED = 5, 0.5
# For each shift so many stretches that overlap by less than this part of the longer one.
_PER_SHIFT, _OVERLAP = 5, 0.6
# Residues that the ends of a stretch are also moved by.
_ENDS = ((0, 0), (-2, 0), (0, 2), (2, -2))
# Rounds in all, and in a row in which nothing is found; shifts tried in each.
_MOST_ROUNDS, _MOST_IN_VAIN, _PER_ROUND = 12, 2, 16
# Evidence that a shift has to gain to be compared with the same stretch annealed where it was.
_LEAST_EVIDENCE = 1.0


class Moved(NamedTuple):
    """A shift that was made.

    Attributes
    ----------
    shift : ChainShift
    evidence : float
        By how much it raised the evidence, in natural logarithms.
    energy : float
        And the energy, kJ/mol.
    """

    shift: ChainShift
    evidence: float
    energy: float

    @property
    def gain(self) -> float:
        """What it is better by, in natural logarithms."""
        return self.evidence - self.energy / ENERGY_PER_NAT


class ShiftTrial(StretchTrial):
    """Build and anneal a shift, and the stretch where it was if the evidence rises.

    Parameters
    ----------
    tools : TrialTools
    evidence : SideChainEvidence
    positions : np.ndarray, shape (N, 3)
        Å.
    shift : ChainShift

    Attributes
    ----------
    moved : Moved or None
        What the shift gains; None where the evidence does not rise, and until the course has come to its end.
    """

    def __init__(
        self, tools: TrialTools, evidence: SideChainEvidence, positions: np.ndarray, shift: ChainShift
    ) -> None:
        stretch = Stretch(shift.chain, shift.stretch.first, shift.stretch.last, (shift.usual,))
        super().__init__(tools.molecule, positions, [stretch], stretch.region)
        self._evidence, self._shift = evidence, shift
        self.moved: Moved | None = None

    def course(self) -> Generator[list[Task], list[list[Built]], None]:
        """Yield tasks, see `StretchTrial.course`, until `moved` is known."""
        before = self._total(self._positions[self.moving])
        built = yield from _built_and_annealed(Task("shift", shifts=(self._shift,)))
        if not np.isfinite(built.energy):
            return
        total = self._total(built.places)
        if total - before < _LEAST_EVIDENCE:
            return
        own = yield from _built_and_annealed(Task("soft", places=(self._positions[self.moving],)))
        if not np.isfinite(own.energy):
            return
        gain = total - max(before, self._total(own.places))
        self.moved, self._best = Moved(self._shift, gain, built.energy - own.energy), built.places

    def _total(self, places: np.ndarray) -> float:
        positions = self._positions.copy()
        positions[self.moving] = places
        return self._evidence.total(positions, [self._shift.chain])


def _built_and_annealed(first: Task) -> Generator[list[Task], list[list[Built]], Built]:
    """Go on with one conformation: side chains are turned, and it is annealed."""
    for what in ("turn", "anneal"):
        (result,) = (yield [first])[0]
        if not np.isfinite(result.energy):
            return result
        first = Task(what, places=(result.places,), steps=stretch_trial.ANNEALING_STEPS)
    return (yield [first])[0][0]


class EvidenceSearch:
    """Move stretches along their chains where the `SideChainEvidence` of a model rises by it more than its energy.

    At 3.5 to 4 Å the side chains of a stretch fit as well a residue on, and the energy does not tell which register is right. The
    types of its residues do, taken together. They propose where each stretch may belong: by Viterbi's path through the places of
    all residues of a chain, of several stretches at once, and as the stretch of most evidence for each shift. Each is built and
    annealed in a `LocalSystem`; then the evidence is taken anew, on the backbone as it came to lie.

    Parameters
    ----------
    tools : TrialTools
        What trials need of the model.
    evidence : SideChainEvidence
    workers : TrialWorkers
        The processes that try shifts. What comes out does not depend on their number.

    Attributes
    ----------
    work : float
        The `place_work` of what was tried so far.
    tried : int
        How many shifts these were.
    """

    def __init__(self, tools: TrialTools, evidence: SideChainEvidence, workers: TrialWorkers) -> None:
        self._tools, self._evidence, self._workers = tools, evidence, workers
        weights, registers = tools.density.weights, tools.registers
        # What is not fitted is shown by no density.
        self._chains = [chain for chain in registers.chains if weights[registers.atoms_of(chain)].any()]
        self.work, self.tried = 0.0, 0

    def improved(
        self,
        positions: np.ndarray,
        stop: StopRequest,
        room: float = math.inf,
        progress: Callable[[Stretch, int, int], None] = lambda *_: None,
    ) -> tuple[np.ndarray, list[Moved]]:
        """Return positions (N, 3) in Å with stretches moved, and these in the order in which they were; the same array if none.

        Parameters
        ----------
        positions : np.ndarray, shape (N, 3)
            Å.
        stop : StopRequest
            Ends the search early, with what was found.
        room : float
            The `place_work` that trying may take.
        progress : callable, optional
            Called with what is being tried, its number, and of how many.
        """
        moved: list[Moved] = []
        for chain in self._chains:
            tried: set[ChainShiftKey] = set()
            in_vain = 0
            for _ in range(_MOST_ROUNDS):
                if stop.requested or in_vain == _MOST_IN_VAIN:
                    break
                proposed = proposed_shifts(chain, self._evidence.log_odds(positions, chain))
                shifts = [shift for shift in proposed if _key(shift) not in tried][:_PER_ROUND]
                shifts = [shift for shift in shifts if self._has_room(shift, room)]
                if not shifts:
                    break
                tried.update(map(_key, shifts))
                positions, kept = self._round(positions, shifts, stop, progress)
                moved += kept
                in_vain = 0 if kept else in_vain + 1
                for each in kept:  # around it everything else is possible again
                    tried = {key for key in tried if not _overlap(key, each.shift)}
        return positions, moved

    def _has_room(self, shift: ChainShift, room: float) -> bool:
        region = shift.stretch.region
        moving = int(self._tools.molecule.is_heavy[self._tools.registers.atoms_of(region)].sum())
        work = place_work(moving, len(region), 1)
        if self.work + work > room:
            return False
        self.work += work
        self.tried += 1
        return True

    def _round(
        self,
        positions: np.ndarray,
        shifts: Sequence[ChainShift],
        stop: StopRequest,
        progress: Callable[[Stretch, int, int], None],
    ) -> tuple[np.ndarray, list[Moved]]:
        """Try some shifts of a chain; make those that gain most and do not overlap."""
        trials = [ShiftTrial(self._tools, self._evidence, positions, shift) for shift in shifts]
        done = set[int]()

        def told(number: int) -> None:
            done.add(number)
            left = [each for each in range(len(shifts)) if each not in done]
            if left:
                progress(shifts[left[0]].stretch, len(done) + 1, len(shifts))

        progress(shifts[0].stretch, 1, len(shifts))
        if not self._workers.run(self._tools, positions, trials, stop, told) or stop.requested:
            return positions, []
        kept, changed = [], np.zeros(0, dtype=np.int64)
        result = positions
        good = [trial for trial in trials if trial.moved is not None and trial.moved.gain >= LEAST_GAIN]
        for trial in sorted(good, key=lambda each: -each.moved.gain):
            if np.isin(trial.region, changed).any():
                continue
            atoms = self._tools.registers.atoms_of(trial.region)
            if result is positions:
                result = positions.copy()
            result[atoms] = trial.shifted()[atoms]
            changed = np.union1d(changed, trial.region)
            kept.append(trial.moved)
        return result, kept


def proposed_shifts(chain: np.ndarray, log_odds: np.ndarray) -> list[ChainShift]:
    """Return the shifts of stretches of a chain that evidence speaks for, those that promise most first.

    Parameters
    ----------
    chain : np.ndarray of int, shape (n,)
        Indices of its residues.
    log_odds : np.ndarray, shape (n, n)
        From `SideChainEvidence.log_odds`.
    """
    gains = gains_of_shifts(log_odds)
    found: dict[ChainShiftKey, tuple[float, ChainShift]] = {}

    def add(first: int, by: Sequence[int]) -> None:
        columns = [_COLUMN[each] for each in by]
        gain = float(gains[np.arange(first, first + len(by)), columns].sum())
        jumps = np.abs(np.diff([0, *by, 0])).sum() / 2
        shift = ChainShift(chain, first, tuple(by))
        if gain - jumps > _LEAST_PROMISED:
            found.setdefault(_key(shift), (gain - jumps, shift))

    for change in _CHANGES:
        path = SHIFTS[lowest_path(-gains, SHIFTS, change)].tolist()
        edges = np.flatnonzero(np.diff(np.array(path) != 0, prepend=False, append=False)).tolist()
        for first, behind in pairwise(edges):
            if path[first] and _SHORTEST <= behind - first <= LONGEST:
                add(first, path[first:behind])
    for column, by in enumerate(SHIFTS.tolist()):
        for first, last in stretches_of_most(gains[:, column]) if by else ():
            for begin, end in _ends(first, last, len(chain)):
                add(begin, (by,) * (end - begin + 1))
    return [shift for _, shift in sorted(found.values(), key=lambda each: -each[0])]


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
    """Return the first and last places of the stretches of largest sum, that do not overlap by much, largest first.

    Parameters
    ----------
    gains : np.ndarray, shape (n,)
    """
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


ChainShiftKey = tuple[int, tuple[int, ...]]


def _key(shift: ChainShift) -> ChainShiftKey:
    return shift.first, shift.by


def _overlap(key: ChainShiftKey, shift: ChainShift) -> bool:
    first, by = key
    around = shift.stretch
    return first <= around.last + FARTHEST and first + len(by) > around.first - FARTHEST


def _ends(first: int, last: int, size: int) -> Iterator[tuple[int, int]]:
    for before, behind in _ENDS:
        begin, end = max(first + before, 0), min(last + behind, size - 1)
        if end - begin >= _SHORTEST - 2:
            yield begin, end
