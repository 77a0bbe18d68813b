"""Fourier shell correlation: of two half maps, and of a map with a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import fft
from scipy.spatial import cKDTree

from ..base.errors import InputError
from ..base.units import resolution_in_angstrom, takes_units
from ..maps.grids import check_span, checked_positions, index_box, index_reach, voxels_around
from ..maps.half_maps import check_half_maps
from ..maps.model_density import B_PER_RESOLUTION, MASK_RADIUS, ModelDensity, non_hydrogens
from ..models.chemistry.topologies import found_once

if TYPE_CHECKING:
    from openmm.app import Topology

    from ..maps.density_map import DensityMap

MODEL_THRESHOLD = 0.5
"""Where the correlation of a map with a perfect model falls to this, its figure of merit is 0.5 (Rosenthal, Henderson 2003)."""
HALF_MAP_THRESHOLD = 0.143
"""The correlation of two half maps at the frequency where that of the whole map with a perfect model is 0.5."""
SOFT_EDGE = 3.0
"""Å over which the mask falls from 1, at 3 Å from the nearest atom, to 0: a sharp edge would correlate by itself."""
COARSEST = 10.0
"""Å: coarser shells show solvent and neighbours more than the model, and the search for a fall starts behind them."""

MOST_UNMASKED_VOXELS = 1 << 24

_OUTSIDE = "no atom is near the map"


@dataclass(frozen=True)
class Crossing:
    """Where a curve falls below a threshold; as a str, in words: ``0.5 at 3.57 Å``."""

    threshold: float
    # Where it falls, in Å, interpolated between shells; that of the last shell where it never falls below; infinite
    # where no shell is above
    resolution: float
    # Whether it falls: without, the curve is above the threshold up to `resolution`, and may be so beyond, or nowhere
    falls: bool

    def __str__(self) -> str:
        if self.falls:
            return f"{self.threshold:g} at {self.resolution:.2f} Å"
        if np.isinf(self.resolution):
            return f"nowhere above {self.threshold:g}"
        return f"above {self.threshold:g} up to {self.resolution:.2f} Å"


@dataclass(frozen=True)
class ShellCorrelation:
    """A Fourier shell correlation curve.

    Attributes
    ----------
    frequency : np.ndarray, shape (n_shells,)
        Centres of the shells in Å⁻¹, from the first above zero to the last that is whole below the Nyquist frequency.
    correlation : np.ndarray, shape (n_shells,)
        −1…1; NaN where either density has nothing in the shell.
    coefficients : np.ndarray of int, shape (n_shells,)
        Fourier coefficients in each shell.
    """

    frequency: np.ndarray
    correlation: np.ndarray
    coefficients: np.ndarray

    def crossing(self, threshold: float = MODEL_THRESHOLD, *, dips: bool = True) -> Crossing:
        """Find where the curve falls below a threshold.

        Parameters
        ----------
        threshold : float
        dips : bool
            Whether the curve may fall and recover: then its last fall counts that comes after at least two shells above the
            threshold. Without, as suits half maps, whose noise may rise above a low threshold, the first fall counts, from the
            first shell on that is finer than 10 Å and above it. A fine shell alone above it, among lower ones, is noise
            where others are above.
        """
        above = self.correlation >= threshold
        if not above.any():
            return Crossing(threshold, float("inf"), False)
        pairs = above[:-1] & above[1:]
        lasting = np.flatnonzero(pairs) + 1
        if dips and len(lasting):
            last = int(lasting[-1])
        else:
            fine = np.pad(pairs, (0, 1)) | np.pad(pairs, (1, 0))
            fine &= self.frequency >= 1 / COARSEST
            first = int(np.argmax(fine if fine.any() else above))
            falls = np.flatnonzero(~above[first:])
            last = first + int(falls[0]) - 1 if len(falls) else len(above) - 1
        if last + 1 == len(above) or np.isnan(self.correlation[last + 1]):
            return Crossing(threshold, float(1 / self.frequency[last]), False)
        low, high = self.correlation[last], self.correlation[last + 1]
        part = (low - threshold) / (low - high)
        frequency = self.frequency[last] + part * (self.frequency[last + 1] - self.frequency[last])
        return Crossing(threshold, float(1 / frequency), True)

    def resolution(self, threshold: float = MODEL_THRESHOLD, *, dips: bool = True) -> float:
        """Return the resolution in Å of the `crossing`, which says whether the curve falls there or ends."""
        return self.crossing(threshold, dips=dips).resolution

    def as_dict(self) -> dict[str, Any]:
        """Return plain lists for JSON; an undefined correlation is None."""
        return {
            "frequency": self.frequency.tolist(),
            "correlation": [None if np.isnan(c) else c for c in self.correlation.tolist()],
        }


def shell_correlation(first: np.ndarray, second: np.ndarray, matrix: np.ndarray) -> ShellCorrelation:
    """Correlate two densities on one grid, shell by shell in Fourier space.

    FSC = Re Σ F₁F₂* / √(Σ|F₁|² Σ|F₂|²) over each shell (Harauz and van Heel, Optik 73, 146 (1986)). Shells are as wide as one
    step along the reciprocal of the longest side of the grid. `matrix` (3, 3): its columns are the steps of the grid in Å.
    """
    if first.shape != second.shape:
        raise InputError(
            "the two densities must be on the same grid",
            found=f"shapes {first.shape} and {second.shape}",
            remedy="give two on the same grid",
        )
    size = np.array(first.shape[::-1])
    reciprocal = np.linalg.inv(matrix)
    steps = np.linalg.norm(matrix, axis=0)
    width = 1 / (steps * size).max()
    # Beyond half a step's inverse a coefficient may as well stand for one on the opposite side: only whole shells below count.
    n_shells = int(0.5 / steps.max() / width - 0.5 + 1e-6)
    if n_shells < 1:
        raise InputError(
            "the grid is too small to have a Fourier shell",
            found=f"{size.tolist()} points",
            remedy="give a larger map",
        )
    nx, ny, nz = size.tolist()
    h, k, l_ = fft.rfftfreq(nx), fft.fftfreq(ny)[:, None], fft.fftfreq(nz)[:, None, None]
    s = np.sqrt(sum((h * x + k * y + l_ * z) ** 2 for x, y, z in reciprocal.T))
    shell = np.rint(s / width).astype(np.int64)
    inside = (shell >= 1) & (shell <= n_shells)
    # The half that rfft leaves out is the complex conjugate of the other, except on its first and its last plane.
    weight = np.full(h.shape, 2.0)
    weight[0] = 1.0
    if nx % 2 == 0:
        weight[-1] = 1.0
    weight = np.broadcast_to(weight, shell.shape)[inside]
    shell = shell[inside]
    a, b = (fft.rfftn(density.astype(np.float64))[inside] for density in (first, second))

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(shell, values * weight, n_shells + 1)[1:]

    cross = total((a * b.conj()).real)
    powers = total(np.abs(a) ** 2) * total(np.abs(b) ** 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = np.where(powers > 0, np.clip(cross / np.sqrt(powers), -1, 1), np.nan)
    coefficients = np.rint(total(np.ones(len(shell)))).astype(np.int64)
    return ShellCorrelation(width * np.arange(1, n_shells + 1), correlation, coefficients)


def half_map_doubt(crossing: Crossing) -> str | None:
    """Return a sentence where the Fourier shell correlation of two half maps is not that of independent halves; else None."""
    if crossing.falls:
        return None
    if np.isinf(crossing.resolution):
        return (
            "the half maps agree nowhere around the model (their Fourier shell correlation is never above "
            f"{crossing.threshold:g}): is it where their density is?"
        )
    return (
        f"the half maps agree up to the finest shell of their voxels, {crossing.resolution:.2f} Å (their Fourier shell "
        f"correlation never falls below {crossing.threshold:g}): their voxels are too coarse to show where they differ, or they "
        "were filtered or share noise, and what is judged by them is then too good: give the unfiltered halves of one "
        "reconstruction, with voxels as fine as it has."
    )


@takes_units("positions")
def half_map_fsc(first: DensityMap, second: DensityMap, positions: Any = None) -> ShellCorrelation:
    """Correlate two half maps, shell by shell in Fourier space.

    Parameters
    ----------
    positions : Quantity or array_like, shape (N, 3), optional
        Positions in Å of atoms: beyond 3 Å from them both maps fall to 0, with a soft edge. Without them all of the maps
        counts, solvent included.
    """
    check_half_maps(first, second)
    if positions is None:
        return shell_correlation(first.data, second.data, first.matrix)
    start, mask, observed = _masked(first, checked_positions(positions))
    on_map, of_box = second.overlap(start, np.array(mask.shape[::-1]))
    other = np.zeros_like(observed)
    other[of_box] = second.data[on_map]
    return shell_correlation(observed * mask, other * mask, first.matrix)


@takes_units("positions", "resolution", b_factors="Å²")
def model_fsc(
    density_map: DensityMap, topology: Topology, positions: Any, resolution: Any, *, b_factors: Any = None
) -> ShellCorrelation:
    """Correlate a map with a model, shell by shell in Fourier space.

    The map, masked around the model with a soft edge, against gemmi's electron density of the model with uniform B = 8 d (on
    which no shell's correlation depends), up to the map's Nyquist frequency. Both are taken in a box around the model, so that
    the cost follows the model. Density of what the model lacks, where it is near the model, lowers the curve. `positions` (N,
    3): Cartesian positions in Å; `resolution`: resolution d in Å; `b_factors` (N,) in Å², in place of the uniform 8 d: another
    curve than the one that is reported everywhere.
    """
    finest = 2 * 0.999 * density_map.voxel_size.max()
    if b_factors is None:
        b_factors = B_PER_RESOLUTION * resolution_in_angstrom(resolution)
    positions = checked_positions(positions, topology.getNumAtoms(), topology)
    is_heavy = non_hydrogens(topology)
    if not is_heavy.any():
        raise InputError(
            "the model has no non-hydrogen atom, around which the map could be masked",
            remedy="give a model that has some",
        )
    start, mask, observed = _masked(density_map, positions[is_heavy])
    grid = density_map.matrix, density_map.origin
    model_start, density = _density(topology, positions, finest, b_factors, *grid)
    calculated = np.zeros_like(observed)
    first = np.maximum(start, model_start)
    last = np.minimum(start + mask.shape[::-1], model_start + density.shape[::-1])
    of_box, of_model = (
        tuple(slice(*limits) for limits in zip(first - origin, last - origin))[::-1]
        for origin in (start, model_start)
    )
    calculated[of_box] = density[of_model]
    return shell_correlation(observed * mask, calculated, density_map.matrix)


def unmasked_model_fsc(
    density_map: DensityMap, topology: Topology, positions: Any, *, b_factors: Any
) -> ShellCorrelation | None:
    """Correlate a map with a model as `model_fsc` does, but without a mask: noise and what the model lacks lower the curve.

    All of the map is taken, or of one with more than 256³ voxels the box around the model with a quarter of its length on each
    side. `positions` (N, 3): Cartesian positions in Å; `b_factors` (N,) in Å². Returns None for the map of a crystal, which
    the model alone does not fill.
    """
    if density_map.periodic:
        return None
    positions = checked_positions(positions, topology.getNumAtoms(), topology)
    if density_map.data.size > MOST_UNMASKED_VOXELS:
        density_map = density_map.crop(positions, 0.25 * float(np.ptp(positions, axis=0).max()))
    finest, grid = 2 * 0.999 * density_map.voxel_size.max(), (density_map.matrix, density_map.origin)
    start, density = _density(topology, positions, finest, b_factors, *grid)
    on_map, of_box = density_map.overlap(start, np.array(density.shape[::-1]))
    calculated = np.zeros_like(density_map.data)
    calculated[on_map] = density[of_box]
    return shell_correlation(density_map.data, calculated, density_map.matrix)


@found_once
def _density(
    topology: Topology,
    positions: np.ndarray,
    resolution: float,
    b_factors: Any,
    matrix: np.ndarray,
    origin: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return `ModelDensity.on_grid`, which the curves with a mask and without have in common."""
    return ModelDensity(topology, resolution, b_factors=b_factors).on_grid(positions, matrix, origin)


def _masked(density_map: DensityMap, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a box around the positions: its start, a soft mask on it, and the map's values, 0 beyond the map."""
    matrix, origin = density_map.matrix, density_map.origin
    edge = MASK_RADIUS + SOFT_EDGE
    if not density_map.periodic:
        # Atoms away from the map have nothing to compare, and would only make the box larger.
        index, reach = density_map.to_index(positions), index_reach(matrix, edge)
        positions = positions[((index >= -reach) & (index <= density_map.size - 1 + reach)).all(axis=1)]
        if not len(positions):
            raise InputError(_OUTSIDE, remedy="place the model in the map, or check the map's origin")
    start, stop = index_box(positions, matrix, origin, edge)
    size = np.array([fft.next_fast_len(int(n), real=True) for n in stop - start])
    check_span(size)
    observed = np.zeros(size[::-1], dtype=np.float32)
    known = np.zeros(size[::-1], dtype=bool)
    on_map, of_box = density_map.overlap(start, size)
    observed[of_box], known[of_box] = density_map.data[on_map], True

    near = np.zeros(observed.size, dtype=bool)
    for _, voxels in voxels_around(density_map.to_index(positions) - start, size, matrix, edge):
        near[voxels] = True
    numbers = np.flatnonzero(near & known.reshape(-1))
    k, j, i = np.unravel_index(numbers, observed.shape)
    places = (np.stack([i, j, k], axis=1) + start) @ matrix.T + origin
    distance, _ = cKDTree(positions).query(places, distance_upper_bound=edge + 1)
    mask = np.zeros(observed.size)
    part = np.clip((distance - MASK_RADIUS) / SOFT_EDGE, 0, 1)
    mask[numbers] = 0.5 * (1 + np.cos(np.pi * part))
    if not (mask > 0.5).any():
        raise InputError(_OUTSIDE, remedy="place the model in the map, or check the map's origin")
    return start, mask.reshape(observed.shape), observed
