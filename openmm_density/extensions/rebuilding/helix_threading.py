"""Which residues of a chain belong in which helix of a map: the whole sequence threaded through them at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .map_helices import SHORTEST, MapHelix

# What a place of a helix is worth that has a residue, where all of its density is seen; without, a sequence would take only
# the places that suit it best. With 0.8 to 1.6 the same threads come out best.
_FILLED = 1.2
# Evidence of one residue counts up to this: beyond, it is some flaw of the helix's frame.
_MOST_ODDS = 3.0
# Against each helix that is used, each residue by which either end of it is off what the model has there, and so many of these
# at most: a chain that was traced wrongly may be off by any number.
_OPENING, _SHIFTED, _MOST_SHIFTED = 1.0, 0.5, 6
# Å that a residue of a loop spans at most, and helices back from which a loop may come.
_SPAN, _BACK = 3.7, 4
# Residues by which a helix may be entered earlier or later than the model does.
_FARTHEST = 30
# Shifts of one helix, from the best thread and from the model, that are tried by themselves, by how much they may be worse,
# and how many of them are kept.
_OTHER, _WORSE, _MOST = 4, 10.0, 14


@dataclass(frozen=True)
class Thread:
    """Residues of a chain in places of helices."""

    score: float  # A natural logarithm, up to a constant
    helices: np.ndarray  # int (k,), the number of the helix,
    places: np.ndarray  # int (k,), the place in it,
    # int (k,), and the place in the chain of each residue that is in one, in their order
    residues: np.ndarray

    @property
    def key(self) -> bytes:
        """What tells it from others."""
        return np.concatenate([self.helices, self.places, self.residues]).tobytes()

    def offset(self, helix: int) -> int | None:
        """Return by how much the residues in a helix are ahead of its places; None where it is not used."""
        own = self.helices == helix
        return int((self.residues - self.places)[own][0]) if own.any() else None


def proposed_threads(odds: Sequence[np.ndarray], helices: Sequence[MapHelix]) -> list[Thread]:
    """Return the best thread, and after it those with one helix otherwise that are not much worse, the best first."""
    threading = _Threading(odds, helices)
    best = threading.best()
    if best is None:
        return []
    found = {best.key: best}
    for number, helix in enumerate(helices):
        own = int(np.round(np.median(helix.residues - np.arange(len(helix.residues)))))
        middles = {own, best.offset(number)} - {None}
        for offset in sorted({middle + by for middle in middles for by in range(-_OTHER, _OTHER + 1)}):
            if offset == best.offset(number):
                continue
            other = threading.best(_Fixed(number, offset))
            if other is not None and other.score > best.score - _WORSE:
                found.setdefault(other.key, other)
    others = sorted((each for each in found.values() if each is not best), key=lambda each: -each.score)
    return [best, *others[: _MOST - 1]]


class _Fixed(NamedTuple):
    """A helix that a thread has to go through, and the offset of its residues."""

    helix: int
    offset: int


class _Step(NamedTuple):
    """Best scores up to a residue at a place of a helix, by how many residues it has had, and where they came from.

    The w residues are those that may be in the helix.
    """

    scores: np.ndarray  # (SHORTEST, m, w)
    entered_from: np.ndarray  # (m, w, 3): helix, place and residue before the loop; −1 at the beginning
    stayed: np.ndarray  # (m, w): whether one that has had SHORTEST or more had so already


class _Loops(NamedTuple):
    """For w residues that enter one of m places of a helix, and the l places of another: the last that can be there before.

    As the loop between spans so much.
    """

    places: np.ndarray  # (m, l, w): where that is in a flat array (l, 1 + v), whose column 0 is for none
    residues: np.ndarray  # (m, l, w): which of the v residues that may be there


class _Threading:
    """Dynamic programming (Viterbi 1967) through the places of helices, one helix after the other."""

    def __init__(self, odds: Sequence[np.ndarray], helices: Sequence[MapHelix]) -> None:
        size = len(odds[0]) if len(odds) else 0
        self._residues = [
            np.arange(
                max(int(helix.residues.min()) - _FARTHEST, 0),
                min(int(helix.residues.max()) + _FARTHEST + 1, size),
            )
            for helix in helices
        ]
        self._gains = [
            np.clip(each[near], -_MOST_ODDS, _MOST_ODDS).T + _FILLED * helix.density[:, None]
            for each, near, helix in zip(odds, self._residues, helices)
        ]
        self._shifted = [
            _SHIFTED * np.minimum(np.abs(near - helix.residues[:, None]), _MOST_SHIFTED)
            for near, helix in zip(self._residues, helices)
        ]
        self._alphas = [helix.backbone[:, 1] for helix in helices]
        self._loops: dict[tuple[int, int], _Loops] = {}
        # Up to the helix that is fixed, all threads have the same.
        self._free_steps: list[_Step] = []
        self._free_closed: list[np.ndarray] = []

    def best(self, fixed: _Fixed | None = None) -> Thread | None:
        """Return the best thread, through a helix with an offset where that is asked for; None where there is none."""
        known = 0 if fixed is None else min(fixed.helix, len(self._free_steps))
        steps, closed = self._free_steps[:known], self._free_closed[:known]
        for number in range(known, len(self._gains)):
            gains = self._gains[number]
            begins_here = fixed is None or number <= fixed.helix
            if fixed is not None and number == fixed.helix:
                places = np.arange(len(gains))[:, None]
                gains = np.where(self._residues[number] - places == fixed.offset, gains, -np.inf)
            oldest = 0 if begins_here else fixed.helix
            step = self._through(number, gains, closed, max(oldest, number - _BACK), begins_here)
            steps.append(step)
            closed.append(step.scores[-1] - self._shifted[number])
        if fixed is None:
            self._free_steps, self._free_closed = steps, closed
        first = 0 if fixed is None else fixed.helix
        ends = [(float(each.max(initial=-np.inf)), n) for n, each in enumerate(closed) if n >= first]
        score, helix = max(ends, default=(-np.inf, -1))
        if not np.isfinite(score):
            return None
        place, at = np.unravel_index(closed[helix].argmax(), closed[helix].shape)
        residue = int(self._residues[helix][at])
        helices, places, residues = np.array(list(self._traced(steps, helix, int(place), residue))[::-1]).T
        return Thread(score, helices, places, residues)

    def _through(
        self, number: int, gains: np.ndarray, closed: Sequence[np.ndarray], oldest: int, begins_here: bool
    ) -> _Step:
        """Return the scores within a helix, entered at the beginning or from one of those before it."""
        count, size = gains.shape
        entry = np.full((count, size), 0.0 if begins_here else -np.inf)
        origin = np.full((count, size, 3), -1)
        for before in range(oldest, number):
            score, place, residue = self._over_loop(before, number, closed[before])
            better = score > entry
            entry[better] = score[better]
            origin[better] = np.stack([np.full_like(place, before), place, residue], axis=-1)[better]
        scores = np.full((SHORTEST, count, size), -np.inf)
        stayed = np.zeros((count, size), dtype=bool)
        scores[0] = entry - _OPENING - self._shifted[number] + gains
        for place in range(1, count):
            behind = scores[:, place - 1, :-1]
            scores[1:, place, 1:] = behind[:-1] + gains[place, 1:]
            longer = behind[-1] + gains[place, 1:]
            stayed[place, 1:] = longer > scores[-1, place, 1:]
            scores[-1, place, 1:] = np.maximum(longer, scores[-1, place, 1:])
        return _Step(scores, origin, stayed)

    def _over_loop(
        self, before: int, number: int, closed: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the best score before each residue (m, w) enters a helix from another, and the place and residue it left."""
        loops = self._loops_between(before, number)
        # Of each place the best residue to leave it, up to one; before the first there is none.
        highest = np.full((len(closed), closed.shape[1] + 1), -np.inf)
        np.maximum.accumulate(closed, axis=1, out=highest[:, 1:])
        rises = highest[:, 1:] > highest[:, :-1]
        rises[:, 0] = True
        left_at = np.maximum.accumulate(np.where(rises, np.arange(closed.shape[1]), 0), axis=1)
        scores = highest.ravel()[loops.places]
        place = scores.argmax(axis=1)
        at = place[:, None]
        score = np.take_along_axis(scores, at, 1)[:, 0]
        left = left_at[place, np.take_along_axis(loops.residues, at, 1)[:, 0]]
        return score, place, left + self._residues[before][0]

    def _loops_between(self, before: int, number: int) -> _Loops:
        """Return from where a residue can enter a helix from another: the same for all threads."""
        if (before, number) not in self._loops:
            apart = np.linalg.norm(self._alphas[number][:, None] - self._alphas[before][None], axis=2)
            bonds = np.maximum(np.ceil(apart / _SPAN), 1).astype(int)
            size = len(self._residues[before])
            last = self._residues[number] - bonds[..., None] - self._residues[before][0]
            column = np.clip(last + 1, 0, size)
            places = np.arange(len(self._alphas[before]))[None, :, None] * (size + 1) + column
            self._loops[before, number] = _Loops(places, np.clip(last, 0, size - 1))
        return self._loops[before, number]

    def _traced(
        self, steps: Sequence[_Step], helix: int, place: int, residue: int
    ) -> Iterator[tuple[int, int, int]]:
        """Yield helix, place and residue from the end to the beginning."""
        had = SHORTEST - 1
        while helix >= 0:
            yield helix, place, residue
            step, at = steps[helix], residue - int(self._residues[helix][0])
            if had == 0:
                helix, place, residue = step.entered_from[place, at].tolist()
                had = SHORTEST - 1
                continue
            if had < SHORTEST - 1 or not step.stayed[place, at]:
                had -= 1
            place, residue = place - 1, residue - 1
