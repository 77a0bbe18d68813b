"""How a final stage holds the geometry: bonds, angles and backbone more stiffly than the stages before.

A density bends first what resists least. In a force field these are the angles, whose stiffness is that of molecules at room
temperature: Amber's leave each 3 to 4 degrees. Programs for refinement hold them, as all restraints, to what is found in crystals
at high resolution, 2 degrees or less. Torsions and places of atoms then take up the pull, so that hardly any correlation is lost,
and the model is no farther from the truth.
"""

from __future__ import annotations

import numpy as np
import openmm
from openmm import app

from ..models.chemistry.elements import is_hydrogen
from ..models.merging import terms_of

ANGLE_STIFFNESS, BOND_STIFFNESS = 2.0, 1.5
"""Times by which angles and bonds between heavy atoms are stiffer than in the force field; with more, bonds would ask for shorter
time steps."""
STIFF_TIMESTEP = 0.75
"""Of the protocol's time step, that of a final stage. With hydrogens of 3 Da the fastest motions of a model bear steps of up to
5.5 fs, with a stiff geometry 4.5 fs: at 4 fs too little would be left for the fluctuations of a warm model."""
RESTRAINT_SCALES = {"ramachandran": 4.0}
"""Times by which restraints, by name, are stronger than in other stages."""


def stiffen(system: openmm.System, topology: app.Topology) -> None:
    """Multiply the force constants of a System's harmonic angles and bonds between heavy atoms."""
    light = np.array([is_hydrogen(atom) for atom in topology.atoms()])
    for force in system.getForces():
        if isinstance(force, openmm.HarmonicAngleForce):
            atoms, values = terms_of(force, "Angle", 3)
            change, factor = force.setAngleParameters, ANGLE_STIFFNESS
        elif isinstance(force, openmm.HarmonicBondForce):
            atoms, values = terms_of(force, "Bond", 2)
            change, factor = force.setBondParameters, BOND_STIFFNESS
        else:
            continue
        values[:, 1] *= factor
        heavy = np.flatnonzero(~light[atoms].any(axis=1))
        for index, members, numbers in zip(heavy.tolist(), atoms[heavy].tolist(), values[heavy].tolist()):
            change(index, *members, *numbers)
