"""Where in the map the model belongs as a rigid body: all rotations and translations, then the nearest maximum."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from openmm import app
from scipy import optimize
from scipy.spatial.transform import Rotation

from ..energies.density_fit import DensityFit
from ..energies.form_factors import SIGMA_PER_RESOLUTION
from ..errors import InputError
from ..maps.density_map import DensityMap
from ..models.structures import Model
from ..units import ANGSTROM_PER_NANOMETER, in_angstrom
from ..validation.map_checks.coverage import IN_DENSITY, coverage
from ..validation.map_checks.rigid_scan import left_jacobian
from ..validation.map_checks.rigid_search import best_of_all, distinct, search_grid

PLACE = ("auto", "on", "off")

# The search is done at this resolution (Å) or coarser.
SEARCH_RESOLUTION = 8.0
FINALISTS = 3
# Rotation vectors are taken from where the last refinement ended; one that moved no atom so far (Å) was the last.
REFINEMENTS, SETTLED = 3, 0.02
# A gain of similarity for which a model that is nearly in its place is moved.
WORTH_MOVING = 0.005


@dataclass(frozen=True)
class Placement:
    """A rigid motion: x → rotation · x + shift.

    Attributes
    ----------
    rotation : list of list of float
        3×3.
    shift : list of float
        In Å.
    moved_by : float
        Root mean square displacement of the atoms, in Å.
    similarity_before, similarity_after : float
        Of the energy's measure.
    coverage_before, coverage_after : float
        See `openmm_density.validation.map_checks.coverage`.
    """

    rotation: list[list[float]]
    shift: list[float]
    moved_by: float
    similarity_before: float
    similarity_after: float
    coverage_before: float
    coverage_after: float

    def apply(self, model: Model) -> Model:
        """Return the model in its new place, which is none of its crystal's."""
        alternates = model.alternates.moved(self.moved(model.alternates.positions))
        return replace(
            model,
            positions=self.moved(model.positions),
            alternates=alternates,
            cell=None,
            space_group="",
            metadata=model.metadata.elsewhere(),
        )

    def moved(self, positions: np.ndarray) -> np.ndarray:
        """Return positions (N, 3) in their new place, in Å."""
        return positions @ np.array(self.rotation).T + np.array(self.shift)

    def as_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers; `Placement` takes them back."""
        return asdict(self)


def placed(model: Model, density_map: DensityMap, resolution: Any, place: str = "auto") -> Placement | None:
    """Return where the model belongs, or None where it may stay.

    Parameters
    ----------
    place : {"auto", "on", "off"}
        Whether to look; ``auto``: if its `coverage` is below `IN_DENSITY`.
    """
    if place not in PLACE:
        raise InputError(f'place="{place}" is not known: use {", ".join(PLACE)}.')
    heavy = model.positions[_heavy(model)]
    if not len(heavy):
        raise InputError(f"{model.path}: the model has no heavy atom that could be placed.")
    if len(heavy) > 1 and not np.ptp(heavy, axis=0).any():
        raise InputError(f"{model.path}: its {len(heavy)} heavy atoms are all in one place; give a model.")
    if place == "off" or (place == "auto" and coverage(heavy, density_map) >= IN_DENSITY):
        return None
    return find_placement(model, density_map, resolution)


def placed_near(
    model: Model, density_map: DensityMap, resolution: Any, moved: np.ndarray
) -> Placement | None:
    """Return where the model fits best near its place or near another, or None where it may stay.

    Parameters
    ----------
    moved : np.ndarray, shape (3,)
        How far the other place is, in Å.
    """
    resolution = in_angstrom(resolution, "resolution")
    heavy = _heavy(model)
    centre = model.positions[heavy].mean(axis=0)
    rigid = _Rigid(density_map, model, model.positions - centre, resolution)
    starts = (centre, centre + moved)
    found = max((rigid.refined(Rotation.identity(), start) for start in starts), key=lambda each: each[0])
    before = rigid.similarity(Rotation.identity(), centre)[0]
    if found[0] < before + WORTH_MOVING:
        return None
    return _placement(model, density_map, before, *found)


def placed_at(
    model: Model, density_map: DensityMap, resolution: Any, rotation: np.ndarray, shift: np.ndarray
) -> Placement:
    """Return where the model fits best near a place that is known: x → rotation · x + shift.

    Parameters
    ----------
    model : Model
    density_map : DensityMap
    resolution : float or Quantity
        Of the map, in Å.
    rotation : np.ndarray, shape (3, 3)
    shift : np.ndarray, shape (3,)
        In Å.
    """
    resolution = in_angstrom(resolution, "resolution")
    centre = model.positions[_heavy(model)].mean(axis=0)
    rigid = _Rigid(density_map, model, model.positions - centre, resolution)
    before = rigid.similarity(Rotation.identity(), centre)[0]
    found = rigid.refined(Rotation.from_matrix(rotation), rotation @ centre + shift)
    return _placement(model, density_map, before, *found)


def find_placement(model: Model, density_map: DensityMap, resolution: Any) -> Placement:
    """Find the place of a rigid model in a map.

    For a set of rotations that covers all of them evenly, the correlation with the blurred map is worked out for all translations
    at once, by Fourier transform. The best few are refined along the gradient of the energy's own similarity (cross-correlation),
    first against the blurred map, then against the map as it is.

    Parameters
    ----------
    model : Model
    density_map : DensityMap
    resolution : float or Quantity
        Of the map, in Å.

    Raises
    ------
    InputError
        If the model has no heavy atom or the map no density.
    """
    resolution = in_angstrom(resolution, "resolution")
    heavy = _heavy(model)
    if not len(heavy):
        raise InputError(f"{model.path}: the model has no heavy atom that could be placed.")
    centre = model.positions[heavy].mean(axis=0)
    centred = model.positions - centre
    grid, coarse = search_grid(density_map, centred[heavy], max(SEARCH_RESOLUTION, resolution))
    blurred = density_map
    if coarse > resolution:
        sigma = SIGMA_PER_RESOLUTION * np.sqrt(coarse**2 - resolution**2)
        blurred = density_map.gaussian_filter(sigma)
    candidates = best_of_all(grid.filled(blurred), grid, centred[heavy], coarse)

    rigid = [
        _Rigid(target, model, centred, d) for target, d in ((blurred, coarse), (density_map, resolution))
    ]
    rough = sorted((rigid[0].refined(*candidate) for candidate in candidates), key=lambda found: -found[0])
    fine = [rigid[1].refined(rotation, shift) for _, rotation, shift in distinct(rough)[:FINALISTS]]
    similarity, rotation, shift = max(fine, key=lambda found: found[0])
    here = rigid[1].similarity(Rotation.identity(), centre)[0]
    return _placement(model, density_map, here, similarity, rotation, shift)


def _placement(
    model: Model,
    density_map: DensityMap,
    similarity_before: float,
    similarity: float,
    rotation: Rotation,
    shift: np.ndarray,
) -> Placement:
    """Return how a model comes to be turned about its centre, which is then at a place (`shift`, in Å)."""
    heavy = _heavy(model)
    centre = model.positions[heavy].mean(axis=0)
    matrix = rotation.as_matrix()
    positions = (model.positions - centre) @ matrix.T + shift
    return Placement(
        rotation=matrix.tolist(),
        shift=(shift - matrix @ centre).tolist(),
        moved_by=float(np.sqrt(((positions - model.positions) ** 2).sum(axis=1).mean())),
        similarity_before=similarity_before,
        similarity_after=similarity,
        coverage_before=coverage(model.positions[heavy], density_map),
        coverage_after=coverage(positions[heavy], density_map),
    )


class _Rigid:
    """The similarity of a rigid model as a function of its rotation and place."""

    def __init__(self, target: DensityMap, model: Model, centred: np.ndarray, resolution: float) -> None:
        topology: app.Topology = model.topology
        fit = DensityFit(target, topology, resolution, crop_margin=None, periodic=False, strength=1.0)
        self._energy = fit.create_module()
        self._centred = centred
        self._radius = float(np.sqrt((centred**2).sum(axis=1).mean()))

    def similarity(self, rotation: Rotation, shift: np.ndarray) -> tuple[float, np.ndarray]:
        """Return S, and its gradient with respect to a further rotation vector and the shift, in rad⁻¹ and Å⁻¹."""
        turned = rotation.apply(self._centred)
        positions = torch.from_numpy((turned + shift) / ANGSTROM_PER_NANOMETER)
        energy, forces = self._energy(positions, torch.ones((), dtype=torch.float64))
        uphill = forces.numpy() / ANGSTROM_PER_NANOMETER
        torque = np.cross(turned, uphill).sum(axis=0)
        return 1.0 - float(energy), np.concatenate([torque, uphill.sum(axis=0)])

    def refined(self, rotation: Rotation, shift: np.ndarray) -> tuple[float, Rotation, np.ndarray]:
        """Go uphill to the nearest maximum."""
        for _ in range(REFINEMENTS):

            def downhill(
                v: np.ndarray, rotation: Rotation = rotation, shift: np.ndarray = shift
            ) -> tuple[float, np.ndarray]:
                turn = v[:3] / self._radius
                value, gradient = self.similarity(Rotation.from_rotvec(turn) * rotation, shift + v[3:])
                # The gradient at a turned model is with respect to a further turn: the left Jacobian leads to v.
                gradient[:3] = left_jacobian(turn).T @ gradient[:3] / self._radius
                return -value, -gradient

            found = optimize.minimize(
                downhill, np.zeros(6), jac=True, method="L-BFGS-B", options={"maxiter": 60}
            )
            rotation = Rotation.from_rotvec(found.x[:3] / self._radius) * rotation
            shift = shift + found.x[3:]
            if np.abs(found.x).max() < SETTLED:
                break
        return -float(found.fun), rotation, shift


def _heavy(model: Model) -> np.ndarray:
    return np.array(
        [
            a.index
            for a in model.topology.atoms()
            if a.element is not None and a.element.symbol not in ("H", "D")
        ],
        dtype=np.int64,
    )
