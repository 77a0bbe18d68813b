"""Steepest descent in steps that no atom exceeds: from where forces are too large for anything else."""

from __future__ import annotations

import numpy as np
import openmm
from openmm import unit

from ..models.merging import masses_of
from .interrupts import Stop

LONGEST_MOVE = 0.01
"""nm that an atom moves in one step: a tenth of a bond."""
# As in the minimiser "steep" of GROMACS (reference manual, Energy Minimization).
_LONGER, _SHORTER = 1.2, 0.2
_SHORTEST_MOVE = 1.0e-6
_CONSTRAINT_TOLERANCE = 1.0e-5


def descend(context: openmm.Context, steps: int, stop: Stop | None = None) -> None:
    """Move a Context's atoms down their forces, in steps in which none moves farther than `LONGEST_MOVE`.

    A step that does not lower the energy is undone and shortened, others lengthen the next; atoms without mass stay. The
    energy never rises, and each step costs one evaluation of energy and forces.
    """
    system = context.getSystem()
    moves = masses_of(system) > 0
    constrained = system.getNumConstraints() > 0
    length = LONGEST_MOVE
    positions, energy, forces = energy_and_forces(context)
    for _ in range(steps):
        forces = np.where(moves[:, None] & np.isfinite(forces), forces, 0.0)
        largest = np.linalg.norm(forces, axis=1).max(initial=0.0)
        if largest == 0.0 or length < _SHORTEST_MOVE or (stop is not None and stop.requested):
            break
        context.setPositions(positions + forces * (length / largest))
        context.computeVirtualSites()
        if constrained:
            context.applyConstraints(_CONSTRAINT_TOLERANCE)
        tried = energy_and_forces(context)
        # From where the energy is no number, anywhere is better.
        if np.isfinite(tried[0]).all() and (tried[1] < energy or not np.isfinite(energy)):
            positions, energy, forces = tried
            length = min(_LONGER * length, LONGEST_MOVE)
        else:
            length *= _SHORTER
    context.setPositions(positions)


def energy_and_forces(context: openmm.Context) -> tuple[np.ndarray, float, np.ndarray]:
    """Return positions in nm, the energy in kJ/mol and forces in kJ/mol/nm."""
    state = context.getState(positions=True, energy=True, forces=True)
    return (
        np.array(state.getPositions(asNumpy=True).value_in_unit(unit.nanometer)),
        state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole),
        np.array(state.getForces(asNumpy=True).value_in_unit(unit.kilojoule_per_mole / unit.nanometer)),
    )
