"""The voxels that a model's density is compared with: a map, cropped around the model, resampled and masked."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch

from openmm_density.kernels.density import target_moments

from ..base.errors import InputError, as_argument
from ..base.units import as_number, positive
from ..maps.density_map import DensityMap
from .form_factors import SIGMA_PER_RESOLUTION
from .measures import Measure

# Coarser voxels pin the atoms to the grid: at σ = 0.8 voxel Σρ² varies by 2% with the sub-voxel position.
COARSEST_VOXEL_IN_SIGMA = 1.25
# At σ = 1 voxel it varies by 3e-4, and what finer voxels show besides is noise: they only take time. So much less of them pays.
ENOUGH_VOXEL_IN_SIGMA = 1.0
FEWER_VOXELS = 0.77
# How far a model may travel from where it started without leaving the part of the map that is kept, in Å.
CROP_MARGIN = 25.0
# A map whose values differ by less than this, relative to the largest, holds rounding and no density.
_FLAT = 1e-6


@dataclass(frozen=True, eq=False)
class DensityTarget:
    """A map as an energy compares a model with it."""

    map: DensityMap  # The map, cropped and resampled
    counted: np.ndarray | None = None  # bool (nz, ny, nx), the voxels that count; all of them by default
    cropped: bool = False  # `cropped`, `resampled`: what was done to the map as it was read.
    resampled: bool = False

    def voxels(self) -> torch.Tensor:
        """Return a float32 copy of the values (a module takes it along to a GPU), NaN where a voxel does not count."""
        data = self.map.data
        return torch.from_numpy(
            data.copy() if self.counted is None else np.where(self.counted, data, np.float32(np.nan))
        )

    @cached_property
    def moments(self) -> torch.Tensor:
        """What the kernels need of the values' sums."""
        return target_moments(self.voxels())

    def potential(self, threshold: float) -> torch.Tensor:
        """Return the values above a threshold scaled to 0…1, and 0 below it and where a voxel does not count."""
        data = self.map.data
        top = float(data.max() if self.counted is None else data[self.counted].max())
        if not threshold < top:
            raise InputError(
                f"must be below the map's largest value, {top:g}",
                argument="threshold",
                found=threshold,
                remedy="lower it",
            )
        potential = (np.clip(data, threshold, top) - threshold) / (top - threshold)
        if self.counted is not None:
            potential = np.where(self.counted, potential, 0.0)
        return torch.from_numpy(potential.astype(np.float32))


@dataclass(frozen=True, eq=False)
class TargetSource:
    """A map and what of it is used, from which targets are made for Gaussians of any width.

    The map and the checks of what is given here are shared by the targets of all widths. A target is one object, as long as it
    is used, for widths of one box and one step only. They differ by design: the box grows with the cut-off until it holds all
    of the map, and the step, where "auto" resamples, with σ. Raises InputError if the mask is not one of the map, the map is
    not around the positions, or an argument is not understood.
    """

    density_map: DensityMap
    measure: Measure  # What of the map's values it needs
    mask: np.ndarray | None = None  # bool (nz, ny, nx), the voxels that count
    threshold: float | None = None  # Where a potential is 0, and below; the map's mean by default
    # (M, 3), positions of the fitted atoms in Å, around which the map is cropped; without them all of it is kept
    around: np.ndarray | None = None
    # How far in Å beyond these positions and the cut-off the map is kept; None keeps all of it
    crop_margin: Any = CROP_MARGIN
    # The largest step in Å; "auto" is the map's own, where that is neither too coarse for σ nor needlessly fine
    voxel_size: Any = "auto"
    _targets: WeakValueDictionary[Any, DensityTarget] = field(
        default_factory=WeakValueDictionary, init=False, repr=False
    )

    def __post_init__(self) -> None:
        if self.threshold is not None and not self.measure.is_potential:
            raise InputError(
                f"is not for {as_argument('similarity', self.measure.name)}",
                argument="threshold",
                remedy="leave it out",
            )
        if self.mask is not None:
            object.__setattr__(self, "mask", _checked_mask(self.mask, self.density_map))
        if self.around is not None and self.crop_margin is not None:
            values = None if self.density_map.periodic else self.density_map.value_at(self.around)
            if values is not None and not np.isfinite(values).any():
                raise InputError(
                    "no fitted atom lies inside the map",
                    remedy="check the map's origin, or put the model into the map first",
                )
            object.__setattr__(self, "crop_margin", as_number(self.crop_margin, "crop_margin"))
        if self.voxel_size == "auto":
            return
        if self.measure.is_potential:
            raise InputError(
                f"is not for {as_argument('similarity', self.measure.name)}, which takes the map as it is",
                argument="voxel_size",
                remedy="leave it out",
            )
        object.__setattr__(self, "voxel_size", positive(self.voxel_size, "voxel_size", "a length in Å"))

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the targets, which others may share, out of a pickle."""
        return type(self), tuple(getattr(self, each.name) for each in fields(self) if each.init)

    def with_map(self, density_map: DensityMap) -> TargetSource:
        """Return what makes the same of another map."""
        return replace(self, density_map=density_map)

    def target(self, resolution: float, cutoff: float) -> DensityTarget:
        """Return the target for atoms as wide as a resolution (Å) has them, cut off at a radius (Å)."""
        part = self._cropped(cutoff)
        step = self._step(part, resolution)
        key = (part.shape, part.origin.tobytes(), step)
        target = self._targets.get(key)
        if target is None:
            target = self._targets[key] = self._made(part, step)
        return target

    def potential(self, target: DensityTarget) -> torch.Tensor:
        """Return a target's values scaled to 0…1 above the threshold; see `DensityTarget.potential`."""
        threshold = self.threshold
        if threshold is None:
            threshold = self.density_map.data.mean(dtype=np.float64)
        return target.potential(float(threshold))

    def _made(self, part: DensityMap, step: float | None) -> DensityTarget:
        counted = self._mask_on(part)
        self._check_values(part.data if counted is None else part.data[counted])
        resampled = part if step is None else part.resample(step)
        cropped = part.shape != self.density_map.shape
        if resampled.shape == part.shape:
            return DensityTarget(part, counted, cropped)
        return DensityTarget(resampled, self._mask_on(resampled), cropped, True)

    def _cropped(self, cutoff: float) -> DensityMap:
        density_map = self.density_map
        if self.around is None or self.crop_margin is None:
            return density_map
        margin = self.crop_margin + cutoff
        if density_map.periodic:
            length = density_map.voxel_size
            along = (self.around - density_map.origin) @ np.linalg.inv(density_map.matrix).T
            if not np.all(np.ptp(along, axis=0) * length + 2 * margin < density_map.size * length):
                return density_map
        part = density_map.crop(self.around, margin)
        # The whole of a finite map: not a copy of it.
        whole = part.shape == density_map.shape and not density_map.periodic
        return density_map if whole else part

    def _check_values(self, values: np.ndarray) -> None:
        if values.size == 0 or float(values.max()) - float(values.min()) <= _FLAT * float(
            np.abs(values).max()
        ):
            raise InputError(
                "the map is flat where the model is, or varies too little beside its mean",
                remedy="check that map and model belong together; in a script, widen crop_margin or mask",
            )
        if self.measure.takes_logarithm and not np.any(values > 0):
            raise InputError(
                f"{as_argument('similarity', self.measure.name)} needs positive map values, and there are none near the model",
                remedy="choose another measure, or another mask",
            )

    def _step(self, part: DensityMap, resolution: float) -> float | None:
        """Return the step to resample to, in Å, or None where the map's own will do."""
        if self.measure.is_potential:
            return None
        sigma = SIGMA_PER_RESOLUTION * resolution
        coarsest = COARSEST_VOXEL_IN_SIGMA * sigma
        if self.voxel_size != "auto":
            if self.voxel_size > coarsest * (1 + 1e-6):
                raise InputError(
                    f"is too coarse for {as_argument('resolution', resolution)} Å",
                    argument="voxel_size",
                    found=f"{self.voxel_size:g} Å",
                    remedy=f'give at most {coarsest:.3f} Å, or "auto"',
                )
            return self.voxel_size
        if part.voxel_size.max() > coarsest * (1 + 1e-6):
            return coarsest
        enough = ENOUGH_VOXEL_IN_SIGMA * sigma
        return enough if np.prod(part.voxel_size) < FEWER_VOXELS * enough**3 else None

    def _mask_on(self, grid: DensityMap) -> np.ndarray | None:
        """Carry the mask over to the voxels of another grid, plane by plane."""
        if self.mask is None:
            return None
        density_map = self.density_map
        on_map = DensityMap(
            self.mask.astype(np.float32), density_map.matrix, density_map.origin, density_map.periodic
        )
        nz, ny, nx = grid.shape
        j, i = np.meshgrid(np.arange(ny), np.arange(nx), indexing="ij")
        counted = np.empty(grid.shape, dtype=bool)
        for k in range(nz):
            index = np.stack([i.ravel(), j.ravel(), np.full(i.size, k)])
            values = on_map.value_at((grid.matrix @ index).T + grid.origin)
            counted[k] = np.nan_to_num(values, nan=0.0).reshape(ny, nx) >= 0.5
        return counted


def _checked_mask(mask: Any, density_map: DensityMap) -> np.ndarray:
    mask = np.asarray(mask)
    if mask.shape != density_map.shape or mask.dtype != bool:
        raise InputError(
            f"must be a boolean array of the map's shape {density_map.shape}",
            argument="mask",
            found=f"{mask.dtype} of {mask.shape}",
            remedy="make it of the map's data, such as density_map.data > 0.1",
        )
    if not mask.any():
        raise InputError("leaves no voxel", argument="mask", remedy="mark those that count with True")
    return mask
