"""What `DensityMap.simulate` is made of: the grid around a model, the model's density on it, and noise."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import fft

from ..errors import InputError, as_argument
from .fourier import fourier_filtered
from .grids import checked_length, index_box
from .model_density import MASK_RADIUS, ModelDensity

if TYPE_CHECKING:
    from .density_map import DensityMap

# By how much a voxel size may be above a limit and still be at it: rounding.
_ROUNDING = 1 + 1e-6


def empty_grid(
    model: ModelDensity, positions: np.ndarray, voxel_size: Any, margin: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return voxels of zeros around a model, and the matrix and origin that place them.

    Parameters
    ----------
    model : ModelDensity
    positions : np.ndarray, shape (N, 3)
        Å.
    voxel_size : float, Quantity or None
        Side in Å of the cubic voxels; a quarter of the resolution where None.
    margin : float or Quantity
        The grid reaches at least this far, in Å, beyond every atom.

    Raises
    ------
    InputError
        If the voxels are larger than the resolution, or more than memory should hold.
    """
    step = model.resolution / 4
    if voxel_size is not None:
        step = checked_length(voxel_size, "voxel_size", zero=False)
    coarsest = model.resolution / 2
    if step > model.resolution * _ROUNDING:
        raise InputError(
            f"must not be larger than the resolution of {model.resolution:g} Å, of which nothing would be left in the map",
            argument="voxel_size",
            found=step,
            remedy=f"give at most {coarsest:g}",
        )
    if step > coarsest * _ROUNDING:
        warnings.warn(
            f"voxels of {step:g} Å hold no detail finer than {2 * step:g} Å: for a resolution of {model.resolution:g} Å "
            f"they must be no larger than {coarsest:g} Å",
            stacklevel=3,
        )
    matrix = np.diag([step] * 3)
    start, stop = index_box(positions, matrix, np.zeros(3), margin)
    size = [fft.next_fast_len(int(n), real=True) for n in stop - start]
    model.check_grid(positions, matrix, matrix @ start)
    return np.zeros(size[::-1], np.float32), matrix, matrix @ start


def check_grid_like(model: ModelDensity, positions: np.ndarray, like: DensityMap) -> None:
    """Raise InputError where the grid of a map is too coarse for a model's resolution, or would not fit memory."""
    # The coarsest step of an anisotropic map need not be that of what is seen.
    if like.voxel_size.min() > model.resolution * _ROUNDING:
        raise InputError(
            f"must not have voxels larger than the resolution of {model.resolution:g} Å, of which nothing would "
            "be left in the map",
            argument="like",
            found=f"{like.voxel_size.min():.2f} Å",
            remedy="give a map of smaller voxels",
        )
    model.check_grid(positions, like.matrix, like.origin)


def check_noise(noise: float, seed: int) -> None:
    """Raise InputError where an amount of noise or a seed is not possible."""
    if noise < 0 or not np.isfinite(noise):
        raise InputError(
            "must be a fraction of the density's standard deviation, 0 or more",
            argument="noise",
            found=noise,
            remedy="give such as 0.1",
        )
    if seed < 0:
        raise InputError("must be 0 or more", argument="seed", found=seed, remedy="give a whole number")


def add_density(density_map: DensityMap, model: ModelDensity, positions: np.ndarray) -> None:
    """Add the density of a model to the voxels of a map; a periodic map takes what reaches beyond its cell on the other side."""
    start, density = model.on_grid(positions, density_map.matrix, density_map.origin)
    on_map, of_box = density_map.overlap(start, np.array(density.shape[::-1]))
    np.add.at(density_map.data, on_map, density[of_box])


def band_limited_noise(
    density_map: DensityMap, model: ModelDensity, positions: np.ndarray, noise: float, seed: int
) -> np.ndarray:
    """Return Gaussian noise without frequencies beyond the model's resolution.

    Parameters
    ----------
    density_map : DensityMap
        The density of the model.
    model : ModelDensity
    positions : np.ndarray, shape (N, 3)
        Å.
    noise : float
        Standard deviation, as a fraction of that of the density within 3 Å of the non-hydrogen atoms.
    seed : int

    Returns
    -------
    np.ndarray of float32, shape (nz, ny, nx)

    Raises
    ------
    InputError
        If no such atom is on the grid.
    """
    inside = density_map.data[density_map.mask_around(positions[model.is_heavy], MASK_RADIUS)]
    if not inside.any():
        raise InputError(
            "is a fraction of the model's density, but no non-hydrogen atom is on the grid",
            argument="noise",
            remedy=f"give a map around the model as {as_argument('like')}",
        )
    white = np.random.default_rng(seed).standard_normal(density_map.shape, dtype=np.float32)
    band_limited = fourier_filtered(white, density_map.matrix, lambda s2: s2 <= 1 / model.resolution**2)
    scale = noise * inside.std(dtype=np.float64) / band_limited.std(dtype=np.float64)
    return np.float32(scale) * band_limited
