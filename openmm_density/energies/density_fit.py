"""`DensityFit`: a density map as a force on a model."""

from __future__ import annotations

import copy
import functools
import math
import warnings
from typing import Any

import mdtraj
import numpy as np
import openmm
import torch
from openmm import unit
from openmm.app import Topology

from ..base.errors import InputError, level_outside
from ..base.units import ANGSTROM_PER_NANOMETER, as_number, positive, resolution_in_angstrom, takes_units
from ..maps.checks import check_map, check_resolution
from ..maps.density_map import DensityMap
from ..models.chemistry.topologies import openmm_topology
from ..models.symmetry_operators import SymmetryOperators
from . import forces
from .calibration import (
    DEFAULT_RATIO,
    STRENGTH_BOUNDS,
    STRENGTH_PER_ATOM,
    check_numbers,
    strength_from_forces,
    strength_per_atom,
)
from .checks import (
    check_system,
    check_unit,
    first_bonds,
    positions_of_all,
    warn_of_forces_named,
    warn_of_incompatible_forces,
    why_no_force,
)
from .context_parameters import ParameterUse, warn_of_shared
from .density_target import CROP_MARGIN, TargetSource
from .fitted_atoms import AtomGaussians, FittedAtoms, check_weights
from .form_factors import SIGMA_PER_RESOLUTION
from .measures import Measure, measure_named
from .modules import SimilarityEnergy, WholeMolecules
from .molecules import centroids, molecule_numbers
from .native_force import NativeForce
from .similarity_energy import similarity_energy
from .symmetry_mates import around_copies, check_whole_cell

CUTOFF_IN_SIGMA = 4.0


class DensityFit:
    """Pull a model into a density map.

    The density of the fitted atoms is compared with the map, and the energy is k (1 − S) for similarities S bounded by 1, else
    −k S; see the formulas in `openmm_density.kernels.density.measures`. Forces are its exact gradient.

    Parameters
    ----------
    density_map : DensityMap
        The target.
    topology : openmm.app.Topology or mdtraj.Topology
        Of all particles of the System.
    resolution : float or Quantity
        Of the map, in Å; no finer than its voxels.
    atoms : str or array_like, default "heavy"
        Which atoms are fitted: "heavy" (no hydrogens, water or single ions), "all", an mdtraj selection, a boolean array, or
        indices.
    weights : str or array_like, default "mass"
        What an atom's density is. "mass", "unity", "number" (atomic number), "charge" (needs ``system``), or an array (over the
        fitted atoms, or over all): one Gaussian of σ = 0.225 · resolution with that integral. "electron" or "xray": its form
        factor, blurred by B factor and resolution.
    similarity : str, default "cross-correlation"
        How densities are compared: the name of one of `openmm_density.energies.measures.MEASURES`. "map-potential" needs no
        density of the model: the map itself, clamped and scaled to 0…1, is the potential.
    about_mean : bool
        Correlate about the mean (GROMACS) and not about zero (MDFF, GENESIS). Only for "cross-correlation".
    strength : float or "auto"
        k in kJ/mol per fitted atom. With "auto" k starts at 10 and `calibrate` sets it.
    cutoff : float or Quantity, optional
        Radius in Å beyond which an atom has no density; 4 σ by default.
    mask : np.ndarray of bool with the map's shape, optional
        The voxels that count.
    threshold : float, optional
        For "map-potential": map values below it attract nothing. The map's mean by default.
    system : openmm.System, optional
        For charges, for whether the System is periodic, and to warn of a CMMotionRemover or a barostat. Without it a
        ``NativeForce`` warns when a Context is made, and `calibrate`, `DensityReporter` and `warn_of_forces` warn for any force.
    positions : Quantity or array_like (N, 3), optional
        Where the model starts, in Å without a unit. The map is cropped around it, and in a periodic System molecules are put
        back beside it however the platform wraps them; without positions, as near to the map's centre as the lattice allows.
    b_factors, occupancies : array_like (N,), optional
        For form factors, over all particles: B in Å² (0 by default: the resolution alone) and occupancies (1 by default).
    periodic : bool, optional
        Whether the System is periodic; by default what ``system`` says, else False. (The box of a topology says nothing:
        every file of a crystal structure has one.)
    operators : SymmetryOperators, optional
        Of the copies of the topology, which is one unit of an assembly or of a crystal: the map is compared with the density of
        all of them, while only the unit moves. S is that of the whole, energy and k are those of one unit. Operators of a
        crystal need the periodic map of its cell. Atoms within 0.8 Å of a copy of their own are shared by the copies.
    crop_margin : float, Quantity or None
        How far in Å beyond the starting positions the map is kept; None keeps all of it.
    voxel_size : float, Quantity or "auto"
        The largest step in Å of the grid on which densities are compared; the map is resampled to it in Fourier space. At most
        1.25 σ (σ = 0.225 · resolution), since coarser voxels pin atoms to the grid. "auto" is the map's own, where that is
        coarser, 1.25 σ, and where it is needlessly fine, σ. Not for "map-potential", which takes the map as it is.
    parameter_name : str
        The Context parameter that holds the total k in kJ/mol. Two in one System need a name each, or share one strength:
        `create_force`, `calibrate` and `DensityReporter` warn of it.
    force_group : int
        The force group of the force.

    Attributes
    ----------
    atoms : np.ndarray, shape (M,)
        Indices of the fitted atoms.
    measure : Measure
        How densities are compared.
    target : DensityMap
        The map as it is used: cropped and, where its voxels are too coarse or needlessly fine, resampled.
    cropped, resampled : bool
        What was done to it.
    sigma, cutoff : float
        In Å.
    default_strength : float
        The total k that new Contexts start with, in kJ/mol.

    Raises
    ------
    InputError
        One sentence naming the argument, what was found and what to do.
    """

    @takes_units(
        "resolution", "cutoff", "positions", "crop_margin", "voxel_size", strength="kJ/mol", b_factors="Å²"
    )
    def __init__(
        self,
        density_map: DensityMap,
        topology: Topology | mdtraj.Topology,
        resolution: Any,
        *,
        atoms: Any = "heavy",
        weights: Any = "mass",
        similarity: str = "cross-correlation",
        about_mean: bool = False,
        strength: float | str | unit.Quantity = STRENGTH_PER_ATOM,
        cutoff: Any = None,
        mask: np.ndarray | None = None,
        threshold: float | None = None,
        system: openmm.System | None = None,
        positions: Any = None,
        b_factors: Any = None,
        occupancies: Any = None,
        periodic: bool | None = None,
        operators: SymmetryOperators | None = None,
        crop_margin: Any = CROP_MARGIN,
        voxel_size: Any = "auto",
        parameter_name: str = "density_strength",
        force_group: int = 0,
    ) -> None:
        check_map(density_map)
        self.measure = measure_named(similarity, about_mean=about_mean)
        if not 0 <= force_group < 32:
            raise InputError(
                "must be from 0 to 31", argument="force_group", found=force_group, remedy="give one of these"
            )
        self.parameter_name, self.force_group, self.operators = parameter_name, force_group, operators
        self.topology = openmm_topology(topology)
        resolution = resolution_in_angstrom(resolution)
        check_resolution(density_map, resolution)
        check_system(self.topology, system)
        self._system, self._given_topology = system, topology
        self._bonds = first_bonds(self.topology)
        self._fitted = FittedAtoms(
            self.topology, atoms, weights, system=system, b_factors=b_factors, occupancies=occupancies
        )
        self._positions = None if positions is None else self._checked(positions)
        self.periodic, self._assumed_finite = periodic, periodic is None and system is None
        if periodic is None:
            self.periodic = system is not None and system.usesPeriodicBoundaryConditions()
        self._molecules = molecule_numbers(self.topology, system) if self.periodic else None
        self._cutoff = None if cutoff is None else as_number(cutoff, "cutoff")
        around = None if self._positions is None else self._positions[self.atoms]
        if operators is not None:
            check_whole_cell(operators, density_map)
            self._fitted.share_sites(operators, self._positions)
            around = around_copies(operators, around)
        source = TargetSource(density_map, self.measure, mask, threshold, around, crop_margin, voxel_size)
        self._take(source, resolution)
        if system is not None:
            warn_of_incompatible_forces(system)
        self.strength = strength
        if self._positions is not None and self.measure.can_be_constant:
            self._warn_of_no_force()

    def __repr__(self) -> str:
        atoms, strength = len(self.atoms), "auto" if self.automatic else f"{self.strength:g}"
        return f"DensityFit({atoms} atoms, {self.measure.name} at {self.resolution:g} Å, strength={strength})"

    @property
    def strength(self) -> float:
        """Strength that new forces start with, in kJ/mol per fitted atom; a Context has its own, see ``parameter_name``."""
        return self.default_strength / len(self.atoms)

    @strength.setter
    def strength(self, per_atom: float | str | unit.Quantity) -> None:
        self.automatic = isinstance(per_atom, str)
        self.default_strength = strength_per_atom(per_atom) * len(self.atoms)

    def warn_of_forces(self, system: openmm.System) -> None:
        """Warn of forces in a System that holds the force, which share its strength or keep the model from the map."""
        warn_of_shared(system, self.parameter_name)
        if self._system is None:
            warn_of_incompatible_forces(system, self._assumed_finite)

    def _take(self, source: TargetSource, resolution: float) -> None:
        """Set what follows from the resolution (Å): Gaussians, cut-off and target."""
        self.resolution = resolution
        self.sigma = SIGMA_PER_RESOLUTION * resolution
        self._gaussians = self._fitted.gaussians(resolution)
        check_weights(self._gaussians, self.measure)
        self.cutoff = self._cutoff
        if self.cutoff is None:
            widest = self._gaussians.largest_variance
            self.cutoff = CUTOFF_IN_SIGMA * (self.sigma if widest is None else math.sqrt(widest))
        positive(
            self.cutoff, "cutoff", f"a radius in Å, such as {CUTOFF_IN_SIGMA:g} times σ = {self.sigma:.2f} Å"
        )
        self._source, self._target = source, source.target(resolution, self.cutoff)
        self._potential = source.potential(self._target) if self.measure.is_potential else None
        self._evaluator: SimilarityEnergy | None = None
        total = float(self.target.data.sum(dtype=np.float64))
        pulls = self.target.shape, total, self.measure.name, resolution, self.atoms.tobytes()
        self._use = ParameterUse(self._given_topology, self.parameter_name, pulls)

    def with_atoms_wider(self, factor: float) -> DensityFit:
        """Return the same fit with Gaussians of a resolution coarser by a factor, to the same map.

        Selection, weights and map are shared, the target only where box and step are the same, see `TargetSource`.
        """
        fit = copy.copy(self)
        fit._take(self._source, factor * self.resolution)
        return fit

    def with_some_atoms(self, kept: np.ndarray) -> DensityFit:
        """Return the same fit of some of the fitted atoms to the same target: `kept` bool (M,)."""
        fit = copy.copy(self)
        fit._fitted = self._fitted.chosen(kept)
        fit.default_strength *= len(fit.atoms) / len(self.atoms)
        fit._take(self._source, self.resolution)
        return fit

    @takes_units("resolution")
    def with_map(self, density_map: DensityMap, resolution: float) -> DensityFit:
        """Return the same fit to another map, such as a blurred one, at its resolution in Å."""
        check_resolution(density_map, resolution)
        fit = copy.copy(self)
        fit._take(self._source.with_map(density_map), resolution)
        return fit

    @takes_units("positions")
    def with_copies(
        self, topology: Topology, originals: np.ndarray, occupancies: Any, positions: Any, system: Any
    ) -> DensityFit:
        """Return the same fit with copies of atoms behind the others, in another System, see `FittedAtoms.with_copies`."""
        check_system(topology, system)
        fit = copy.copy(self)
        fit._fitted = self._fitted.with_copies(self.topology.getNumAtoms(), originals, occupancies)
        fit.topology = fit._given_topology = topology
        fit._system, fit._bonds = system, first_bonds(topology)
        fit._positions = fit._checked(positions)
        fit._molecules = molecule_numbers(topology, system) if self.periodic else None
        fit._take(self._source, self.resolution)
        return fit

    def _warn_of_no_force(self) -> None:
        """Warn where there is exactly no force from the start: some similarities have places without one."""
        in_nm = torch.from_numpy(self._positions[self.atoms] / ANGSTROM_PER_NANOMETER)
        if self._unit_forces(in_nm)[1].any():
            return
        correlation = 0.0
        if not self.measure.is_potential:
            energy = self._energy_of_fitted(measure_named("cross-correlation", about_mean=True))
            correlation = float(energy.similarity(in_nm)[0])
        why, remedy = why_no_force(self.measure, correlation)
        warnings.warn(
            f'similarity="{self.measure.name}" has no force at these positions, because {why}: {remedy}',
            stacklevel=level_outside(),
        )

    @property
    def atoms(self) -> np.ndarray:
        """Indices of the fitted atoms, shape (M,)."""
        return self._fitted.indices

    @property
    def target(self) -> DensityMap:
        """The map as it is used: cropped and, where its voxels are too coarse or needlessly fine, resampled."""
        return self._target.map

    @property
    def cropped(self) -> bool:
        """Whether a part of the map is used."""
        return self._target.cropped

    @property
    def resampled(self) -> bool:
        """Whether the map is used on other voxels than its own."""
        return self._target.resampled

    @property
    def gaussians(self) -> AtomGaussians:
        """The densities of the fitted atoms, in their order."""
        return self._gaussians

    @property
    def n_fitted_atoms(self) -> int:
        """Number of fitted atoms."""
        return len(self.atoms)

    def create_force(
        self,
        backend: str = "auto",
        *,
        parameter_derivative: bool | None = None,
        device: torch.device | str | None = None,
        cuda_graphs: bool = False,
    ) -> openmm.Force:
        """Build the force that `System.addForce` takes.

        Its total k is a parameter of the Context, `parameter_name`; a negative one pushes the model out of the density. In a
        System of another number of particles than the topology has atoms its first evaluation fails, and says so.

        Parameters
        ----------
        backend : {"auto", "TorchForce", "NativeForce", "PythonTorchForce", "PythonForce", "CudaGraphForce"}
            ``auto`` takes the first of the four that run on every platform which works with the installed versions, and warns
            where that is one of the last two. ``NativeForce`` needs neither openmm-torch nor Python in a step: C++ kernels on
            CPUs, with the bits of ``TorchForce``, and on CUDA a graph that costs its kernels and no more. ``CudaGraphForce`` is
            the same where there is a CUDA platform, and refused elsewhere.
        parameter_derivative : bool, optional
            Whether a State can give ∂E/∂k = 1 − S; by default, where the backend can (``TorchForce``, ``NativeForce``).
        device : torch.device or str, optional
            Where ``PythonForce`` works; by default a GPU if torch can use one. With the other backends the platform decides.
        cuda_graphs : bool
            Whether the launches of a step on a GPU are recorded once and replayed (``TorchForce`` on the CUDA platform, and
            ``PythonForce``); ``NativeForce`` always does.
        """
        if self._system is None:
            self._use.note()
        else:
            warn_of_shared(self._system, self.parameter_name, to_come=1)
        force = forces.create_force(
            self.create_module(),
            self.parameter_name,
            self.default_strength,
            periodic=self.periodic,
            name="DensityFit",
            backend=backend,
            force_group=self.force_group,
            parameter_derivative=parameter_derivative,
            device=device,
            cuda_graphs=cuda_graphs,
            # Positions of its own particles alone would not tell the module that the topology is another System's.
            of_particles=(self.atoms, self._module_of_fitted) if self._system is not None else None,
        )
        if self._system is None and isinstance(force, NativeForce):
            force.whenContextBegins(functools.partial(warn_of_forces_named, self._assumed_finite))
        return force

    def create_module(self) -> torch.nn.Module:
        """Build the TorchScript-compatible module behind the force.

        ``module(positions, strength) -> (energy, forces)``, or with box vectors, ``module(positions, box, strength)``, where the
        System is periodic; in nm and kJ/mol.
        """
        return self.module_for(torch.from_numpy(self.atoms), self.topology.getNumAtoms())

    def _module_of_fitted(self) -> torch.nn.Module:
        return self.module_for(torch.arange(len(self.atoms)), len(self.atoms))

    def module_for(self, indices: torch.Tensor, n_particles: int) -> torch.nn.Module:
        """Build the module for so many positions, at these indices of which the fitted atoms are."""
        if not self.periodic:
            return self._energy(indices, n_particles, self.measure)
        return self._whole_molecules(self._energy_of_fitted(self.measure), indices, n_particles)

    def _whole_molecules(
        self, energy: SimilarityEnergy, indices: torch.Tensor, n_particles: int
    ) -> WholeMolecules:
        molecules = np.unique(self._molecules[self.atoms], return_inverse=True)[1].reshape(-1)
        if self._positions is None:
            centre = self.target.origin + self.target.matrix @ (self.target.size - 1) / 2
            references = np.tile(centre, (molecules.max() + 1, 1))
        else:
            references = centroids(molecules, self._positions[self.atoms])
        references = torch.from_numpy(references / ANGSTROM_PER_NANOMETER)
        return WholeMolecules(energy, indices, n_particles, torch.from_numpy(molecules), references)

    def _energy_of_fitted(self, measure: Measure) -> SimilarityEnergy:
        return self._energy(torch.arange(len(self.atoms)), len(self.atoms), measure)

    def _energy(self, indices: torch.Tensor, n_particles: int, measure: Measure) -> SimilarityEnergy:
        """Build the energy of a measure, in nm, for so many positions, at these indices of which the fitted atoms are."""
        density = self._target, self._potential, self._gaussians, self.cutoff
        return similarity_energy(*density, measure, indices, n_particles, self.operators)

    @takes_units("positions")
    def similarity(self, positions: Any) -> float:
        """Return the similarity S that the energy uses.

        `positions` (N, 3), a Quantity or array_like: of all particles, in Å without a unit; molecules whole and beside the map.
        """
        return self.similarity_of_fitted(self.fitted_positions(positions))

    @takes_units("positions")
    def fitted_positions(self, positions: Any) -> torch.Tensor:
        """Return positions of the fitted atoms in nm, shape (M, 3), from those of all particles as for `similarity`."""
        return torch.from_numpy(self._checked(positions)[self.atoms] / ANGSTROM_PER_NANOMETER)

    def similarity_of_fitted(self, fitted: torch.Tensor) -> float:
        """Return the similarity S for `fitted_positions`, which fits of other widths to the same atoms share."""
        return self._unit_forces(fitted)[0]

    def _unit_forces(self, fitted: torch.Tensor, box: Any = None) -> tuple[float, np.ndarray]:
        """Return S and the forces at k = 1 (nm⁻¹) for fitted atoms in nm; with a box, molecules are put back where they began."""
        if self._evaluator is None:
            self._evaluator = self._energy_of_fitted(self.measure)
        if self.periodic and box is not None:
            whole = self._whole_molecules(self._evaluator, torch.arange(len(self.atoms)), len(self.atoms))
            fitted = whole.whole(fitted, torch.as_tensor(np.asarray(box)))
        similarity, gradient = self._evaluator.similarity(fitted)
        return float(similarity), gradient.numpy()

    def _checked(self, positions: Any) -> np.ndarray:
        """Return positions of all particles in Å."""
        positions = positions_of_all(self.topology, positions)
        check_unit(self._bonds, positions)
        return positions

    @takes_units(bounds="kJ/mol")
    def calibrate(
        self,
        context: openmm.Context,
        ratio: float = DEFAULT_RATIO,
        bounds: tuple[float, float] = STRENGTH_BOUNDS,
    ) -> float:
        """Set the total k in a Context from the ratio of the density force to the other forces.

        k becomes ``ratio`` times the root mean square force of everything else on the fitted atoms, over that of the density at
        k = 1, kept within ``bounds``. Call it on a thermalised model: at a minimum the other forces vanish.

        Parameters
        ----------
        context : openmm.Context
            Holds the force and the positions.
        ratio : float
            Density force over all other forces.
        bounds : tuple of float
            Least and largest k in kJ/mol per fitted atom: of a model that already fits, k would run away.

        Returns
        -------
        float
            The total k in kJ/mol that is now the Context's parameter.

        Raises
        ------
        InputError
            If the model has no density in the map.
        SimulationError
            If positions or forces in the Context are not numbers, naming the atoms.
        """
        self.warn_of_forces(context.getSystem())
        state = context.getState(positions=True)
        positions = state.getPositions(asNumpy=True).value_in_unit(unit.nanometer)
        check_numbers("positions", positions, self.topology)
        found = context.getState(forces=True).getForces(asNumpy=True)
        found = np.asarray(found.value_in_unit(unit.kilojoule_per_mole / unit.nanometer))
        check_numbers("forces", found, self.topology)
        box = state.getPeriodicBoxVectors(asNumpy=True).value_in_unit(unit.nanometer)
        _, density = self._unit_forces(torch.from_numpy(np.asarray(positions)[self.atoms]), box)
        check_numbers("density forces", density, self.topology, self.atoms)
        if not np.any(density):
            raise InputError(
                "cannot be calibrated, as the model has no density in the map",
                argument="strength",
                remedy="put the model into the map first",
            )
        strength = strength_from_forces(
            density, found[self.atoms], context.getParameter(self.parameter_name), ratio, bounds
        )
        context.setParameter(self.parameter_name, strength)
        return strength
