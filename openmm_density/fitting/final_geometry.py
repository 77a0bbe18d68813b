"""How a final stage holds the geometry: bonds, angles and backbone more stiffly than the stages before.

A density bends first what resists least. In a force field these are the angles, whose stiffness is that of molecules at room
temperature: Amber's leave each 3 to 4 degrees. Programs for refinement hold them, as all restraints, to what is found in crystals
at high resolution, 2 degrees or less. Torsions and places of atoms then take up the pull, so that hardly any correlation is lost,
and the model is no farther from the truth.

Depositions are judged by other values than a force field's, which differ from these by up to 0.02 Å and 5°. So the last
minimisation restrains ideal geometry, by whose values bonds and angles are then held, so that the two do not pull against each
other. It also keeps all atoms apart that a density presses together.
"""

from __future__ import annotations

import numpy as np
import openmm
from openmm import app

from ..base.units import ANGSTROM_PER_NANOMETER
from ..models.chemistry.monomers.terms import GeometryTerms
from ..models.chemistry.monomers.volumes import places_of
from ..models.chemistry.sugar_puckers import find_sugars
from ..models.chemistry.topologies import bonded_neighbours, hydrogen_mask
from ..models.merging import call_for_each, terms_of
from ..restraints import IdealGeometryRestraint
from ..restraints.contacts import CONTACT_FORCE_CONSTANT, REACH, ContactRestraint
from ..restraints.ideal_geometry import add_ideal_terms
from ..restraints.sugar_puckers import SugarPuckerRestraint
from ..validation.beta_carbons import BetaCarbons

ANGLE_STIFFNESS, BOND_STIFFNESS = 2.0, 1.5
"""Times by which angles and bonds between heavy atoms are stiffer than in the force field; with more, bonds would ask for shorter
time steps."""
STIFF_TIMESTEP = 0.75
"""Of the protocol's time step, that of a final stage. With hydrogens of 3 Da the fastest motions of a model allow steps of up to
5.5 fs, with a stiff geometry 4.5 fs: at 4 fs too little would be left for the fluctuations of a warm model."""
CONTACT_SCALE = 16.0
"""Times the default repulsion that keeps atoms apart in the last minimisation."""
CONTACT_REACH = 2.5
"""Å beyond contact within which it knows pairs: what is tried of a model comes to rest in what was made of it before."""
OUTLIER, OUTLIER_SCALE = 3.0, 9.0
"""Standard deviations from which on angles are then held more stiffly, and how many times as much more: a model that is wrong
somewhere would bend one angle there."""
BETA_CARBON_SIGMA = np.radians(2.5)
"""Of the torsions that hold Cβ where the backbone has it: bent angles about Cα can each be usual, and turn a side chain to its
density all the same."""
EXCESS_PARAMETERS = BONDS_BEYOND, ANGLES_BEYOND = "bonds_beyond", "angles_beyond"
"""Parameters of a Context: by how much (kJ/mol) bonds and angles of heavy atoms are held more stiffly than by ideal geometry."""
HYDROGEN_SCALE = 4.0
"""Times by which angles of hydrogens are stiffer: programs that count clashes let hydrogens ride on the heavy atoms, so that one
that evades what is near by bending its own bonds would hide a clash of these."""
METHYL_STIFFNESS = 400.0
"""kJ/mol: half the barrier of a methyl group there, for the same reason: with 50, most of the clashes left are of methyl groups
that have turned by 10 or 20 degrees."""
PUCKER_STIFFNESS = 500.0
"""kJ/mol/rad², five times as stiff as before: a density turns a ring until its δ is of neither pucker."""
RESTRAINT_SCALES = {"ramachandran": 4.0, "rotamers": 2.0}
"""Times by which restraints, by name, are stronger than in other stages."""
RESTING_SCALES = {"ramachandran": 4.0}
"""Times by which they are stronger still in the last minimisation, which no time step limits."""


def stiffen(system: openmm.System, topology: app.Topology, ideal: GeometryTerms | None = None) -> None:
    """Multiply the force constants of angles and bonds of heavy atoms, with `ideal` values where these are known."""
    light = hydrogen_mask(topology)
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
        call_for_each(force, f"set{kind}Parameters", np.flatnonzero(changed), atoms[changed], values[changed])


def forces_at_rest(topology: app.Topology, ideal: IdealGeometryRestraint) -> list[openmm.Force]:
    """Build the forces, in the group of the ideal geometry, that a last minimisation has beside this."""
    forces = [
        force_of_excess(topology, ideal),
        force_of_angles(topology, ideal),
        force_of_beta_carbons(topology, ideal),
        stagger_methyls(topology),
    ]
    for force in forces:
        force.setForceGroup(ideal.force_group)
    return forces


def contacts_at_rest(
    topology: app.Topology,
    positions: np.ndarray,
    ideal: IdealGeometryRestraint,
    apart: np.ndarray | None = None,
    for_once: bool = False,
) -> ContactRestraint:
    """Return what keeps atoms apart, in the same group, that are near contact at positions (N, 3) in Å.

    `apart` int (P, 2): pairs that never occur together. `for_once`: whether for one minimisation alone, of fewer pairs.
    """
    reach = REACH if for_once else CONTACT_REACH
    options = {"reach": reach, "apart": apart, "force_group": ideal.force_group}
    return ContactRestraint(topology, positions, CONTACT_SCALE * CONTACT_FORCE_CONSTANT, **options)


def forces_of_puckers(topology: app.Topology, positions: np.ndarray, force_group: int) -> list[openmm.Force]:
    """Build the force, if there is RNA, that holds its sugars in the pucker that Pperp implies at positions (N, 3) in Å."""
    sugars = find_sugars(topology)
    told, judged = sugars.contradicted(positions)[1], sugars.judged()
    if not judged.any():
        return []
    restraint = SugarPuckerRestraint(
        topology, positions, PUCKER_STIFFNESS, parameter_name="puckers_at_rest", force_group=force_group
    )
    restraint.flip(dict(zip(sugars.residues[judged].tolist(), told[judged].tolist())))
    return [restraint.create_force()]


def force_of_excess(topology: app.Topology, ideal: IdealGeometryRestraint) -> openmm.CustomBondForce:
    """Build the force that holds bonds between heavy atoms more stiffly, by `BONDS_BEYOND`, 0 at first."""
    heavy = ~hydrogen_mask(topology)
    force = openmm.CustomBondForce(f"0.5*{BONDS_BEYOND}*((r - ideal)/sigma)^2")
    force.addGlobalParameter(BONDS_BEYOND, 0.0)
    add_ideal_terms(force, ideal.terms.bonds.among(heavy), 1 / ANGSTROM_PER_NANOMETER)
    return force


def force_of_angles(topology: app.Topology, ideal: IdealGeometryRestraint) -> openmm.CustomAngleForce:
    """Build the force that holds angles of heavy atoms more stiffly by `ANGLES_BEYOND`, those of hydrogens, and outliers.

    In one force, as each evaluates the angles anew.
    """
    light = hydrogen_mask(topology)
    angles = ideal.terms.angles
    force = openmm.CustomAngleForce(
        f"0.5*(more*z^2 + {OUTLIER_SCALE}*{_stiffness(ideal)}*max(0, abs(z) - {OUTLIER})^2);"
        f"more = light*{HYDROGEN_SCALE - 1.0}*{ideal.parameter_name} + (1 - light)*{ANGLES_BEYOND};"
        "z = (theta - ideal)/sigma"
    )
    _add_stiffness(force, ideal)
    add_ideal_terms(force, angles, 1.0, light=light[angles.atoms].any(axis=1))
    return force


def force_of_beta_carbons(topology: app.Topology, ideal: IdealGeometryRestraint) -> openmm.CustomTorsionForce:
    """Build the force that holds each Cβ where the backbone has it."""
    force = openmm.CustomTorsionForce(
        f"0.5*{_stiffness(ideal)}*min(apart, {2 * np.pi} - apart)^2/{BETA_CARBON_SIGMA**2}; apart = abs(theta - ideal)"
    )
    _add_stiffness(force, ideal)
    force.addPerTorsionParameter("ideal")
    carbons = BetaCarbons(topology)
    # Of N, Cα, C, Cβ: the torsions N-C-Cα-Cβ and C-N-Cα-Cβ.
    atoms = carbons.atoms[:, [[0, 2, 1, 3], [2, 0, 1, 3]]].reshape(-1, 4)
    call_for_each(force, "addTorsion", atoms, carbons.torsions.T.reshape(-1, 1).tolist())
    return force


def _stiffness(ideal: IdealGeometryRestraint) -> str:
    return f"({ideal.parameter_name} + {ANGLES_BEYOND})"


def _add_stiffness(force: openmm.Force, ideal: IdealGeometryRestraint) -> None:
    force.addGlobalParameter(ideal.parameter_name, ideal.force_constant)
    force.addGlobalParameter(ANGLES_BEYOND, 0.0)


def stagger_methyls(topology: app.Topology) -> openmm.PeriodicTorsionForce:
    """Build the force that keeps the hydrogens of methyl groups staggered, where the atom before has room for four others."""
    force = openmm.PeriodicTorsionForce()
    light = hydrogen_mask(topology).tolist()
    symbols = ["" if atom.element is None else atom.element.symbol for atom in topology.atoms()]
    bonded = bonded_neighbours(topology)
    for carbon, around in enumerate(bonded):
        hydrogens = [atom for atom in around if light[atom]]
        if symbols[carbon] != "C" or len(hydrogens) != 3 or len(around) != 4:
            continue
        (before,) = (atom for atom in around if not light[atom])
        others = [atom for atom in bonded[before] if atom != carbon and not light[atom]]
        if others and (len(bonded[before]) == 4 or symbols[before] in ("O", "S")):
            force.addTorsion(others[0], before, carbon, hydrogens[0], 3, 0.0, METHYL_STIFFNESS)
    return force
