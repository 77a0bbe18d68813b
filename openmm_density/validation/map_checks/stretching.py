"""Whether a fit stretched or compressed the whole backbone evenly, as a map of the wrong voxel size does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...errors import as_argument
from ...units import takes_units
from .findings import Finding, MapChecks

if TYPE_CHECKING:
    from openmm.app import Topology

    from ...maps.density_map import DensityMap

CHECK = "stretching"

# Mean change of the distances along the backbone, as parts of them, of their standard deviation, and of its standard error. De
# novo models crumple where they do not fit: by 1 to 2%, but unevenly, with a standard deviation that is larger.
LEAST_STRETCH, LEAST_COMPRESSION = (0.003, 0.5), (0.005, 1.5)
LEAST_Z = 6.0
# A distance that changed by more is that of a peptide that flipped, or of a gap.
OUTLIER = 0.1
LEAST_COUNT, LEAST_ERROR = 20, 1e-4


@takes_units("start", "relaxed", "fitted")
def check_stretching(
    density_map: DensityMap,
    topology: Topology,
    start: np.ndarray,
    relaxed: np.ndarray,
    fitted: np.ndarray,
    scale: float = 1.0,
) -> MapChecks:
    """Compare the distances along the backbone of a fitted model with those that it had without the map.

    Force fields have means of their own: Amber's is 3.87 Å from Cα to Cα where deposited models have 3.80. A fit that lies
    between the two is what a right map makes of a model; so the distances must have left both on the same side.

    Parameters
    ----------
    density_map : DensityMap
    topology : openmm.app.Topology
        Of N atoms or more; the first N are those of the positions.
    start, relaxed, fitted : np.ndarray, shape (N, 3)
        As given, minimised without the map, and fitted into it, in Å.
    scale : float
        How much larger than the fitted model the map still is, see `check_scale`.

    Returns
    -------
    MapChecks
        ``change`` and ``change_from_relaxed`` (means of the logarithms of the ratios of Cα-Cα distances, of nucleotides of P-P,
        between neighbours of a chain, to those of the start and of the relaxed model) and, of the smaller of the two,
        ``deviation`` (its standard deviation), ``z`` (in its standard errors) and ``count``; None where there are too few.
    """
    pairs = _neighbours(topology)
    changes = [_changes(pairs, before, fitted) for before in (start, relaxed)]
    if min(map(len, changes)) < LEAST_COUNT:
        return MapChecks({CHECK: None})
    means = [float(each.mean()) for each in changes]
    least = int(np.argmin(np.abs(means)))
    change, deviation, count = means[least], float(changes[least].std()), len(changes[least])
    # Distances that all changed by the same are known no better than coordinates are written.
    error = max(deviation / np.sqrt(count), LEAST_ERROR)
    figures = {
        "change": means[0],
        "change_from_relaxed": means[1],
        "deviation": deviation,
        "z": change / error,
        "count": count,
    }
    least_part, evenly = LEAST_STRETCH if change > 0 else LEAST_COMPRESSION
    is_between = means[0] * means[1] < 0
    if is_between or abs(change) < max(least_part, evenly * deviation, LEAST_Z * error):
        return MapChecks({CHECK: figures})
    likely = float(density_map.voxel_size.mean() / (np.exp(means[0]) * scale))
    wrong_size = Finding(
        CHECK,
        f"the fit {'stretched' if change > 0 else 'compressed'} the backbone everywhere alike, by {100 * abs(means[0]):.1f}% of "
        f"what it was (distances between neighbours, {abs(figures['z']):.0f} standard errors beyond those of start and relaxed "
        "model), as a map of a wrong voxel size does",
        remedy="check the map's header, whose voxels are likelier to measure "
        f"{likely:.3g} Å than {density_map.voxel_size.mean():.3g}, and pass {as_argument('voxel_size')} if so",
    )
    return MapChecks({CHECK: figures}, [wrong_size])


def _changes(pairs: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return the logarithms of the ratios of distances of pairs, without outliers."""
    lengths = [np.linalg.norm(each[pairs[:, 0]] - each[pairs[:, 1]], axis=1) for each in (before, after)]
    with np.errstate(divide="ignore", invalid="ignore"):
        changes = np.log(lengths[1] / lengths[0])
    return changes[np.abs(changes) < OUTLIER]


def _neighbours(topology: Topology) -> np.ndarray:
    """Return the pairs of Cα, or of P, of neighbours in a chain that are bound to each other, shape (M, 2)."""
    bound = {
        frozenset((a.residue.index, b.residue.index))
        for a, b in topology.bonds()
        if a.residue is not b.residue
    }
    pairs = []
    for chain in topology.chains():
        residues = list(chain.residues())
        traces = [{atom.name: atom.index for atom in residue.atoms()} for residue in residues]
        for one, other, here, there in zip(residues, residues[1:], traces, traces[1:]):
            if frozenset((one.index, other.index)) not in bound:
                continue
            pairs += [(here[name], there[name]) for name in ("CA", "P") if name in here and name in there]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)
