"""Has the map the right hand? The model fits only one of the map and its mirror image."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from openmm_density.maps.density_map import DensityMap

from .coverage import IN_DENSITY, coverage
from .findings import Finding, MapChecks
from .rigid_scan import ITERATIONS, Pose, RigidScan
from .rigid_search import SIGMA, best_of_all, distinct, search_grid
from .subject import Subject

CHECK = "handedness"

# Coarser maps hardly differ from their mirror images.
COARSEST = 8.0
# A model that has more cannot lie in a mirror image.
CERTAIN = 0.45
# What the model has in the mirror image, and how much more than in the map: in maps of the right hand, of 3 to 8 Å, models that
# belong there or are 7 Å away have 0.15 to 0.7 less in the mirror image; there 0.44 at most.
LEAST_CORRELATION, LEAST_GAIN = 0.3, 0.1
# Fewer atoms have hardly a hand at 8 Å.
LEAST_ATOMS = 200
# The search, in Å, and the refinements that follow it.
SEARCH_RESOLUTION, MIDDLE_RESOLUTION = 12.0, 7.0
FINALISTS = 3
# A larger map is cropped around the model, with this margin in Å, and where that is still larger it is left out.
MOST_VOXELS, MARGIN = 200**3, 20.0
# Of the model, in the search.
_SEARCH_ATOMS = 1500
_ROUGH_ITERATIONS = 15


def check_handedness(subject: Subject) -> MapChecks:
    """Place the model, rigid, in the mirror image of the map, and compare.

    Looked for only where the model fits badly, in a map of 8 Å or finer that is no crystal's, whose hand is known.

    Parameters
    ----------
    subject : Subject

    Returns
    -------
    MapChecks
        ``cc`` and ``cc_mirrored``: the model's correlation where it fits best in the map, as far as that was looked for, and in
        its mirror image; None for the check where it was not made.
    """
    density_map = subject.density_map
    if (
        density_map.periodic
        or subject.resolution > COARSEST
        or subject.cc >= CERTAIN
        or subject.is_heavy.sum() < LEAST_ATOMS
    ):
        return MapChecks({CHECK: None})
    if density_map.data.size > MOST_VOXELS:
        if coverage(subject.heavy, density_map) < IN_DENSITY:
            return MapChecks({CHECK: None})
        density_map = density_map.crop(subject.heavy, MARGIN)
        if density_map.data.size > MOST_VOXELS:
            return MapChecks({CHECK: None})
    cc, cc_mirrored = subject.cc, _best_correlation(subject, density_map.mirrored())
    if _is_better(cc_mirrored, cc):
        cc = max(cc, _best_correlation(subject, density_map))
    figures = {"cc": cc, "cc_mirrored": cc_mirrored}
    if not _is_better(cc_mirrored, cc):
        return MapChecks({CHECK: figures})
    sentence = (
        f"the map looks mirrored: the model, rigid, fits its mirror image better (CC {cc_mirrored:.2f}, in the map {cc:.2f} at "
        "best): check its hand, and pass --mirror if it is wrong, or leave that out if it was given."
    )
    return MapChecks({CHECK: figures}, [Finding(CHECK, sentence)])


def _is_better(cc_mirrored: float, cc: float) -> bool:
    return cc_mirrored >= max(LEAST_CORRELATION, cc + LEAST_GAIN)


def _best_correlation(subject: Subject, density_map: DensityMap) -> float:
    """Return the correlation of the model where it fits a map best, as a rigid body."""
    heavy = subject.heavy - subject.heavy.mean(axis=0)
    some = heavy[:: -(-len(heavy) // _SEARCH_ATOMS)]
    grid, coarse = search_grid(density_map, heavy, SEARCH_RESOLUTION)
    blurred = density_map.gaussian_filter(SIGMA * np.sqrt(coarse**2 - subject.resolution**2))
    found = [
        Pose(0.0, rotation, place, 1.0)
        for rotation, place in best_of_all(grid.filled(blurred), grid, some, coarse)
    ]
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
    there = scan.moved(subject.positions, found[0])
    return replace(subject, density_map=density_map, positions=there, known_cc=None).cc
