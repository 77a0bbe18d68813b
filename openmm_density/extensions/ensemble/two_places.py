"""Two conformations of one molecule in one map, found with its domains as rigid bodies.

Where dynamics has to bring a domain through density that another replica explains, rigid bodies are placed at once: two models
begin at many pairs of places that soft modes tell, each domain of each is moved to where the mean density of both is most like
the map, from a blurred map to the map itself, and the domains are exchanged as the weights ask for. Domains that the map tells,
by weak density, are also turned to where no soft mode points. It takes some thousand evaluations of the density in place of
thousands of steps. What rigid bodies cannot do, dynamics does from there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from openmm import app
from scipy.ndimage import uniform_filter1d
from scipy.optimize import minimize
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from ...energies.density_fit import DensityFit
from ...energies.ensemble_fit import EnsembleFit
from ...maps.model_density import non_hydrogens
from ...models.rigid_domains import SMALLEST, rigid_domains
from ...models.superposition import superposition
from .crossing import best_crossing, best_weight, weight_of_first
from .starts import density_of, soft_modes
from .states import trace_of

MODES, REACHES = 6, (15.0, 12.0)
"""Soft modes that tell domains and how they move, with springs up to so many Å: long ones hold domains that touch."""
WORTH = 0.9
"""Of the deviation from rigid bodies along the modes, what has to be left for one domain more."""
ALONG = (3.0, 6.0)
"""Å along a mode at which the second model begins, as the RMSD of the trace."""
NEW = 1.5
"""Å, the RMSD of the trace, from which the soft modes of another model are asked as well."""
KEPT = (4, 2)
"""Pairs that are refined in the most blurred map, and in the others."""
TURNED, TRIED = (30.0, 60.0), 1
"""Degrees by which a domain is turned about where it hangs on the others, and how many of its turns are refined."""
MOST_TRACED = 700
"""Atoms of the trace between which what holds the chain is looked at."""
_DIVIDED = 3.0
_ITERATIONS = 25
_ROUNDS = 2
# In similarity: of Å² between neighbours whose distance changes, and of Å² by which parts come too near each other.
_BOND, _CLASH, _NEAREST = 3e-4, 1e-4, 5.0
_BOUND = 4.5


@dataclass(frozen=True)
class Pair:
    """Two models that share a map."""

    models: list[np.ndarray]  # (N, 3), in Å
    weights: np.ndarray  # (2,)
    similarity: float  # Of their mean density to the map


def find_two_places(
    fits: Sequence[DensityFit], topology: app.Topology, starts: Sequence[np.ndarray]
) -> Pair | None:
    """Return the two of some models (N, 3) in Å, domains moved as rigid bodies, that fit best together; None without domains."""
    best: Pair | None = None
    looked: list[np.ndarray] = []
    trace = trace_of(topology)
    # Domains that touch in one conformation are told by the soft modes of the other.
    for _ in range(2):
        new = [each for each in starts if all(_away(each, other, trace) > NEW for other in looked)]
        looked += new
        found = []
        for start in new:
            found += [_placed(fits, topology, start, parts) for parts in divisions(topology, start)]
            weak = weak_domains(fits[-1], topology, start)
            if weak is not None:
                found.append(_turned(fits, topology, _placed(fits, topology, start, weak), start, weak))
        best = max([*filter(None, [best]), *found], key=lambda pair: pair.similarity, default=None)
        if best is None:
            return None
        starts = best.models
    return best


def _away(first: np.ndarray, other: np.ndarray, trace: np.ndarray) -> float:
    return float(np.sqrt(((first[trace] - other[trace]) ** 2).sum(axis=1).mean()))


def divisions(topology: app.Topology, model: np.ndarray) -> list[np.ndarray]:
    """Return ways to divide a model (Å) into domains by its soft modes: for each, the domain of every atom, shape (N,)."""
    trace = trace_of(topology)
    atoms = list(topology.atoms())
    chains = np.array([atoms[index].residue.chain.index for index in trace])
    own = [np.flatnonzero(chains == chain) for chain in np.unique(chains)]
    of_atom = _traced(atoms, trace, model)
    found: list[np.ndarray] = []
    for reach in REACHES:
        modes = soft_modes(topology, model, MODES, reach)
        if not modes:
            return []
        frames = [model[trace], *(model[trace] + s * _DIVIDED * m[trace] for m in modes for s in (1, -1))]
        labels = rigid_domains(np.array(frames), own, WORTH)
        if labels.max() > 0 and not any(np.array_equal(labels, other) for other in found):
            found.append(labels)
    return [labels[of_atom] for labels in found]


def _traced(atoms: Sequence[app.topology.Atom], trace: np.ndarray, model: np.ndarray) -> np.ndarray:
    """Return which traced atom each atom goes with: that of its residue, or the one next to a residue that has none."""
    number = {atoms[index].residue.index: k for k, index in enumerate(trace)}
    tree = cKDTree(model[trace])
    for atom in atoms:
        if atom.residue.index not in number:
            centre = model[[each.index for each in atom.residue.atoms()]].mean(axis=0)
            number[atom.residue.index] = int(tree.query(centre)[1])
    return np.array([number[atom.residue.index] for atom in atoms])


def _placed(fits: Sequence[DensityFit], topology: app.Topology, start: np.ndarray, parts: np.ndarray) -> Pair:
    placement = _Placement(topology, start, parts)
    pairs = [_pair(fits[0], [start, other]) for other in _others(topology, start, parts)]
    pairs = sorted(pairs, key=lambda pair: -pair.similarity)
    pairs = [placement.refined(fits[0], pair) for pair in pairs[: KEPT[0]]]
    pairs = sorted(pairs, key=lambda pair: -pair.similarity)[: KEPT[1]]
    for fit in fits[1:]:
        pairs = [placement.refined(fit, pair) for pair in pairs]
    best = max(pairs, key=lambda pair: pair.similarity)
    models, weight, similarity = best_crossing(fits[-1], topology, *best.models)
    crossed = Pair(models, np.array([weight, 1 - weight]), similarity)
    crossed = placement.refined(fits[-1], placement.made_rigid(crossed))
    return max((best, crossed), key=lambda pair: pair.similarity)


def _turned(
    fits: Sequence[DensityFit], topology: app.Topology, pair: Pair, start: np.ndarray, parts: np.ndarray
) -> Pair:
    """Return a pair, with a domain turned to where soft modes do not point, as of one that touches another, if that is better."""
    placement = _Placement(topology, start, parts)
    coarse, fine = fits[-2:][0], fits[-1]
    found = sorted(
        (placement.refined(coarse, each) for each in placement.turned(coarse, pair)),
        key=lambda each: -each.similarity,
    )
    refined = [placement.refined(fine, each) for each in found[: KEPT[1]]]
    return max((pair, *refined), key=lambda each: each.similarity)


def _others(topology: app.Topology, start: np.ndarray, parts: np.ndarray) -> list[np.ndarray]:
    """Return where the second model may begin: the domains moved as soft modes move them."""
    found = []
    for mode in soft_modes(topology, start, MODES, REACHES[0]):
        for amplitude in ALONG:
            for sign in (1, -1):
                found.append(_rigid(start, start + sign * amplitude * mode, parts))
    return found


def _rigid(base: np.ndarray, model: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Return a base whose domains are placed as in a model."""
    placed = base.copy()
    for part in np.unique(parts):
        own = parts == part
        rotation, shift = superposition(base[own], model[own])
        placed[own] = base[own] @ rotation.T + shift
    return placed


def _pair(fit: DensityFit, models: list[np.ndarray]) -> Pair:
    weight, similarity = best_weight(fit, models)
    return Pair(models, np.array([weight, 1 - weight]), similarity)


def _turns() -> list[np.ndarray]:
    """Return the rotations that are tried: both ways about axes along the edges and diagonals of a cube and of its faces."""
    axes = [axis for axis in itertools.product((-1, 0, 1), repeat=3) if any(axis)]
    return [
        Rotation.from_rotvec(np.radians(angle) * np.array(axis) / np.linalg.norm(axis)).as_matrix()
        for angle in TURNED
        for axis in axes
    ]


class _Placement:
    """The rigid bodies of two models, and what holds their chain together."""

    def __init__(self, topology: app.Topology, base: np.ndarray, parts: np.ndarray) -> None:
        self._base, self._parts = base, parts
        self._members = [np.flatnonzero(parts == part) for part in np.unique(parts)]
        self._of_atom = torch.from_numpy(np.searchsorted(np.unique(parts), parts))
        trace = trace_of(topology)
        atoms = list(topology.atoms())
        chain = np.array([atoms[index].residue.chain.index for index in trace])
        along = np.linalg.norm(base[trace[1:]] - base[trace[:-1]], axis=1)
        joined = (chain[1:] == chain[:-1]) & (parts[trace[1:]] != parts[trace[:-1]]) & (along < 2 * _BOUND)
        self._joined = np.stack([trace[:-1][joined], trace[1:][joined]], axis=1)
        self._lengths = torch.from_numpy(along[joined])
        self._trace = torch.from_numpy(trace[:: -(-len(trace) // MOST_TRACED)].copy())
        own = self._of_atom[self._trace]
        near = torch.cdist(*[torch.from_numpy(base)[self._trace]] * 2) < _NEAREST
        self._apart = (own[:, None] != own[None, :]) & ~near

    def made_rigid(self, pair: Pair) -> Pair:
        """Return a pair whose domains are those of the base."""
        return Pair([_rigid(self._base, each, self._parts) for each in pair.models], pair.weights, 0.0)

    def refined(self, fit: DensityFit, pair: Pair) -> Pair:
        """Return a pair with domains and weights with which its mean density is most like a map."""
        ensemble = EnsembleFit(fit, 2)
        for _ in range(_ROUNDS):
            models = self._moved(ensemble, pair)
            pair = _pair(fit, models)
        return pair

    def turned(self, fit: DensityFit, pair: Pair) -> Iterator[Pair]:
        """Yield pairs with one domain of one model turned about where it hangs on the others, its likeliest turns."""
        target = np.nan_to_num(fit.target.data.astype(np.float64)).ravel()
        densities = [density_of(fit, each) for each in pair.models]
        for which, model in enumerate(pair.models):
            for members in self._members[1:]:
                hinge = np.intersect1d(members, self._joined)
                if not len(hinge):
                    continue
                found = []
                for turn in _turns():
                    placed = model.copy()
                    centre = model[hinge].mean(axis=0)
                    placed[members] = (model[members] - centre) @ turn.T + centre
                    models, both = list(pair.models), list(densities)
                    models[which], both[which] = placed, density_of(fit, placed)
                    weight, similarity = weight_of_first(target, *both)
                    similarity -= float(self._penalty(torch.from_numpy(placed)))
                    found.append(Pair(models, np.array([weight, 1 - weight]), similarity))
                yield from sorted(found, key=lambda each: -each.similarity)[:TRIED]

    def _moved(self, ensemble: EnsembleFit, pair: Pair) -> list[np.ndarray]:
        bases = [torch.from_numpy(np.ascontiguousarray(each, dtype=np.float64)) for each in pair.models]
        centres = [torch.stack([base[own].mean(dim=0) for own in self._members]) for base in bases]
        radii = [
            [float((base[own] - base[own].mean(dim=0)).norm(dim=1).mean()) for own in self._members]
            for base in bases
        ]
        sizes = torch.tensor(radii, dtype=torch.float64)[:, :, None]

        def models_of(motions: torch.Tensor) -> list[torch.Tensor]:
            return [
                self._transformed(base, centre, motion[:, :3] / size, motion[:, 3:])
                for base, centre, motion, size in zip(bases, centres, motions, sizes)
            ]

        def judged(flat: np.ndarray) -> tuple[float, np.ndarray]:
            motions = torch.from_numpy(flat.reshape(2, len(self._members), 6)).requires_grad_()
            models = models_of(motions)
            placed = [model.detach().numpy() for model in models]
            similarity, gradient = ensemble.position_gradient(placed, pair.weights)
            penalty = sum(self._penalty(model) for model in models)
            pulled = sum(
                (model * torch.from_numpy(each)).sum() for model, each in zip(models, gradient.astype(float))
            )
            (penalty - pulled).backward()
            return float(penalty.detach()) - similarity, motions.grad.numpy().ravel().copy()

        n = 2 * len(self._members) * 6
        found = minimize(judged, np.zeros(n), jac=True, method="L-BFGS-B", options={"maxiter": _ITERATIONS})
        motions = torch.from_numpy(found.x.reshape(2, len(self._members), 6))
        return [model.numpy() for model in models_of(motions)]

    def _transformed(
        self, base: torch.Tensor, centres: torch.Tensor, turns: torch.Tensor, shifts: torch.Tensor
    ) -> torch.Tensor:
        x, y, z = turns.unbind(dim=1)
        zero = torch.zeros_like(x)
        skew = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], dim=1).reshape(-1, 3, 3)
        rotations = torch.linalg.matrix_exp(skew)[self._of_atom]
        centre = centres[self._of_atom]
        turned = (rotations @ (base - centre)[:, :, None])[:, :, 0]
        return turned + centre + shifts[self._of_atom]

    def _penalty(self, model: torch.Tensor) -> torch.Tensor:
        """Return what keeps the chain in one piece and domains out of each other, in similarity."""
        first, other = (model[self._joined[:, side]] for side in (0, 1))
        stretched = ((first - other).norm(dim=1) - self._lengths) ** 2
        traced = model[self._trace]
        with torch.no_grad():
            near = (torch.cdist(traced, traced) < _NEAREST) & self._apart
        one, another = near.nonzero().unbind(dim=1)
        distances = (traced[one] - traced[another]).norm(dim=1)
        return _BOND * stretched.sum() + _CLASH * (_NEAREST - distances).clamp(min=0).square().sum() / 2


WEAK = 0.85
"""Of the map's density beside the model's, where it is strong: less is weak."""
STRONG = 0.75
"""The quantile of the residues that is taken for strong."""
MOST = 4
"""Domains, the longest ones."""
_SMOOTHED, _TOGETHER = 9, 5


def weak_domains(fit: DensityFit, topology: app.Topology, model: np.ndarray) -> np.ndarray | None:
    """Return each atom's weak stretch (N,), 0 for none; None where no stretch of `SMALLEST` residues is weak."""
    strength = _density_beside(fit, topology, model)
    residues = list(topology.residues())
    of_residue = np.zeros(len(residues), dtype=np.int64)
    for number, (begin, end) in enumerate(_stretches(strength < WEAK, residues)[:MOST], start=1):
        of_residue[begin:end] = number
    if not of_residue.any():
        return None
    return of_residue[[atom.residue.index for atom in topology.atoms()]]


def _density_beside(fit: DensityFit, topology: app.Topology, model: np.ndarray) -> np.ndarray:
    """Return the map's density at each residue beside the model's, smoothed along chains, 1 where it is strong."""
    target = fit.target
    own = density_of(fit, model).reshape(target.data.shape).astype(np.float32)
    found = (np.nan_to_num(each.value_at(model)) for each in (target, replace(target, data=own)))
    of_atom = np.array([atom.residue.index for atom in topology.atoms()])
    heavy = non_hydrogens(topology)
    n = topology.getNumResidues()
    sums = [np.bincount(of_atom[heavy], values[heavy], n) for values in found]
    for chain in topology.chains():
        of_chain = np.array([residue.index for residue in chain.residues()])
        for values in sums:
            values[of_chain] = uniform_filter1d(values[of_chain], _SMOOTHED, mode="nearest")
    ratio = sums[0] / np.where(sums[1] > 0, sums[1], np.inf)
    strong = np.quantile(ratio, STRONG)
    return ratio / strong if strong > 0 else np.ones(n)


def _stretches(is_weak: np.ndarray, residues: list[app.topology.Residue]) -> list[tuple[int, int]]:
    """Return where stretches of weak residues begin and end, gaps of some residues filled, the longest first."""
    found: list[list[int]] = []
    for k in np.flatnonzero(is_weak):
        last = found[-1] if found else None
        if last is not None and k - last[1] < _TOGETHER and residues[k].chain is residues[last[0]].chain:
            last[1] = k + 1
        else:
            found.append([k, k + 1])
    long = [(int(begin), int(end)) for begin, end in found if end - begin >= SMALLEST]
    return sorted(long, key=lambda each: each[0] - each[1])
