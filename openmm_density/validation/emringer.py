"""EMRinger: whether the density around side chains peaks where rotamers are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..base.units import takes_units
from ..maps.checks import check_map
from ..maps.grids import checked_positions
from ..models.chemistry.side_chains import SIDE_CHAINS

if TYPE_CHECKING:
    from openmm.app import Topology

    from ..maps.density_map import DensityMap

RESIDUES = frozenset(
    ("ARG", "ASN", "ASP", "CYS", "GLN", "GLU", "HIS", "LEU", "LYS", "MET", "PHE", "SER", "TRP", "TYR")
)
"""Amino acids with one atom behind Cβ, whose first torsion is scanned."""
STEPS = 72
"""Of 5°, around the bond of Cα and Cβ."""
THRESHOLDS = 20

# As the published program counts: of the steps, numbered from that of 5°, the six bins begin at the sixth; every other one is
# that of a rotamer. By chance 39 of 72 peaks are expected there.
_FIRST, _BIN, _BY_CHANCE = 6, 12, 39 / 72


class EMRinger(NamedTuple):
    """The EMRinger score of a model."""

    # Above 1 for models that fit well in maps of 3 to 4 Å, above 2 for very good ones; none where no density peaks
    score: float | None
    threshold: float | None  # Value of the map above which peaks count for it
    rotamer_part: float | None  # Of the peaks above it those at rotamers
    side_chains: int  # That were scanned


@takes_units("positions")
def emringer(density_map: DensityMap, topology: Topology, positions: Any) -> EMRinger:
    """Return the EMRinger score of a model.

    For each side chain with one γ atom the map is interpolated (trilinearly) where that atom would be at χ1 = 5°, 10° … 360°.
    Of the peaks, one for each side chain, that are above a threshold, those within 30° of a rotamer (60°, 180°, 300°) are
    counted; the score is ten times the largest normal deviate from chance over 20 thresholds, divided by the root of the number
    of side chains. Side chains that reach beyond the map, or lack an atom, are left out. Bins and thresholds are those of the
    published program (`mmtbx.ringer` of cctbx), the scores equal to the last digits.

    Parameters
    ----------
    density_map : DensityMap
        The map.
    topology : openmm.app.Topology
        Names the N atoms.
    positions : Quantity or array_like, shape (N, 3)
        Cartesian positions in Å.

    Raises
    ------
    InputError
        If positions and topology disagree.

    References
    ----------
    B. A. Barad et al., Nat. Methods 12, 943 (2015).
    """
    check_map(density_map)
    positions = checked_positions(positions, topology.getNumAtoms(), topology)
    densities = density_map.value_at(_circles(topology, positions).reshape(-1, 3)).reshape(-1, STEPS)
    densities = densities[np.isfinite(densities).all(axis=1)]
    n = len(densities)
    if not n:
        return EMRinger(None, None, None, 0)
    highest = densities.max(axis=1)
    mean = densities.mean(axis=1).mean()
    thresholds = mean + np.arange(THRESHOLDS) * (highest.max() - mean) / THRESHOLDS
    peaks = densities == highest[:, None]
    best = None
    for threshold in thresholds:
        count = peaks[highest > threshold].sum(axis=0)
        at_rotamers, total = np.roll(count, -_FIRST).reshape(-1, _BIN)[::2].sum(), count.sum()
        if not at_rotamers:
            break
        deviate = (at_rotamers - _BY_CHANCE * total) / np.sqrt(_BY_CHANCE * (1 - _BY_CHANCE) * total)
        if best is None or deviate > best[0]:
            best = deviate, threshold, at_rotamers / total
    if best is None:
        return EMRinger(None, None, None, n)
    return EMRinger(float(10 * best[0] / np.sqrt(n)), float(best[1]), float(best[2]), n)


def _circles(topology: Topology, positions: np.ndarray) -> np.ndarray:
    """Return where the γ atom of each side chain would be at 5°, 10° … 360°, shape (side chains, 72, 3)."""
    rows = []
    for residue in topology.residues():
        if residue.name in RESIDUES:
            indices = {atom.name: atom.index for atom in residue.atoms()}
            names = SIDE_CHAINS[residue.name][:4]
            if all(name in indices for name in names):
                rows.append([indices[name] for name in names])
    nitrogen, alpha, beta, gamma = positions[np.array(rows, dtype=np.int64).reshape(-1, 4)].swapaxes(0, 1)
    axis = beta - alpha
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    # At χ = 0 the atom is on the side of the nitrogen.
    towards = nitrogen - alpha
    towards -= (towards * axis).sum(axis=1, keepdims=True) * axis
    towards /= np.linalg.norm(towards, axis=1, keepdims=True)
    across = np.cross(axis, towards)
    arm = gamma - beta
    along = (arm * axis).sum(axis=1, keepdims=True)
    radius = np.linalg.norm(arm - along * axis, axis=1)[:, None, None]
    angles = np.radians(360 / STEPS * np.arange(1, STEPS + 1))[None, :, None]
    around = np.cos(angles) * towards[:, None] + np.sin(angles) * across[:, None]
    return (beta + along * axis)[:, None] + radius * around
