"""Which atoms are fitted, or scored."""

from __future__ import annotations

from typing import Any

import gemmi
import mdtraj
import numpy as np
from openmm.app import Topology
from openmm.app.topology import Chain

from ..base.errors import InputError
from ..base.wording import listing
from ..models.chemistry.residues import is_water
from .selection_syntax import selection_error

_MOST_CHAINS = 10
_HALIDES = frozenset(("F", "Cl", "Br", "I"))


def select_atoms(topology: Topology, atoms: Any) -> np.ndarray:
    """Return the indices of the atoms that a selection names, in its order, int64 (M,)."""
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
        raise _nothing_selected(topology, atoms)
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


def _nothing_selected(topology: Topology, atoms: Any) -> InputError:
    """Return the error for a selection without atoms; one of chains says which there are, as their numbers are no names."""
    chosen = f'"{atoms}"' if isinstance(atoms, str) else None
    remedy = "choose at least one"
    if chosen is not None and "chain" in atoms:
        chains = [f"{number} is {_described(chain)}" for number, chain in enumerate(topology.chains())]
        remedy = f"choose of the chains, which are counted from 0: {listing(chains, _MOST_CHAINS)}"
    return InputError(
        f"selects nothing of the {topology.getNumAtoms()} particles",
        argument="atoms",
        found=chosen,
        remedy=remedy,
    )


def _described(chain: Chain) -> str:
    """Return the name of a chain with its first and last residue, as in ``A (MET 1 to GLY 214)``."""
    residues = list(chain.residues())
    ends = [f"{each.name} {each.id}{each.insertionCode}".strip() for each in (*residues[:1], *residues[-1:])]
    return f"{chain.id} ({' to '.join(dict.fromkeys(ends))})"


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
