"""What `DensityMap.simulate` needs beside the model's density: a grid around the model, and noise."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy import fft

from ..base.errors import InputError, as_argument, level_outside
from ..base.units import checked_length
from .fourier import fourier_filtered
from .grids import index_box
from .model_density import ModelDensity

# By how much a voxel size may be above a limit and still be at it: rounding.
_ROUNDING = 1 + 1e-6


def empty_grid(
    model: ModelDensity, positions: np.ndarray, voxel_size: Any, margin: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return voxels of zeros around a model, and the matrix and origin that place them.

    `positions` (N, 3) in Å. `voxel_size`: side in Å of the cubic voxels; a quarter of the resolution where None.
    `margin`: the grid reaches at least this far, in Å, beyond every atom.
    """
    step = model.resolution / 4
    if voxel_size is not None:
        step = checked_length(voxel_size, "voxel_size", zero=False)
    coarsest = model.resolution / 2
    if step > model.resolution * _ROUNDING:
        raise InputError(
            f"must not be larger than the resolution of {model.resolution:g} Å, as nothing of it would be left in the map",
            argument="voxel_size",
            found=step,
            remedy=f"give at most {coarsest:g}",
        )
    if step > coarsest * _ROUNDING:
        warnings.warn(
            f"voxels of {step:g} Å hold no detail finer than {2 * step:g} Å: for a resolution of {model.resolution:g} Å "
            f"they must be no larger than {coarsest:g} Å",
            stacklevel=level_outside(),
        )
    matrix = np.diag([step] * 3)
    start, stop = index_box(positions, matrix, np.zeros(3), margin)
    size = [fft.next_fast_len(int(n), real=True) for n in stop - start]
    model.check_grid(positions, matrix, matrix @ start)
    return np.zeros(size[::-1], np.float32), matrix, matrix @ start


def check_grid_like(
    model: ModelDensity, positions: np.ndarray, matrix: np.ndarray, origin: np.ndarray
) -> None:
    """Raise InputError where a grid that was given is too coarse for a model's resolution, or would not fit memory."""
    # The coarsest step of an anisotropic map need not be that of what is seen.
    finest = np.linalg.norm(matrix, axis=0).min()
    if finest > model.resolution * _ROUNDING:
        raise InputError(
            f"must not have voxels larger than the resolution of {model.resolution:g} Å, of which nothing would "
            "be left in the map",
            argument="like",
            found=f"{finest:.2f} Å",
            remedy="give a map of smaller voxels",
        )
    model.check_grid(positions, matrix, origin)


def check_noise(noise: float, seed: int) -> None:
    """Raise InputError where an amount of noise or a seed is not possible."""
    if noise < 0 or not np.isfinite(noise):
        raise InputError(
            "must be a fraction of the density's standard deviation, 0 or more",
            argument="noise",
            found=noise,
            remedy="give a number such as 0.1",
        )
    if seed < 0:
        raise InputError("must be 0 or more", argument="seed", found=seed, remedy="give a whole number")


def band_limited_noise(
    density: np.ndarray,
    shape: tuple[int, int, int],
    matrix: np.ndarray,
    resolution: float,
    noise: float,
    seed: int,
) -> np.ndarray:
    """Return Gaussian noise without frequencies beyond a resolution. `resolution` in Å."""
    if not density.any():
        raise InputError(
            "is a fraction of the model's density, but no non-hydrogen atom is on the grid",
            argument="noise",
            remedy=f"give a map around the model as {as_argument('like')}",
        )
    white = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    band_limited = fourier_filtered(white, matrix, lambda s2: s2 <= 1 / resolution**2)
    scale = noise * density.std(dtype=np.float64) / band_limited.std(dtype=np.float64)
    return np.float32(scale) * band_limited
