"""`PlanarityRestraint`: the flat groups of a model as a force that holds them flat."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from typing import Any

import mdtraj
import numpy as np
import openmm
import torch
from openmm import unit
from openmm.app import Topology

from openmm_density.kernels.planarity import pack_planes

from ..chemistry.planes import PlaneSet, find_planes
from ..chemistry.planes.report import group_label
from ..errors import InputError
from ..units import ANGSTROM_PER_NANOMETER, value_in
from ..wording import listing
from . import forces
from .modules import PlanarityEnergy, WholePlanes
from .molecules import molecule_numbers
from .topologies import check_system

SIGMA = 0.02
"""Å; how far atoms of flat groups are from their planes in restraint dictionaries (REFMAC, AceDRG)."""
TEMPERATURE = 300.0

_MOST_NAMED = 10


class PlanarityRestraint:
    """Hold every flat group of a model flat.

    The energy is kT times the negative log likelihood of the distances d of the atoms from the best plane of their group,

        E = strength · kT · Σ ½ (d/σ)²,

    see `openmm_density.kernels.planarity`; its forces are the exact gradient. No plane has a net force or a net torque.

    At σ = 0.02 Å and 300 K an atom is held at right angles to its plane with 6.2·10⁵ kJ/mol/nm², twice as stiffly as by a bond: a
    hydrogen of 1 Da oscillates in 8 fs, one of 3 Da in 14 fs. `stable_timestep` says what a System then bears.

    **Periodic Systems.** OpenMM wraps whole molecules into the box, so the atoms of a plane stay together, and no box is needed,
    where they belong to one molecule. They do not where the System has fewer bonds than the plane's chemistry: that of a
    machine-learned potential, or of a chain whose residues are close but not bonded. Every atom is then taken at its image
    beside its plane's first one. OpenMM knows molecules by bonds and constraints, of which ``system`` tells; without it the
    bonds of the topology are taken to be those of the System.

    Parameters
    ----------
    topology : openmm.app.Topology or mdtraj.Topology
        Of all particles of the System.
    sigma : float or Quantity
        σ in Å of every plane to which no dictionary gives one.
    positions : Quantity or array_like (N, 3), optional
        In Å without a unit. They serve to find the planes, see `chemistry.planes.find_planes`, and are not needed where the
        topology has all bonds and a dictionary tells of each ligand.
    dictionaries : path or sequence of paths
        CCP4/REFMAC or AceDRG restraint dictionaries or wwPDB component files, for ligands.
    temperature : float or Quantity
        In K, of the kT in the energy.
    strength : float
        The factor that new Contexts start with.
    parameter_name : str
        The Context parameter that holds it.
    force_group : int
        The force group of the force.
    system : openmm.System, optional
        Tells whether the System is periodic, and its molecules.
    periodic : bool, optional
        Whether the System is periodic; by default what ``system`` says, else whether the topology has a box.
    constants : bool
        Whether the energy also holds kT · Σ (ln σ + ½ ln 2π), with σ in nm. Without them a flat model has no energy.

    Attributes
    ----------
    planes : PlaneSet
        What is held flat, and what could not be (``planes.dropped``, ``planes.undetermined``).
    thermal_energy : float
        kT in kJ/mol.
    default_strength : float
    periodic : bool
        Whether the force needs the box: the System is periodic and a plane has atoms in several molecules.
    notes : list of str
        A sentence on each thing that is not held flat.

    Raises
    ------
    InputError
        One sentence naming the argument, what was found and what to do.

    Warns
    -----
    UserWarning
        Where residues may have planes that nothing given here tells, or where there are no planes at all.
    """

    def __init__(
        self,
        topology: Topology | mdtraj.Topology,
        sigma: Any = SIGMA,
        *,
        positions: Any = None,
        dictionaries: Sequence[str | os.PathLike[str]] | str | os.PathLike[str] = (),
        temperature: Any = TEMPERATURE,
        strength: float = 1.0,
        parameter_name: str = "planarity_strength",
        force_group: int = 0,
        system: openmm.System | None = None,
        periodic: bool | None = None,
        constants: bool = False,
    ) -> None:
        if isinstance(topology, mdtraj.Topology):
            topology = topology.to_openmm()
        self.n_particles = topology.getNumAtoms()
        check_system(topology, system)
        self._is_of_system = system is not None
        kelvin = float(value_in(temperature, unit.kelvin))
        if not (math.isfinite(kelvin) and kelvin > 0):
            raise InputError(
                f"temperature must be positive, found {kelvin:g}: give K, such as {TEMPERATURE:g}."
            )
        strength = float(strength)
        if not (math.isfinite(strength) and strength >= 0):
            raise InputError(f"strength must be 0 or more, found {strength:g}: 1 is the likelihood as it is.")
        self.thermal_energy = _GAS_CONSTANT * kelvin
        self.default_strength = strength
        self.parameter_name = parameter_name
        self.force_group = force_group
        self.constants = constants
        self.planes = find_planes(topology, positions, sigma, dictionaries)
        if periodic is None:
            periodic = _is_periodic(topology, system)
        self.periodic = periodic and _straddle(self.planes, molecule_numbers(topology, system))
        self.notes = _notes(self.planes)
        if self.planes.undetermined:
            warnings.warn(_undetermined(self.planes), stacklevel=2)
        if not self.planes.planes:
            warnings.warn("the model has no flat group, so the planarity force does nothing", stacklevel=2)

    @property
    def n_planes(self) -> int:
        """Number of planes."""
        return len(self.planes.planes)

    def create_force(
        self,
        backend: str = "auto",
        *,
        parameter_derivative: bool | None = None,
        device: torch.device | str | None = None,
        cuda_graphs: bool = False,
    ) -> openmm.Force:
        """Make the force that `System.addForce` takes.

        Parameters
        ----------
        backend : {"auto", "TorchForce", "PythonTorchForce", "PythonForce", "CudaGraphForce"}
            ``auto`` takes the first of the three that run on every platform and work with the installed versions, and warns when
            it is not ``TorchForce``. ``CudaGraphForce`` is for the CUDA platform, where it costs its kernels and no more.
        parameter_derivative : bool, optional
            Whether a State can give the derivative with respect to the strength: the energy at strength 1. By default, where
            the backend can (``TorchForce``).
        device, cuda_graphs
            As in `openmm_density.DensityFit.create_force`.
        """
        members = [atoms.ravel() for atoms, _ in self.planes.grouped()]
        # Positions of its own particles alone would not tell the module that the topology is another System's.
        alone = self._is_of_system and members
        particles = np.unique(np.concatenate(members)) if alone else None
        return forces.create_force(
            self.create_module(),
            self.parameter_name,
            self.default_strength,
            periodic=self.periodic,
            name="PlanarityRestraint",
            backend=backend,
            force_group=self.force_group,
            parameter_derivative=parameter_derivative,
            device=device,
            cuda_graphs=cuda_graphs,
            of_particles=None if particles is None else (particles, lambda: self._module(particles)),
        )

    def create_module(self) -> torch.nn.Module:
        """Make the TorchScript-compatible module behind the force.

        ``module(positions, strength) -> (energy, forces)``, or with box vectors, ``module(positions, box, strength)``, where
        `periodic`; in nm and kJ/mol.
        """
        return self._module(np.arange(self.n_particles))

    def _module(self, particles: np.ndarray) -> torch.nn.Module:
        """Make the module for the positions of these particles, in rising order, which hold all planes."""
        groups = [
            (np.searchsorted(particles, atoms), sigmas / ANGSTROM_PER_NANOMETER)
            for atoms, sigmas in self.planes.grouped()
        ]
        if not self.periodic:
            packed = pack_planes(groups, len(particles))
            return PlanarityEnergy(packed, len(particles), self.thermal_energy, self.constants)
        members = np.concatenate([atoms.ravel() for atoms, _ in groups])
        anchors = np.concatenate([np.repeat(atoms[:, 0], atoms.shape[1]) for atoms, _ in groups])
        places, own = 0, []
        for atoms, sigmas in groups:
            own.append((places + np.arange(atoms.size).reshape(atoms.shape), sigmas))
            places += atoms.size
        energy = PlanarityEnergy(pack_planes(own), len(members), self.thermal_energy, self.constants)
        return WholePlanes(energy, len(particles), torch.from_numpy(members), torch.from_numpy(anchors))

    def stable_timestep(self, system: openmm.System) -> float:
        """Return the time step in ps up to which these oscillations are stable, at the default strength.

        It is 2/ω of a leapfrog integrator, with ω² at most the largest k · kT Σ 1/σ² / m: k the strength, the sum over the planes
        of one atom, m its mass. Other forces add to ω, so stay below it.

        Parameters
        ----------
        system : openmm.System
            Tells the masses; massless particles do not count.

        Returns
        -------
        float
            Infinite where nothing oscillates.
        """
        if system.getNumParticles() != self.n_particles:
            raise InputError(
                f"system has {system.getNumParticles()} particles but the topology has {self.n_particles} atoms: "
                "give the System of that topology."
            )
        stiffness = np.zeros(self.n_particles)
        for atoms, sigmas in self.planes.grouped():
            inverse_squares = (sigmas.reshape(len(atoms), -1) / ANGSTROM_PER_NANOMETER) ** -2
            np.add.at(stiffness, atoms, np.broadcast_to(inverse_squares, atoms.shape))
        masses = np.array(
            [system.getParticleMass(i).value_in_unit(unit.dalton) for i in range(len(stiffness))]
        )
        moving = (masses > 0) & (stiffness > 0)
        squares = self.default_strength * self.thermal_energy * stiffness[moving] / masses[moving]
        fastest = float(squares.max(initial=0.0))
        return 2.0 / math.sqrt(fastest) if fastest > 0 else math.inf


_GAS_CONSTANT = unit.MOLAR_GAS_CONSTANT_R.value_in_unit(unit.kilojoule_per_mole / unit.kelvin)


def _is_periodic(topology: Topology, system: openmm.System | None) -> bool:
    if system is not None:
        return system.usesPeriodicBoundaryConditions()
    return topology.getPeriodicBoxVectors() is not None


def _straddle(planes: PlaneSet, molecules: np.ndarray) -> bool:
    """Whether a plane has atoms in several molecules."""
    return any(np.ptp(molecules[atoms], axis=1).any() for atoms, _ in planes.grouped())


def _notes(planes: PlaneSet) -> list[str]:
    notes = []
    if planes.dropped:
        count = len(planes.dropped)
        groups = listing([group_label(plane) for plane in planes.dropped], _MOST_NAMED)
        notes.append(
            f"{count} flat group{'s' * (count > 1)} with fewer than 4 atoms present {'is' if count == 1 else 'are'} not held: "
            f"{groups}"
        )
    if planes.undetermined:
        notes.append(_undetermined(planes))
    return notes


def _undetermined(planes: PlaneSet) -> str:
    return (
        f"what is flat in {listing(planes.undetermined, _MOST_NAMED)} cannot be told, so it is not held flat: "
        "give dictionaries=, or positions="
    )
