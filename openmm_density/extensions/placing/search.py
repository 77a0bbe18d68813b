"""All rotations and translations of a rigid body in a map, and the nearest maxima of the best of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from ...validation.map_checks.rigid_search import rotations
from .search_map import SearchMap, deposited, filtered

# Between rotations the atoms at the radius of gyration move by this part of the resolution.
_ROTATION_STEP = 0.6
_LEAST_ROTATIONS, _MOST_ROTATIONS = 400, 8000
# A body is sampled so many times finer than the map.
_FINER = 2
# Voxels a side of which the best is kept, and how many of these for each rotation.
_BLOCK, _PER_ROTATION = 3, 60
CANDIDATES = 150
"""Places of a body that are compared with those of others."""
# Rotations and poses that are worked on at once, and voxels on a GPU.
_AT_ONCE_ON_CPU, _AT_ONCE, _VOXELS_ON_GPU = 2, 64, 2e8
_REFINED_ATOMS = 800
STEPS = (15, 25)
"""Uphill, of all poses that are refined, and of the best of them."""


@dataclass(frozen=True)
class Body:
    """A rigid body: its atoms (N, 3) about their centre in Å, their atomic numbers, which are Cα or P, and the names (T,) of the
    residues of these.
    """

    atoms: np.ndarray
    weights: np.ndarray
    trace: np.ndarray
    names: np.ndarray

    @property
    def gyration(self) -> float:
        """The radius of gyration, in Å."""
        return float(np.sqrt((self.atoms**2).sum(axis=1).mean()))


@dataclass(frozen=True)
class BodyPoses:
    """Places of a body, the best first: x → rotation · x + place."""

    scores: np.ndarray
    rotations: np.ndarray  # (P, 3, 3)
    places: np.ndarray  # (P, 3)

    def __len__(self) -> int:
        return len(self.scores)

    @classmethod
    def joined(cls, parts: Iterable[BodyPoses]) -> BodyPoses:
        """Return all poses of some parts, the best first."""
        every = cls(
            *(np.concatenate(each) for each in zip(*((p.scores, p.rotations, p.places) for p in parts)))
        )
        return every.chosen(np.argsort(-every.scores, kind="stable"))

    def chosen(self, rows: np.ndarray) -> BodyPoses:
        """Return some of them."""
        return BodyPoses(self.scores[rows], self.rotations[rows], self.places[rows])


class BodyTemplate:
    """A body's density on voxels of its own, filtered as the map is, of norm 1."""

    def __init__(self, body: Body, target: SearchMap) -> None:
        self.voxel = target.voxel / _FINER
        radius = float(np.linalg.norm(body.atoms, axis=1).max()) + target.resolution
        half = int(np.ceil(radius / self.voxel))
        n = 2 * half + 1
        data = deposited(body.atoms / self.voxel + half, body.weights, (n, n, n)).to(target.data.device)
        self.data = filtered(data, self.voxel, target.resolution)
        self.half, self.radius = half, radius
        side = int(np.ceil(radius / target.voxel))
        self.side = 2 * side + 1
        line = torch.arange(-side, side + 1, device=data.device, dtype=torch.float32) * target.voxel
        z, y, x = torch.meshgrid(line, line, line, indexing="ij")
        self.points = torch.stack([x, y, z], dim=-1).reshape(-1, 3)
        norm = float(self.data.square().sum().sqrt()) / _FINER**1.5
        self.data = self.data / norm

    def rotated(self, turns: torch.Tensor) -> torch.Tensor:
        """Return the density on the voxels of the map, for rotations (B, 3, 3), shape (B, side, side, side)."""
        # The value at x is that of the body at R⁻¹ x.
        at = torch.einsum("pi,bij->bpj", self.points, turns) / (self.half * self.voxel)
        grid = at.reshape(len(turns), self.side, self.side, self.side, 3)
        data = self.data.expand(len(turns), 1, *self.data.shape)
        return functional.grid_sample(data, grid, align_corners=True)[:, 0]


def search(
    body: Body,
    target: SearchMap,
    tell: Callable[[int, int], None] = lambda *_: None,
    threads: int | None = None,
) -> tuple[BodyPoses, np.ndarray]:
    """Return the best places of a body anywhere in a map, refined, and the scores of others far from each other, mostly wrong."""
    template = BodyTemplate(body, target)
    reach = max(body.gyration, target.resolution)
    count = 8 * np.pi**2 * (reach / (_ROTATION_STEP * target.resolution)) ** 3
    every = rotations(int(np.clip(count, _LEAST_ROTATIONS, _MOST_ROTATIONS))).as_matrix()
    with _workers(target.data.device, threads) as pool:

        def better(poses: BodyPoses, steps: int) -> BodyPoses:
            parts = [
                poses.chosen(np.arange(k, min(k + _AT_ONCE, len(poses))))
                for k in range(0, len(poses), _AT_ONCE)
            ]
            return BodyPoses.joined(pool.map(lambda part: refined(part, body, target, steps), parts))

        rough, each = _scanned(template, target, every, pool, tell)
        rough = better(
            rough.chosen(distinct_rows(rough, body, 0.75 * target.resolution, 2 * CANDIDATES)), STEPS[0]
        )
        fine = better(rough.chosen(distinct_rows(rough, body, 0.4 * target.resolution, CANDIDATES)), STEPS[1])
        apart = distinct_rows(each, body, max(body.gyration, target.resolution), CANDIDATES)
        noise = better(each.chosen(apart), STEPS[0]).scores
    return fine.chosen(distinct_rows(fine, body, 0.4 * target.resolution, CANDIDATES)), noise


@contextmanager
def _workers(device: torch.device, threads: int | None) -> Iterator[ThreadPoolExecutor]:
    """Yield threads of which each works alone: those that torch has for small transforms mostly wait for each other."""
    count = 1 if device.type == "cuda" else threads or torch.get_num_threads()
    with (
        torch_threads(1),
        ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        yield pool


@contextmanager
def torch_threads(threads: int | None) -> Iterator[None]:
    """Let torch have so many threads, or as many as it has."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _scanned(
    template: BodyTemplate,
    target: SearchMap,
    every: np.ndarray,
    pool: ThreadPoolExecutor,
    tell: Callable[[int, int], None],
) -> tuple[BodyPoses, BodyPoses]:
    """Return the best places for rotations (R, 3, 3), and the best for each; the best of all first."""
    device, shape = target.data.device, tuple(target.data.shape)
    turns = torch.from_numpy(every.astype(np.float32)).to(device)
    batch = _AT_ONCE_ON_CPU if device.type == "cpu" else max(int(_VOXELS_ON_GPU / np.prod(shape)), 1)
    n = template.side

    def scan(some: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        padded = torch.zeros(len(some), *shape, device=device)
        padded[:, :n, :n, :n] = template.rotated(some)
        # Σ ρ(x) t(x + u) over x, for every shift u.
        product = torch.fft.rfftn(padded, dim=(1, 2, 3)).conj() * target.spectrum
        scores = torch.fft.irfftn(product, s=shape, dim=(1, 2, 3))
        best, at = functional.max_pool3d(scores[:, None], _BLOCK, return_indices=True, ceil_mode=True)
        top = best.flatten(1).topk(min(_PER_ROTATION, best[0].numel()), dim=1)
        return top.values.cpu(), at.flatten(1).gather(1, top.indices).cpu()

    found = []
    for part in pool.map(scan, turns.split(batch)):
        found.append(part)
        tell(min(len(found) * batch, len(turns)), len(turns))
    scores, voxels = (torch.cat(each).numpy() for each in zip(*found))

    def poses(rows: np.ndarray) -> BodyPoses:
        k, j, i = np.unravel_index(voxels.reshape(-1)[rows], shape)
        # The template's centre is half its side from its corner; what is shifted around the end began before the first.
        index = (np.stack([i, j, k], axis=1) + n // 2) % np.array(shape[::-1])
        places = target.origin + target.voxel * index
        return BodyPoses(scores.reshape(-1)[rows], every[rows // scores.shape[1]], places)

    best = np.argsort(-scores, axis=None, kind="stable")[: 40 * CANDIDATES]
    of_rotations = np.argsort(-scores[:, 0], kind="stable") * scores.shape[1]
    return poses(best), poses(of_rotations)


def refined(poses: BodyPoses, body: Body, target: SearchMap, steps: int) -> BodyPoses:
    """Return the nearest maxima of the correlation, all poses at once, uphill in steps of their own lengths."""
    device = target.data.device
    every = -(-len(body.atoms) // _REFINED_ATOMS)
    atoms = torch.from_numpy(body.atoms[::every].astype(np.float32)).to(device)
    weights = torch.from_numpy(body.weights[::every].astype(np.float32)).to(device)
    smooth = target.data[None, None]
    size = torch.tensor(target.data.shape[::-1], device=device) - 1
    turn = torch.from_numpy(poses.rotations.astype(np.float32)).to(device)
    place = torch.from_numpy(((poses.places - target.origin) / target.voxel).astype(np.float32)).to(device)
    radius = max(body.gyration, 1.0)
    length = torch.full((len(poses), 1), 0.15 * target.resolution, device=device)
    weights = weights / weights.sum()

    def value(turn: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return scores, and their slopes along rotation vectors times the radius, and along shifts, Å⁻¹."""
        rotated = torch.einsum("bij,nj->bni", turn, atoms)
        points = (rotated / target.voxel + place[:, None]).detach().requires_grad_(True)
        grid = (2 * points / size - 1)[:, None, None]
        values = functional.grid_sample(smooth.expand(len(turn), -1, -1, -1, -1), grid, align_corners=True)
        total = (values[:, 0, 0, 0] * weights).sum(dim=1)
        (slope,) = torch.autograd.grad(total.sum(), points)
        slope = slope / target.voxel
        torque = torch.linalg.cross(rotated, slope).sum(dim=1) / radius
        return total.detach(), torque, slope.sum(dim=1)

    with torch.enable_grad():
        score, torque, force = value(turn, place)
        for _ in range(steps):
            norm = torch.sqrt((torque**2).sum(1, keepdim=True) + (force**2).sum(1, keepdim=True)) + 1e-20
            vector = torque / norm * length / radius
            new_turn = _exponential(vector) @ turn
            new_place = place + force / norm * length / target.voxel
            new, new_torque, new_force = value(new_turn, new_place)
            better = new > score
            score = torch.where(better, new, score)
            keep = better[:, None]
            turn = torch.where(keep[..., None], new_turn, turn)
            place = torch.where(keep, new_place, place)
            torque, force = torch.where(keep, new_torque, torque), torch.where(keep, new_force, force)
            length = torch.where(keep, length * 1.3, length * 0.4)
    return BodyPoses(
        score.cpu().numpy().astype(np.float64),
        turn.cpu().numpy().astype(np.float64),
        place.cpu().numpy().astype(np.float64) * target.voxel + target.origin,
    )


def _exponential(vectors: torch.Tensor) -> torch.Tensor:
    x, y, z = vectors.unbind(1)
    zero = torch.zeros_like(x)
    cross = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], dim=1).reshape(-1, 3, 3)
    return torch.linalg.matrix_exp(cross)


def distinct_rows(poses: BodyPoses, body: Body, least: float, most: int) -> np.ndarray:
    """Return the rows of poses, the best first, that differ by a root mean square distance of the atoms from better ones."""
    spread = body.atoms.T @ body.atoms / len(body.atoms)
    kept: list[int] = []
    for row in range(len(poses)):
        if kept:
            turned = poses.rotations[kept] - poses.rotations[row]
            square = np.einsum("pij,jk,pik->p", turned, spread, turned)
            square += ((poses.places[kept] - poses.places[row]) ** 2).sum(axis=1)
            if square.min() < least**2:
                continue
        kept.append(row)
        if len(kept) == most:
            break
    return np.array(kept, dtype=np.int64)
