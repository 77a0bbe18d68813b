"""Which moving parts of two replicas belong together.

A mean density does not tell which place of one domain goes with which of another, except by their weights: where two domains
have both moved in six of ten molecules, replicas of weights 0.6 and 0.4 fit with both domains moved in the first, not with one
moved in each. Dynamics does not find from one to the other, as a domain would have to go through density that is taken. So parts
are exchanged at once, and the map says which exchange is better.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from openmm import app

from ...energies.density_fit import DensityFit
from .starts import density_of
from .states import trace_of

APART = 2.5
"""Å from which a residue is in two places in two replicas."""
LEAST_GAIN = 1e-4
"""Of the similarity: an exchange that gains less is not made."""
_TOGETHER, _SHORTEST, _MOST = 5, 5, 5
# So near are two replicas where a part ends that is exchanged, or so many residues on.
_NEAR, _REACH = 1.0, 8


def moving_parts(topology: app.Topology, first: np.ndarray, second: np.ndarray) -> list[np.ndarray]:
    """Return the longest stretches that two models (Å) have in two places, each to where the models come near each other."""
    apart, residues = _distances(topology, first, second)
    moved = [k for k in range(len(apart)) if apart[k] > APART]
    runs: list[list[int]] = []
    for k in moved:
        if runs and k - runs[-1][-1] <= _TOGETHER and residues[k].chain is residues[runs[-1][-1]].chain:
            runs[-1].append(k)
        else:
            runs.append([k])
    runs = sorted(
        (run for run in runs if run[-1] - run[0] + 1 >= _SHORTEST), key=lambda run: run[0] - run[-1]
    )
    found = []
    for run in sorted(runs[:_MOST]):
        begin, end = (_edge(apart, residues, run[place], step) for place, step in ((0, -1), (-1, 1)))
        found.append(np.array([residues[k].index for k in range(begin, end + 1)]))
    return found


def best_pair(
    fit: DensityFit, topology: app.Topology, models: Sequence[np.ndarray]
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the two models (N, 3) in Å, and weights, that fit best together with parts exchanged by `best_crossing`."""
    pairs = [best_crossing(fit, topology, one, other) for one, other in itertools.combinations(models, 2)]
    chosen, weight, _ = max(pairs, key=lambda pair: pair[2])
    return chosen, np.array([weight, 1 - weight])


def best_crossing(
    fit: DensityFit, topology: app.Topology, first: np.ndarray, second: np.ndarray
) -> tuple[list[np.ndarray], float, float]:
    """Return two models (N, 3) in Å with the parts exchanged that fit the map best, the weight of the first, and how well."""
    parts = moving_parts(topology, first, second)
    best = [first, second]
    weight, highest = best_weight(fit, best)
    # The first part stays: exchanging all of them would only rename the replicas.
    for chosen in itertools.product((False, True), repeat=max(len(parts) - 1, 0)):
        exchanged = [part for part, is_chosen in zip(parts[1:], chosen) if is_chosen]
        if not exchanged:
            continue
        share = _share(topology, first, second, exchanged)[:, None]
        crossed = [first + share * (second - first), second + share * (first - second)]
        its_weight, similarity = best_weight(fit, crossed)
        if similarity > highest + LEAST_GAIN:
            best, weight, highest = crossed, its_weight, similarity
    return best, weight, highest


def best_weight(fit: DensityFit, models: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return the weight of the first of two models with which their mean correlates best with the map, and by how much."""
    target = np.nan_to_num(fit.target.data.astype(np.float64)).ravel()
    return weight_of_first(target, *(density_of(fit, each) for each in models))


def weight_of_first(target: np.ndarray, first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Return the weight of the first of two densities (V,) whose mean correlates best with a target, and how well."""
    w = np.linspace(0.1, 0.9, 33)
    overlap = w * (first @ target) + (1 - w) * (second @ target)
    square = w**2 * (first @ first) + 2 * w * (1 - w) * (first @ second) + (1 - w) ** 2 * (second @ second)
    found = overlap / np.sqrt(square * (target @ target))
    best = int(np.argmax(found))
    return float(w[best]), float(found[best])


def _distances(
    topology: app.Topology, first: np.ndarray, second: np.ndarray
) -> tuple[np.ndarray, list[app.topology.Residue]]:
    """Return how far apart the traced atoms of two models are in Å, and their residues."""
    trace = trace_of(topology)
    atoms = list(topology.atoms())
    apart = np.linalg.norm(first[trace] - second[trace], axis=1)
    return apart, [atoms[index].residue for index in trace]


def _edge(apart: np.ndarray, residues: Sequence[app.topology.Residue], begin: int, step: int) -> int:
    """Return the traced atom at which a stretch that begins there ends, going on by a step."""
    k = begin
    for _ in range(_REACH):
        beyond = k + step
        outside = not 0 <= beyond < len(apart) or residues[beyond].chain is not residues[k].chain
        if outside or apart[k] < _NEAR:
            break
        k = beyond
    return k


def _share(
    topology: app.Topology, first: np.ndarray, second: np.ndarray, parts: Sequence[np.ndarray]
) -> np.ndarray:
    """Return how much of each atom is exchanged: all of it inside of parts, less where the models come near each other."""
    apart, residues = _distances(topology, first, second)
    of_residue = np.ones(topology.getNumResidues())
    for distance, residue in zip(apart, residues):
        of_residue[residue.index] = min(distance / APART, 1.0)
    chosen = np.zeros(len(of_residue))
    for part in parts:
        chosen[part] = of_residue[part]
    return chosen[[atom.residue.index for atom in topology.atoms()]]


def first_states(weights: np.ndarray, replicas: int) -> list[int]:
    """Return for each replica the state that it begins in, as the weights (S,) ask, each state at least once; S ≤ replicas."""
    counts = np.ones(len(weights), dtype=int)
    while counts.sum() < replicas:
        counts[int(np.argmax(weights / counts))] += 1
    return [state for state, count in enumerate(counts) for _ in range(count)]
