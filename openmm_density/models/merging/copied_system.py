"""Copies of Systems in memory: OpenMM's own, by way of what it writes to XML, take twenty times as long."""

from __future__ import annotations

import openmm

from .terms import constraints_of, masses_of

# Of all else OpenMM's copy shares tables with the original, which both would delete.
_VALUES_ALONE = (
    openmm.HarmonicBondForce,
    openmm.HarmonicAngleForce,
    openmm.PeriodicTorsionForce,
    openmm.RBTorsionForce,
    openmm.CMAPTorsionForce,
    openmm.NonbondedForce,
    openmm.GBSAOBCForce,
    openmm.CustomBondForce,
    openmm.CustomTorsionForce,
)


def copied_system(system: openmm.System) -> openmm.System:
    """Return a System with the same particles, constraints, box and forces, of which each can be changed alone."""
    count = system.getNumParticles()
    if any(map(system.isVirtualSite, range(count))):  # whose kinds OpenMM has no copies of
        return openmm.XmlSerializer.clone(system)
    copy = openmm.System()
    copy.setDefaultPeriodicBoxVectors(*system.getDefaultPeriodicBoxVectors())
    add_particles(copy, system, 0)
    for force in system.getForces():
        copy.addForce(copied_force(force))
    return copy


def copied_force(force: openmm.Force) -> openmm.Force:
    """Return a force with the same terms and settings."""
    return type(force)(force) if type(force) in _VALUES_ALONE else openmm.XmlSerializer.clone(force)


def add_particles(system: openmm.System, source: openmm.System, first: int) -> None:
    """Add the particles and constraints of another System, whose first particle gets a number."""
    for mass in masses_of(source).tolist():
        system.addParticle(mass)
    pairs, lengths = constraints_of(source)
    for (a, b), length in zip((pairs + first).tolist(), lengths.tolist()):
        system.addConstraint(a, b, length)
