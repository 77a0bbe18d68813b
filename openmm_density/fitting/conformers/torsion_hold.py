"""What keeps each conformer the one that it was given as: its torsions stay near those of the start."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import openmm

from ...chemistry.elements import is_hydrogen
from ...chemistry.torsions import torsion_angles
from .copies import ConformerCopies

TOLERANCE = math.radians(40.0)
"""Each torsion is free within it: a third of what is between rotamers is 40 degrees."""
FORCE_CONSTANT = 2000.0
"""kJ/mol/rad², beyond it."""
_ENERGY = f"0.5*{FORCE_CONSTANT}*max(0, min(apart, {2 * math.pi} - apart) - {TOLERANCE})^2; apart = abs(theta - start)"


def held_torsions(copies: ConformerCopies) -> np.ndarray:
    """Return the torsions of heavy atoms, one about each bond of a conformer that turns some of its atoms; shape (T, 4)."""
    topology = copies.others.joined
    atoms = list(topology.atoms())
    conformers = [
        {int(k) for k in copies.members(number, label)}
        for number, group in enumerate(copies.groups)
        for label in (group.chosen, *group.labels)
    ]
    alternating = set().union(*conformers)
    bonded: dict[int, list[int]] = defaultdict(list)
    for a, b in topology.bonds():
        if not (is_hydrogen(a) or is_hydrogen(b)):
            bonded[a.index].append(b.index)
            bonded[b.index].append(a.index)
    found = []
    for members in conformers:

        def neighbours(atom: int, but: int, members: set[int] = members) -> list[int]:
            """Return what an atom is bonded to in this conformer."""
            every = [k for k in bonded[atom] if k != but and (k in members or k not in alternating)]
            return sorted(every, key=lambda k: (k not in members, atoms[k].name))

        # Bonds that turn atoms of it: of its own, and those to what these are bonded to.
        pivots = sorted(members | {k for each in members for k in neighbours(each, -1)})
        for c in pivots:
            for b in neighbours(c, -1):
                before = neighbours(b, c)[-1:]
                after = [k for k in neighbours(c, b) if k in members][:1]
                if before and after and not (c in members and b in members and b > c):
                    found.append((before[0], b, c, after[0]))
    return np.array(found, dtype=np.int64).reshape(-1, 4)


def torsion_hold(copies: ConformerCopies, positions: np.ndarray, force_group: int = 0) -> openmm.Force:
    """Return the force that holds the torsions of conformers near those at positions (N + K, 3) in Å."""
    torsions = held_torsions(copies)
    force = openmm.CustomTorsionForce(_ENERGY)
    force.setName("ConformerTorsions")
    force.setForceGroup(force_group)
    force.addPerTorsionParameter("start")
    for atoms, angle in zip(torsions.tolist(), torsion_angles(positions, torsions).tolist()):
        force.addTorsion(*atoms, [angle])
    return force
