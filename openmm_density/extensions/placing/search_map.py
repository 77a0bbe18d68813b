"""The map in which bodies are searched: coarse, and with all frequencies about equally strong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy import fft

from ...maps.density_map import DensityMap
from ...maps.fourier import fourier_filtered

# Voxels are so many parts of the resolution, but no more than so many in all.
_PER_RESOLUTION, _MOST_VOXELS = 3.2, 6_000_000
# Shells of frequencies are weighted by exp(-FALL (k d)²).
FALL = 0.5


@dataclass(frozen=True)
class SearchMap:
    """A map sampled on cubic voxels, with its transform divided by the amplitude of each shell.

    As the rest of the map is what a body is mistaken for, its spectrum is that of the noise in which the body is looked for:
    the filter that detects it best divides by it.
    """

    origin: np.ndarray
    voxel: float
    resolution: float
    data: torch.Tensor  # (nz, ny, nx), filtered; standard deviation 1 within the density
    spectrum: torch.Tensor

    @classmethod
    def of(cls, density_map: DensityMap, resolution: float, room: float, device: torch.device) -> SearchMap:
        """Return that of a map at a resolution, with room around for bodies, in Å."""
        corners = np.array(list(np.ndindex(2, 2, 2))) * (density_map.size - 1)
        corners = corners @ density_map.matrix.T + density_map.origin
        low, high = corners.min(axis=0), corners.max(axis=0)
        voxel = resolution / _PER_RESOLUTION
        extent = _extent(high - low, resolution, room, voxel)
        while extent.prod() > 1.001 * _MOST_VOXELS * voxel**3:  # it grows with the voxel
            voxel = float((extent.prod() / _MOST_VOXELS) ** (1 / 3))
            resolution = max(resolution, voxel * _PER_RESOLUTION)
            extent = _extent(high - low, resolution, room, voxel)
        shape = tuple(fft.next_fast_len(int(n), real=True) for n in np.ceil(extent / voxel)[::-1])
        origin = low - resolution / 2
        background = float(np.median(density_map.data))
        cut = fourier_filtered(
            density_map.data - background, density_map.matrix, lambda s2: s2 <= 1 / resolution**2
        )
        smooth = DensityMap(cut, density_map.matrix, density_map.origin)
        nz, ny, nx = shape
        j, i = np.meshgrid(np.arange(ny), np.arange(nx), indexing="ij")
        values = np.empty(shape, dtype=np.float32)
        for k in range(nz):
            points = np.stack([i.ravel(), j.ravel(), np.full(i.size, k)], axis=1) * voxel + origin
            values[k] = np.nan_to_num(smooth.value_at(points), nan=0.0).reshape(ny, nx)
        data = filtered(torch.from_numpy(values).to(device), voxel, resolution)
        data = data / data.std()
        return cls(origin, voxel, resolution, data, torch.fft.rfftn(data))

    def without(self, atoms: np.ndarray, weights: np.ndarray) -> SearchMap:
        """Return the map without what some atoms (N, 3) in it explain of it."""
        shape = tuple(self.data.shape)
        values = deposited((atoms - self.origin) / self.voxel, weights, shape).to(self.data.device)
        model = filtered(values, self.voxel, self.resolution)
        model = model / model.square().sum().sqrt()
        data = self.data - (model * self.data).sum() * model
        return SearchMap(self.origin, self.voxel, self.resolution, data, torch.fft.rfftn(data))


def _extent(of_map: np.ndarray, resolution: float, room: float, voxel: float) -> np.ndarray:
    """Return the sides of a box for a map and a body that reaches beyond it, and in which a body turned any way has room, Å."""
    around = resolution + room + 2 * voxel
    return np.maximum(of_map, around) + around


def deposited(index: np.ndarray, weights: np.ndarray, shape: tuple[int, ...]) -> torch.Tensor:
    """Return weights of points shared out trilinearly over voxels; those outside are left out. `index` (N, 3) along x, y, z."""
    nz, ny, nx = shape
    inside = ((index >= 0) & (index < np.array([nx, ny, nz]) - 1)).all(axis=1)
    index, weights = index[inside], weights[inside]
    base = np.floor(index).astype(np.int64)
    part = index - base
    values = np.zeros(nz * ny * nx)
    for corner in np.ndindex(2, 2, 2):
        share = np.prod(np.where(corner, part, 1 - part), axis=1) * weights
        at = base + corner
        values += np.bincount((at[:, 2] * ny + at[:, 1]) * nx + at[:, 0], share, minlength=len(values))
    return torch.from_numpy(values.reshape(shape).astype(np.float32))


def frequencies(shape: tuple[int, ...], voxel: float, device: torch.device) -> torch.Tensor:
    """Return |k| in Å⁻¹ of a transform of real values."""
    nz, ny, nx = shape
    axes = [torch.fft.fftfreq(nz, voxel), torch.fft.fftfreq(ny, voxel), torch.fft.rfftfreq(nx, voxel)]
    z, y, x = torch.meshgrid(*axes, indexing="ij")
    return torch.sqrt(z**2 + y**2 + x**2).to(device)


def filtered(data: torch.Tensor, voxel: float, resolution: float) -> torch.Tensor:
    """Return values on cubic voxels with every shell of frequencies brought to the same amplitude, cut at a resolution."""
    spectrum = torch.fft.rfftn(data)
    k = frequencies(tuple(data.shape), voxel, data.device)
    width = 1 / (voxel * max(data.shape))
    width = max(width, 1 / (20 * resolution))
    shell = (k / width).round().long()
    power = torch.zeros(int(shell.max()) + 1, device="cpu", dtype=torch.float64)
    flat = shell.flatten().cpu()
    count = torch.bincount(flat, minlength=len(power)).double()
    power = torch.bincount(flat, (spectrum.abs() ** 2).flatten().double().cpu(), minlength=len(power)) / count
    power = torch.nn.functional.avg_pool1d(power.log()[None, None], 3, 1, 1, count_include_pad=False)[
        0, 0
    ].exp()
    amplitude = power.sqrt().to(data.device, torch.float32)[shell]
    weight = torch.exp(-FALL * (k * resolution) ** 2) * (k <= 1 / resolution)
    return torch.fft.irfftn(spectrum * (weight / (amplitude + 1e-30)), s=tuple(data.shape))
