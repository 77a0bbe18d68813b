"""What the density of the fitted atoms is made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import openmm
import torch
from openmm import unit
from openmm.app import Topology

from ..errors import InputError
from ..units import value_in
from .form_factors import form_factor_gaussians, resolution_gaussians

WEIGHTS = ("mass", "unity", "number", "charge", "electron", "xray")
FORM_FACTORS = ("electron", "xray")


def atom_gaussians(
    topology: Topology,
    atoms: np.ndarray,
    weights: Any,
    resolution: float,
    system: openmm.System | None = None,
    b_factors: Any = None,
    occupancies: Any = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Describe the density of each fitted atom.

    Parameters
    ----------
    topology : openmm.app.Topology
        Of N particles.
    atoms : np.ndarray, shape (M,)
        The fitted ones.
    weights : str or array_like
        One of `WEIGHTS`, or numbers over the fitted atoms or all particles.
    resolution : float
        In Å.
    system : openmm.System, optional
        For charges.
    b_factors, occupancies : array_like (N,), optional
        For form factors.

    Returns
    -------
    amplitudes, exponents : Tensor of float64, shape (M, C)
        See `openmm_density.energies.form_factors`.

    Raises
    ------
    InputError
        For weights that are not known, or need what is missing.
    """
    if isinstance(weights, str) and weights in FORM_FACTORS:
        b = _per_particle("b_factors", b_factors, topology, 0.0)[atoms]
        occupancy = _per_particle("occupancies", occupancies, topology, 1.0)[atoms]
        if np.any(b < 0):
            raise InputError(f"b_factors holds {b.min():g}, but a B factor cannot be negative.")
        symbols = [element.symbol for element in _elements(topology, atoms, weights)]
        return form_factor_gaussians(
            symbols, weights, torch.from_numpy(b), torch.from_numpy(occupancy), resolution
        )
    for name, given in (("b_factors", b_factors), ("occupancies", occupancies)):
        if given is not None:
            raise InputError(
                f'{name} is used only with weights="electron" or "xray": choose one of these or leave it out.'
            )
    if not isinstance(weights, str):
        values = _given_weights(weights, topology, atoms)
    elif weights == "unity":
        values = np.ones(len(atoms))
    elif weights == "charge":
        values = _charges(system)[atoms]
    elif weights == "mass":
        masses = [element.mass for element in _elements(topology, atoms, weights)]
        values = np.array([mass.value_in_unit(unit.dalton) for mass in masses])
    elif weights == "number":
        values = np.array([float(e.atomic_number) for e in _elements(topology, atoms, weights)])
    else:
        raise InputError(f'weights="{weights}" is not known: use one of {", ".join(WEIGHTS)}, or an array.')
    return resolution_gaussians(torch.from_numpy(values), resolution)


def _elements(topology: Topology, atoms: np.ndarray, weights: str) -> list[Any]:
    every = [atom.element for atom in topology.atoms()]
    elements = [every[index] for index in atoms]
    for index, element in zip(atoms, elements):
        if element is None:
            raise InputError(
                f'weights="{weights}" needs elements, but fitted atom {index} of the topology has none: leave it out of atoms.'
            )
    return elements


def _given_weights(weights: Any, topology: Topology, atoms: np.ndarray) -> np.ndarray:
    n_particles = topology.getNumAtoms()
    try:
        array = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"weights must be one of {', '.join(WEIGHTS)}, or an array of numbers.") from None
    if array.shape == (n_particles,):
        array = array[atoms]
    if array.shape != atoms.shape or not np.isfinite(array).all():
        raise InputError(
            f"weights must hold one finite number for each of the {len(atoms)} fitted atoms or {n_particles} particles, "
            f"found an array of shape {array.shape}."
        )
    return array.copy()


def _per_particle(name: str, values: Any, topology: Topology, default: float) -> np.ndarray:
    n_particles = topology.getNumAtoms()
    if values is None:
        return np.full(n_particles, default)
    array = np.asarray(value_in(values, unit.angstrom**2), dtype=np.float64)
    if array.shape != (n_particles,) or not np.isfinite(array).all():
        raise InputError(
            f"{name} must hold one finite number for each of the {n_particles} particles, found {array.shape}."
        )
    return array


def _charges(system: openmm.System | None) -> np.ndarray:
    if system is None:
        raise InputError('weights="charge" needs the charges of a System: pass system=.')
    for force in system.getForces():
        if isinstance(force, openmm.NonbondedForce):
            parameters = (force.getParticleParameters(i) for i in range(force.getNumParticles()))
            return np.array([charge.value_in_unit(unit.elementary_charge) for charge, _, _ in parameters])
    raise InputError(
        'weights="charge" needs charges, but system has no NonbondedForce: give the weights as an array.'
    )
