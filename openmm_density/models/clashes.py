"""Atoms that are nearly in one place, moved apart before a force field sees them."""

from __future__ import annotations

import copy

import numpy as np
import openmm
from scipy.spatial import cKDTree

TOO_CLOSE = 0.08
"""nm; nearer than this no two atoms are bonded, and Lennard-Jones forces overflow."""

# Atoms in one place have no direction to part in: each is first moved by about so much (nm).
_NUDGE = 0.01
# Repulsion below this distance (nm), which is that of hydrogens in contact, with a force constant like that of a bond's.
_APART = 0.2
_STIFFNESS = 1.0e5
_ITERATIONS = 200

_BONDED = (
    openmm.HarmonicBondForce,
    openmm.HarmonicAngleForce,
    openmm.PeriodicTorsionForce,
    openmm.RBTorsionForce,
    openmm.CMAPTorsionForce,
    openmm.CustomTorsionForce,
)


def clashing_pairs(system: openmm.System, positions: np.ndarray) -> np.ndarray:
    """Give the pairs of atoms nearer than `TOO_CLOSE` that no bonded term joins, shape (n, 2).

    Parameters
    ----------
    system : openmm.System
        With a `NonbondedForce`, whose exceptions tell what is bonded.
    positions : np.ndarray, shape (N, 3)
        In nm.
    """
    pairs = cKDTree(positions).query_pairs(TOO_CLOSE, output_type="ndarray")
    bonded = _exceptions(system)
    apart = [pair for pair in pairs.tolist() if frozenset(pair) not in bonded]
    return np.array(apart, dtype=np.int64).reshape(-1, 2)


def parted(
    system: openmm.System, positions: np.ndarray, platform: openmm.Platform, properties: dict[str, str]
) -> np.ndarray:
    """Give positions (nm) without such pairs: bonded terms and a soft repulsion are minimised. Without pairs nothing changes."""
    clashing = np.unique(clashing_pairs(system, positions))
    if not len(clashing):
        return positions
    positions = positions.copy()
    positions[clashing] += np.random.default_rng(0).normal(0.0, _NUDGE, (len(clashing), 3))
    soft = openmm.System()
    for index in range(system.getNumParticles()):
        soft.addParticle(system.getParticleMass(index))
    for force in system.getForces():
        if isinstance(force, _BONDED):
            soft.addForce(copy.deepcopy(force))
    repulsion = openmm.CustomNonbondedForce(f"{_STIFFNESS!r}*max(0, {_APART!r} - r)^2")
    repulsion.setNonbondedMethod(openmm.CustomNonbondedForce.CutoffNonPeriodic)
    repulsion.setCutoffDistance(_APART)
    for _ in range(system.getNumParticles()):
        repulsion.addParticle([])
    for pair in sorted(sorted(pair) for pair in _exceptions(system)):
        repulsion.addExclusion(*pair)
    soft.addForce(repulsion)
    context = openmm.Context(soft, openmm.VerletIntegrator(0.001), platform, properties)
    context.setPositions(positions)
    openmm.LocalEnergyMinimizer.minimize(context, maxIterations=_ITERATIONS)
    return np.array(context.getState(positions=True).getPositions(asNumpy=True)._value)


def _exceptions(system: openmm.System) -> set[frozenset[int]]:
    nonbonded = next(force for force in system.getForces() if isinstance(force, openmm.NonbondedForce))
    return {
        frozenset(nonbonded.getExceptionParameters(index)[:2])
        for index in range(nonbonded.getNumExceptions())
    }
