"""The part of a model that has to be relaxed: residues with something wrong, what is near them, and what holds that in place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import openmm
from openmm import app
from scipy.spatial import cKDTree

from ..models.chemistry.topologies import bonded_pairs, part_of_topology
from ..models.merging import masses_of, part_of_force

REACH = 0.6
"""nm from what is wrong within which residues move, and from atoms that move within which they are there: farther than a bonded
term or a contact reaches."""
MOST = 0.5
"""Part of a model's atoms from which on all are relaxed."""

BONDED = (
    openmm.HarmonicBondForce,
    openmm.HarmonicAngleForce,
    openmm.PeriodicTorsionForce,
    openmm.RBTorsionForce,
    openmm.CMAPTorsionForce,
    openmm.CustomTorsionForce,
)
"""Forces of a System that act while it is relaxed."""


@dataclass(frozen=True)
class StrainedPart:
    """Some residues of a model as one of their own. `atoms` int (A,): those of the whole model."""

    atoms: np.ndarray
    topology: app.Topology
    system: openmm.System  # Bonded terms, and which pairs are exceptions; atoms that are held have no mass


def strained_part(
    system: openmm.System, topology: app.Topology, positions: np.ndarray, wrong: np.ndarray
) -> StrainedPart | None:
    """Return what has to be relaxed of a model where some atoms are wrong; None where it is most of the model.

    `positions` (N, 3) in nm; `wrong` int (W,).
    """
    residue_of = np.array([atom.residue.index for atom in topology.atoms()])

    def residues_near(atoms: np.ndarray) -> np.ndarray:
        apart = cKDTree(positions[atoms]).query(positions, distance_upper_bound=REACH)[0]
        return np.isin(residue_of, residue_of[apart <= REACH])

    moving = residues_near(wrong)
    present = residues_near(moving)
    if present.sum() > MOST * len(present):
        return None
    atoms = np.flatnonzero(present)
    place = np.full(len(present), -1)
    place[atoms] = np.arange(len(atoms))
    part = openmm.System()
    for mass in np.where(moving, masses_of(system), 0.0)[atoms].tolist():
        part.addParticle(mass)
    for force in system.getForces():
        if isinstance(force, (*BONDED, openmm.NonbondedForce)):
            part.addForce(part_of_force(force, place))
    return StrainedPart(atoms, part_of_topology(topology, atoms, bonded_pairs(topology)), part)
