"""Sequences threaded through helices: the best of all ways there are."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from openmm_density.extensions.rebuilding import helix_threading
from openmm_density.extensions.rebuilding.helix_fragments import ideal_helix
from openmm_density.extensions.rebuilding.helix_threading import Thread, proposed_threads
from openmm_density.extensions.rebuilding.map_helices import SHORTEST, MapHelix


def helix_at(place: tuple[float, float, float], count: int, first: float, density: float = 0.8) -> MapHelix:
    """Return a helix that runs up from a place, whose residues in the model are counted from the first."""
    atoms = ideal_helix(count)
    atoms[..., 2] -= atoms[0, 1, 2]
    return MapHelix(atoms + np.array(place), np.full(count, density), first + np.arange(count, dtype=float))


def segments(size: int, helices: list[MapHelix]) -> Iterator[tuple[tuple[int, int, int, int], ...]]:
    """Yield all ways of putting residues into helices, as (helix, place, residue, length) of each that is used."""
    lengths = [len(helix.density) for helix in helices]
    every = [
        [
            (number, place, residue, length)
            for length in range(SHORTEST, count + 1)
            for place in range(count - length + 1)
            for residue in range(size - length + 1)
        ]
        for number, count in enumerate(lengths)
    ]
    for used in range(1, len(helices) + 1):
        for which in itertools.combinations(range(len(helices)), used):
            yield from itertools.product(*(every[number] for number in which))


def score_of(
    way: tuple[tuple[int, int, int, int], ...], odds: list[np.ndarray], helices: list[MapHelix]
) -> float:
    """Return what a way is worth, by the definition; minus infinity where a loop cannot span its gap."""
    total, end = 0.0, None
    for number, place, residue, length in way:
        helix = helices[number]
        alphas = helix.backbone[:, 1]
        last_place, last = place + length - 1, residue + length - 1
        if end is not None:
            bonds = residue - end[1]
            if bonds < 1 or np.linalg.norm(alphas[place] - end[0]) > helix_threading._SPAN * bonds:
                return -np.inf
        steps = np.arange(length)
        evidence = np.clip(odds[number][residue + steps, place + steps], -3.0, 3.0)
        total += evidence.sum() + helix_threading._FILLED * helix.density[place : last_place + 1].sum()
        for at, own in ((place, residue), (last_place, last)):
            total -= helix_threading._SHIFTED * min(abs(own - helix.residues[at]), 6)
        total -= helix_threading._OPENING
        end = alphas[last_place], last
    return total


@pytest.mark.parametrize("seed", range(4))
def test_the_best_thread_is_the_best_of_all(seed: int) -> None:
    random = np.random.default_rng(seed)
    size = 15
    helices = [helix_at((0.0, 0.0, 0.0), 6, 0.0), helix_at((9.0, 0.0, 2.0), 6, 8.0)]
    odds = [random.normal(-0.3, 1.5, (size, 6)) for _ in helices]
    best = max(score_of(way, odds, helices) for way in segments(size, helices))
    thread, *others = proposed_threads(odds, helices)
    assert thread.score == pytest.approx(best)
    assert way_score(thread, odds, helices) == pytest.approx(best)
    for other in others:
        assert way_score(other, odds, helices) == pytest.approx(other.score)
        assert best - 10.0 < other.score <= best
        assert any(other.offset(n) != thread.offset(n) for n in range(2))
    scores = [each.score for each in others]
    assert scores == sorted(scores, reverse=True)


def way_score(thread: Thread, odds: list[np.ndarray], helices: list[MapHelix]) -> float:
    way = []
    for number in np.unique(thread.helices).tolist():
        own = thread.helices == number
        places, residues = thread.places[own], thread.residues[own]
        assert (np.diff(places) == 1).all() and (np.diff(residues) == 1).all()
        way.append((number, int(places[0]), int(residues[0]), len(places)))
    assert (np.diff(thread.residues) > 0).all()
    return score_of(tuple(way), odds, helices)


def test_evidence_moves_a_helix_by_whole_residues() -> None:
    """Residues that stand out, three places from where the model has them, are put where they are seen."""
    size, shift = 40, 3
    helices = [helix_at((0.0, 0.0, 0.0), 10, 5.0), helix_at((7.0, 0.0, 0.0), 10, 22.0)]
    odds = [np.full((size, 10), -1.0), np.full((size, 10), -1.0)]
    places = np.arange(10)
    odds[0][5 + shift + places, places] = 1.0
    odds[1][22 + places, places] = 1.0
    thread = proposed_threads(odds, helices)[0]
    assert (thread.offset(0), thread.offset(1)) == (5 + shift, 22)
    assert len(thread.residues) == 20
