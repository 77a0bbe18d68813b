"""A model whose chain runs through the helices of a map as a thread says, with its loops and ends led there."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...maps.density_map import DensityMap
from .helix_threading import Thread
from .map_helices import MapHelix
from .register_search import RegisterSearch

_BOND = 3.8
"""Å from one Cα to the next."""
# An end keeps its trace where this has as many residues to within one, and is this far, in Å, from what else was placed.
_OFF, _FREE = 1, 3.0
# Which residue of the model is at the end of a helix: by its distance in Å, and this for each residue off the others' line.
_OFF_LINE = 0.3
# Directions in which an end may go on, its paths that are followed, and so many ways on of each.
_DIRECTIONS, _FOLLOWED, _WAYS_ON = 300, 40, 6
# Å that Cα two bonds apart are away from each other at least, and others.
_TWO_BONDS, _APART = 4.9, 4.5
# Against a path: a turn that is too sharp, and each Å that it comes too near to others. The density halfway counts half.
_SHARP, _NEARER, _HALFWAY = 5.0, 1.0, 0.5
_ROUNDING = 1e-6


class Lead(NamedTuple):
    """Where the residues of a chain are led."""

    # (3, 3), N, Cα and C in Å of those in helices, by their places in the chain
    frames: dict[int, np.ndarray]
    alphas: np.ndarray  # (n, 3), Cα of all, in Å
    # int (n,), the residue of the model, by its place, that each of the others gets its direction from
    sources: np.ndarray
    distances: np.ndarray  # (n,), Å from where the Cα is in the model


class ThreadBuilder:
    """Lead chains through the helices of a map. `registers`: which knows the chains."""

    def __init__(self, registers: RegisterSearch, density_map: DensityMap) -> None:
        self._registers, self._map = registers, density_map

    def lead(self, positions: np.ndarray, chain: np.ndarray, helices: list[MapHelix], thread: Thread) -> Lead:
        """Return where the residues of a chain come to be with a thread.

        Loops go along the trace of the model between the ends of their helices, evenly. So do the ends of the chain where the
        trace has room for them; else they follow the density.

        `positions` (N, 3) in Å.
        """
        alphas = self._registers.alphas(positions, chain)
        frames: dict[int, np.ndarray] = {}
        lines: dict[int, float] = {}
        for number, place, residue in zip(thread.helices, thread.places, thread.residues):
            frames[int(residue)] = helices[number].backbone[place, :3]
            lines[int(residue)] = float(helices[number].residues[place])
        others = [each for each in self._registers.chains if each is not chain]
        around = [self._registers.alphas(positions, each) for each in others]
        trace = _Trace(alphas, {residue: frame[1] for residue, frame in frames.items()}, lines)
        trace.lead_loops()
        trace.lead_ends(_Growing(self._map, np.concatenate([np.zeros((0, 3)), *around])))
        return Lead(frames, trace.targets, trace.sources, np.linalg.norm(trace.targets - alphas, axis=1))

    def built(self, positions: np.ndarray, chain: np.ndarray, lead: Lead, residues: np.ndarray) -> np.ndarray:
        """Return the positions (N, 3) in Å with some residues, by their indices, led elsewhere, each as a whole.

        What joins those in helices is strained and has to be minimised.
        """
        alphas = self._registers.alphas(positions, chain)
        result = positions.copy()
        for place in np.flatnonzero(np.isin(chain, residues)).tolist():
            residue = int(chain[place])
            atoms = self._registers.atoms_of(chain[[place]])
            if place in lead.frames:
                result[atoms] = self._registers.laid_on(positions, atoms, residue, lead.frames[place])
            else:
                source = int(lead.sources[place])
                moved = self._registers.superposed(positions, atoms, residue, int(chain[source]))
                result[atoms] = moved + lead.alphas[place] - alphas[source]
        return result


class _Trace:
    """Where each Cα of a chain is led to, and the residue of the model whose peptide it gets the direction of."""

    def __init__(self, alphas: np.ndarray, placed: dict[int, np.ndarray], lines: dict[int, float]) -> None:
        self._alphas = alphas
        self._placed = sorted(placed)
        self.sources = np.arange(len(alphas))
        self.targets = np.full_like(alphas, np.nan)
        # The residue of the model at each of the places.
        self._there: dict[int, int] = {}
        for residue, alpha in placed.items():
            self.targets[residue] = alpha
            off = np.abs(self.sources - lines[residue])
            self._there[residue] = int((np.linalg.norm(alphas - alpha, axis=1) + _OFF_LINE * off).argmin())

    def lead_loops(self) -> None:
        """Lead what is between two helices along the trace of the model between their ends, evenly."""
        for before, behind in pairwise(self._placed):
            count = behind - before - 1
            if not count:
                continue
            first, last = self._there[before], self._there[behind]
            via = self._alphas[first + 1 : last]
            ends = self.targets[[before]], self.targets[[behind]]
            self.targets[before + 1 : behind] = _evenly(np.concatenate([ends[0], via, ends[1]]), count)
            between = np.linspace(first, last, count + 2)[1:-1]
            self.sources[before + 1 : behind] = np.round(between).astype(int)

    def lead_ends(self, growing: _Growing) -> None:
        """Lead what is before the first helix and behind the last along the trace, or where it is grown."""
        size = len(self._alphas)
        for from_, way, count in (
            (self._placed[0], -1, self._placed[0]),
            (self._placed[-1], 1, size - 1 - self._placed[-1]),
        ):
            if not count:
                continue
            there = self._there[from_]
            old = self._alphas[:there][::-1] if way < 0 else self._alphas[there + 1 :]
            known = self.targets[np.isfinite(self.targets[:, 0])]
            residues = from_ + way * np.arange(1, count + 1)
            if abs(len(old) - count) <= _OFF and len(old) and _far(old[1:], known):
                onward = 2 * old[-1] - (old[-2] if len(old) > 1 else self.targets[from_])
                new = np.concatenate([old, [onward]])[:count]
            else:
                new = growing.end(self.targets[from_], self.targets[from_ - way], count, known)
            self.targets[residues] = new
            self.sources[residues] = np.clip(there + way * np.arange(1, count + 1), 0, size - 1)


class _Growing:
    """Ends of chains that follow the density, away from everything else."""

    def __init__(self, density_map: DensityMap, around: np.ndarray) -> None:
        self._map, self._around = density_map, around
        directions = np.random.default_rng(0).normal(size=(_DIRECTIONS, 3))
        self._directions = directions / np.linalg.norm(directions, axis=1, keepdims=True)

    def end(self, start: np.ndarray, before: np.ndarray, count: int, placed: np.ndarray) -> np.ndarray:
        """Return so many Cα (count, 3) in Å that go on from one, by a beam search."""
        placed = placed[np.linalg.norm(placed - start, axis=1) > 0.1]
        level = float(np.mean(self._density(placed)))
        taken = np.concatenate([placed, self._around])
        paths = [(0.0, [before, start])]
        for _ in range(count):
            grown: list[tuple[float, list[np.ndarray]]] = []
            for score, path in paths:
                points = path[-1] + _BOND * self._directions
                halfway = self._density(path[-1] + 0.5 * _BOND * self._directions)
                values = (self._density(points) + _HALFWAY * halfway) / max(level, 1e-12)
                values -= _SHARP * (np.linalg.norm(points - path[-2], axis=1) < _TWO_BONDS)
                others = np.concatenate([taken, np.array(path[:-2]).reshape(-1, 3)])
                # What is farther from where the path ends is in no point's way.
                others = others[np.linalg.norm(others - path[-1], axis=1) < _BOND + _APART + _ROUNDING]
                nearest = np.linalg.norm(points[:, None] - others[None], axis=2).min(axis=1, initial=np.inf)
                values -= _NEARER * np.maximum(_APART - nearest, 0.0)
                for number in np.argsort(-values, kind="stable")[:_WAYS_ON].tolist():
                    grown.append((score + float(values[number]), [*path, points[number]]))
            paths = _different(sorted(grown, key=lambda each: -each[0]))
        return np.array(paths[0][1][2:])

    def _density(self, points: np.ndarray) -> np.ndarray:
        return np.nan_to_num(self._map.value_at(points), nan=0.0)


def _different(paths: list[tuple[float, list[np.ndarray]]]) -> list[tuple[float, list[np.ndarray]]]:
    """Return the first of paths that end in the same place."""
    kept: list[tuple[float, list[np.ndarray]]] = []
    for score, path in paths:
        if all(np.linalg.norm(path[-1] - other[-1]) > 1.0 for _, other in kept):
            kept.append((score, path))
        if len(kept) == _FOLLOWED:
            break
    return kept


def _far(points: np.ndarray, others: np.ndarray) -> bool:
    return all(np.linalg.norm(others - point, axis=1).min() > _FREE for point in points)


def _evenly(points: np.ndarray, count: int) -> np.ndarray:
    """Return so many points (count, 3) between the ends of a path, evenly along it."""
    lengths = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(points, axis=0), axis=1))])
    at = np.linspace(0.0, lengths[-1], count + 2)[1:-1]
    return np.stack([np.interp(at, lengths, column) for column in points.T], axis=1)
