"""Minimisation by L-BFGS that begins with what is known of the stiffness: it takes a fifth of the evaluations.

L-BFGS learns from its steps how stiff a model is in which direction. That of bonds, angles, planes and contacts is known before,
as a sparse matrix that is quick to factor (Mones, Ortner and Csányi, Sci. Rep. 2018, 8, 13991).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
import openmm
from scipy.sparse import csr_array, eye_array, vstack
from scipy.sparse.linalg import splu

from ..base.units import ANGSTROM_PER_NANOMETER
from ..models.chemistry.monomers.terms import IdealTerms
from ..models.merging import masses_of, terms_of
from ..restraints import IdealGeometryRestraint
from ..restraints.contacts import ContactRestraint
from .descent import energy_and_forces
from .interrupts import Stop

REST_OF_STIFFNESS = 3.0e5
"""kJ/mol/nm² that every atom has beside, of contacts, torsions and density: with a third of it, or three times as much, it takes
as long."""
ANGLE_WEIGHT = 2.5
"""Times by which angles are stiffer than by ideal geometry alone, about, see `final_geometry`."""
LONGEST_MOVE = 0.03
"""nm that an atom moves in one step."""
NEARLY = 0.05
"""Å by which pairs may be farther apart than contacts let them, and count."""
REFACTORED = 25
"""Iterations after which contacts are found anew: other atoms meet."""
FALL = 0.005
"""kJ/mol for each atom by which the energy has to fall in `LOOK_BACK` iterations for a minimisation to go on."""
LOOK_BACK = 10
# Steps that L-BFGS remembers; part of the predicted fall that a step has to reach, and the shortest one, of what is proposed.
_MEMORY, _SUFFICIENT, _SHORTEST = 10, 1e-4, 1e-4
_DIFFERENCE = 1e-4  # Å, of derivatives


class Stiffness:
    """What is stiff in a System without constraints: its bonds and angles, and the restraints `ideal` and `contacts` in it."""

    def __init__(
        self, system: openmm.System, ideal: IdealGeometryRestraint, contacts: ContactRestraint
    ) -> None:
        self._moves = masses_of(system) > 0
        sigmas = np.full(contacts.n_terms, ANGSTROM_PER_NANOMETER / np.sqrt(contacts.force_constant))
        self._contacts = IdealTerms(contacts.pairs, contacts.lengths, sigmas)
        terms = ideal.terms
        weights = (terms.bonds, ideal.force_constant), (terms.angles, ANGLE_WEIGHT * ideal.force_constant)
        self._terms = [*_springs(system), *(_weighted(*each) for each in weights)]
        self._planes = [
            (atoms, np.sqrt(ideal.force_constant) / sigmas.reshape(len(atoms), -1))
            for atoms, sigmas in terms.planes.grouped()
        ]

    def held(self, positions: np.ndarray) -> csr_array:
        """Return the stiffness (3N, 3N) in kJ/mol/nm² of all but contacts, at positions (N, 3) in nm."""
        size = positions.size
        places = positions * ANGSTROM_PER_NANOMETER
        rows = [_as_rows(terms.atoms, _derivatives(terms, places), size) for terms in self._terms]
        for atoms, scale in self._planes:
            apart = places[atoms] - places[atoms].mean(axis=1, keepdims=True)
            normals = np.linalg.svd(apart)[2][:, None, None, 2]
            count = atoms.shape[1]
            # Of each atom, its distance from the plane through the centroid.
            distances = (np.eye(count) - 1.0 / count)[..., None] * normals * scale[:, :, None, None]
            members = np.repeat(atoms[:, None], count, axis=1).reshape(-1, count)
            rows.append(_as_rows(members, distances.reshape(len(members), -1), size))
        return _squared(vstack(rows)) + REST_OF_STIFFNESS * eye_array(size)

    def factored(self, held: csr_array, positions: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return what solves for displacements (3N,) in nm with forces in kJ/mol/nm, with contacts at positions (N, 3) in nm."""
        places = positions * ANGSTROM_PER_NANOMETER
        near = self._contacts.where(self._contacts.measured(places) < self._contacts.values + NEARLY)
        matrix = held + _squared(_as_rows(near.atoms, _derivatives(near, places), positions.size))
        ordered = {
            "permc_spec": "MMD_AT_PLUS_A",
            "diag_pivot_thresh": 0.0,
            "options": {"SymmetricMode": True},
        }
        solve, moves = splu(matrix.tocsc(), **ordered).solve, np.repeat(self._moves, 3)
        return lambda forces: np.where(moves, solve(np.where(moves, forces, 0.0)), 0.0)


def _springs(system: openmm.System) -> list[IdealTerms]:
    """Return the harmonic bonds and angles of a System, each in units of the deviation that costs half a kJ/mol."""
    found = []
    for force in system.getForces():
        for kind, size, scale in (("Bond", 2, ANGSTROM_PER_NANOMETER), ("Angle", 3, 1.0)):
            if force.getName() == f"Harmonic{kind}Force":
                atoms, values = terms_of(force, kind, size)
                held = values[:, 1] > 0
                sigmas = scale / np.sqrt(values[held, 1])
                found.append(IdealTerms(atoms[held], scale * values[held, 0], sigmas))
    return found


def _weighted(terms: IdealTerms, force_constant: float) -> IdealTerms:
    return IdealTerms(terms.atoms, terms.values, terms.sigmas / np.sqrt(force_constant))


def _derivatives(terms: IdealTerms, positions: np.ndarray) -> np.ndarray:
    """Return the derivatives of deviations in standard deviations by the positions of their own atoms in Å, shape (T, 3n)."""
    count, size = terms.atoms.shape
    apart = IdealTerms(np.arange(count * size).reshape(count, size), terms.values, terms.sigmas)
    places = positions[terms.atoms].reshape(count, 3 * size)
    found = np.empty_like(places)
    for column in range(3 * size):
        z = []
        for sign in (1.0, -1.0):
            moved = places.copy()
            moved[:, column] += sign * _DIFFERENCE
            z.append(apart.z(moved.reshape(-1, 3)))
        found[:, column] = (z[0] - z[1]) / (2 * _DIFFERENCE)
    return np.nan_to_num(found)


def _squared(derivatives: csr_array) -> csr_array:
    """Return the matrix in 1/nm² of the sum of squares whose derivatives by positions in Å these are, half of it."""
    return ANGSTROM_PER_NANOMETER**2 * (derivatives.T @ derivatives)


def _as_rows(atoms: np.ndarray, derivatives: np.ndarray, size: int) -> csr_array:
    columns = (3 * atoms[:, :, None] + np.arange(3)).reshape(len(atoms), 3 * atoms.shape[1])
    begins = np.arange(len(atoms) + 1) * columns.shape[1]
    return csr_array((derivatives.ravel(), columns.ravel(), begins), shape=(len(atoms), size))


def minimize(
    context: openmm.Context, stiffness: Stiffness, iterations: int, stop: Stop | None = None
) -> None:
    """Minimise a Context of a System without constraints, until its energy hardly falls, or a request to stop.

    The energy never rises; atoms without mass stay. Each iteration costs one evaluation of energy and forces, seldom two.
    """
    positions, energy, forces = energy_and_forces(context)
    held = stiffness.held(positions)
    solve = stiffness.factored(held, positions)
    changes: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=_MEMORY)
    energies = [energy]
    for number in range(iterations):
        if number and number % REFACTORED == 0:
            solve = stiffness.factored(held, positions)
        if stop is not None and stop.requested:
            break
        step = _proposed(forces.ravel(), changes, solve).reshape(-1, 3)
        part = min(1.0, LONGEST_MOVE / max(np.linalg.norm(step, axis=1).max(initial=0.0), 1e-30))
        slope = float((forces * step).sum())
        while part > _SHORTEST:
            context.setPositions(positions + part * step)
            context.computeVirtualSites()
            there, reached, pull = energy_and_forces(context)
            if reached <= energy - _SUFFICIENT * part * slope:
                break
            part *= 0.4 if np.isfinite(reached) else 0.1
        else:
            break
        moved, turned = (there - positions).ravel(), (forces - pull).ravel()
        if moved @ turned > 0:
            changes.append((moved, turned))
        positions, energy, forces = there, reached, pull
        energies.append(energy)
        if len(energies) > LOOK_BACK and energies[-1 - LOOK_BACK] - energy < FALL * len(positions):
            break
    context.setPositions(positions)


def _proposed(
    forces: np.ndarray,
    changes: deque[tuple[np.ndarray, np.ndarray]],
    solve: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """Return the step down by the two loops of L-BFGS (Nocedal 1980); `changes` of positions, and of forces with their sign."""
    step, parts = forces.copy(), []
    for moved, turned in reversed(changes):
        parts.append((moved @ step) / (moved @ turned))
        step -= parts[-1] * turned
    step = solve(step)
    for (moved, turned), part in zip(changes, reversed(parts)):
        step += (part - (turned @ step) / (moved @ turned)) * moved
    return step
