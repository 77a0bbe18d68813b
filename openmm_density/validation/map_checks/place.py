"""Whether the model lies in its density: one that does not may fit far better elsewhere in the map as a rigid body."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from ...base.errors import as_argument
from ...maps.density_map import DensityMap
from .coverage import IN_DENSITY, coverage
from .findings import Finding, MapChecks
from .rigid_scan import ITERATIONS, Pose, RigidScan
from .rigid_search import SIGMA, best_of_all, distinct, search_grid
from .subject import Subject

CHECK = "place"

# In coarser maps other places fit nearly as well.
COARSEST = 8.0
# A model that has more is where it belongs; one that has yet to change its form has less wherever it lies, or gains little.
CERTAIN = 0.45
# Deposited models beside their density have 0.68 and more in it; open adenylate kinase, in the map of the closed, 0.45 at best.
LEAST_PLACED, LEAST_GAIN = 0.6, 0.2
# Fewer atoms fit in many places.
LEAST_ATOMS = 200
# The search, in Å, and the refinements that follow it.
SEARCH_RESOLUTION, MIDDLE_RESOLUTION = 12.0, 7.0
FINALISTS = 3
# A larger map is cropped around the model, with this margin in Å, and where that is still larger it is left out.
MOST_VOXELS, MARGIN = 200**3, 20.0
# Of the model, in the search.
_SEARCH_ATOMS = 1500
_ROUGH_ITERATIONS = 15


class RigidPlace(NamedTuple):
    """Where a rigid model fits best."""

    rotation: np.ndarray  # (3, 3)
    shift: np.ndarray  # (3,), in Å: x → rotation · x + shift
    cc: float  # The model's correlation there (CC mask)


def check_place(subject: Subject, found: RigidPlace | None) -> tuple[MapChecks, Subject]:
    """Return whether the rigid model fits far better elsewhere in the map.

    `found`: its best place in the map, see `best_places`; None where it was not searched for. Returns `checks`: ``cc``
    and ``cc_placed``: the model's correlation where it is and in its best place; ``moved_by``: how far that is, as root
    mean square over the non-hydrogen atoms, in Å; ``rotation`` (3×3) and ``shift`` (Å): x → rotation · x + shift leads
    there. None for the check where it was not made. `placed`: the model in its best place; the same as `subject` where
    that is hardly better, or was not looked for.
    """
    if found is None:
        return MapChecks({CHECK: None}), subject
    rotation, shift, cc = found
    there = subject.positions @ rotation.T + shift
    placed = replace(subject, positions=there, known_cc=cc)
    moved_by = float(np.sqrt(((placed.heavy - subject.heavy) ** 2).sum(axis=1).mean()))
    figures = {
        "cc": subject.cc,
        "cc_placed": cc,
        "moved_by": moved_by,
        "rotation": rotation.tolist(),
        "shift": shift.tolist(),
    }
    if cc < max(LEAST_PLACED, subject.cc + LEAST_GAIN):
        return MapChecks({CHECK: figures}), subject
    beside = Finding(
        CHECK,
        f"the model lies beside its density (CC {subject.cc:.2f}, and {cc:.2f} where it is moved by {moved_by:.1f} Å as a rigid "
        "body)",
        remedy=f"let it be placed there by {as_argument('place', 'on')}",
    )
    return MapChecks({CHECK: figures}, [beside]), placed


def _searched_map(subject: Subject) -> DensityMap | None:
    """Return the part of the map in which the model's place is to be searched for, or None where it is not."""
    density_map = subject.density_map
    if (
        density_map.periodic
        or subject.resolution > COARSEST
        or subject.cc >= CERTAIN
        or subject.is_heavy.sum() < LEAST_ATOMS
    ):
        return None
    if density_map.data.size > MOST_VOXELS:
        if coverage(subject.heavy, density_map) < IN_DENSITY:
            return None
        density_map = density_map.crop(subject.heavy, MARGIN)
        if density_map.data.size > MOST_VOXELS:
            return None
    return density_map


def best_places(subject: Subject, threads: int | None = None) -> tuple[RigidPlace, RigidPlace] | None:
    """Return where the model fits the map best as a rigid body, and where its mirror image; searched for where it fits badly.

    `threads`: all cores by default. Returns None where the model fits or is too small, where the map is a crystal's,
    whose handedness and origin are known, coarser than 8 Å, or too large.
    """
    density_map = _searched_map(subject)
    if density_map is None:
        return None
    images = density_map, density_map.mirrored()
    heavy = subject.heavy - subject.heavy.mean(axis=0)
    some = heavy[:: -(-len(heavy) // _SEARCH_ATOMS)]
    # The mirror image has the same box, and so the same grid.
    grid, coarse = search_grid(density_map, heavy, SEARCH_RESOLUTION)
    width = SIGMA * np.sqrt(coarse**2 - subject.resolution**2)
    targets = [grid.filled(image.gaussian_filter(width)) for image in images]
    found = best_of_all(targets, grid, some, coarse, threads)
    with ThreadPoolExecutor(min(threads or os.cpu_count() or 1, 2)) as pool:
        here, mirrored = pool.map(partial(_refined, subject, coarse), images, found)
    return here, mirrored


def _refined(
    subject: Subject, coarse: float, density_map: DensityMap, candidates: list[tuple[Rotation, np.ndarray]]
) -> RigidPlace:
    """Return the best of the places in a map to which candidates of a search at a coarse resolution (Å) lead."""
    found = [Pose(0.0, rotation, place, 1.0) for rotation, place in candidates]
    # Rough ones first: what is not among the best then is no more.
    stages = (
        (coarse, _ROUGH_ITERATIONS, FINALISTS),
        (max(MIDDLE_RESOLUTION, subject.resolution), _ROUGH_ITERATIONS, 2),
        (subject.resolution, ITERATIONS, 1),
    )
    for resolution, iterations, most in stages:
        scan = RigidScan(
            density_map,
            subject.heavy,
            subject.weights,
            resolution,
            most_atoms=_SEARCH_ATOMS,
            whole_map=True,
        )
        refined = [scan.refined(pose, fixed_scale=True, iterations=iterations) for pose in found]
        refined.sort(key=lambda pose: -pose.similarity)
        kept = distinct([(pose.similarity, pose.rotation, pose.place) for pose in refined])[:most]
        found = [Pose(*each, 1.0) for each in kept]
    _, rotation, place, _ = found[0]
    there = scan.moved(subject.positions, found[0])
    cc = replace(subject, density_map=density_map, positions=there, known_cc=None).cc
    return RigidPlace(rotation.as_matrix(), place - rotation.apply(scan.centre), cc)
