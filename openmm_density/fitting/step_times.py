"""What each force of a step takes."""

from __future__ import annotations

import time

import numpy as np
import openmm

from .platforms import make_context

FORCES = {
    "NonbondedForce": "nonbonded",
    "CustomNonbondedForce": "nonbonded",
    "GBSAOBCForce": "solvent",
    "CustomGBForce": "solvent",
    "HarmonicBondForce": "bonds",
    "HarmonicAngleForce": "angles",
    "PeriodicTorsionForce": "torsions",
    "RBTorsionForce": "torsions",
    "CMAPTorsionForce": "torsions",
    "CustomTorsionForce": "torsions",
    "RamachandranRestraint": "Ramachandran",
    "PlanarityRestraint": "planarity",
    "DensityFit": "density",
}
"""What forces are called in messages, by their names in a System; others are the rest."""
REST = "rest"

_EVALUATIONS = 10
# Of OpenMM, which has so many; the last has no force here.
_GROUPS = 32


def milliseconds_by_force(
    system: openmm.System, context: openmm.Context, platform: tuple[openmm.Platform, dict[str, str]]
) -> dict[str, float]:
    """Return the milliseconds that an evaluation of each kind of force takes, those of none deducted; the longest first."""
    kinds = sorted({_kind(force) for force in system.getForces()})
    for force in system.getForces():
        force.setForceGroup(kinds.index(_kind(force)))
    timed = make_context(system, openmm.VerletIntegrator(0.001), platform)
    timed.setState(context.getState(positions=True, parameters=True))
    nothing = _milliseconds(timed, _GROUPS - 1)
    found = {kind: max(_milliseconds(timed, group) - nothing, 0.0) for group, kind in enumerate(kinds)}
    return dict(sorted(found.items(), key=lambda each: (each[0] == REST, -each[1])))


def _kind(force: openmm.Force) -> str:
    return FORCES.get(force.getName(), REST)


def _milliseconds(context: openmm.Context, group: int) -> float:
    """Return the median time of evaluating one force group."""
    ticks = []
    for _ in range(_EVALUATIONS + 2):  # the first ones allocate, compile or record
        ticks.append(time.perf_counter())
        context.getState(forces=True, groups={group})
    return 1000 * float(np.median(np.diff(ticks[1:])))
