"""Which atoms are fitted, or scored."""

from __future__ import annotations

from typing import Any

import gemmi
import mdtraj
import numpy as np
from openmm.app import Topology

from ..chemistry.residues import is_water
from ..errors import InputError
from .selection_syntax import selection_error

_HALIDES = frozenset(("F", "Cl", "Br", "I"))


def select_atoms(topology: Topology, atoms: Any) -> np.ndarray:
    """Return the indices of the atoms that a selection names, in its order.

    Parameters
    ----------
    topology : openmm.app.Topology
        Of N particles.
    atoms : str or array_like
        "heavy" (no hydrogens, water or single ions), "all", an mdtraj selection, N booleans, or indices.

    Returns
    -------
    np.ndarray of int64, shape (M,)

    Raises
    ------
    InputError
        If it names nothing, an atom twice, or one that does not exist.
    """
    n_particles = topology.getNumAtoms()
    if isinstance(atoms, str) and atoms == "all":
        indices = np.arange(n_particles)
    elif isinstance(atoms, str) and atoms == "heavy":
        indices = np.array([atom.index for atom in topology.atoms() if _is_heavy(atom)], dtype=np.int64)
    elif isinstance(atoms, str):
        try:
            indices = mdtraj.Topology.from_openmm(topology).select(atoms)
        except Exception as error:
            raise selection_error(atoms, error) from error
    else:
        indices = _listed(atoms, n_particles)
    indices = indices.astype(np.int64)
    if indices.size == 0:
        raise InputError(
            f"selects nothing of the {n_particles} particles", argument="atoms", remedy="choose at least one"
        )
    if len(np.unique(indices)) < len(indices):
        raise InputError("holds an index more than once", argument="atoms", remedy="give each atom once")
    if indices.min() < 0 or indices.max() >= n_particles:
        wrong = indices[(indices < 0) | (indices >= n_particles)][0]
        raise InputError(
            f"must be indices from 0 to {n_particles - 1}",
            argument="atoms",
            found=wrong,
            remedy="leave out what is not there",
        )
    return indices


def _is_heavy(atom: Any) -> bool:
    if atom.element is None or atom.element.symbol in ("H", "D") or is_water(atom.residue.name):
        return False
    symbol = atom.element.symbol
    may_be_ion = gemmi.Element(symbol).is_metal or symbol in _HALIDES
    return not (may_be_ion and sum(1 for _ in atom.residue.atoms()) == 1)


def _listed(atoms: Any, n_particles: int) -> np.ndarray:
    try:
        indices = np.asarray(atoms)
    except ValueError:
        indices = np.array(["ragged"])
    if indices.dtype == bool:
        if indices.shape != (n_particles,):
            raise InputError(
                f"must have one entry for each of the {n_particles} particles",
                argument="atoms",
                found=f"an array of shape {indices.shape}",
                remedy="give as many booleans, or indices",
            )
        return np.flatnonzero(indices)
    if indices.ndim != 1 or (indices.size and not np.issubdtype(indices.dtype, np.integer)):
        raise InputError(
            "must be a selection, a boolean array or a list of indices",
            argument="atoms",
            found=f"an array of {indices.dtype} and shape {indices.shape}",
            remedy='give one of these, such as "heavy"',
        )
    return indices
