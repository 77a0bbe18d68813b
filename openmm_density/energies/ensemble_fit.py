"""`EnsembleFit`: replicas of a model whose mean density is compared with a map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import openmm
import torch
from torch import Tensor

from openmm_density.kernels import density as kernel
from openmm_density.kernels.density import measures

from ..base.errors import InputError
from ..base.units import ANGSTROM_PER_NANOMETER, takes_units
from ..models.merging import MergedSystem
from .density_fit import DensityFit
from .ensemble_density import EnsembleDensity
from .forces import BackendUnavailable, backend_problem
from .modules import DensityEnergy
from .native_force import Computation, make_force
from .replica_weights import PRIOR, ROUNDS, checked_weights, refined_weights

MOST_REPLICAS = 64
"""More share a map than any map can tell apart."""


class EnsembleFit:
    """Pull replicas of one model into a map together: their mean density is compared with it.

    A map is an average over the conformations that molecules had. The energy is k (1 − S(Σ w_i ρ_i)), where ρ_i is the density
    of replica i, w_i its weight, and S the similarity of a `DensityFit`; forces are its exact gradient. The replicas know of each
    other by the map alone, each has a force field of its own: they are Systems side by side in one
    (`merge_systems`). This is the restraint of an average over replicas (Cavalli, Camilloni and Vendruscolo 2013) of
    metainference (Bonomi et al. 2016) as it is used with maps (Bonomi, Pellarin and Vendruscolo 2018).

    Parameters
    ----------
    fit : DensityFit
        Of one replica: its atoms, map, resolution, similarity and strength. Not periodic.
    replicas : int
    replica_weights : array_like, shape (replicas,), optional
        That Contexts begin with; equal ones by default.

    Attributes
    ----------
    fit : DensityFit
    replicas : int
    replica_weights : np.ndarray, shape (replicas,)
    default_strength : float
        The total k that new Contexts begin with in kJ/mol: that of ``fit`` for each replica, as if it was alone.

    Raises
    ------
    InputError
        If ``fit`` is periodic, compares no densities or is linear in them, or the weights are not those of so many replicas.

    Examples
    --------
    >>> ensemble = EnsembleFit(DensityFit(density_map, topology, 5.0, positions=positions), replicas=4)
    >>> merged = merge_systems([system] * 4, displacements_apart([positions / 10] * 4, 4.0))
    >>> merged.system.addForce(ensemble.create_force(merged))
    """

    def __init__(self, fit: DensityFit, replicas: int, replica_weights: Any = None) -> None:
        if isinstance(replicas, bool) or not isinstance(replicas, (int, np.integer)) or replicas < 1:
            raise InputError(
                "must be a whole number, 1 or more",
                argument="replicas",
                found=replicas,
                remedy="give a number such as 4",
            )
        if replicas > MOST_REPLICAS:
            raise InputError(
                f"must be at most {MOST_REPLICAS}", argument="replicas", found=replicas, remedy="give fewer"
            )
        if fit.periodic:
            raise InputError(
                "must not be periodic: replicas side by side would need boxes of their own",
                argument="fit",
                remedy="make it for a System without a box",
            )
        if fit.operators is not None:
            raise InputError(
                "must not have operators: replicas of a unit with its copies have no mean density here",
                argument="fit",
                remedy="make it of the whole assembly",
            )
        if fit.measure.is_potential:
            raise InputError(
                "must compare densities, of which replicas have a mean",
                argument="fit",
                found=f'similarity="{fit.measure.name}"',
                remedy='take another similarity, such as "cross-correlation"',
            )
        if fit.measure.is_linear:
            raise InputError(
                "must tell a mean density from its parts: by this one the best replica alone is the best ensemble",
                argument="fit",
                found=f'similarity="{fit.measure.name}"',
                remedy='take another similarity, such as "cross-correlation"',
            )
        self.fit, self.replicas = fit, int(replicas)
        self.replica_weights = checked_weights(replica_weights, self.replicas)
        self._evaluator: EnsembleDensity | None = None

    @property
    def default_strength(self) -> float:
        """The total k that new Contexts begin with, in kJ/mol."""
        return self.replicas * self.fit.default_strength

    @property
    def parameter_name(self) -> str:
        """The Context parameter that holds the total k."""
        return self.fit.parameter_name

    @property
    def weight_names(self) -> list[str]:
        """The Context parameters that hold the weights, as ``density_strength_weight_0``."""
        return [f"{self.parameter_name}_weight_{number}" for number in range(self.replicas)]

    @takes_units(displacements="nm")
    def create_module(self, displacements: Any = None) -> EnsembleDensity:
        """Build the module behind the force: ``module(positions, strengths)`` with k and the weights behind it.

        Parameters
        ----------
        displacements : array_like, shape (replicas, 3), optional
            nm by which each is away from the map's frame; by default none is.
        """
        energy = self.fit.create_module()
        assert isinstance(energy, DensityEnergy)
        moved = np.zeros((self.replicas, 3)) if displacements is None else np.asarray(displacements, float)
        return EnsembleDensity(energy, torch.from_numpy(np.array(moved)))

    def create_force(self, merged: MergedSystem, backend: str = "NativeForce") -> openmm.Force:
        """Build the force that pulls all replicas, for ``merged.system.addForce``.

        Parameters
        ----------
        merged : MergedSystem
            The Systems of the replicas side by side, without density forces of their own.
        backend : {"NativeForce", "CudaGraphForce"}
            See `DensityFit.create_force`; on a GPU both are a CUDA graph.

        Raises
        ------
        InputError
            If the System has other replicas, or of another number of particles.
        BackendUnavailable
            Where the force cannot be made here.
        """
        own = np.diff(merged.first)
        n_atoms = self.fit.topology.getNumAtoms()
        if len(merged) != self.replicas or (own != n_atoms).any():
            raise InputError(
                f"must be of {self.replicas} replicas of {n_atoms} particles each",
                argument="merged",
                found=f"{len(merged)} of {', '.join(map(str, dict.fromkeys(own.tolist())))}",
                remedy="give as many Systems of the topology that the DensityFit was made of",
            )
        if backend not in ("NativeForce", "CudaGraphForce"):
            raise InputError(
                "must be NativeForce or CudaGraphForce, which take several parameters",
                argument="backend",
                found=repr(backend),
                remedy="choose one of these",
            )
        problem = backend_problem(backend)
        if problem is not None:
            raise BackendUnavailable(
                f"{backend} does not work here ({problem})", remedy="see openmm-density doctor"
            )
        computation = Computation(self.create_module(merged.displacements), None, False, 1 + self.replicas)
        names = [self.parameter_name, *self.weight_names]
        values = [self.default_strength, *self.replica_weights.tolist()]
        force = make_force(computation, names, values, kind=backend)
        force.setForceGroup(self.fit.force_group)
        force.setName("EnsembleFit")
        return force

    def set_weights(self, context: openmm.Context, weights: Any) -> None:
        """Set the weights in a Context, and as those to begin with."""
        self.replica_weights = checked_weights(weights, self.replicas)
        for name, weight in zip(self.weight_names, self.replica_weights):
            context.setParameter(name, weight)

    @takes_units("positions")
    def similarity(self, positions: Sequence[Any], weights: Any = None) -> float:
        """Return the similarity S of the mean density that the energy uses.

        Parameters
        ----------
        positions : sequence of Quantity or array_like, each (N, 3)
            Of every replica in the map's frame, in Å without a unit.
        weights : array_like, shape (replicas,), optional
            By default `replica_weights`.
        """
        if self._evaluator is None:
            self._evaluator = self.create_module()
        weights = self.replica_weights if weights is None else checked_weights(weights, self.replicas)
        found, _ = self._evaluator.of_fitted(self._among_all(positions), torch.from_numpy(weights))
        return float(found)

    @takes_units("positions")
    def weight_gradient(self, positions: Sequence[Any], weights: Any = None) -> tuple[float, np.ndarray]:
        """Return S, and ∂S/∂w by the kernel's derivative with respect to the amplitudes, shape (replicas,).

        Parameters
        ----------
        positions, weights
            As for `similarity`. The gradient is that of S over any weights; S of a cross-correlation does not change with their
            sum, so that Σ w ∂S/∂w is then 0.
        """
        weights = self.replica_weights if weights is None else checked_weights(weights, self.replicas)
        return self._weighted(self._fitted(positions), weights)

    @takes_units("positions")
    def position_gradient(self, positions: Sequence[Any], weights: Any = None) -> tuple[float, np.ndarray]:
        """Return S, and ∂S/∂positions in Å⁻¹, shape (replicas, N, 3): 0 for atoms that are not fitted.

        Parameters
        ----------
        positions, weights
            As for `similarity`.
        """
        if self._evaluator is None:
            self._evaluator = self.create_module()
        weights = self.replica_weights if weights is None else checked_weights(weights, self.replicas)
        found, gradient = self._evaluator.similarity(
            self._among_all(positions), torch.from_numpy(np.ascontiguousarray(weights))
        )
        return float(found), gradient.numpy().reshape(self.replicas, -1, 3) / ANGSTROM_PER_NANOMETER

    @takes_units("positions")
    def refine_weights(
        self, positions: Sequence[Any], weights: Any = None, prior: float = PRIOR, rounds: int = ROUNDS
    ) -> np.ndarray:
        """Return the weights with which these replicas fit the map best, shape (replicas,).

        Parameters
        ----------
        positions, weights
            As for `similarity`; the weights are those to begin with.
        prior : float
        rounds : int
            See `openmm_density.energies.replica_weights.refined_weights`.
        """
        start = self.replica_weights if weights is None else checked_weights(weights, self.replicas)
        if self.replicas == 1:
            return start
        fitted = self._fitted(positions)
        return refined_weights(lambda tried: self._weighted(fitted, tried), start, prior, rounds)

    def _weighted(self, fitted: Tensor, weights: np.ndarray) -> tuple[float, np.ndarray]:
        if self._evaluator is None:
            self._evaluator = self.create_module()
        module = self._evaluator
        w = torch.from_numpy(np.ascontiguousarray(weights, dtype=np.float64)).requires_grad_()
        amplitudes = module.amplitudes * w.to(torch.float32).index_select(0, module.replicas)[:, None]
        shape = list(module.target.shape)
        density = kernel.density_splat(
            fitted, amplitudes, module.exponents, module.cutoff, module.matrix, module.origin, shape
        )
        counted = torch.isfinite(module.target)
        chosen = [values[counted].to(torch.float64) for values in (density, module.target)]
        similarity = measures.similarity(*chosen, module.measure, module.total_weight)
        if not similarity.requires_grad:
            return float(similarity), np.zeros(len(weights))
        similarity.backward()
        return float(similarity.detach()), w.grad.numpy().copy()

    def _fitted(self, positions: Sequence[Any]) -> Tensor:
        return torch.cat([self.fit.fitted_positions(each) for each in self._checked(positions)])

    def _among_all(self, positions: Sequence[Any]) -> Tensor:
        found = [np.asarray(self.fit._checked(each)) for each in self._checked(positions)]
        return torch.from_numpy(np.concatenate(found) / ANGSTROM_PER_NANOMETER)

    def _checked(self, positions: Sequence[Any]) -> Sequence[Any]:
        if len(positions) != self.replicas:
            raise InputError(
                "must be those of each replica",
                argument="positions",
                found=f"of {len(positions)} for {self.replicas}",
                remedy="give a list of arrays",
            )
        return positions
