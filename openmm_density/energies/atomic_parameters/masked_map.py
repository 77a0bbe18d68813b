"""A map near a model and up to its resolution: what B factors and occupancies are refined against."""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import numpy as np
from scipy import fft

from ...base.errors import InputError
from ...maps.density_map import DensityMap
from ...maps.model_density import MASK_RADIUS

VOXELS_PER_RESOLUTION = 3.0
"""Of the grid: it holds frequencies up to 1.5 times those of the map, so that what an atom aliases to can be damped before."""
ALIASING = 0.05
"""The most that a frequency at the map's resolution may gain from its alias, as a part of it."""
MOST_DISPLACED = 1.5
"""The largest part of a model's scale that the solvent which it displaces may have: water has 0.1 Å⁻² where the 19 Å³ of a
protein's non-hydrogen atom with its hydrogens scatter as 2.9 Å, of which the model has 2.3 Å."""
_MARGIN_PER_RESOLUTION = 2.0


class Agreement(NamedTuple):
    """How well a density agrees with a map after the best scale, solvent contrast and offset."""

    # Σ(t − aρ − bv − c)² / Σ(t − mean t)² over the voxels that count: 1 − CC² where there is no solvent contrast
    residual: float
    cc: float  # The Pearson correlation of t and aρ + bv
    # `scale`, `solvent`: a, and b in a's unit: the density of the solvent that the model displaces, 0 or less.
    scale: float
    solvent: float
    gradient: np.ndarray  # float32 (nz, ny, nx), ∂residual/∂ρ on the grid, before the low-pass filter


class MaskedMap:
    """A map in a box around a model, low-passed at its resolution, of which the voxels near atoms count.

    A density ρ that is splatted with an additional B factor of `blur` is low-passed alike, without that blur, and compared over
    these voxels: t ≈ aρ + bv + c, where v is what the model displaces of the solvent. a, b and c are the best ones at every
    evaluation, so that the derivative of the residual needs none of theirs.

    `positions` (M, 3) of the non-hydrogen atoms in Å; `resolution` in Å. Attributes: `matrix`, `origin`, `shape` of the
    grid, as in `DensityMap`; `blur` in Å², to be added to the atoms' B factors in what is splatted; `margin` in Å by
    which the box is larger than the atoms' own; `n_observations`: how many independent numbers the voxels that count
    hold: the reflections of their volume up to the resolution. Raises InputError if no atom lies in the map, or the map
    is flat there.
    """

    def __init__(self, density_map: DensityMap, positions: np.ndarray, resolution: float) -> None:
        self.resolution = resolution
        self.margin = MASK_RADIUS + _MARGIN_PER_RESOLUTION * resolution
        part = density_map.crop(positions, self.margin)
        part = part.resample(resolution / VOXELS_PER_RESOLUTION)
        counted = part.mask_around(positions, MASK_RADIUS)
        padded = [fft.next_fast_len(n + math.ceil(VOXELS_PER_RESOLUTION), real=True) for n in part.shape]
        self.matrix, self.origin, self.shape = part.matrix, part.origin, tuple(padded)
        self._counted = np.zeros(self.shape, dtype=bool)
        self._counted[tuple(map(slice, part.shape))] = counted
        data = np.zeros(self.shape, dtype=np.float32)
        data[tuple(map(slice, part.shape))] = part.data - _mean_of_faces(part.data)
        s2 = self._square_frequencies()
        kept = s2 <= resolution**-2
        self._pass = kept.astype(np.float32)
        planes = np.linalg.norm(np.linalg.inv(self.matrix), axis=1).min()
        s = 1 / resolution
        self.blur = -4 * math.log(ALIASING) / ((planes - s) ** 2 - s**2)
        self._sharpening = np.where(kept, np.exp(self.blur / 4 * s2), 0).astype(np.float32)
        self._target = self._filtered(data, self._pass)[self._counted].astype(np.float64)
        self._variance = (
            float(((self._target - self._target.mean()) ** 2).sum()) if self._target.size else 0.0
        )
        if not self._variance > 1e-12 * float((self._target**2).sum()):
            raise InputError(
                "the map is flat where the model is",
                remedy="check that map and model belong together",
            )
        volume = self._target.size * abs(float(np.linalg.det(self.matrix)))
        self.n_observations = 4 / 3 * math.pi * volume / resolution**3
        self._displaced: np.ndarray | None = None

    def displace(self, density: np.ndarray) -> None:
        """Take a density, splatted with `blur`, for what the model displaces of the solvent."""
        self._displaced = self._filtered(density, self._sharpening)[self._counted].astype(np.float64)

    def without_solvent(self) -> MaskedMap:
        """Return the same map, compared with models that displace nothing."""
        result = copy.copy(self)
        result._displaced = None
        return result

    def compare(self, density: np.ndarray, differentiate: bool = True) -> Agreement:
        """Compare a density, splatted with `blur`, with the map."""
        model = self._filtered(density, self._sharpening)[self._counted].astype(np.float64)
        scale, solvent, rest = self._regressed(model)
        residual = float((rest**2).sum()) / self._variance
        gradient = np.empty((0, 0, 0), dtype=np.float32)
        if differentiate:
            field = np.zeros(self.shape, dtype=np.float32)
            field[self._counted] = -2 * scale / self._variance * rest
            gradient = np.ascontiguousarray(self._filtered(field, self._sharpening))
        return Agreement(residual, math.sqrt(max(1 - residual, 0.0)), scale, solvent, gradient)

    def squares_left(self, agreement: Agreement) -> float:
        """Return ∫(t − aρ − bv − c)² over the volume that counts, in Å³ of the map's unit squared."""
        volume = abs(float(np.linalg.det(self.matrix)))
        return max(agreement.residual, 1e-9) * self._variance * volume

    def _regressed(self, model: np.ndarray) -> tuple[float, float, np.ndarray]:
        """Return scale, solvent contrast and what they leave of the target."""
        t, m = self._target - self._target.mean(), model - model.mean()
        mm, mt = float(m @ m), float(m @ t)
        if not mm > 0:
            return 0.0, 0.0, t
        scale, solvent = max(mt / mm, 0.0), 0.0
        if self._displaced is not None:
            v = self._displaced - self._displaced.mean()
            vv, vm, vt = float(v @ v), float(v @ m), float(v @ t)
            determinant = mm * vv - vm * vm
            if determinant > 1e-9 * mm * vv:
                a, b = (mt * vv - vt * vm) / determinant, (vt * mm - mt * vm) / determinant
                if b < 0 < a:
                    if -b <= MOST_DISPLACED * a:
                        return a, b / a, t - a * m - b * v
                    m, solvent = m - MOST_DISPLACED * v, -MOST_DISPLACED
                    scale = max(float(m @ t) / float(m @ m), 0.0)
        return scale, solvent, t - scale * m

    def _filtered(self, data: np.ndarray, transfer: np.ndarray) -> np.ndarray:
        spectrum = fft.rfftn(data)
        spectrum *= transfer
        return fft.irfftn(spectrum, s=self.shape)

    def _square_frequencies(self) -> np.ndarray:
        nz, ny, nx = self.shape
        x, y, z = np.linalg.inv(self.matrix)
        plane = fft.fftfreq(nz)[:, None, None] * z + fft.fftfreq(ny)[:, None] * y
        s = plane[:, :, None, :] + fft.rfftfreq(nx)[:, None] * x
        return (s**2).sum(axis=-1)


def _mean_of_faces(data: np.ndarray) -> np.float32:
    faces = (data[0], data[-1], data[:, 0], data[:, -1], data[:, :, 0], data[:, :, -1])
    total = sum(float(face.sum(dtype=np.float64)) for face in faces)
    return np.float32(total / sum(face.size for face in faces))
