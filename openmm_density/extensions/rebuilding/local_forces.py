"""The energy of a `LocalSystem` as forces of OpenMM."""

from __future__ import annotations

import numpy as np
import openmm

from ...base.units import ANGSTROM_PER_NANOMETER
from ...models.chemistry.contacts import BONDS_APART
from .density_model import DensityModel
from .local_terms import ALLOWANCE, OVERLAP, REPULSION, LocalAtoms, cutoff

# Å around the moving atoms that the tabulated map reaches, and its step in widths of the Gaussian that the map is blurred with.
_MARGIN, _VOXEL = 6.0, 0.8


def system(given: LocalAtoms) -> openmm.System:
    """Build a System of the members; those that do not move have no mass."""
    result = openmm.System()
    masses = np.zeros(len(given.members))
    masses[given.moves] = given.force_field.masses[given.members[given.moves]]
    for mass in masses.tolist():
        result.addParticle(mass)
    for force in given.force_field.among(given.members, given.moves):
        result.addForce(force)
    for restraint in given.restraints:
        result.addForce(restraint.create_force())
    slopes = given.density.slopes(given.positions)
    result.addForce(_pairs(given, slopes.per_pair))
    result.addForce(_in_map(given.density, given.members, given.moving, given.positions, slopes.per_map))
    return result


def _pairs(given: LocalAtoms, per_pair: float) -> openmm.CustomNonbondedForce:
    """Return the repulsion of atoms that are not bonded, and the overlaps of their densities."""
    width = given.density.sigma / ANGSTROM_PER_NANOMETER
    force = openmm.CustomNonbondedForce(
        "hardness*half*max(0, radius1 + radius2 - overlap - allowance*polar1*polar2 - r)^2"
        " + weight1*weight2*overlapping*exp(-r^2/width)"
    )
    force.addGlobalParameter("hardness", 1.0)
    force.addGlobalParameter("half", 0.5 * REPULSION)
    force.addGlobalParameter("overlap", OVERLAP)
    force.addGlobalParameter("allowance", ALLOWANCE)
    force.addGlobalParameter("width", 4 * width**2)
    force.addGlobalParameter("overlapping", per_pair)
    for name in ("radius", "polar", "weight"):
        force.addPerParticleParameter(name)
    polar, weights = given.molecule.polar[given.members], given.density.weights[given.members]
    for radius, is_polar, weight in zip(given.radii.tolist(), polar.tolist(), weights.tolist()):
        force.addParticle([radius, float(is_polar), weight])
    force.createExclusionsFromBonds(given.bonds, BONDS_APART)
    force.setNonbondedMethod(openmm.CustomNonbondedForce.CutoffNonPeriodic)
    force.setCutoffDistance(cutoff(given.density))
    return force


def _in_map(
    density: DensityModel,
    members: np.ndarray,
    moving: np.ndarray,
    positions: np.ndarray,
    per_map: float,
) -> openmm.CustomExternalForce:
    """Return the integral of the map with each atom's Gaussian."""
    places = positions[members[moving]]
    low, high = places.min(axis=0) - _MARGIN, places.max(axis=0) + _MARGIN
    counts = np.ceil((high - low) / (_VOXEL * np.sqrt(2) * density.sigma)).astype(int) + 1
    axes = [np.linspace(a, b, n) for a, b, n in zip(low, high, counts)]
    values = density.map_integral(np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1))
    bounds = np.stack([low, high], axis=1).ravel() / ANGSTROM_PER_NANOMETER
    function = openmm.Continuous3DFunction(*counts.tolist(), values.ravel(order="F"), *bounds.tolist())
    # Beyond the table the function is 0, and so is its force.
    force = openmm.CustomCompoundBondForce(1, "slope*weight*map(x1, y1, z1)")
    force.addTabulatedFunction("map", function)
    force.addGlobalParameter("slope", -per_map)
    force.addPerBondParameter("weight")
    for index in moving.tolist():
        if weight := float(density.weights[members[index]]):
            force.addBond([index], [weight])
    return force
