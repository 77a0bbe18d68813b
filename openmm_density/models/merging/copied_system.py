"""Copies of Systems in memory: OpenMM's own way, through XML, takes twenty times as long."""

from __future__ import annotations

import numpy as np
import openmm

from .bonded_forces import TERMS
from .terms import call_for_each, constraints_of, listed_terms, masses_of, plain

# OpenMM's copies of other forces share tables with the original, and both would delete these.
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
    """Return a System with the same particles, constraints, box and forces, independent of the original."""
    count = system.getNumParticles()
    if any(map(system.isVirtualSite, range(count))):  # OpenMM cannot copy virtual sites
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


def part_of_force(force: openmm.Force, place: np.ndarray) -> openmm.Force:
    """Return a force with the terms (for NonbondedForce: exceptions) whose particles are all in a part of the System.

    `place` int (N,): indices in the part, -1 for other particles.
    """
    if isinstance(force, openmm.CustomTorsionForce):
        made = openmm.CustomTorsionForce(force.getEnergyFunction())
        for k in range(force.getNumPerTorsionParameters()):
            made.addPerTorsionParameter(force.getPerTorsionParameterName(k))
        for k in range(force.getNumGlobalParameters()):
            made.addGlobalParameter(force.getGlobalParameterName(k), force.getGlobalParameterDefaultValue(k))
    else:
        made = type(force)()
    if isinstance(force, openmm.CMAPTorsionForce):
        for k in range(force.getNumMaps()):
            made.addMap(*plain(force.getMapParameters(k)))
    kind, count, before = TERMS[type(force).__name__][-1]
    rows = listed_terms(force, kind)
    listed = np.array([row[before : before + count] for row in rows], dtype=np.int64).reshape(-1, count)
    particles = place[listed]
    for k in np.flatnonzero((particles >= 0).all(axis=1)).tolist():
        getattr(made, f"add{kind}")(*rows[k][:before], *particles[k].tolist(), *rows[k][before + count :])
    return made


def add_particles(system: openmm.System, source: openmm.System, first: int) -> None:
    """Add the particles and constraints of another System, whose first particle gets a number."""
    call_for_each(system, "addParticle", masses_of(source))
    pairs, lengths = constraints_of(source)
    call_for_each(system, "addConstraint", pairs + first, lengths)
