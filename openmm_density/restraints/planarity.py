"""`PlanarityRestraint`: flat groups stay flat."""

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
from openmm import app, unit

from openmm_density.kernels.planarity import pack_planes

from ..base.errors import InputError, level_outside
from ..base.units import ANGSTROM_PER_NANOMETER, positions_in_angstrom, positive, takes_units
from ..base.wording import listing
from ..energies import forces
from ..energies.checks import check_system
from ..energies.modules import PlanarityEnergy, WholePlanes
from ..energies.molecules import molecule_numbers
from ..models.chemistry.planes import PlaneSet, find_planes
from ..models.chemistry.planes.report import group_label
from ..models.merging import masses_of
from .restraint import Restraint, Violation

SIGMA = 0.02
"""Å; how far atoms of flat groups are from their planes in restraint dictionaries (REFMAC, AceDRG)."""
TEMPERATURE = 300.0
"""K of the kT in the energy."""
LIMIT_IN_SIGMA = 5.0
"""Standard deviations off its plane from which an atom counts as violating the restraint."""

_MOST_NAMED = 10


class PlaneRestraint(Restraint):
    """What holds planes flat: E = k · kT · Σ ½ (d/σ)²."""

    thermal_energy = 1.0
    """kT in kJ/mol."""
    constants = False

    def create_force_of(self, planes: PlaneSet, n_particles: int, backend: str = "auto") -> openmm.Force:
        """Build one force for other planes, such as those of copies of atoms, of a System that is not periodic.

        Parameters
        ----------
        planes : PlaneSet
        n_particles : int
            Of the whole System.
        backend : str
            As for `PlanarityRestraint.create_force`.
        """

        def module_of(particles: np.ndarray) -> torch.nn.Module:
            return planarity_module(
                planes, particles, self.thermal_energy, constants=self.constants, periodic=False
            )

        members = [atoms.ravel() for atoms, _ in planes.grouped()]
        particles = np.unique(np.concatenate(members)) if members else None
        return forces.create_force(
            module_of(np.arange(n_particles)),
            self.parameter_name,
            self.force_constant,
            periodic=False,
            name=type(self).__name__,
            backend=backend,
            force_group=self.force_group,
            parameter_derivative=False,
            of_particles=None if particles is None else (particles, lambda: module_of(particles)),
        )

    def _violated_planes(self, planes: PlaneSet, positions: np.ndarray, limit: float) -> list[Violation]:
        """Return the planes with an atom more than `limit` standard deviations off them, the worst first."""
        if not planes.planes:
            return []
        found = planes.deviations(positions)
        limits = limit * np.array(
            [
                plane.sigma if isinstance(plane.sigma, float) else plane.sigma[plane.atoms.index(atom)]
                for plane, atom in zip(planes.planes, found.worst_atom.tolist())
            ]
        )
        return self._violated(
            found.worst_atom[:, None],
            found.worst,
            np.zeros(len(limits)),
            limits,
            [
                f"distance of {self._atoms[atom].name} from its plane ({plane.kind})"
                for plane, atom in zip(planes.planes, found.worst_atom)
            ],
            "Å",
        )


class PlanarityRestraint(PlaneRestraint):
    """Hold every flat group of a model flat.

    The energy is kT times the negative log likelihood of the distances d of the atoms from the best plane of their group,

        E = k · kT · Σ ½ (d/σ)²,

    with k the Context parameter; see `openmm_density.kernels.planarity`. Its forces are the exact gradient. No plane has a net
    force or a net torque. A plane counts as violated where an atom is more than 5 σ off it.

    At σ = 0.02 Å and 300 K an atom is held at right angles to its plane with 6.2·10⁵ kJ/mol/nm², twice as stiffly as by a bond: a
    hydrogen of 1 Da oscillates in 8 fs, one of 3 Da in 14 fs. `stable_timestep` says which steps a System then allows.

    **Periodic Systems.** OpenMM wraps whole molecules into the box, so the atoms of a plane stay together, and no box is needed,
    where they belong to one molecule. They do not where the System has fewer bonds than the plane's chemistry: that of a
    machine-learned potential, or of a chain whose residues are close but not bonded. Every atom is then taken at its image
    beside its plane's first one. OpenMM's molecules follow from the bonds and constraints of ``system``; without it the bonds of
    the topology are taken to be those of the System.

    Parameters
    ----------
    topology : openmm.app.Topology or mdtraj.Topology
        Of all particles of the System.
    positions : Quantity or array_like, shape (N, 3), optional
        Å where plain. They serve to find the planes, see `find_planes`, and are not needed where
        the topology has all bonds and a dictionary describes each ligand.
    force_constant : float, optional
        k, in units of kT/σ²: by default 1, the likelihood as it is.
    sigma : float or Quantity
        σ in Å of every plane to which no dictionary gives one.
    dictionaries : path or sequence of paths
        CCP4/REFMAC or AceDRG restraint dictionaries or wwPDB component files, for ligands.
    temperature : float or Quantity
        In K, of the kT in the energy.
    system : openmm.System, optional
        The System the force is for: defines its molecules, and whether it is periodic.
    periodic : bool, optional
        Whether the System is periodic; by default what ``system`` says, else whether the topology has a box.
    constants : bool
        Whether the energy also holds kT · Σ (ln σ + ½ ln 2π), with σ in nm. Without them a flat model has no energy.
    parameter_name, force_group
        As for `openmm_density.restraints.Restraint`.

    Attributes
    ----------
    planes : PlaneSet
        What is held flat, and what could not be (``planes.dropped``, ``planes.undetermined``).
    thermal_energy : float
        kT in kJ/mol.
    periodic : bool
        Whether the force needs the box: the System is periodic and a plane has atoms in several molecules.
    notes : list of str
        A sentence on each thing that is not held flat.

    Raises
    ------
    InputError
        Topology, positions and system do not belong together, sigma or temperature is not positive, the force constant is
        negative, or a dictionary cannot be used.

    Warns
    -----
    UserWarning
        Where the planes of a residue cannot be determined from what is given, or where there are no planes at all.
    """

    name = "planarity"
    default_force_constant = 1.0
    force_constant_unit = unit.dimensionless
    default_parameter_name = "planarity_strength"

    @takes_units("positions", "sigma", temperature="K")
    def __init__(
        self,
        topology: app.Topology | mdtraj.Topology,
        positions: Any = None,
        force_constant: Any = None,
        *,
        sigma: Any = SIGMA,
        dictionaries: Sequence[str | os.PathLike[str]] | str | os.PathLike[str] = (),
        temperature: Any = TEMPERATURE,
        system: openmm.System | None = None,
        periodic: bool | None = None,
        constants: bool = False,
        **common: Any,
    ) -> None:
        super().__init__(topology, positions, force_constant, **common)
        check_system(self.topology, system)
        self._is_of_system = system is not None
        self.thermal_energy = _GAS_CONSTANT * positive(
            temperature, "temperature", f"K, such as {TEMPERATURE:g}"
        )
        self.constants = constants
        self.planes = find_planes(self.topology, positions, sigma, dictionaries)
        if periodic is None:
            periodic = _is_periodic(self.topology, system)
        self.periodic = periodic and _straddle(self.planes, molecule_numbers(self.topology, system))
        self.notes = _notes(self.planes)
        if self.planes.undetermined:
            warnings.warn(_undetermined(self.planes), stacklevel=level_outside())
        if not self.planes.planes:
            warnings.warn(
                "the model has no flat group, so the planarity force does nothing", stacklevel=level_outside()
            )

    @property
    def n_terms(self) -> int:
        """Number of planes."""
        return len(self.planes.planes)

    @property
    def _n_atoms(self) -> int:
        return len(self._atoms)

    def create_force(
        self,
        backend: str = "auto",
        *,
        parameter_derivative: bool | None = None,
        device: torch.device | str | None = None,
        cuda_graphs: bool = False,
    ) -> openmm.Force:
        """Build the force that ``System.addForce`` takes; each call builds another.

        Parameters
        ----------
        backend : {"auto", "TorchForce", "NativeForce", "PythonTorchForce", "PythonForce", "CudaGraphForce"}
            ``auto`` takes the first of the four that run on every platform which works with the installed versions, and warns
            where that is one of the last two. ``NativeForce`` needs neither openmm-torch nor Python in a step: C++ kernels on
            CPUs, with the bits of ``TorchForce``, and on CUDA a graph that costs its kernels and no more. ``CudaGraphForce`` is
            the same where there is a CUDA platform, and refused elsewhere.
        parameter_derivative : bool, optional
            Whether a State can give the derivative with respect to k: the energy at k = 1. By default as in
            `openmm_density.DensityFit.create_force`.
        device, cuda_graphs
            As in `openmm_density.DensityFit.create_force`.
        """
        members = [atoms.ravel() for atoms, _ in self.planes.grouped()]
        # With the positions of its own particles alone, the module could not refuse a System of another topology.
        alone = self._is_of_system and members
        particles = np.unique(np.concatenate(members)) if alone else None
        return forces.create_force(
            self.create_module(),
            self.parameter_name,
            self.force_constant,
            periodic=self.periodic,
            name=type(self).__name__,
            backend=backend,
            force_group=self.force_group,
            parameter_derivative=parameter_derivative,
            device=device,
            cuda_graphs=cuda_graphs,
            of_particles=None if particles is None else (particles, lambda: self._module(particles)),
        )

    def create_force_of_copies(
        self, first: Sequence[int], n_particles: int, backend: str = "auto"
    ) -> openmm.Force:
        """Build one force for copies of the model side by side in a System, see `openmm_density.models.merging`.

        Parameters
        ----------
        first : sequence of int
            The number of each copy's first particle.
        n_particles : int
            Of the whole System.
        backend : str
            As for `create_force`.
        """
        return self.create_force_of(self.planes.side_by_side(first), n_particles, backend)

    def create_module(self) -> torch.nn.Module:
        """Build the TorchScript-compatible module behind the force.

        ``module(positions, strength) -> (energy, forces)``, or ``module(positions, box, strength)``, where `periodic`;
        in nm and kJ/mol.
        """
        return self._module(np.arange(self._n_atoms))

    def violations(self, positions: Any) -> list[Violation]:
        """List the planes with an atom more than 5 σ off them, the worst first; see `Restraint.violations`."""
        return self._violated_planes(self.planes, self._checked(positions), LIMIT_IN_SIGMA)

    def _checked_start(self, positions: Any) -> np.ndarray | None:
        # What is found flat needs no positions, and an atom without a finite one is left out of the search for bonds.
        return None if positions is None else positions_in_angstrom(positions)

    def _module(self, particles: np.ndarray) -> torch.nn.Module:
        """Build the module for the positions of these particles, in rising order, which hold all planes."""
        return planarity_module(
            self.planes, particles, self.thermal_energy, constants=self.constants, periodic=self.periodic
        )

    def stable_timestep(self, system: openmm.System) -> float:
        """Return the time step in ps up to which these oscillations are stable, at `force_constant`.

        It is 2/ω of a leapfrog integrator, with ω² at most the largest k · kT Σ 1/σ² / m: the sum is over the planes of one atom,
        m its mass. Other forces add to ω, so stay below it.

        Parameters
        ----------
        system : openmm.System
            The masses are its; massless particles are excluded.

        Returns
        -------
        float
            Infinite where nothing oscillates.
        """
        return stable_timestep(
            self.force_constant * self.thermal_energy * stiffness(self.planes, self._n_atoms), system
        )


def stiffness(planes: PlaneSet, n_atoms: int) -> np.ndarray:
    """Return Σ 1/σ² over the planes of each atom in 1/nm², shape (N,)."""
    result = np.zeros(n_atoms)
    for atoms, sigmas in planes.grouped():
        inverse_squares = (sigmas.reshape(len(atoms), -1) / ANGSTROM_PER_NANOMETER) ** -2
        np.add.at(result, atoms, np.broadcast_to(inverse_squares, atoms.shape))
    return result


def stable_timestep(stiffness: np.ndarray, system: openmm.System) -> float:
    """Return 2/ω in ps for the largest ω² = stiffness / mass. `stiffness` (N,) in kJ/mol/nm²."""
    if system.getNumParticles() != len(stiffness):
        raise InputError(
            f"must have the {len(stiffness)} atoms of the topology",
            argument="system",
            found=f"{system.getNumParticles()} particles",
            remedy="give the System of that topology",
        )
    masses = masses_of(system)
    moving = (masses > 0) & (stiffness > 0)
    fastest = float((stiffness[moving] / masses[moving]).max(initial=0.0))
    return 2.0 / math.sqrt(fastest) if fastest > 0 else math.inf


_GAS_CONSTANT = unit.MOLAR_GAS_CONSTANT_R.value_in_unit(unit.kilojoule_per_mole / unit.kelvin)


def _is_periodic(topology: app.Topology, system: openmm.System | None) -> bool:
    if system is not None:
        return system.usesPeriodicBoundaryConditions()
    return topology.getPeriodicBoxVectors() is not None


def _straddle(planes: PlaneSet, molecules: np.ndarray) -> bool:
    """Return whether a plane has atoms in several molecules."""
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


def planarity_module(
    planes: PlaneSet, particles: np.ndarray, thermal_energy: float, *, constants: bool, periodic: bool
) -> torch.nn.Module:
    """Return the module of E = k · kT · Σ ½ (d/σ)², see `openmm_density.energies.modules.PlanarityEnergy`.

    ``module(positions, strength) -> (energy, forces)``, or ``module(positions, box, strength)``, where ``periodic``; in nm and
    kJ/mol. `particles` int (N,): whose positions the module takes, in rising order; they hold all members of planes.
    `thermal_energy`: kT in kJ/mol. `constants`: whether E also holds kT · Σ (ln σ + ½ ln 2π), with σ in nm.
    """
    groups = [
        (np.searchsorted(particles, atoms), sigmas / ANGSTROM_PER_NANOMETER)
        for atoms, sigmas in planes.grouped()
    ]
    if not periodic:
        packed = pack_planes(groups, len(particles))
        return PlanarityEnergy(packed, len(particles), thermal_energy, constants)
    members = np.concatenate([atoms.ravel() for atoms, _ in groups])
    anchors = np.concatenate([np.repeat(atoms[:, 0], atoms.shape[1]) for atoms, _ in groups])
    # The positions that the energy takes are those of the members, one after the other.
    first, own = 0, []
    for atoms, sigmas in groups:
        own.append((first + np.arange(atoms.size).reshape(atoms.shape), sigmas))
        first += atoms.size
    energy = PlanarityEnergy(pack_planes(own), len(members), thermal_energy, constants)
    return WholePlanes(energy, len(particles), torch.from_numpy(members), torch.from_numpy(anchors))
