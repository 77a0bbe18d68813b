"""Whether a fit stretched or compressed a model evenly, as a map of the wrong voxel size does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.spatial import cKDTree

from ...base.errors import as_argument
from ...base.units import takes_units
from .findings import Finding, MapChecks

if TYPE_CHECKING:
    from openmm.app import Topology

    from ...maps.density_map import DensityMap

CHECK = "stretching"

# Å: distances between Cα, or between P and C1′, that a change of conformation leaves as they are: from fourteen starts in another
# one to the deposited model the means change by 0.4% (1.0% at most), while bonds are too stiff to follow a map. Those that change
# by more than an outlier are of another conformation.
NEAREST, FARTHEST = 5.0, 12.0
OUTLIER = 0.1
# Part by which the map is likely to be wrong, and how many standard errors; force fields alone change these distances by 0.9%.
LEAST_CHANGE, LEAST_Z = 0.012, 3.0
LEAST_COUNT, LEAST_ERROR = 20, 1e-4
# From this correlation on a model fits so well that what its map still asks for tells of the map, and not of what is wrong in the
# model; the errors of both largely cancel. A fit without water makes models smaller by the contraction.
GOOD_FIT, LEAST_Z_OF_GOOD, CONTRACTION = 0.75, 2.0, 0.005
_NAMES = frozenset({"CA", "P", "C1'"})
# Å between coordinates as files have them.
COORDINATE_STEP = 1.01e-3
# So many atoms within the reach of these distances move together.
TOGETHER = 8


@takes_units("start", "fitted")
def check_stretching(
    density_map: DensityMap,
    topology: Topology,
    start: np.ndarray,
    fitted: np.ndarray,
    scale: float = 1.0,
    cc: float = 0.0,
) -> MapChecks:
    """Compare distances between residues that are near to each other in a fitted model with those that it began with.

    What the map still asks for, `scale`, counts as what the model gave way by where that fits well. Where it does not, only the
    opposite counts: the map did not want the change.

    Parameters
    ----------
    density_map : DensityMap
    topology : openmm.app.Topology
        Of N atoms or more; the first N are those of the positions.
    start, fitted : np.ndarray, shape (N, 3)
        As given, and fitted into it, in Å.
    scale : float
        How much larger than the fitted model the map still is, see `check_scale`.
    cc : float
        Its correlation with the map (CC mask).

    Returns
    -------
    MapChecks
        ``change`` (mean of the logarithms of the ratios of distances of 5 to 12 Å between Cα, of nucleotides between P and C1′),
        ``error`` (its standard error), ``wrong_by`` (the logarithm of the scale that is likely to be wrong), ``fits`` (whether
        the model fits well) and ``count`` of atoms; None where there are too few, and for a model that was kept as it was.
    """
    if np.allclose(start, fitted[: len(start)], rtol=0.0, atol=COORDINATE_STEP):
        return MapChecks({CHECK: None})
    pairs = _near(topology, start)
    lengths = [np.linalg.norm(each[pairs[:, 0]] - each[pairs[:, 1]], axis=1) for each in (start, fitted)]
    with np.errstate(divide="ignore", invalid="ignore"):
        changes = np.log(lengths[1] / lengths[0])
    kept = np.abs(changes) < OUTLIER
    counts = np.bincount(pairs[kept].ravel(), minlength=1)
    if (counts > 0).sum() < LEAST_COUNT:
        return MapChecks({CHECK: None})
    sums = np.bincount(pairs[kept].ravel(), np.repeat(changes[kept], 2))
    deviation = (sums[counts > 0] / counts[counts > 0]).std()
    change = float(changes[kept].mean())
    # Distances that all changed by the same are known no better than coordinates are written.
    error = max(float(deviation / np.sqrt((counts > 0).sum() / TOGETHER)), LEAST_ERROR)
    asked = float(np.log(scale))
    fits = bool(cc >= GOOD_FIT)
    wrong_by = change + asked + CONTRACTION if fits else change + (asked if change * asked < 0 else 0.0)
    if not fits and wrong_by * change < 0:
        wrong_by = 0.0
    count = int((counts > 0).sum())
    figures = {"change": change, "error": error, "wrong_by": wrong_by, "fits": fits, "count": count}
    if abs(wrong_by) < max(LEAST_CHANGE, (LEAST_Z_OF_GOOD if fits else LEAST_Z) * error):
        return MapChecks({CHECK: figures})
    scale_of_voxels = np.exp(wrong_by if fits else change + asked)
    return MapChecks({CHECK: figures}, [_finding(density_map, figures, scale_of_voxels, asked)])


def _finding(density_map: DensityMap, figures: dict[str, Any], scale: float, asked: float) -> Finding:
    """Return what is wrong with a map whose voxels are too large by a scale, and which asks for a larger model still."""
    change, voxel = figures["change"], density_map.voxel_size.mean()
    more = f", and its map asks for {100 * asked:+.1f}%" if figures["fits"] else ""
    return Finding(
        CHECK,
        f"the fit {'stretched' if change > 0 else 'compressed'} the model uniformly, by {100 * abs(change):.1f}% "
        f"(distances of {NEAREST:g} to {FARTHEST:g} Å){more}, as a map of a wrong voxel size does, and no change of conformation",
        remedy=f"check the map's header, whose voxels are likelier to measure {voxel / scale:.3g} Å than {voxel:.3g}, and pass "
        f"{as_argument('voxel_size')} if so",
    )


def _near(topology: Topology, positions: np.ndarray) -> np.ndarray:
    """Return the pairs of Cα, or of P and C1′, at distances that a change of conformation leaves, shape (M, 2)."""
    chosen = np.array([atom.index for atom in topology.atoms() if atom.name in _NAMES], dtype=np.int64)
    if len(chosen) < LEAST_COUNT:
        return np.empty((0, 2), dtype=np.int64)
    pairs = chosen[cKDTree(positions[chosen]).query_pairs(FARTHEST, output_type="ndarray")]
    apart = np.linalg.norm(positions[pairs[:, 0]] - positions[pairs[:, 1]], axis=1)
    return pairs[apart > NEAREST]
