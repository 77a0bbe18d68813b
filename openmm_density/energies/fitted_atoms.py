"""The atoms that are fitted: which they are, what each weighs, and the Gaussians that are its density."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import openmm
import torch
from openmm import unit
from openmm.app import Topology

from ..base.errors import InputError, as_argument
from ..models.symmetry_operators import SymmetryOperators
from .atom_selection import select_atoms
from .form_factors import form_factor_gaussians, resolution_gaussians
from .measures import Measure
from .weight_names import FORM_FACTORS, WEIGHTS, check_weights_name


@dataclass(frozen=True, eq=False)
class AtomGaussians:
    """The density of each of M atoms as a sum of Gaussians, Σ_c A_c exp(−α_c r²)."""

    # `amplitudes`, `exponents` float64 (M, C) in Å⁻³ and Å⁻²; see `openmm_density.energies.form_factors`.
    amplitudes: torch.Tensor
    exponents: torch.Tensor

    def weighted(self, weights: np.ndarray) -> AtomGaussians:
        """Return the densities times a number for each atom, shape (M,)."""
        return AtomGaussians(self.amplitudes * torch.from_numpy(weights)[:, None], self.exponents)

    def repeated(self, n_copies: int) -> AtomGaussians:
        """Return the densities of so many copies of the atoms, one copy after the other."""
        return AtomGaussians(self.amplitudes.repeat(n_copies, 1), self.exponents.repeat(n_copies, 1))

    @cached_property
    def integrals(self) -> torch.Tensor:
        """∫ρ of each atom without its cut-off, shape (M,)."""
        return self._component_integrals.sum(dim=1)

    @property
    def largest_variance(self) -> float | None:
        """σ² in Å² of the widest atom, its mean square distance along an axis; None where none of them has a width."""
        variance = (self._component_integrals / (2 * self.exponents)).sum(dim=1) / self.integrals
        variance = variance[torch.isfinite(variance)]
        return float(variance.max()) if len(variance) else None

    @property
    def _component_integrals(self) -> torch.Tensor:
        return self.amplitudes * (math.pi / self.exponents) ** 1.5


class FittedAtoms:
    """The atoms whose density is compared with a map, and what each contributes.

    `topology` of N particles; `atoms`: see `openmm_density.energies.atom_selection.select_atoms`; `weights`: one of
    `WEIGHTS`, or numbers over the fitted atoms or all particles; `system` for charges; `b_factors`, `occupancies` (N,)
    for form factors. Attributes: `indices` int64 (M,). Raises InputError for a selection that cannot be used, or
    weights that are not known or need what is missing.
    """

    def __init__(
        self,
        topology: Topology,
        atoms: Any,
        weights: Any,
        *,
        system: openmm.System | None = None,
        b_factors: Any = None,
        occupancies: Any = None,
    ) -> None:
        self.indices = atoms = select_atoms(topology, atoms)
        self._site_weights: np.ndarray | None = None
        self._table = weights if isinstance(weights, str) and weights in FORM_FACTORS else None
        if self._table is None:
            for name, given in (("b_factors", b_factors), ("occupancies", occupancies)):
                if given is not None:
                    tables = " or ".join(as_argument("weights", table) for table in FORM_FACTORS)
                    raise InputError(
                        f"is used only with {tables}",
                        argument=name,
                        remedy="choose one of these, or leave it out",
                    )
            self._weights = torch.from_numpy(_weights(weights, topology, atoms, system))
            return
        b = _per_particle("b_factors", b_factors, topology, 0.0)[atoms]
        if np.any(b < 0):
            raise InputError(
                "must not be negative", argument="b_factors", found=b.min(), remedy="give B in Å², 0 or more"
            )
        self._b_factors = torch.from_numpy(b)
        self._occupancies = torch.from_numpy(_per_particle("occupancies", occupancies, topology, 1.0)[atoms])
        self._symbols = [element.symbol for element in _elements(topology, atoms, weights)]

    def chosen(self, kept: np.ndarray) -> FittedAtoms:
        """Return some of the fitted atoms: `kept` bool (M,)."""
        result = copy.copy(self)
        result.indices = self.indices[kept]
        if self._site_weights is not None:
            result._site_weights = self._site_weights[kept]
        if self._table is None:
            result._weights = self._weights[torch.from_numpy(kept)]
        else:
            result._b_factors = self._b_factors[torch.from_numpy(kept)]
            result._occupancies = self._occupancies[torch.from_numpy(kept)]
            result._symbols = [symbol for symbol, keep in zip(self._symbols, kept) if keep]
        return result

    def with_copies(self, n_particles: int, originals: np.ndarray, occupancies: np.ndarray) -> FittedAtoms:
        """Return the fitted atoms with copies of some particles, numbered from `n_particles` on, behind them.

        `originals` int (K,): the particle that each is a copy of; those of particles that are not fitted are not fitted
        either.
        """
        place = np.full(n_particles, -1)
        place[self.indices] = np.arange(len(self.indices))
        is_fitted = place[originals] >= 0
        every = np.concatenate([np.arange(len(self.indices)), place[originals[is_fitted]]])
        result = copy.copy(self)
        result.indices = np.concatenate([self.indices, n_particles + np.flatnonzero(is_fitted)])
        of_each = torch.from_numpy(occupancies[result.indices])
        if self._site_weights is not None:
            result._site_weights = self._site_weights[every]
        if self._table is None:
            result._weights = self._weights[every] * of_each
        else:
            result._b_factors = self._b_factors[every]
            result._occupancies = self._occupancies[every] * of_each
            result._symbols = [self._symbols[k] for k in every]
        return result

    def gaussians(self, resolution: float) -> AtomGaussians:
        """Return the atoms' densities as a map at a resolution (Å) shows them."""
        if self._table is None:
            found = AtomGaussians(*resolution_gaussians(self._weights, resolution))
        else:
            factors = self._symbols, self._table, self._b_factors, self._occupancies, resolution
            found = AtomGaussians(*form_factor_gaussians(*factors))
        return found if self._site_weights is None else found.weighted(self._site_weights)

    def share_sites(self, operators: SymmetryOperators, positions: np.ndarray | None) -> None:
        """Divide atoms on elements of symmetry among the copies, where positions (N, 3) in Å tell which they are."""
        if positions is not None:
            occupancies = None if self._table is None else self._occupancies.numpy()
            self._site_weights = operators.site_weights(positions[self.indices], occupancies)


def check_weights(gaussians: AtomGaussians, measure: Measure) -> None:
    """Refuse weights of which a measure of similarity can make nothing."""
    integrals = gaussians.integrals
    if not torch.any(integrals != 0):
        raise InputError(
            "of all fitted atoms are 0, and such a model has no density",
            argument="weights",
            remedy="give some atoms weight, or fit others",
        )
    if measure.divides_by_weight and not float(integrals.sum()) > 0:
        raise InputError(
            f"must have a positive sum, by which {as_argument('similarity', measure.name)} divides",
            argument="weights",
            found=float(integrals.sum()),
            remedy='use weights that are positive, such as "mass"',
        )
    if measure.takes_logarithm and torch.any(integrals < 0):
        raise InputError(
            f"must not be negative for {as_argument('similarity', measure.name)}, which takes a logarithm of the density",
            argument="weights",
            found=float(integrals.min()),
            remedy='use weights that are positive, such as "mass"',
        )


def _weights(weights: Any, topology: Topology, atoms: np.ndarray, system: openmm.System | None) -> np.ndarray:
    """Return the integral of each fitted atom's density."""
    if not isinstance(weights, str):
        return _given_weights(weights, topology, atoms)
    check_weights_name(weights)
    if weights == "unity":
        return np.ones(len(atoms))
    if weights == "charge":
        return _charges(system)[atoms]
    if weights == "mass":
        elements = _elements(topology, atoms, weights)
        masses = {element: element.mass.value_in_unit(unit.dalton) for element in set(elements)}
        return np.array([masses[element] for element in elements])
    return np.array([float(element.atomic_number) for element in _elements(topology, atoms, weights)])


def _elements(topology: Topology, atoms: np.ndarray, weights: str) -> list[Any]:
    every = [atom.element for atom in topology.atoms()]
    elements = [every[index] for index in atoms]
    for index, element in zip(atoms, elements):
        if element is None:
            raise InputError(
                f"{as_argument('weights', weights)} needs elements, but fitted atom {index} of the topology has none",
                remedy=f"leave it out of {as_argument('atoms')}",
            )
    return elements


def _given_weights(weights: Any, topology: Topology, atoms: np.ndarray) -> np.ndarray:
    n_particles = topology.getNumAtoms()
    try:
        array = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            "must be a name or an array of numbers",
            argument="weights",
            remedy=f"use one of {', '.join(WEIGHTS)}, or numbers",
        ) from None
    if array.shape == (n_particles,):
        array = array[atoms]
    if array.shape != atoms.shape or not np.isfinite(array).all():
        raise InputError(
            f"must hold one finite number for each of the {len(atoms)} fitted atoms or {n_particles} particles",
            argument="weights",
            found=_contents(array),
            remedy="give as many, all of them finite",
        )
    return array.copy()


def _per_particle(name: str, values: Any, topology: Topology, default: float) -> np.ndarray:
    n_particles = topology.getNumAtoms()
    if values is None:
        return np.full(n_particles, default)
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (n_particles,) or not np.isfinite(array).all():
        raise InputError(
            f"must hold one finite number for each of the {n_particles} particles",
            argument=name,
            found=_contents(array),
            remedy="give as many, all of them finite",
        )
    return array


def _contents(array: np.ndarray) -> str:
    bad = int(np.count_nonzero(~np.isfinite(array)))
    return f"an array of shape {array.shape}{f', {bad} of them not finite' if bad else ''}"


def _charges(system: openmm.System | None) -> np.ndarray:
    if system is None:
        raise InputError(
            f"{as_argument('weights', 'charge')} needs the charges of a System",
            remedy=f"pass {as_argument('system')}",
        )
    for force in system.getForces():
        if isinstance(force, openmm.NonbondedForce):
            parameters = (force.getParticleParameters(i) for i in range(force.getNumParticles()))
            return np.array([charge.value_in_unit(unit.elementary_charge) for charge, _, _ in parameters])
    raise InputError(
        f"{as_argument('weights', 'charge')} needs charges, but system has no NonbondedForce",
        remedy="give the weights as an array",
    )
