"""The map around the models, cropped and coarsened, and what of the model is not in it, as the page draws their surfaces."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from openmm import app

from ..base.errors import InputError
from ..maps.density_map import DensityMap
from ..maps.model_density import ModelDensity
from ..models.chemistry.topologies import hydrogen_mask
from ..validation.density_level import density_level
from .page import base64_of
from .shown_model import COPIES, ShownModel

MARGIN = 5.0
"""Å around the models up to which the map is shown; of a crystal's, around each atom."""
MOST_VOXELS = 600_000
"""About so many: a browser draws their surface in a second, and each takes a byte and a third in the page."""
# Times as many where copies are shown, too.
_COARSER_FOR_COPIES = 3
# In standard deviations.
_DIFFERENCE_LEVEL = 3.0


@dataclass(frozen=True)
class Surfaces:
    """What is drawn around the models."""

    # ``size``, ``matrix`` and ``origin`` (as of a `DensityMap`, Å), ``values`` (a byte for each voxel, x slowest),
    # ``lowest`` and ``step`` (a voxel's value is lowest + step · byte, in the map's units), ``level`` at which it
    # opens, ``mean``, ``sd``
    map: dict[str, Any]
    # The same of the model's density, scaled to the map, minus the map; ``level`` for both signs
    difference: dict[str, Any] | None


def surfaces_of(
    density_map: DensityMap | None,
    models: Sequence[ShownModel],
    resolution: float,
    mean: float | None = None,
    sd: float | None = None,
    most_voxels: int = MOST_VOXELS,
) -> Surfaces | None:
    """Return the surfaces around some models; None without a map, or where they cannot be made. `resolution` in Å.

    They cannot where the models lie outside the map: a page without them is better than none.
    """
    if density_map is None:
        return None
    with suppress(InputError):
        statistics = {
            "mean": float(density_map.data.mean(dtype=np.float64)) if mean is None else mean,
            "sd": float(density_map.data.std(dtype=np.float64)) if sd is None else sd,
        }
        around = _heavy_atoms([model for model in models if model.key != COPIES])
        cropped = density_map.crop(around, MARGIN)
        everything = density_map.crop(_heavy_atoms(models), MARGIN)
        if everything.data.size < _COARSER_FOR_COPIES * most_voxels:
            cropped = everything
        shown = _coarsened(cropped, most_voxels)
        near = shown.mask_around(around, MARGIN)
        data = shown.data
        if density_map.periodic:  # mates and solvent would hide the model
            data = np.where(near, data, np.float32(min(statistics["mean"], data.min())))
        level = density_level(cropped, models[0].topology, models[0].positions, resolution)
        drawn = {**_grid(shown), **_quantized(data), **statistics, "level": level}
        return Surfaces(drawn, _difference(shown, models[0], resolution, near))
    return None


def _heavy_atoms(models: Sequence[ShownModel]) -> np.ndarray:
    return np.concatenate([each.positions[_is_heavy(each.topology) & _is_known(each)] for each in models])


def _is_heavy(topology: app.Topology) -> np.ndarray:
    return ~hydrogen_mask(topology)


def _is_known(model: ShownModel) -> np.ndarray:
    return np.isfinite(model.positions).all(axis=1)


def _coarsened(density_map: DensityMap, most_voxels: int) -> DensityMap:
    """Return the map with voxels so large that there are not too many."""
    excess = density_map.data.size / most_voxels
    if excess <= 1:
        return density_map
    return density_map.resample(density_map.voxel_size * (1.05 * excess ** (1 / 3)))


def _difference(
    shown: DensityMap, model: ShownModel, resolution: float, near: np.ndarray
) -> dict[str, Any] | None:
    """Return the model's density, scaled to the map where it is near, minus the map."""
    start, density = ModelDensity(model.topology, resolution).on_grid(
        model.positions, shown.matrix, shown.origin
    )
    calculated = np.zeros_like(shown.data)
    on_map, of_box = shown.overlap(start, np.array(density.shape[::-1]))
    calculated[on_map] = density[of_box]
    x, y = calculated[near].astype(np.float64), shown.data[near].astype(np.float64)
    if len(x) < 2 or not x.std():
        return None
    # As strong as the map is there: the scale of least squares is the smaller the worse the model fits, which would hide that.
    scale = y.std() / x.std()
    difference = np.where(near, scale * (calculated - x.mean()) - (shown.data - y.mean()), 0).astype(
        np.float32
    )
    sd = float(difference[near].std())
    return {**_grid(shown), **_quantized(difference), "level": _DIFFERENCE_LEVEL * sd, "mean": 0.0, "sd": sd}


def _grid(density_map: DensityMap) -> dict[str, Any]:
    return {
        "size": density_map.size.tolist(),
        "matrix": density_map.matrix.tolist(),
        "origin": density_map.origin.tolist(),
    }


def _quantized(data: np.ndarray) -> dict[str, Any]:
    lowest, highest = float(data.min()), float(data.max())
    step = (highest - lowest) / 255 or 1.0
    values = np.rint((data - np.float32(lowest)) / np.float32(step))
    # x slowest, as the page's library has it.
    return {"lowest": lowest, "step": step, "values": base64_of(values.transpose(2, 1, 0), "u1")}
