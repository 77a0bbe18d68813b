"""All rotations and translations of a rigid model in a blurred map, by Fourier transform."""

from __future__ import annotations

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
        total = np.zeros(nz * ny * nx)
        for corner in np.ndindex(2, 2, 2):
            weight = np.prod(np.where(corner, part, 1 - part), axis=1)
            i, j, k = ((base + corner) % (nx, ny, nz)).T
            total += np.bincount((k * ny + j) * nx + i, weight, minlength=total.size)
        return total.reshape(self.shape)


def search_grid(density_map: DensityMap, centred: np.ndarray, coarse: float) -> tuple[SearchGrid, float]:
    """Return a grid for a search at a resolution, and the resolution that it can hold, in Å.

    Parameters
    ----------
    density_map : DensityMap
    centred : np.ndarray, shape (N, 3)
        The model's non-hydrogen atoms about their centre, in Å.
    coarse : float
        The resolution that is wanted, in Å.
    """
    corners = np.array(list(np.ndindex(2, 2, 2))) * (density_map.size - 1)
    corners = corners @ density_map.matrix.T + density_map.origin
    low, high = corners.min(axis=0), corners.max(axis=0)
    reach = float(np.linalg.norm(centred, axis=1).max()) + coarse
    extent = high - low + 2 * reach
    voxel = max(coarse / 3, float(extent.max()) / MOST_VOXELS)
    nx, ny, nz = (fft.next_fast_len(int(n), real=True) for n in np.ceil(extent / voxel))
    return SearchGrid(low - reach, voxel, (nz, ny, nx)), max(coarse, 3 * voxel)


def best_of_all(
    target: np.ndarray, grid: SearchGrid, centred: np.ndarray, coarse: float
) -> list[tuple[Rotation, np.ndarray]]:
    """Return the best rotations, and for each where the model's centre then belongs.

    Parameters
    ----------
    target : np.ndarray, shape (nz, ny, nx)
        The map on the grid, blurred to the resolution.
    grid : SearchGrid
    centred : np.ndarray, shape (N, 3)
        The model's non-hydrogen atoms about their centre, in Å.
    coarse : float
        The resolution in Å.
    """
    reach = max(float(np.sqrt((centred**2).sum(axis=1).mean())), coarse)
    # Each of n rotations has a share of 8π²/n of the group's volume, a cube of as many steps as move the atoms so far.
    count = int(min(8 * np.pi**2 * (reach / (ROTATION_STEP * coarse)) ** 3, MOST_ROTATIONS))
    frequency = [fft.fftfreq(n, grid.voxel) for n in grid.shape[:2]] + [
        fft.rfftfreq(grid.shape[2], grid.voxel)
    ]
    square = sum(axis**2 for axis in np.ix_(*frequency))
    transform = fft.rfftn(target) * np.exp(-2 * np.pi**2 * (SIGMA * coarse) ** 2 * square)
    every = rotations(max(count, 60))
    found = []
    for number, rotation in enumerate(every):
        model = fft.rfftn(grid.deposited(rotation.apply(centred)))
        # Σ ρ(x) t(x + u) over x, for every shift u.
        scores = fft.irfftn(np.conj(model) * transform, s=grid.shape)
        peak = int(np.argmax(scores))
        found.append((float(scores.flat[peak]), number, peak))
    found.sort(reverse=True)
    best = []
    for _, number, peak in found[: 4 * CANDIDATES]:
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
