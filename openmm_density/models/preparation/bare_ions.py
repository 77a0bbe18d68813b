"""Ions without the water around them: in a model without it, their charge would draw them onto what they see through water."""

from __future__ import annotations

import numpy as np
import openmm
from openmm import app
from scipy.spatial import cKDTree

from ..bonds import COORDINATING, METAL_BOND_SLACK
from ..chemistry.elements import covalent_radius, is_metal

WHOLE_SHELL = 4
"""Atoms that a metal ion has around it at least."""
_REACH = 3.6


def bare_ions(topology: app.Topology, positions: np.ndarray) -> dict[int, list[int]]:
    """Return the single metal ions with fewer than `WHOLE_SHELL` atoms near enough to be bound to them, and these atoms.

    Parameters
    ----------
    positions : np.ndarray, shape (N, 3)
        Å.
    """
    atoms = list(topology.atoms())
    ions = [
        atom.index
        for residue in topology.residues()
        if len(residue) == 1
        for atom in residue.atoms()
        if is_metal(atom)
    ]
    if not ions:
        return {}
    found = {}
    for ion, near in zip(ions, cKDTree(positions).query_ball_point(positions[ions], _REACH)):
        shell = [
            k
            for k in near
            if atoms[k].element is not None
            and atoms[k].element.symbol in COORDINATING
            and np.linalg.norm(positions[k] - positions[ion])
            < covalent_radius(atoms[k]) + covalent_radius(atoms[ion]) + METAL_BOND_SLACK
        ]
        if len(shell) < WHOLE_SHELL:
            found[ion] = sorted(shell)
    return found


def discharge(system: openmm.System, ions: list[int]) -> None:
    """Take the charge of ions, in implicit solvent as well."""
    for force in system.getForces():
        if isinstance(force, (openmm.NonbondedForce, openmm.GBSAOBCForce)):
            for ion in ions:
                _, *others = force.getParticleParameters(ion)
                force.setParticleParameters(ion, 0.0, *others)
        elif isinstance(force, openmm.CustomGBForce):
            names = [force.getPerParticleParameterName(k) for k in range(force.getNumPerParticleParameters())]
            for ion in ions:
                values = force.getParticleParameters(ion)
                kept = [0.0 if name == "charge" else value for name, value in zip(names, values)]
                force.setParticleParameters(ion, kept)
