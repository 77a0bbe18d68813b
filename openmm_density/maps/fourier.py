"""Filters and resampling in Fourier space.

Frequencies are vectors **s** in Å⁻¹. A grid's steps are the columns of its matrix, as in `openmm_density.maps.DensityMap`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy import fft

Transfer = Callable[[np.ndarray], np.ndarray]
"""A filter: takes |s|² in Å⁻² at every frequency and returns the factor there."""


def fourier_filtered(data: np.ndarray, matrix: np.ndarray, transfer: Transfer) -> np.ndarray:
    """Return a periodic array (steps in the columns of `matrix`, Å) with its transform times `transfer` of |s|² (Å⁻²)."""
    nz, ny, nx = data.shape
    s2 = _square_frequencies(fft.rfftfreq(nx), fft.fftfreq(ny), fft.fftfreq(nz), matrix)
    spectrum = fft.rfftn(data)
    spectrum *= transfer(s2)
    return fft.irfftn(spectrum, s=data.shape).astype(np.float32, copy=False)


def mirror_filtered(
    data: np.ndarray, matrix: np.ndarray, transfer: Transfer, reach: Sequence[int]
) -> np.ndarray:
    """Return an array filtered as by `fourier_filtered`, first continued by its mirror image: `reach` (z, y, x) at each face."""
    inside = tuple(slice(width, width + n) for width, n in zip(reach, data.shape))
    padded = np.pad(data, [(width, width) for width in reach], mode="symmetric")
    return fourier_filtered(padded, matrix, transfer)[inside]


def low_passed(
    data: np.ndarray,
    matrix: np.ndarray,
    resolution: float,
    transfer: Transfer,
    every: Sequence[int] = (1, 1, 1),
) -> np.ndarray:
    """Return an array filtered as by `fourier_filtered`, cut at a resolution, at every so many of its points.

    Only frequencies that are kept are transformed along the second and third axis, and back to no more points than are asked
    for and hold them. `resolution` in Å: frequencies with |s| above its inverse are set to 0.
    """
    size = np.array(data.shape[::-1])
    # |h| = |a · s| is at most |a| / resolution; one more for rounding.
    highest = np.floor(np.linalg.norm(matrix, axis=0) * size / resolution) + 1
    highest = np.minimum(highest, size // 2).astype(int)
    spectrum = fft.rfft(data, axis=2)[..., : highest[0] + 1]
    kept = [_kept_frequencies(size[along], highest[along]) for along in range(3)]
    for axis, along in ((1, 1), (0, 2)):
        spectrum = np.take(fft.fft(spectrum, axis=axis), kept[along], axis=axis)
    s2 = _square_frequencies(
        np.arange(highest[0] + 1) / size[0], kept[1] / size[1], kept[2] / size[2], matrix
    )
    # To all points of an axis where fewer do not hold its frequencies.
    points = [
        n // step if 2 * most < n // step else n
        for n, step, most in zip(size.tolist(), every, highest.tolist())
    ]
    # The transforms back divide by their own number of points.
    spectrum *= np.where(s2 <= 1 / resolution**2, transfer(s2) * (math.prod(points) / data.size), 0)
    for axis, along in ((0, 2), (1, 1)):
        step = every[along] * points[along] // size[along]
        spectrum = _transformed_back(spectrum, axis, kept[along], points[along], step)
    filtered = fft.irfft(spectrum, n=points[0], axis=2)[..., :: every[0] * points[0] // size[0]]
    return np.ascontiguousarray(filtered, dtype=np.float32)


def fourier_resampled(data: np.ndarray, axis: int, n: int, periodic: bool) -> np.ndarray:
    """Return an array with one axis resampled to n points over the same extent; a finite one is continued by its mirror image."""
    if periodic:
        return _resampled_period(data, axis, n)
    mirrored = np.concatenate([data, np.flip(data, axis)], axis=axis)
    return np.take(_resampled_period(mirrored, axis, 2 * n), np.arange(n), axis=axis)


def _resampled_period(data: np.ndarray, axis: int, n: int) -> np.ndarray:
    """Resample one period of real data to n points, as `scipy.signal.resample` does, whose import takes a second."""
    data = np.moveaxis(data, axis, -1)
    size = data.shape[-1]
    kept = min(n, size)
    spectrum = fft.rfft(data)[..., : kept // 2 + 1] * (n / size)
    if kept % 2 == 0 and n != size:
        # The frequency that is its own opposite on the coarser grid is a pair on the finer one.
        spectrum[..., -1] *= 2.0 if n < size else 0.5
    return np.moveaxis(fft.irfft(spectrum, n, overwrite_x=True), -1, axis)


def _transformed_back(
    spectrum: np.ndarray, axis: int, frequencies: np.ndarray, n: int, step: int
) -> np.ndarray:
    """Transform one axis, of which some frequencies were kept, back to n points, and return every so many of these."""
    shape = list(spectrum.shape)
    shape[axis] = n
    padded = np.zeros(shape, dtype=spectrum.dtype)
    np.moveaxis(padded, axis, 0)[frequencies] = np.moveaxis(spectrum, axis, 0)
    return np.moveaxis(np.moveaxis(fft.ifft(padded, axis=axis, overwrite_x=True), axis, 0)[::step], 0, axis)


def _kept_frequencies(n: int, highest: int) -> np.ndarray:
    """Return the frequencies of n points up to the highest, each once, in the order of a transform."""
    return np.concatenate([np.arange(min(highest, (n - 1) // 2) + 1), np.arange(-highest, 0)])


def _square_frequencies(hx: np.ndarray, hy: np.ndarray, hz: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return |s|² in Å⁻², shape (Nz, Ny, Nx), for these frequencies along each axis, in cycles per step."""
    x, y, z = np.linalg.inv(matrix)
    plane = hz[:, None, None] * z + hy[:, None] * y
    s2 = 2 * (plane @ x)[..., None] * hx
    s2 += (plane**2).sum(axis=-1)[..., None]
    s2 += (x @ x) * hx**2
    return s2
