"""One force alone in a Context, and copies of a model: what the tests of all restraints need."""

from __future__ import annotations

import numpy as np
import openmm
import pytest
from openmm import app

from openmm_density.models import Model

from ..contexts import context_of, energy_of, forces_of, system_of
from ..small_models import turned_about


def context_with(force: openmm.Force, count: int) -> openmm.Context:
    return context_of(system_of(count, force))


def energy_at(context: openmm.Context, positions: np.ndarray) -> float:
    """Return the energy in kJ/mol at positions in Å."""
    context.setPositions(positions / 10)
    return energy_of(context)


def assert_forces_are_the_gradient(
    force: openmm.Force, positions: np.ndarray, step: float = 2e-6, tolerance: float = 2e-6
) -> None:
    """Compare the six largest forces with central differences of the energy.

    ``step`` is in nm, ``tolerance`` a part of the largest force.
    """
    context = context_with(force, len(positions))
    assert energy_at(context, positions) > 1
    forces = forces_of(context)
    largest = np.abs(forces).max()
    for atom in np.argsort(-np.linalg.norm(forces, axis=1))[:6]:
        for axis in range(3):
            energies = {}
            for steps in (-2, -1, 1, 2):
                moved = positions.copy()
                moved[atom, axis] += 10 * steps * step
                energies[steps] = energy_at(context, moved)
            # Of fourth order, as beside a torsion that is nearly straight energies bend sharply.
            slope = (8 * (energies[1] - energies[-1]) - (energies[2] - energies[-2])) / (12 * step)
            assert forces[atom, axis] == pytest.approx(-slope, abs=tolerance * largest)


def turned_peptide(positions: np.ndarray, torsion: np.ndarray, angle: float) -> np.ndarray:
    """Turn everything after a peptide's C-N bond, which needs no ring or neighbour to be whole."""
    _, carbon, nitrogen, _ = torsion
    return turned_about(positions, carbon, nitrogen, np.arange(nitrogen + 1, len(positions)), angle)


def copies_of(model: Model, count: int) -> tuple[app.Topology, np.ndarray]:
    """Return copies of a model as chains A, B, C …, each turned and moved as a whole."""
    topology = app.Topology()
    places = []
    for number in range(count):
        chain = topology.addChain(chr(ord("A") + number))
        atoms = {}
        for residue in model.topology.residues():
            copy = topology.addResidue(residue.name, chain, residue.id, residue.insertionCode)
            for atom in residue.atoms():
                atoms[atom] = topology.addAtom(atom.name, atom.element, copy)
        for a, b in model.topology.bonds():
            topology.addBond(atoms[a], atoms[b])
        turn = np.linalg.qr(np.random.default_rng(number).normal(size=(3, 3)))[0]
        turn *= np.sign(np.linalg.det(turn))
        places.append(model.positions @ turn.T + 90.0 * number)
    return topology, np.concatenate(places)
