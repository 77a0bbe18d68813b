"""`DensityFit`: a density map as a force on a model."""

from __future__ import annotations

import math
import warnings
from typing import Any

import mdtraj
import numpy as np
import openmm
import torch
from openmm import unit
from openmm.app import Topology

from openmm_density.kernels import density as density_kernel

from ..chemistry.residues import named_atoms
from ..errors import InputError, SimulationError
from ..maps.checks import check_map, check_resolution
from ..maps.density_map import DensityMap
from ..units import ANGSTROM_PER_NANOMETER, in_angstrom, number_in, positions_in_angstrom, value_in
from . import forces
from .atom_selection import select_atoms
from .fitted_atoms import atom_gaussians
from .form_factors import SIGMA_PER_RESOLUTION
from .modules import DensityEnergy, MapPotentialEnergy, SimilarityEnergy, WholeMolecules
from .molecules import molecule_numbers
from .parameters import ParameterUse, warn_of_shared
from .topologies import bonded_pairs, check_system, check_unit

SIMILARITIES = ("cross-correlation", "inner-product", "relative-entropy", "least-squares", "map-potential")

CUTOFF_IN_SIGMA = 4.0
# Coarser voxels pin the atoms to the grid: at σ = 0.8 voxel Σρ² varies by 2% with the sub-voxel position.
COARSEST_VOXEL_IN_SIGMA = 1.25
# At σ = 1 voxel it varies by 3e-4, and what finer voxels show besides is noise: they only take time. So much less of them pays.
ENOUGH_VOXEL_IN_SIGMA = 1.0
FEWER_VOXELS = 0.77
# How far a model may travel from where it started without leaving the part of the map that is kept, in Å.
CROP_MARGIN = 25.0
STRENGTH_PER_ATOM = 10.0
STRENGTH_BOUNDS = (5.0, 200.0)
"""kJ/mol per fitted atom: what `DensityFit.calibrate` stays within. From 100 on fits to real maps were seen to spoil geometry."""


class DensityFit:
    """Pull a model into a density map.

    The density of the fitted atoms is compared with the map, and the energy is k (1 − S) for similarities S bounded by 1, else
    −k S; see the table in `openmm_density.kernels.density.density_similarity`. Forces are its exact gradient.

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
    similarity : {"cross-correlation", "inner-product", "relative-entropy", "least-squares", "map-potential"}
        How densities are compared. "map-potential" needs no model density: the map itself, clamped and scaled to 0…1, is the
        potential.
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
        For charges, and for whether the System is periodic.
    positions : Quantity or array_like (N, 3), optional
        Where the model starts, in Å without a unit. The map is cropped around it, and in a periodic System molecules are put
        back beside it however the platform wraps them; without positions, as near to the map's centre as the lattice allows.
    b_factors, occupancies : array_like (N,), optional
        For form factors, over all particles: B in Å² (0 by default: the resolution alone) and occupancies (1 by default).
    periodic : bool, optional
        Whether the System is periodic; by default what ``system`` says, and without it no. (The box of a topology says nothing:
        every file of a crystal structure has one.)
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
        crop_margin: Any = CROP_MARGIN,
        voxel_size: Any = "auto",
        parameter_name: str = "density_strength",
        force_group: int = 0,
    ) -> None:
        check_map(density_map)
        if similarity not in SIMILARITIES:
            raise InputError(f'similarity="{similarity}" is not known: use one of {", ".join(SIMILARITIES)}.')
        if about_mean and similarity != "cross-correlation":
            raise InputError(
                f'about_mean is for similarity="cross-correlation", not for "{similarity}": leave it out.'
            )
        if threshold is not None and similarity != "map-potential":
            raise InputError(
                f'threshold is for similarity="map-potential", not for "{similarity}": leave it out.'
            )
        given = topology
        if isinstance(topology, mdtraj.Topology):
            topology = topology.to_openmm()
        if not isinstance(topology, Topology):
            raise InputError(
                f"topology must be an openmm.app.Topology or an mdtraj.Topology, found {type(topology).__name__}."
            )
        self.topology: Topology = topology
        self.resolution = _positive(
            "resolution", in_angstrom(resolution, "resolution"), "the map's resolution in Å"
        )
        check_resolution(density_map, self.resolution)
        self.similarity_measure = similarity
        self.about_mean = about_mean
        self.parameter_name = parameter_name
        self.force_group = force_group
        self.sigma = SIGMA_PER_RESOLUTION * self.resolution

        check_system(topology, system)
        self._system = system
        self._bonds = bonded_pairs(topology)
        self.atoms = select_atoms(topology, atoms)
        if positions is not None:
            positions = self._of_all(positions)
            check_unit(self._bonds, positions)
        self._amplitudes, self._exponents = atom_gaussians(
            topology, self.atoms, weights, self.resolution, system, b_factors, occupancies
        )
        self.cutoff = self._default_cutoff() if cutoff is None else in_angstrom(cutoff, "cutoff")
        _positive(
            "cutoff", self.cutoff, f"a radius in Å, such as {CUTOFF_IN_SIGMA:g} times σ = {self.sigma:.2f} Å"
        )

        self.target, counted = self._prepared_target(density_map, mask, positions, crop_margin, voxel_size)
        self._potential = None
        if similarity == "map-potential":
            floor = density_map.data.mean(dtype=np.float64) if threshold is None else threshold
            self._potential = self._clamped(float(floor), counted)
        self._counted = counted
        self._check_weights()

        self.periodic = self._is_periodic(periodic, system)
        self._positions = positions
        self._molecules = molecule_numbers(topology, system) if self.periodic else None
        if system is not None:
            _warn_of_hindrances(system)

        self.automatic = isinstance(strength, str)
        if self.automatic and strength != "auto":
            raise InputError(f'strength="{strength}" is not known: give kJ/mol per fitted atom, or "auto".')
        per_atom = (
            STRENGTH_PER_ATOM if self.automatic else number_in(strength, unit.kilojoule_per_mole, "strength")
        )
        if not math.isfinite(per_atom) or per_atom < 0:
            raise InputError(f"strength must be 0 or more kJ/mol per fitted atom, found {per_atom:g}.")
        self.default_strength = per_atom * len(self.atoms)
        self._evaluator: SimilarityEnergy | None = None
        total = float(self.target.data.sum(dtype=np.float64))
        pulls = self.target.shape, total, similarity, self.resolution, self.atoms.tobytes()
        self._use = ParameterUse(given, parameter_name, pulls)
        if positions is not None:
            self._warn_of_no_force(positions)

    def _warn_of_no_force(self, positions: np.ndarray) -> None:
        """Say why there is exactly no force from the start, where a similarity has places without one."""
        if self.similarity_measure not in ("least-squares", "map-potential"):
            return
        _, gradient = self._similarity_and_gradient(positions)
        if gradient.any():
            return
        if self.similarity_measure == "map-potential":
            why = "no fitted atom is where the map rises above the threshold"
            remedy = "put the model into the map first, or lower the threshold"
        else:
            energy = self._energy(torch.from_numpy(self.atoms), self.topology.getNumAtoms())
            energy.measure = density_kernel.CROSS_CORRELATION_ABOUT_MEAN
            correlation = float(energy.similarity(torch.from_numpy(positions / ANGSTROM_PER_NANOMETER))[0])
            why = "the model has no density in the map"
            remedy = "put the model into the map first"
            if correlation < 0:
                why = f"the model's density and the map correlate by {correlation:.2g}, so that the best scale of the one is 0"
                remedy += ", look whether the map's sign is right, or take another similarity"
        warnings.warn(
            f'similarity="{self.similarity_measure}" has no force at these positions, because {why}: {remedy}',
            stacklevel=3,
        )

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
        """Make the force that `System.addForce` takes.

        Its strength is a parameter of the Context, `parameter_name`; a negative one pushes the model out of the density. In a
        System of another number of particles than the topology has atoms its first evaluation fails, and says so.

        Parameters
        ----------
        backend : {"auto", "TorchForce", "PythonTorchForce", "PythonForce", "CudaGraphForce"}
            ``auto`` takes the first of the three that run on every platform and work with the installed versions, and warns when
            it is not ``TorchForce``. ``CudaGraphForce`` is for the CUDA platform, where it costs its kernels and no more.
        parameter_derivative : bool, optional
            Whether a State can give ∂E/∂k = 1 − S; by default, where the backend can (``TorchForce``).
        device : torch.device or str, optional
            Where ``PythonForce`` works; by default a GPU if torch can use one. With the other backends the platform decides.
        cuda_graphs : bool
            Whether the launches of a step on a GPU are recorded once and replayed (``TorchForce`` on the CUDA platform, and
            ``PythonForce``); ``CudaGraphForce`` always does.
        """
        if self._system is None:
            self._use.note()
        else:
            warn_of_shared(self._system, self.parameter_name, to_come=1)
        return forces.create_force(
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

    def create_module(self) -> torch.nn.Module:
        """Make the TorchScript-compatible module behind the force.

        ``module(positions, strength) -> (energy, forces)``, or with box vectors, ``module(positions, box, strength)``, where the
        System is periodic; in nm and kJ/mol.
        """
        return self._module(torch.from_numpy(self.atoms), self.topology.getNumAtoms())

    def _module_of_fitted(self) -> torch.nn.Module:
        """Make the module for the positions of the fitted atoms alone."""
        return self._module(torch.arange(len(self.atoms)), len(self.atoms))

    def _module(self, places: torch.Tensor, n_particles: int) -> torch.nn.Module:
        """Make the module for so many positions, among which the fitted atoms have these places."""
        if not self.periodic:
            return self._energy(places, n_particles)
        energy = self._energy(torch.arange(len(self.atoms)), len(self.atoms))
        molecules = np.unique(self._molecules[self.atoms], return_inverse=True)[1].reshape(-1)
        counts = np.bincount(molecules)
        if self._positions is None:
            references = np.tile(self._map_centre(), (len(counts), 1))
        else:
            fitted = self._positions[self.atoms]
            references = np.stack(
                [np.bincount(molecules, fitted[:, axis]) / counts for axis in range(3)], axis=1
            )
        references = references / ANGSTROM_PER_NANOMETER
        return WholeMolecules(
            energy, places, n_particles, torch.from_numpy(molecules), torch.from_numpy(references)
        )

    def similarity(self, positions: Any) -> float:
        """Return the similarity S that the energy uses.

        Parameters
        ----------
        positions : Quantity or array_like (N, 3)
            Of all particles, in Å without a unit; molecules whole and beside the map.
        """
        positions = self._of_all(positions)
        check_unit(self._bonds, positions)
        return self._similarity_and_gradient(positions)[0]

    def calibrate(
        self,
        context: openmm.Context,
        ratio: float = 0.2,
        bounds: tuple[float, float] = STRENGTH_BOUNDS,
    ) -> float:
        """Set k in a Context from the ratio of the density force to the other forces.

        k becomes ``ratio`` times the root mean square force of everything else on the fitted atoms, over that of the density at
        k = 1, kept within ``bounds``. Call it on a thermalised model: at a minimum the other forces vanish.

        Parameters
        ----------
        context : openmm.Context
            Holds the force and the positions.
        ratio : float
            Density force over all other forces.
        bounds : tuple of float
            Least and largest k in kJ/mol per fitted atom. A model that already fits has hardly any density force, and without a
            bound k would run away.

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
        warn_of_shared(context.getSystem(), self.parameter_name)
        state = context.getState(positions=True)
        positions = state.getPositions(asNumpy=True).value_in_unit(unit.nanometer)
        self._check_numbers("positions", positions)
        found = context.getState(forces=True).getForces(asNumpy=True)
        total = found.value_in_unit(unit.kilojoule_per_mole / unit.nanometer)
        self._check_numbers("forces", total)
        _, gradient = self._similarity_and_gradient(
            positions * ANGSTROM_PER_NANOMETER, state.getPeriodicBoxVectors(asNumpy=True)
        )
        self._check_numbers("density forces", gradient)
        density = gradient[self.atoms]
        if not np.any(density):
            raise InputError(
                "strength cannot be calibrated: the model has no density in the map, so put the model into the map first."
            )
        other = np.asarray(total)[self.atoms] - context.getParameter(self.parameter_name) * density
        strength = ratio * np.sqrt((other**2).mean() / (density**2).mean())
        low, high = (bound * len(self.atoms) for bound in bounds)
        strength = float(np.clip(strength, low, high))
        context.setParameter(self.parameter_name, strength)
        return strength

    def _check_numbers(self, what: str, found: np.ndarray) -> None:
        lost = np.flatnonzero(~np.isfinite(found).all(axis=1))
        if len(lost):
            raise SimulationError(
                f"strength cannot be calibrated: the {what} of {named_atoms(self.topology, lost)} are not numbers, as the "
                "simulation in the Context blew up: minimise the model before, or make smaller steps."
            )

    def _of_all(self, positions: Any) -> np.ndarray:
        """Return positions of all particles in Å."""
        positions, n_particles = positions_in_angstrom(positions), self.topology.getNumAtoms()
        if len(positions) != n_particles:
            raise InputError(
                f"positions has {len(positions)} atoms but the topology has {n_particles}: give those of the whole System."
            )
        lost = np.flatnonzero(~np.isfinite(positions).all(axis=1))
        if len(lost):
            raise InputError(
                f"positions of {named_atoms(self.topology, lost)} are not numbers: correct them, or leave these atoms out."
            )
        return positions

    def _similarity_and_gradient(self, positions: Any, box: Any = None) -> tuple[float, np.ndarray]:
        if self._evaluator is None:
            self._evaluator = self._energy(torch.from_numpy(self.atoms), self.topology.getNumAtoms())
        in_nm = torch.from_numpy(self._of_all(positions) / ANGSTROM_PER_NANOMETER)
        if self.periodic and box is not None:
            whole = self.create_module().whole(
                in_nm, torch.as_tensor(np.asarray(value_in(box, unit.nanometer)))
            )
            in_nm = in_nm.index_copy(0, torch.from_numpy(self.atoms), whole)
        similarity, gradient = self._evaluator.similarity(in_nm)
        return float(similarity), gradient.numpy()

    def _energy(self, atoms: torch.Tensor, n_particles: int) -> SimilarityEnergy:
        nm = ANGSTROM_PER_NANOMETER
        matrix, origin = torch.from_numpy(self.target.matrix / nm), torch.from_numpy(self.target.origin / nm)
        if self._potential is not None:
            padding = 0 if self.target.periodic else _POTENTIAL_PADDING
            return MapPotentialEnergy(
                atoms,
                n_particles,
                self._integrals().to(torch.float32),
                torch.from_numpy(self._potential),
                matrix,
                origin - matrix @ torch.full((3,), float(padding), dtype=torch.float64),
                self.target.periodic,
            )
        target = (
            np.where(self._counted, self.target.data, np.float32(np.nan))
            if self._counted is not None
            else self.target.data
        )
        measure = {
            "cross-correlation": density_kernel.CROSS_CORRELATION_ABOUT_MEAN
            if self.about_mean
            else density_kernel.CROSS_CORRELATION,
            "inner-product": density_kernel.INNER_PRODUCT,
            "relative-entropy": density_kernel.RELATIVE_ENTROPY,
            "least-squares": density_kernel.LEAST_SQUARES,
        }[self.similarity_measure]
        return DensityEnergy(
            atoms,
            n_particles,
            (self._amplitudes * nm**3).to(torch.float32),
            (self._exponents * nm**2).to(torch.float32),
            self.cutoff / nm,
            torch.from_numpy(np.array(target, dtype=np.float32)),
            matrix,
            origin,
            self.target.periodic,
            measure,
            self._total_weight(),
            1.0 if self.similarity_measure in ("cross-correlation", "least-squares") else 0.0,
        )

    def _integrals(self) -> torch.Tensor:
        """∫ρ of each fitted atom without its cut-off."""
        return (self._amplitudes * (math.pi / self._exponents) ** 1.5).sum(dim=1)

    def _total_weight(self) -> float:
        """Σ of a complete model density over the voxels, for densities in nm⁻³ as the kernel has them."""
        return float(self._integrals().numpy().sum()) / self.target.voxel_volume * ANGSTROM_PER_NANOMETER**3

    def _default_cutoff(self) -> float:
        """Four σ of the atom whose density is widest, σ² being its mean square distance along an axis."""
        integrals = self._amplitudes * (math.pi / self._exponents) ** 1.5
        variance = (integrals / (2 * self._exponents)).sum(dim=1) / integrals.sum(dim=1)
        variance = variance[torch.isfinite(variance)]
        widest = float(variance.max()) if len(variance) else self.sigma**2
        return CUTOFF_IN_SIGMA * math.sqrt(widest)

    def _prepared_target(
        self,
        density_map: DensityMap,
        mask: Any,
        positions: np.ndarray | None,
        crop_margin: Any,
        voxel_size: Any,
    ) -> tuple[DensityMap, np.ndarray | None]:
        target = density_map
        if mask is not None:
            mask = np.asarray(mask)
            if mask.shape != density_map.shape or mask.dtype != bool:
                raise InputError(
                    f"mask must be a boolean array of the map's shape {density_map.shape}, found {mask.dtype} of {mask.shape}."
                )
            if not mask.any():
                raise InputError("mask leaves no voxel: mark those that count with True.")
        if positions is not None and crop_margin is not None:
            fitted = positions[self.atoms]
            if not target.periodic and not np.isfinite(target.value_at(fitted)).any():
                raise InputError(
                    "no fitted atom lies inside the map: check the map's origin, or put the model into the map first."
                )
            margin = in_angstrom(crop_margin, "crop_margin") + self.cutoff
            extent = (
                np.ptp((fitted - target.origin) @ np.linalg.inv(target.matrix).T, axis=0) * target.voxel_size
            )
            if not target.periodic or np.all(extent + 2 * margin < target.size * target.voxel_size):
                target = target.crop(fitted, margin)
        self.cropped = target.shape != density_map.shape
        counted = None if mask is None else _mask_on(target, density_map, mask)
        values = target.data if counted is None else target.data[counted]
        if values.size == 0 or float(values.max()) - float(values.min()) <= _FLAT * float(
            np.abs(values).max()
        ):
            raise InputError(
                "the map is flat where the model is, or varies too little beside its mean: check that map and model belong "
                "together; in a script, widen crop_margin or mask."
            )
        if self.similarity_measure == "relative-entropy" and not np.any(values > 0):
            raise InputError(
                'similarity="relative-entropy" needs positive map values, and there are none near the model.'
            )
        wanted = self._wanted_voxel_size(target, voxel_size)
        resampled = target if wanted is None else target.resample(wanted)
        self.resampled = resampled.shape != target.shape
        if self.resampled:
            target = resampled
            counted = None if mask is None else _mask_on(target, density_map, mask)
        return target, counted

    def _wanted_voxel_size(self, target: DensityMap, voxel_size: Any) -> float | None:
        """Return the step to resample to, in Å, or None where the target's own will do."""
        coarsest = COARSEST_VOXEL_IN_SIGMA * self.sigma
        if voxel_size != "auto":
            if self.similarity_measure == "map-potential":
                raise InputError(
                    'voxel_size is not for similarity="map-potential", which takes the map as it is.'
                )
            wanted = _positive("voxel_size", in_angstrom(voxel_size, "voxel_size"), "a length in Å")
            if wanted > coarsest * (1 + 1e-6):
                raise InputError(
                    f"voxel_size={wanted:g} Å is too coarse for resolution={self.resolution:g} Å: "
                    f'give at most {coarsest:.3f} Å, or "auto".'
                )
            return wanted
        if self.similarity_measure == "map-potential":
            return None
        if target.voxel_size.max() > coarsest * (1 + 1e-6):
            return coarsest
        enough = ENOUGH_VOXEL_IN_SIGMA * self.sigma
        return enough if np.prod(target.voxel_size) < FEWER_VOXELS * enough**3 else None

    def _clamped(self, floor: float, counted: np.ndarray | None) -> np.ndarray:
        """Scale the map to 0…1 above the threshold; around a finite map, zeros for the interpolation to fall off to."""
        data = self.target.data
        top = float(data.max() if counted is None else data[counted].max())
        if not floor < top:
            raise InputError(f"threshold {floor:g} is not below the map's largest value {top:g}: lower it.")
        potential = (np.clip(data, floor, top) - floor) / (top - floor)
        if counted is not None:
            potential = np.where(counted, potential, 0.0)
        padding = 0 if self.target.periodic else _POTENTIAL_PADDING
        return np.pad(potential, padding).astype(np.float32)

    def _check_weights(self) -> None:
        integrals = self._integrals()
        if not torch.any(integrals != 0):
            raise InputError("the weights of all fitted atoms are 0: such a model has no density.")
        divides = ("inner-product", "relative-entropy", "map-potential")
        if self.similarity_measure in divides and not float(integrals.sum()) > 0:
            raise InputError(
                f"the weights of the fitted atoms sum to {float(integrals.sum()):.3g}, but "
                f'similarity="{self.similarity_measure}" divides by their sum: use weights that are positive, such as "mass".'
            )
        if self.similarity_measure == "relative-entropy" and torch.any(integrals < 0):
            raise InputError(
                'similarity="relative-entropy" takes a logarithm of the density, but some weights are negative: use weights that '
                'are positive, such as "mass".'
            )
        if not 0 <= self.force_group < 32:
            raise InputError(f"force_group must be from 0 to 31, found {self.force_group}.")

    def _is_periodic(self, periodic: bool | None, system: openmm.System | None) -> bool:
        if periodic is not None:
            return periodic
        return system is not None and system.usesPeriodicBoundaryConditions()

    def _map_centre(self) -> np.ndarray:
        return self.target.origin + self.target.matrix @ (self.target.size - 1) / 2


# A map whose values differ by less than this, relative to the largest, holds rounding and no density.
_FLAT = 1e-6

# Two layers of zeros around a finite potential let the tricubic interpolation end with value and slope 0.
_POTENTIAL_PADDING = 2


def _positive(name: str, value: float, meaning: str) -> float:
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{name} must be positive, found {value:g}: give {meaning}.")
    return value


def _mask_on(target: DensityMap, density_map: DensityMap, mask: np.ndarray) -> np.ndarray:
    """Carry a mask over to the grid of the target, plane by plane."""
    on_map = DensityMap(mask.astype(np.float32), density_map.matrix, density_map.origin, density_map.periodic)
    nz, ny, nx = target.shape
    j, i = np.meshgrid(np.arange(ny), np.arange(nx), indexing="ij")
    counted = np.empty(target.shape, dtype=bool)
    for k in range(nz):
        index = np.stack([i.ravel(), j.ravel(), np.full(i.size, k)])
        values = on_map.value_at((target.matrix @ index).T + target.origin)
        counted[k] = np.nan_to_num(values, nan=0.0).reshape(ny, nx) >= 0.5
    return counted


def _warn_of_hindrances(system: openmm.System) -> None:
    for force in system.getForces():
        if isinstance(force, openmm.CMMotionRemover):
            warnings.warn(
                "the System has a CMMotionRemover, which stops the model from travelling into its density: "
                "create it with removeCMMotion=False",
                stacklevel=3,
            )
        elif "Barostat" in force.getName():
            warnings.warn(
                f"the System has a {force.getName()}, which moves the model against the fixed map: fit at constant volume",
                stacklevel=3,
            )
