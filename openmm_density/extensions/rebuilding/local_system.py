"""A stretch of a model and the atoms around it as a small System, in which many conformations of the stretch can be tried."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import openmm
from openmm import app
from scipy.spatial import cKDTree

from ...base.units import ANGSTROM_PER_NANOMETER
from ...fitting.descent import descend
from ...fitting.stability import Safeguard, Unstable, hottest_bearable
from ...models.chemistry.topologies import bonded_pairs, part_of_topology
from ...restraints import Restraint, make_restraints
from . import local_forces
from .annealing import QUENCH, SOFT, TIMESTEP, hardness_at, seed_of
from .bonded_terms import BondedTerms
from .compiled_dynamics import CompiledDynamics
from .density_model import DensityModel
from .local_terms import LocalAtoms, local_terms
from .molecule import Molecule

RESTRAINTS = ("cis", "chirality", "ramachandran")
"""Restraints on the atoms that move."""
SURROUNDINGS = 7.0
"""Å around the stretch within which atoms are present, fixed where they are."""

MINIMIZATION = 150
"""Iterations after which what is minimised is near enough to its minimum."""


class LocalSystem:
    """The heavy atoms of some residues, which move, among the fixed atoms around them.

    The energy is that of the force field's bonds, angles and torsions, a repulsion of atoms that are not bonded, and k (1 - S) of
    the density, linear in the integrals that the residues change: those of the map with each atom's Gaussian, and of each pair of
    atoms. Without hydrogens and charges a step takes a hundredth of the time of one of the whole model.

    `force_field` of the whole model, without constraints. `molecule`: the whole model. `density` of the same atoms.
    `positions` (N, 3) in Å. `residues` int: those that move. `compiled`: whether it is computed by a kernel where that has
    the terms of the force field; else by OpenMM. Raises BuildError if the kernel cannot be compiled; `kernel_serves` finds
    it out before.
    """

    def __init__(
        self,
        force_field: BondedTerms,
        molecule: Molecule,
        density: DensityModel,
        positions: np.ndarray,
        residues: np.ndarray,
        compiled: bool = True,
    ) -> None:
        heavy, of_residues = molecule.is_heavy, np.isin(molecule.residue_of, residues)
        self.moving = np.flatnonzero(heavy & of_residues)
        near = cKDTree(positions[self.moving]).query(positions, distance_upper_bound=SURROUNDINGS)[0]
        self._members = np.flatnonzero(heavy & (np.isfinite(near) | of_residues))
        self._moving_members = np.searchsorted(self._members, self.moving)
        place = np.full(len(heavy), -1)
        place[self._members] = np.arange(len(self._members))
        part = part_of_topology(molecule.topology, self._members, molecule.bonds)
        bonds = list(map(tuple, bonded_pairs(part).tolist()))
        self.restraints: list[Restraint] = make_restraints(RESTRAINTS, part, positions[self._members])
        surroundings = LocalAtoms(
            force_field,
            molecule,
            density,
            positions,
            self._members,
            self._moving_members,
            bonds,
            self.restraints,
        )
        terms = local_terms(surroundings) if compiled else None
        self._dynamics = (
            LocalContext(part, local_forces.system(surroundings))
            if terms is None
            else CompiledDynamics(terms, surroundings.order)
        )

    def minimized(
        self, positions: np.ndarray, soft: bool = False, iterations: int = MINIMIZATION
    ) -> np.ndarray:
        """Return positions (N, 3) in Å with the residues near a minimum; soft, atoms may pass through each other."""
        return self.lowered(positions, soft, iterations)[1]

    def lowered(
        self, positions: np.ndarray, soft: bool = False, iterations: int = MINIMIZATION
    ) -> tuple[float, np.ndarray]:
        """Return the energy in kJ/mol after `minimized`, and the positions in Å."""
        energy, found = self._dynamics.lowered(self._of_members(positions), SOFT if soft else 1.0, iterations)
        return energy, self._with_moved(positions, found)

    def annealed(
        self, positions: np.ndarray, temperatures: Sequence[float], steps: int, seed: int = 1
    ) -> np.ndarray:
        """Return the positions in Å after so many steps from each temperature in K, and a short minimisation.

        Velocities are drawn at each temperature and not coupled to it afterwards. Unlike Langevin's, this noise belongs to the
        call and not to what computes it: the same arguments give the same positions, bit for bit, whatever was annealed before.
        In 0.4 ps at each of four temperatures stretches come to rest about as low as with friction of 5/ps, and 30 kJ/mol higher
        where velocities are drawn twice as often.
        """
        found = self._dynamics.annealed(self._of_members(positions), temperatures, steps, seed)
        return self._with_moved(positions, found)

    def energy(self, positions: np.ndarray) -> float:
        """Return the energy in kJ/mol, up to a constant: that of the atoms that do not move."""
        return self._dynamics.energy(self._of_members(positions))

    def _of_members(self, positions: np.ndarray) -> np.ndarray:
        return positions[self._members] / ANGSTROM_PER_NANOMETER

    def _with_moved(self, positions: np.ndarray, found: np.ndarray) -> np.ndarray:
        """Return positions (Å) with the residues where the members (nm) have them."""
        result = positions.copy()
        result[self.moving] = found[self._moving_members] * ANGSTROM_PER_NANOMETER
        return result


# Steps of steepest descent before what became unstable is tried again.
_DESCENT = 50


class LocalContext:
    """A System of some atoms on OpenMM's CPU platform.

    Positions are arrays of shape (M, 3) in nm.

    `topology`: names the atoms where something blows up; `system` with the parameter "hardness".
    """

    def __init__(self, topology: app.Topology, system: openmm.System) -> None:
        self._integrator = openmm.VerletIntegrator(TIMESTEP)
        platform = openmm.Platform.getPlatformByName("CPU")
        properties = {"Threads": "1", "DeterministicForces": "true"}
        self._context = openmm.Context(system, self._integrator, platform, properties)
        self._safeguard = Safeguard(topology, system)

    def lowered(self, positions: np.ndarray, hardness: float, iterations: int) -> tuple[float, np.ndarray]:
        """Return the energy in kJ/mol after so many iterations of a minimisation, and the positions."""
        self._set_positions(positions, hardness)
        attempts = (partial(self._minimize, iterations), partial(self._minimize_carefully, iterations))
        self._safeguard.run(self._context, attempts)
        return self._energy(), self._positions()

    def annealed(
        self, positions: np.ndarray, temperatures: Sequence[float], steps: int, seed: int = 1
    ) -> np.ndarray:
        """Return the positions after so many steps from each temperature in K, and a short minimisation."""
        self._set_positions(positions, SOFT)

        def anneal(timestep: float) -> None:
            self._integrator.setStepSize(timestep)
            for number, kelvin in enumerate(temperatures):
                self._context.setParameter("hardness", hardness_at(number, len(temperatures)))
                self._context.setVelocitiesToTemperature(kelvin, seed_of(seed, number))
                self._integrator.step(steps)
            self._minimize(QUENCH)

        def anneal_carefully() -> None:
            descend(self._context, _DESCENT)
            anneal(TIMESTEP / 2)

        hottest = hottest_bearable(max(temperatures))
        self._safeguard.run(self._context, (lambda: anneal(TIMESTEP), anneal_carefully), hottest)
        return self._positions()

    def energy(self, positions: np.ndarray) -> float:
        """Return the energy in kJ/mol."""
        self._set_positions(positions, 1.0)
        return self._energy()

    def _energy(self) -> float:
        energy = self._context.getState(energy=True).getPotentialEnergy()._value
        if not np.isfinite(energy):
            raise Unstable("the energy is not a number")
        return energy

    def _positions(self) -> np.ndarray:
        return np.asarray(self._context.getState(positions=True).getPositions(asNumpy=True)._value)

    def _set_positions(self, positions: np.ndarray, hardness: float) -> None:
        self._context.setPositions(positions)
        self._context.setParameter("hardness", hardness)

    def _minimize(self, iterations: int) -> None:
        openmm.LocalEnergyMinimizer.minimize(self._context, maxIterations=iterations)

    def _minimize_carefully(self, iterations: int) -> None:
        descend(self._context, _DESCENT)
        self._minimize(iterations)
