"""The implicit solvent of Onufriev, Bashford and Case as OpenMM's own force."""

from __future__ import annotations

import openmm
from openmm import unit


def use_native_gbsa(system: openmm.System) -> None:
    """Replace the custom GBSA-OBC force that OpenMM's force field file makes by OpenMM's own; the energy is the same.

    The file writes the model of Onufriev, Bashford and Case (2004) as a `CustomGBForce`, which takes several times as long.
    """
    index, custom = next(
        (i, force) for i, force in enumerate(system.getForces()) if isinstance(force, openmm.CustomGBForce)
    )
    names = [custom.getPerParticleParameterName(i) for i in range(custom.getNumPerParticleParameters())]
    born = openmm.GBSAOBCForce()
    born.setNonbondedMethod(custom.getNonbondedMethod())
    born.setCutoffDistance(custom.getCutoffDistance())
    # The dielectric constants of the file, and the surface term in its units, are the defaults of both.
    born.setSolventDielectric(_SOLVENT_DIELECTRIC)
    born.setSurfaceAreaEnergy(_SURFACE_AREA_ENERGY)
    for i in range(custom.getNumParticles()):
        values = dict(zip(names, custom.getParticleParameters(i)))
        offset_radius = values["or"]
        born.addParticle(values["charge"], offset_radius + _OFFSET, values["sr"] / offset_radius)
    system.removeForce(index)
    system.addForce(born)


_SOLVENT_DIELECTRIC = 78.5
_SURFACE_AREA_ENERGY = 2.25936 * unit.kilojoule_per_mole / unit.nanometer**2
# By which the radii of the model are smaller than those of the atoms, in nm.
_OFFSET = 0.009
