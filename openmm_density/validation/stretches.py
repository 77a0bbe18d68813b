"""Stretches of a chain where a model is doubtful: a fit made them worse, or they fit far worse than the rest of their chain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.wording import counted, listing

WINDOW = 5
"""Residues over which the measures are averaged: single ones vary by chance."""
FALL = 0.1
"""By which a window's correlation or Q-score fell where a fit made it worse; one in twenty did in a fit from a wrong start."""
FAR_BELOW = 0.2
"""A window so far below the median of its chain is doubtful. In the models of EMD-6374, EMD-3488 and PDB 3PQR two windows in
a thousand are; of a model built wrongly into the first, one in ten."""

MOST_STRETCHES = 5
"""How many of the worst have a sentence of their own."""

_NAMES = {"correlation": "correlation", "q_score": "Q-score"}


@dataclass(frozen=True)
class DoubtfulStretch:
    """Neighbours in a chain that fit the map badly."""

    chain: str
    first: str  # `first`, `last`: their numbers, with insertion codes.
    last: str
    rows: tuple[int, ...]  # Their places among the residues that were given
    measure: str  # "correlation" or "q_score"
    fell: bool  # Whether they were better before; else they are far below the rest of their chain
    value: float  # `value`, `other`: their mean now, and their mean before or the median of the chain.
    other: float
    reference: float | None = None  # Their mean in a reference model

    @property
    def label(self) -> str:
        """As in ``A 134-138``."""
        numbers = self.first if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.chain} {numbers}".strip()

    def __str__(self) -> str:
        """Return a sentence on what is wrong with them."""
        who = f"residue{'' if self.first == self.last else 's'} {self.label}"
        than, other = ("before", "before") if self.fell else ("the rest of the chain", "median")
        figures = f"{_NAMES[self.measure]} {self.value:.2f}, {other} {self.other:.2f}"
        if self.reference is not None:
            figures += f", reference {self.reference:.2f}"
        return f"{who} fit the map {'' if self.fell else 'far '}worse than {than} ({figures})."


def doubtful_stretches(residues: Sequence[dict[str, Any]]) -> list[DoubtfulStretch]:
    """Find stretches of residues that a fit made worse, or that are far below the rest of their chain after it.

    Correlation and Q-score are averaged over 5 consecutive residues; a stretch joins windows that fell by more than 0.1, or are
    more than 0.2 below the median of the chain, and ends where residues do so by themselves. It is reported once: as fallen
    rather than as low, by the correlation rather than by the Q-score. What fell to no less than in a reference is not doubted.
    """
    found: list[DoubtfulStretch] = []
    reported: set[int] = set()
    polymers = _polymers(residues)
    for fell in (True, False):
        for measure in _NAMES:
            after = _values(residues, f"{measure}_final")
            before = _values(residues, f"{measure}_initial")
            reference = _values(residues, f"{measure}_reference")
            for chain, members in polymers.items():
                known = after[members][np.isfinite(after[members])]
                if len(known) < WINDOW:
                    continue
                other = before if fell else np.full(len(residues), np.median(known))
                limit = FALL if fell else FAR_BELOW
                for rows in _stretches(residues, members, other - after, limit):
                    beyond_reference = _mean((after - reference)[list(rows)])
                    is_good = fell and beyond_reference is not None and beyond_reference >= 0
                    if is_good or not reported.isdisjoint(rows):
                        continue
                    reported.update(rows)
                    first, last = (_number(residues[rows[end]]) for end in (0, -1))
                    means = (_mean(values[list(rows)]) for values in (after, other, reference))
                    found.append(DoubtfulStretch(chain, first, last, rows, measure, fell, *means))
    return sorted(found, key=lambda stretch: stretch.value - stretch.other)


def sentences_of(stretches: Sequence[DoubtfulStretch]) -> list[str]:
    """Return a sentence for each of the worst stretches, and one that names the others."""
    sentences = [str(each) for each in stretches[:MOST_STRETCHES]]
    if others := [each.label for each in stretches[MOST_STRETCHES:]]:
        fit = "fits" if len(others) == 1 else "fit"
        sentences.append(
            f"{counted(len(others), 'more stretch', 'more stretches')} of residues {fit} the map badly: {listing(others)}."
        )
    return sentences


def _stretches(
    residues: Sequence[dict[str, Any]], members: np.ndarray, loss: np.ndarray, limit: float
) -> Iterator[tuple[int, ...]]:
    """Yield the places of each stretch in which windows of consecutive residues lose more than the limit."""
    numbers = np.array([residues[i]["number"] for i in members])
    is_next = np.isin(np.diff(numbers), (0, 1))
    for run in np.split(members, np.flatnonzero(~is_next) + 1):
        if len(run) < WINDOW:
            continue
        windows = np.lib.stride_tricks.sliding_window_view(loss[run], WINDOW)
        unknown = np.isnan(windows)
        enough = 2 * unknown.sum(axis=1) < WINDOW
        mean = np.where(unknown, 0.0, windows).sum(axis=1) / np.maximum((~unknown).sum(axis=1), 1)
        bad = np.zeros(len(run), dtype=bool)
        for start in np.flatnonzero(enough & (mean > limit)):
            bad[start : start + WINDOW] = True
        for first, last in runs_of(bad):
            own = first + np.flatnonzero(loss[run[first : last + 1]] > limit)
            yield tuple(run[own[0] : own[-1] + 1].tolist())


def runs_of(chosen: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield the first and last place of each run of what is chosen."""
    edges = np.flatnonzero(np.diff(chosen, prepend=False, append=False))
    yield from zip(edges[::2].tolist(), (edges[1::2] - 1).tolist())


def window_means(values: np.ndarray) -> np.ndarray:
    """Average over 7 neighbours, fewer at the ends and where values are not known; infinite where none is."""
    known, ones = np.isfinite(values), np.ones(7)
    total = np.convolve(np.where(known, values, 0.0), ones, mode="full")
    count = np.convolve(known.astype(float), ones, mode="full")
    kept = slice(3, 3 + len(values))
    return np.where(count[kept] > 0.5, total[kept] / np.maximum(count[kept], 1.0), np.inf)


def _polymers(residues: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Return the places of each chain's residues of the polymer, by the chain."""
    members: dict[str, list[int]] = {}
    for i, row in enumerate(residues):
        if row["kind"] == "polymer":
            members.setdefault(row["chain"], []).append(i)
    return {chain: np.array(places) for chain, places in members.items()}


def _values(residues: Sequence[dict[str, Any]], name: str) -> np.ndarray:
    known = [row.get(name) for row in residues]
    return np.array([np.nan if value is None else value for value in known], dtype=np.float64)


def _mean(values: np.ndarray) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def _number(row: dict[str, Any]) -> str:
    return f"{row['number']}{row['insertion_code']}"
