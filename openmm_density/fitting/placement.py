"""Where in the map the model belongs as a rigid body: all rotations and translations, then the nearest maximum."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from ..base.errors import InputError
from ..energies.form_factors import SIGMA_PER_RESOLUTION
from ..models.structures import Model
from ..validation.map_checks.coverage import IN_DENSITY, coverage
from ..validation.map_checks.rigid_search import best_of_all, distinct, search_grid
from .fit_map import FitMap
from .rigid_bodies import RigidBodies, heavy_atoms_of

PLACE = ("auto", "on", "off")

# The search is done at this resolution (Å) or coarser.
SEARCH_RESOLUTION = 8.0
FINALISTS = 3
# A gain of similarity for which a model that is nearly in its place is moved.
WORTH_MOVING = 0.005


@dataclass(frozen=True)
class Placement:
    """A rigid motion: x → rotation · x + shift."""

    rotation: list[list[float]]  # 3×3
    shift: list[float]  # In Å
    moved_by: float  # Root mean square displacement of the atoms, in Å
    similarity_before: float  # `similarity_before`, `similarity_after` of the energy's measure.
    similarity_after: float
    # `coverage_before`, `coverage_after`: see `openmm_density.validation.map_checks.coverage`.
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


def check_placement(model: Model, place: str) -> None:
    """Refuse ways of placing that are not known, and models that have no place. Raises InputError."""
    if place not in PLACE:
        raise InputError(
            "must be a known way of placing",
            argument="place",
            found=f'"{place}"',
            remedy=f"use one of {', '.join(PLACE)}",
        )
    heavy = model.positions[heavy_atoms_of(model.topology)]
    if not len(heavy):
        raise InputError(
            "it has no heavy atom that could be placed", source=model.path, remedy="give a model"
        )
    if len(heavy) > 1 and not np.ptp(heavy, axis=0).any():
        raise InputError(
            f"its {len(heavy)} heavy atoms are all at one point", source=model.path, remedy="give a model"
        )


def placed(
    model: Model, fit_map: FitMap, place: str = "auto", threads: int | None = None
) -> Placement | None:
    """Return where the model belongs, or None where it may stay."""
    heavy = model.positions[heavy_atoms_of(model.topology)]
    if place == "off" or (place == "auto" and coverage(heavy, fit_map.density_map) >= IN_DENSITY):
        return None
    return find_placement(model, fit_map, threads)


def placed_near(model: Model, fit_map: FitMap, moved: np.ndarray) -> Placement | None:
    """Return where the model fits best near its place or near another, `moved` (3,) Å away; None where it may stay."""
    rigid = _in_map(model, fit_map)
    starts = (rigid.centres, rigid.centres + moved)
    found = max((rigid.refined(rigid.start(), start) for start in starts), key=lambda each: each[0])
    before = rigid.similarity(rigid.start(), rigid.centres)[0]
    if found[0] < before + WORTH_MOVING:
        return None
    return _placement(model, fit_map, before, *found)


def placed_at(model: Model, fit_map: FitMap, rotation: np.ndarray, shift: np.ndarray) -> Placement:
    """Return where the model fits best near a place that is known: x → rotation · x + shift. `shift` (3,) in Å."""
    rigid = _in_map(model, fit_map)
    before = rigid.similarity(rigid.start(), rigid.centres)[0]
    found = rigid.refined(Rotation.from_matrix(rotation[None]), rigid.centres @ rotation.T + shift)
    return _placement(model, fit_map, before, *found)


def find_placement(model: Model, fit_map: FitMap, threads: int | None = None) -> Placement:
    """Find the place of a rigid model in a map.

    For a set of rotations that covers all of them evenly, the correlation with the blurred map is worked out for all translations
    at once, by Fourier transform. The best few are refined along the gradient of the energy's own similarity (cross-correlation),
    first against the blurred map, then against the map as it is.
    """
    resolution = fit_map.resolution
    fine = _in_map(model, fit_map)
    heavy = fine.centred[heavy_atoms_of(model.topology)]
    grid, coarse = search_grid(fit_map.density_map, heavy, max(SEARCH_RESOLUTION, resolution))
    blurred = fit_map.density_map
    if coarse > resolution:
        sigma = SIGMA_PER_RESOLUTION * np.sqrt(coarse**2 - resolution**2)
        blurred = blurred.gaussian_filter(sigma)
    (candidates,) = best_of_all([grid.filled(blurred)], grid, heavy, coarse, threads)

    rough = RigidBodies(model.topology, model.positions, blurred, coarse)
    refined = (rough.refined(_one(rotation), shift[None]) for rotation, shift in candidates)
    found = [(value, rotation[0], shift[0]) for value, rotation, shift in refined]
    found.sort(key=lambda each: -each[0])
    finalists = [
        fine.refined(_one(rotation), shift[None]) for _, rotation, shift in distinct(found)[:FINALISTS]
    ]
    best = max(finalists, key=lambda each: each[0])
    here = fine.similarity(fine.start(), fine.centres)[0]
    return _placement(model, fit_map, here, *best)


def _in_map(model: Model, fit_map: FitMap) -> RigidBodies:
    """Return the model as one body in the map as it is."""
    return RigidBodies(model.topology, model.positions, fit_map.density_map, fit_map.resolution)


def _one(rotation: Rotation) -> Rotation:
    return Rotation.from_matrix(rotation.as_matrix()[None])


def _placement(
    model: Model,
    fit_map: FitMap,
    similarity_before: float,
    similarity: float,
    rotations: Rotation,
    places: np.ndarray,
) -> Placement:
    """Return the placement that rotates a model about its centre and brings that to a place in Å: one of each, of one body."""
    heavy = heavy_atoms_of(model.topology)
    centre = model.positions[heavy].mean(axis=0)
    matrix, shift = rotations.as_matrix()[0], places[0]
    positions = (model.positions - centre) @ matrix.T + shift
    return Placement(
        rotation=matrix.tolist(),
        shift=(shift - matrix @ centre).tolist(),
        moved_by=float(np.sqrt(((positions - model.positions) ** 2).sum(axis=1).mean())),
        similarity_before=similarity_before,
        similarity_after=similarity,
        coverage_before=coverage(model.positions[heavy], fit_map.density_map),
        coverage_after=coverage(positions[heavy], fit_map.density_map),
    )
