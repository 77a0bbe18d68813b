"""The System of a complex with many like chains: the force field describes one of each kind, and its terms are copied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import openmm
from openmm import app

from ..chemistry.topologies import bonded_pairs, part_of_topology
from ..merging import copies_of_parts

LEAST_COPIED = 10_000
"""Atoms, which OpenMM describes in a third of a second."""
MOST_DESCRIBED = 0.5
"""Of all atoms: more are described about as soon as they are copied."""

Create = Callable[[app.Topology, Mapping[int, str]], openmm.System]


class Parts(NamedTuple):
    """Chains, or several that are bonded. `kinds`: of each, in order; `atoms` and `residues`: those of the first of each kind."""

    kinds: np.ndarray
    atoms: list[np.ndarray]
    residues: list[np.ndarray]


def described(
    forcefield: app.ForceField, topology: app.Topology, templates: Mapping[int, str], **options: Any
) -> openmm.System:
    """Return the System that ``createSystem`` makes. `templates`: of residues by their number, where they are told."""

    def create(part: app.Topology, named: Mapping[int, str]) -> openmm.System:
        residues = list(part.residues())
        of_residues = {residues[number]: name for number, name in named.items()}
        return forcefield.createSystem(part, residueTemplates=of_residues, **options)

    # A script sees all chains.
    system = None if forcefield._scripts else system_of_kinds(topology, templates, create)
    return create(topology, templates) if system is None else system


def system_of_kinds(
    topology: app.Topology, templates: Mapping[int, str], create: Create
) -> openmm.System | None:
    """Return the System of a topology most chains of which are like others, as `create` would make it; None of another one.

    `templates` as of `described`, which `create` takes as well.
    """
    n_atoms = topology.getNumAtoms()
    if n_atoms < LEAST_COPIED:
        return None
    parts = parts_of(topology, templates)
    n_described = sum(map(len, parts.atoms))
    if n_atoms - n_described < LEAST_COPIED or n_described > MOST_DESCRIBED * n_atoms:
        return None
    one_of_each = part_of_topology(topology, np.concatenate(parts.atoms), bonded_pairs(topology))
    one_of_each.setPeriodicBoxVectors(topology.getPeriodicBoxVectors())
    residues = np.concatenate(parts.residues).tolist()
    named = {number: templates[residue] for number, residue in enumerate(residues) if residue in templates}
    try:
        system = create(one_of_each, named)
    except Exception:  # as ForceField raises: of the whole it is told with the numbers of its own residues
        return None
    return copies_of_parts(system, np.array(list(map(len, parts.atoms))), parts.kinds)


def parts_of(topology: app.Topology, templates: Mapping[int, str]) -> Parts:
    """Return the parts of a topology that no bond joins; those are alike whose residues, templates and bonds are."""
    residues = list(topology.residues())
    members = [[(atom.name, atom.element) for atom in residue.atoms()] for residue in residues]
    numbers: dict[Any, int] = {}
    labels = [
        (residue.name, templates.get(number), *atoms)
        for number, (residue, atoms) in enumerate(zip(residues, members))
    ]
    kind_of_residue = np.array([numbers.setdefault(label, len(numbers)) for label in labels])
    sizes = np.array(list(map(len, members)))
    chain_of = np.array([residue.chain.index for residue in residues])
    residue_of = np.repeat(np.arange(len(residues)), sizes)
    bonds = bonded_pairs(topology)
    # Between two chains is a cut where no bond crosses it.
    first, last = np.sort(chain_of[residue_of[bonds]], axis=1).T
    crossing = np.zeros(topology.getNumChains() + 1, dtype=np.int64)
    np.add.at(crossing, first, 1)
    np.subtract.at(crossing, last, 1)
    is_cut = np.concatenate([[False], np.cumsum(crossing)[:-2] == 0])
    part_of_residue = np.unique(np.cumsum(is_cut)[chain_of], return_inverse=True)[1]
    part_of_bond = part_of_residue[residue_of[bonds[:, 0]]]
    order = np.argsort(part_of_bond, kind="stable")
    each = np.arange(part_of_residue[-1] + 2)
    of_residues, of_bonds = np.searchsorted(part_of_residue, each), np.searchsorted(part_of_bond[order], each)
    of_atoms = np.concatenate([[0], np.cumsum(sizes)])[of_residues]
    within = bonds[order] - of_atoms[part_of_bond[order], None]
    known: dict[tuple[bytes, bytes], int] = {}
    kinds, atoms, of_kinds = [], [], []
    for k in range(len(each) - 1):
        here = np.arange(*of_residues[k : k + 2])
        key = kind_of_residue[here].tobytes(), within[slice(*of_bonds[k : k + 2])].tobytes()
        if key not in known:
            known[key] = len(known)
            atoms.append(np.arange(*of_atoms[k : k + 2]))
            of_kinds.append(here)
        kinds.append(known[key])
    return Parts(np.array(kinds), atoms, of_kinds)
