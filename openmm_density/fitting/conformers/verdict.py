"""Which of fitted alternate conformers a map shows: by their occupancies, and by how far they are from each other."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from .copies import heavy_atoms
from .fitted import FittedConformers, NotShown

LEAST, SURE = 0.15, 4.5
"""What the occupancy of a conformer has to be that is seen: this, and so many standard deviations. Errors of the
model are no part of these: conformers that are not in simulated maps are found with up to four of them."""
RESOLVED = 0.45
"""In resolutions: what the atoms of a conformer have to be away, in the mean, from the nearest ones of another. Nearer ones share
the density of one, whatever it is, and their occupancies tell nothing."""


def not_shown(found: FittedConformers, resolution: float) -> list[NotShown]:
    """Return the conformers that a map does not show, with their occupancies refined.

    Parameters
    ----------
    resolution : float
        Of the map, in Å.
    """
    result = []
    for number, group in enumerate(found.copies.groups):
        shares, deviations = found.copies.shares[number], found.deviations[number]
        for label, share in shares.items():
            distance = min(
                (_apart(found, number, label, other) for other in shares if _is_more(shares, other, label)),
                default=np.inf,
            )
            is_near = distance < RESOLVED * resolution
            if is_near or share < max(LEAST, SURE * deviations[label]):
                near = float(distance) if is_near else None
                result.append(NotShown(number, group.name, label, share, deviations[label], near))
    return result


def groups_shown(found: FittedConformers, missing: list[NotShown]) -> list[int]:
    """Return the numbers of the groups of which a map shows two conformers or more."""
    return [
        number
        for number, shares in enumerate(found.copies.shares)
        if len(shares) - sum(each.group == number for each in missing) > 1
    ]


def _is_more(shares: dict[str, float], other: str, label: str) -> bool:
    """Return whether the other of two conformers is the one that is taken for theirs where they are in one place."""
    names = list(shares)
    return (shares[other], -names.index(other)) > (shares[label], -names.index(label))


def _apart(found: FittedConformers, number: int, label: str, other: str) -> float:
    """Return the mean distance of a conformer's heavy atoms from the nearest ones of another, in Å."""
    topology = found.copies.others.joined
    mine, others = (heavy_atoms(topology, found.copies.members(number, each)) for each in (label, other))
    distances, _ = cKDTree(found.positions[others]).query(found.positions[mine])
    return float(distances.mean())
