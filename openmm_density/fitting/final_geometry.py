"""How a final stage holds the geometry: bonds, angles and backbone more stiffly than the stages before.

A density bends first what resists least. In a force field these are the angles, whose stiffness is that of molecules at room
temperature: Amber's leave each 3 to 4 degrees. Programs for refinement hold them, as all restraints, to what is found in crystals
at high resolution, 2 degrees or less. Torsions and places of atoms then take up the pull, so that hardly any correlation is lost,
and the model is no farther from the truth. Where ideal geometry is restrained, bonds and angles also have its values in place of
the force field's, from which they differ by up to 0.02 Å and 5°, so that the two do not pull against each other.
"""

from __future__ import annotations

import numpy as np
import openmm
from openmm import app

from ..base.units import ANGSTROM_PER_NANOMETER
from ..models.chemistry.elements import is_hydrogen
from ..models.chemistry.monomers.terms import GeometryTerms
from ..models.chemistry.monomers.volumes import places_of
from ..models.merging import terms_of

ANGLE_STIFFNESS, BOND_STIFFNESS = 2.0, 1.5
"""Times by which angles and bonds between heavy atoms are stiffer than in the force field; with more, bonds would ask for shorter
time steps."""
STIFF_TIMESTEP = 0.75
"""Of the protocol's time step, that of a final stage. With hydrogens of 3 Da the fastest motions of a model bear steps of up to
5.5 fs, with a stiff geometry 4.5 fs: at 4 fs too little would be left for the fluctuations of a warm model."""
RESTRAINT_SCALES = {"ramachandran": 4.0}
"""Times by which restraints, by name, are stronger than in other stages."""


def stiffen(system: openmm.System, topology: app.Topology, ideal: GeometryTerms | None = None) -> None:
    """Multiply the force constants of angles and bonds of heavy atoms, with `ideal` values where these are known."""
    light = np.array([is_hydrogen(atom) for atom in topology.atoms()])
    for force in system.getForces():
        if isinstance(force, openmm.HarmonicAngleForce):
            kind, size, factor = "Angle", 3, ANGLE_STIFFNESS
            known, scale = (None if ideal is None else ideal.angles), 1.0
        elif isinstance(force, openmm.HarmonicBondForce):
            kind, size, factor = "Bond", 2, BOND_STIFFNESS
            known, scale = (None if ideal is None else ideal.bonds), ANGSTROM_PER_NANOMETER
        else:
            continue
        atoms, values = terms_of(force, kind, size)
        changed = ~light[atoms].any(axis=1)
        values[changed, 1] *= factor
        if known is not None:
            place = places_of(known.atoms, atoms, len(light))
            values[place >= 0, 0] = known.values[place[place >= 0]] / scale
            changed |= place >= 0
        change = getattr(force, f"set{kind}Parameters")
        for index in np.flatnonzero(changed).tolist():
            change(index, *atoms[index].tolist(), *values[index].tolist())
