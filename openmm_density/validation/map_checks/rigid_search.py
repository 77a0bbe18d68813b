"""All rotations and translations of a rigid model in a blurred map, by Fourier transform."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from scipy import fft
from scipy.spatial.transform import Rotation

from ...maps.density_map import DensityMap

# On voxels of a third of the resolution, of which no side has more.
MOST_VOXELS = 96
# Between rotations the atoms at the rim move by this part of the search resolution.
ROTATION_STEP = 0.75
MOST_ROTATIONS = 4000
CANDIDATES = 8
# Depositing atoms holds Python's lock: more threads would wait for it.
MOST_AT_ONCE = 8
SIGMA = 0.225
"""Of an atom's density, per Å of resolution."""


def rotations(count: int) -> Rotation:
    """Return so many rotations that cover all of them evenly: super-Fibonacci spirals (Alexa, CVPR 2022)."""
    # Solutions of the equations given there: ψ⁴ = ψ + 4, and √2.
    psi, phi = 1.533751168755204288118041, np.sqrt(2.0)
    s = np.arange(count) + 0.5
    r, big = np.sqrt(s / count), np.sqrt(1 - s / count)
    alpha, beta = 2 * np.pi * s / phi, 2 * np.pi * s / psi
    return Rotation.from_quat(
        np.stack([r * np.sin(alpha), r * np.cos(alpha), big * np.sin(beta), big * np.cos(beta)], axis=1)
    )


@dataclass(frozen=True)
class SearchGrid:
    """An orthogonal grid over the map, with room around it for the model."""

    origin: np.ndarray
    voxel: float
    shape: tuple[int, int, int]

    def filled(self, density_map: DensityMap) -> np.ndarray:
        """Sample a map, above its mean; 0 where it has no values."""
        nz, ny, nx = self.shape
        mean = float(density_map.data.mean(dtype=np.float64))
        j, i = np.meshgrid(np.arange(ny), np.arange(nx), indexing="ij")
        values = np.empty(self.shape)
        for k in range(nz):
            points = np.stack([i.ravel(), j.ravel(), np.full(i.size, k)], axis=1) * self.voxel + self.origin
            values[k] = np.nan_to_num(density_map.value_at(points) - mean, nan=0.0).reshape(ny, nx)
        return values

    def deposited(self, points: np.ndarray) -> np.ndarray:
        """Count points, given relative to the origin, in voxels, each shared out trilinearly."""
        base = np.floor(points / self.voxel).astype(np.int64)
        part = points / self.voxel - base
        nz, ny, nx = self.shape
        # Along each axis the lower and the upper voxel, and the share of each.
        i, j, k = (np.stack([base, base + 1]) % [[[nx, ny, nz]]]).transpose(2, 0, 1)
        x, y, z = np.stack([1 - part, part]).transpose(2, 0, 1)
        voxel = (k[:, None, None] * ny + j[None, :, None]) * nx + i[None, None]
        weight = z[:, None, None] * (y[None, :, None] * x[None, None])
        return np.bincount(voxel.ravel(), weight.ravel(), minlength=nz * ny * nx).reshape(self.shape)


def search_grid(density_map: DensityMap, centred: np.ndarray, coarse: float) -> tuple[SearchGrid, float]:
    """Return a grid for a search at `coarse`, and the resolution in Å that it can hold; `centred` (N, 3) about the centre."""
    corners = np.array(list(np.ndindex(2, 2, 2))) * (density_map.size - 1)
    corners = corners @ density_map.matrix.T + density_map.origin
    low, high = corners.min(axis=0), corners.max(axis=0)
    reach = float(np.linalg.norm(centred, axis=1).max()) + coarse
    extent = high - low + 2 * reach
    voxel = max(coarse / 3, float(extent.max()) / MOST_VOXELS)
    nx, ny, nz = (fft.next_fast_len(int(n), real=True) for n in np.ceil(extent / voxel))
    return SearchGrid(low - reach, voxel, (nz, ny, nx)), max(coarse, 3 * voxel)


def best_of_all(
    targets: Sequence[np.ndarray],
    grid: SearchGrid,
    centred: np.ndarray,
    coarse: float,
    threads: int | None = None,
) -> list[list[tuple[Rotation, np.ndarray]]]:
    """Return for each map the best rotations and the model centre's place; `centred` (N, 3) about it, `coarse` in Å."""
    reach = max(float(np.sqrt((centred**2).sum(axis=1).mean())), coarse)
    # Each of n rotations has a share of 8π²/n of the group's volume, a cube of as many steps as move the atoms so far.
    count = int(min(8 * np.pi**2 * (reach / (ROTATION_STEP * coarse)) ** 3, MOST_ROTATIONS))
    frequency = [fft.fftfreq(n, grid.voxel) for n in grid.shape[:2]] + [
        fft.rfftfreq(grid.shape[2], grid.voxel)
    ]
    square = sum(axis**2 for axis in np.ix_(*frequency))
    blur = np.exp(-2 * np.pi**2 * (SIGMA * coarse) ** 2 * square)
    # Places are refined from here: in single precision transforms take half the time.
    transforms = [(fft.rfftn(target) * blur).astype(np.complex64) for target in targets]
    every = rotations(max(count, 60))

    def peaks(rotation: Rotation) -> list[tuple[float, int]]:
        model = np.conj(fft.rfftn(grid.deposited(rotation.apply(centred)).astype(np.float32)))
        # Σ ρ(x) t(x + u) over x, for every shift u.
        return [_highest(fft.irfftn(model * transform, s=grid.shape)) for transform in transforms]

    with ThreadPoolExecutor(min(threads or os.cpu_count() or 1, MOST_AT_ONCE)) as pool:
        by_rotation = list(pool.map(peaks, every))
    return [
        _candidates([(*peak, number) for number, peak in enumerate(of_map)], every, grid)
        for of_map in zip(*by_rotation)
    ]


def _highest(scores: np.ndarray) -> tuple[float, int]:
    peak = int(np.argmax(scores))
    return float(scores.flat[peak]), peak


def _candidates(
    found: list[tuple[float, int, int]], every: Rotation, grid: SearchGrid
) -> list[tuple[Rotation, np.ndarray]]:
    """Return the poses of the highest scores that are not nearly the same."""
    found.sort(key=lambda each: (each[0], each[2]), reverse=True)
    best = []
    for _, peak, number in found[: 4 * CANDIDATES]:
        k, j, i = np.unravel_index(peak, grid.shape)
        best.append((0.0, every[number], grid.origin + grid.voxel * np.array([i, j, k])))
    return [(rotation, shift) for _, rotation, shift in distinct(best)[:CANDIDATES]]


def distinct(
    found: list[tuple[float, Rotation, np.ndarray]],
) -> list[tuple[float, Rotation, np.ndarray]]:
    """Return poses, the best first, without those that are nearly the same as a better one."""
    kept: list[tuple[float, Rotation, np.ndarray]] = []
    for one in found:
        near = any(
            (one[1] * other[1].inv()).magnitude() < np.radians(8.0)
            and np.linalg.norm(one[2] - other[2]) < 4.0
            for other in kept
        )
        if not near:
            kept.append(one)
    return kept
