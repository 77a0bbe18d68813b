"""A stretch of a model and the atoms around it as a small System, in which many conformations of the stretch can be tried."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby

import numpy as np
import openmm
from openmm import app
from scipy.spatial import cKDTree

from ...chemistry.contacts import BONDS_APART, CLASH_OVERLAP, HYDROGEN_BOND_ALLOWANCE
from ...restraints import Restraint, make_restraints
from ...restraints.contacts import CONTACT_FORCE_CONSTANT, CONTACT_MARGIN
from ...units import ANGSTROM_PER_NANOMETER
from ..descent import descend
from ..stability import Safeguard, Unstable, hottest_bearable
from .bonded_terms import BondedTerms
from .density_model import DensityModel
from .molecule import Molecule

RESTRAINTS = ("cis", "chirality", "ramachandran")
"""Restraints on the atoms that move."""
SURROUNDINGS = 7.0
"""Å around the stretch within which atoms are present, fixed where they are."""

MINIMIZATION = 150
"""Iterations after which what is minimised is near enough to its minimum."""

# In ps: a seventh of the shortest period, as nothing is bound to hydrogens here.
_TIMESTEP = 0.003
# Iterations after which annealed atoms are cold.
_QUENCH = 60
# Steps of steepest descent before what became unstable is tried again.
_DESCENT = 50
# Factor of the repulsion where atoms may pass through each other.
_SOFT = 0.05
# Å: an atom with this radius is in no contact.
_NO_RADIUS = -100.0
# Å around the moving atoms that the tabulated map reaches, and its step in widths of the Gaussian that the map is blurred with.
_MARGIN, _VOXEL = 6.0, 0.8


class LocalSystem:
    """The heavy atoms of some residues, which move, among the fixed atoms around them.

    The energy is that of the force field's bonds, angles and torsions, a repulsion of atoms that are not bonded, and k (1 - S) of
    the density, linear in the integrals that the residues change: those of the map with each atom's Gaussian, and of each pair of
    atoms. Without hydrogens and charges a step takes a hundredth of the time of one of the whole model.

    Parameters
    ----------
    force_field : BondedTerms
        Of the whole model, without constraints.
    molecule : Molecule
        The whole model.
    density : DensityModel
        Of the same atoms.
    positions : np.ndarray, shape (N, 3)
        Å.
    residues : np.ndarray of int
        Those that move.
    threads : int
        Of the CPU platform.
    """

    def __init__(
        self,
        force_field: BondedTerms,
        molecule: Molecule,
        density: DensityModel,
        positions: np.ndarray,
        residues: np.ndarray,
        threads: int = 1,
    ) -> None:
        heavy, of_residues = molecule.is_heavy, np.isin(molecule.residue_of, residues)
        self.moving = np.flatnonzero(heavy & of_residues)
        near = cKDTree(positions[self.moving]).query(positions, distance_upper_bound=SURROUNDINGS)[0]
        members = np.flatnonzero(heavy & (np.isfinite(near) | of_residues))
        self._members = members
        self._moving_members = np.searchsorted(members, self.moving)
        place = np.full(len(heavy), -1)
        place[members] = np.arange(len(members))
        moves = np.zeros(len(members), dtype=bool)
        moves[self._moving_members] = True
        part, bonds = _local_topology(molecule, members, place)
        small = openmm.System()
        for mass in np.where(moves, force_field.masses[members], 0.0).tolist():
            small.addParticle(mass)
        for force in force_field.among(members, moves):
            small.addForce(force)
        self.restraints: list[Restraint] = make_restraints(RESTRAINTS, part, positions[members])
        for restraint in self.restraints:
            small.addForce(restraint.create_force())
        slopes = density.slopes(positions)
        # Metals are in no contact: their ligands are nearer, and the topology lacks those bonds.
        radii = np.where(molecule.is_metal[members], _NO_RADIUS, molecule.radii[members])
        small.addForce(_pairs(bonds, molecule.polar[members], density, members, radii, slopes.per_pair))
        small.addForce(_in_map(density, members, self._moving_members, positions, slopes.per_map))
        self._integrator = openmm.VerletIntegrator(_TIMESTEP)
        platform = openmm.Platform.getPlatformByName("CPU")
        self._context = openmm.Context(
            small, self._integrator, platform, {"Threads": str(threads), "DeterministicForces": "true"}
        )
        self._safeguard = Safeguard(part, small)

    def minimized(
        self, positions: np.ndarray, soft: bool = False, iterations: int = MINIMIZATION
    ) -> np.ndarray:
        """Return positions (N, 3) in Å with the residues near a minimum of the energy; soft, atoms may pass through each other.

        Raises
        ------
        Unstable
            If the minimisation becomes unstable, again after a descent in small steps.
        """
        return self.lowered(positions, soft, iterations)[1]

    def lowered(
        self, positions: np.ndarray, soft: bool = False, iterations: int = MINIMIZATION
    ) -> tuple[float, np.ndarray]:
        """Return the energy in kJ/mol after `minimized`, and the positions in Å.

        Raises
        ------
        Unstable
            If the minimisation becomes unstable, again after a descent in small steps.
        """
        self._set_positions(positions, _SOFT if soft else 1.0)
        attempts = (partial(self._minimize, iterations), partial(self._minimize_carefully, iterations))
        self._safeguard.run(self._context, attempts)
        return self._energy(), self._with_moved(positions)

    def annealed(
        self, positions: np.ndarray, temperatures: Sequence[float], steps: int, seed: int = 1
    ) -> np.ndarray:
        """Return the positions in Å after so many steps from each temperature in K, and a short minimisation.

        Velocities are drawn at each temperature and not coupled to it afterwards. Unlike Langevin's, this noise belongs to the
        call and not to the Context: the same arguments give the same positions, bit for bit, whatever was annealed before. In 0.4
        ps at each of four temperatures stretches come to rest about as low as with friction of 5/ps, and 30 kJ/mol higher where
        velocities are drawn twice as often.

        Raises
        ------
        Unstable
            If the dynamics becomes unstable, again with half the time step.
        """
        self._set_positions(positions, _SOFT)

        def anneal(timestep: float) -> None:
            self._integrator.setStepSize(timestep)
            for number, kelvin in enumerate(temperatures):
                self._context.setParameter("hardness", _SOFT ** (1 - (number + 1) / len(temperatures)))
                drawn = np.random.SeedSequence([seed, number]).generate_state(1)[0]
                self._context.setVelocitiesToTemperature(kelvin, 1 + int(drawn) % (2**31 - 2))
                self._integrator.step(steps)
            self._minimize(_QUENCH)

        def anneal_carefully() -> None:
            descend(self._context, _DESCENT)
            anneal(_TIMESTEP / 2)

        hottest = hottest_bearable(max(temperatures))
        self._safeguard.run(self._context, (lambda: anneal(_TIMESTEP), anneal_carefully), hottest)
        return self._with_moved(positions)

    def energy(self, positions: np.ndarray) -> float:
        """Return the energy in kJ/mol.

        Raises
        ------
        Unstable
            If it is not a number.
        """
        self._set_positions(positions, 1.0)
        return self._energy()

    def _energy(self) -> float:
        energy = self._context.getState(energy=True).getPotentialEnergy()._value
        if not np.isfinite(energy):
            raise Unstable("the energy is not a number")
        return energy

    def _set_positions(self, positions: np.ndarray, hardness: float) -> None:
        self._context.setPositions(positions[self._members] / ANGSTROM_PER_NANOMETER)
        self._context.setParameter("hardness", hardness)

    def _minimize(self, iterations: int) -> None:
        openmm.LocalEnergyMinimizer.minimize(self._context, maxIterations=iterations)

    def _minimize_carefully(self, iterations: int) -> None:
        descend(self._context, _DESCENT)
        self._minimize(iterations)

    def _with_moved(self, positions: np.ndarray) -> np.ndarray:
        """Return positions (Å) with the residues where the Context has them."""
        found = np.asarray(self._context.getState(positions=True).getPositions(asNumpy=True)._value)
        result = positions.copy()
        result[self.moving] = found[self._moving_members] * ANGSTROM_PER_NANOMETER
        return result


def _local_topology(
    molecule: Molecule, members: np.ndarray, place: np.ndarray
) -> tuple[app.Topology, list[tuple[int, int]]]:
    """Return the topology of some atoms, and its bonds, by their places among them."""
    part = app.Topology()
    made = []
    chosen = (molecule.atoms[index] for index in members)
    for chain, of_chain in groupby(chosen, lambda atom: atom.residue.chain):
        own_chain = part.addChain(chain.id)
        for residue, atoms in groupby(of_chain, lambda atom: atom.residue):
            own = part.addResidue(residue.name, own_chain, residue.id, residue.insertionCode)
            made += [part.addAtom(atom.name, atom.element, own) for atom in atoms]
    bonds = place[molecule.bonds]
    within = list(map(tuple, bonds[(bonds >= 0).all(axis=1)].tolist()))
    for a, b in within:
        part.addBond(made[a], made[b])
    return part, within


def _pairs(
    bonds: list[tuple[int, int]],
    polar: np.ndarray,
    density: DensityModel,
    members: np.ndarray,
    radii: np.ndarray,
    per_pair: float,
) -> openmm.CustomNonbondedForce:
    """Return the repulsion of atoms that are not bonded, and the overlaps of their densities."""
    width = density.sigma / ANGSTROM_PER_NANOMETER
    force = openmm.CustomNonbondedForce(
        "hardness*half*max(0, radius1 + radius2 - overlap - allowance*polar1*polar2 - r)^2"
        " + weight1*weight2*overlapping*exp(-r^2/width)"
    )
    force.addGlobalParameter("hardness", 1.0)
    force.addGlobalParameter("half", 0.5 * CONTACT_FORCE_CONSTANT)
    force.addGlobalParameter("overlap", (CLASH_OVERLAP - CONTACT_MARGIN) / ANGSTROM_PER_NANOMETER)
    force.addGlobalParameter("allowance", HYDROGEN_BOND_ALLOWANCE / ANGSTROM_PER_NANOMETER)
    force.addGlobalParameter("width", 4 * width**2)
    force.addGlobalParameter("overlapping", per_pair)
    for name in ("radius", "polar", "weight"):
        force.addPerParticleParameter(name)
    for index, is_polar, radius in zip(members, polar, (radii / ANGSTROM_PER_NANOMETER).tolist()):
        force.addParticle([radius, float(is_polar), density.weights[index]])
    force.createExclusionsFromBonds(bonds, BONDS_APART)
    force.setNonbondedMethod(openmm.CustomNonbondedForce.CutoffNonPeriodic)
    force.setCutoffDistance(max(5.5 * width, 0.4))
    return force


def _in_map(
    density: DensityModel,
    members: np.ndarray,
    moving: np.ndarray,
    positions: np.ndarray,
    per_map: float,
) -> openmm.CustomExternalForce:
    """Return the integral of the map with each atom's Gaussian."""
    places = positions[members[moving]]
    low, high = places.min(axis=0) - _MARGIN, places.max(axis=0) + _MARGIN
    counts = np.ceil((high - low) / (_VOXEL * np.sqrt(2) * density.sigma)).astype(int) + 1
    axes = [np.linspace(a, b, n) for a, b, n in zip(low, high, counts)]
    values = density.map_integral(np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1))
    bounds = np.stack([low, high], axis=1).ravel() / ANGSTROM_PER_NANOMETER
    function = openmm.Continuous3DFunction(*counts.tolist(), values.ravel(order="F"), *bounds.tolist())
    # Beyond the table the function is 0, and so is its force.
    force = openmm.CustomCompoundBondForce(1, "slope*weight*map(x1, y1, z1)")
    force.addTabulatedFunction("map", function)
    force.addGlobalParameter("slope", -per_map)
    force.addPerBondParameter("weight")
    for index in moving.tolist():
        if weight := float(density.weights[members[index]]):
            force.addBond([index], [weight])
    return force
