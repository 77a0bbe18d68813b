"""A potential of OpenMM-ML, by its name, as the energy of a ligand in a fit."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import gemmi
import numpy as np
import openmm
from openmm import app

from ...base.errors import InputError, as_argument
from ...base.units import ANGSTROM_PER_NANOMETER
from ...base.wording import listing, one_line
from ...models.ligand_potentials import OPENMM_ML
from ..distillation import LARGEST_BOUND, Ligand

INSTALL = "conda install -c conda-forge openmm-ml (or pip install openmmml, for the OpenMM that it asks for)"
# Iterations in which a conformer comes to rest.
_RESTING = 500
_NM_PER_ANGSTROM = 1 / ANGSTROM_PER_NANOMETER


def check_known(ligand_forcefield: str) -> None:
    """Refuse a potential that OpenMM-ML does not know, or where it is not installed."""
    asked, name = as_argument("ligand_forcefield", ligand_forcefield), _name_in(ligand_forcefield)
    known = _machine_learning(asked)._implFactories
    if name not in known:
        raise InputError(
            "must name a potential of OpenMM-ML",
            argument="ligand_forcefield",
            found=ligand_forcefield,
            remedy=f"use {OPENMM_ML} and one of {listing(sorted(known))}",
        )


@dataclass(frozen=True, eq=False)
class OpenMMMLEnergy:
    """A ligand's energy by OpenMM-ML, as `openmm_density.models.prepare` takes it among its ``ligand_potentials``."""

    ligand: Ligand  # Its ``positions`` are those of the conformer at rest
    # (n,), of the atoms, for the Coulomb interaction with what is around it, in elementary charges
    charges: np.ndarray
    name: str  # That OpenMM-ML knows the potential by, as in ``ani2x``
    path = None
    bound = LARGEST_BOUND

    @property
    def version(self) -> str:
        """What it is, as in ``OpenMM-ML 1.8, ani2x``."""
        return f"OpenMM-ML {_version()}, {self.name}".replace("  ", " ")

    @property
    def sha256(self) -> str:
        """Of that: a fit is not continued with another potential."""
        return hashlib.sha256(f"{self.version} {self.smiles}".encode()).hexdigest()

    @cached_property
    def elements(self) -> tuple[str, ...]:
        """Symbols of its atoms."""
        return tuple(gemmi.Element(number).name for number in self.ligand.elements)

    @property
    def bonds(self) -> tuple[tuple[int, int], ...]:
        """Its bonds, as pairs of atoms."""
        return tuple((i, j) for i, j, _ in self.ligand.bonds)

    @property
    def positions(self) -> np.ndarray:
        """The conformer at rest, shape (n, 3), in Å."""
        return self.ligand.positions * ANGSTROM_PER_NANOMETER

    @property
    def smiles(self) -> str:
        """What it is."""
        return self.ligand.smiles

    def create_force(self, particles: np.ndarray, n_particles: int, parameter_name: str) -> openmm.Force:
        """Build the force of one copy; see `openmm_density.models.ligand_potentials.InternalPotential`."""
        forces = _forces(self.ligand, self.name, [int(each) for each in particles], n_particles)
        names = [f"energy{k}" for k in range(len(forces))]
        # OpenMM-ML's own way to multiply its forces by a parameter.
        whole = openmm.CustomCVForce(f"{parameter_name}*({' + '.join(names)})")
        whole.addGlobalParameter(parameter_name, 1.0)
        for name, force in zip(names, forces):
            whole.addCollectiveVariable(name, force)
        return whole

    def energy(self, positions: np.ndarray) -> float:
        """Return the energy in kJ/mol above that of the conformer at rest, of positions (n, 3) in nm."""
        return _energy(self._context, positions) - self._rest

    def disagreement(self, positions: np.ndarray) -> float:
        """Return 0: there is one model, and it tells nothing of what it knows."""
        return 0.0

    @cached_property
    def _context(self) -> openmm.Context:
        return _context_of(self.ligand, self.name)

    @cached_property
    def _rest(self) -> float:
        return _energy(self._context, self.ligand.positions)


def openmm_ml_energy(ligand: Ligand, ligand_forcefield: str, charges: np.ndarray) -> OpenMMMLEnergy:
    """Build the energy of a molecule, whose geometry is brought to rest by it."""
    name = _name_in(ligand_forcefield)
    try:
        context = _context_of(ligand, name)
        context.setPositions(ligand.positions)
        openmm.LocalEnergyMinimizer.minimize(context, maxIterations=_RESTING)
        rest = np.array(context.getState(positions=True).getPositions(asNumpy=True)._value)
    except InputError:
        raise
    except Exception as error:  # whatever the potential and what it is built on raise
        raise InputError(
            f"OpenMM-ML's {name} cannot describe it ({one_line(error)})",
            source=ligand.smiles,
            remedy=f"use another one, or {as_argument('ligand_forcefield', 'xtb')}",
        ) from None
    at_rest = Ligand(ligand.elements, ligand.bonds, ligand.charge, ligand.smiles, rest, ligand.names)
    return OpenMMMLEnergy(at_rest, charges, name)


def _name_in(ligand_forcefield: str) -> str:
    return ligand_forcefield.removeprefix(OPENMM_ML)


def _machine_learning(asked: str) -> Any:
    """Return OpenMM-ML's class of potentials."""
    try:
        return import_module("openmmml").MLPotential
    except (ImportError, AttributeError, OSError) as error:
        raise InputError(f"{asked} needs OpenMM-ML ({one_line(error)})", remedy=INSTALL) from None


def _version() -> str:
    try:
        return version("openmmml")
    except PackageNotFoundError:
        return ""


def _forces(ligand: Ligand, name: str, particles: list[int], n_particles: int) -> list[openmm.Force]:
    """Return the forces that OpenMM-ML adds for some particles of a System, which belong to nobody."""
    potential = _machine_learning(as_argument("ligand_forcefield", OPENMM_ML + name))(name)
    topology, system = app.Topology(), openmm.System()
    residue = topology.addResidue("LIG", topology.addChain())
    numbers = dict(zip(particles, ligand.elements))
    for k in range(n_particles):
        element = app.Element.getByAtomicNumber(numbers[k]) if k in numbers else None
        topology.addAtom(f"A{k}", element, residue)
        system.addParticle(1.0)
    # Potentials that do not know of charges take any argument.
    options = {"charge": ligand.charge} if ligand.charge else {}
    own = particles if len(particles) < n_particles else None
    potential._impl.addForces(topology, system, own, 0, **options)
    return [openmm.XmlSerializer.clone(force) for force in system.getForces()]


def _context_of(ligand: Ligand, name: str) -> openmm.Context:
    """Return a Context of the molecule alone."""
    n = len(ligand)
    system = openmm.System()
    for number in ligand.elements:
        system.addParticle(app.Element.getByAtomicNumber(number).mass)
    for force in _forces(ligand, name, list(range(n)), n):
        system.addForce(force)
    platform = openmm.Platform.getPlatformByName("Reference")
    return openmm.Context(system, openmm.VerletIntegrator(0.001), platform)


def _energy(context: openmm.Context, positions: np.ndarray) -> float:
    context.setPositions(positions)
    return context.getState(energy=True).getPotentialEnergy()._value
