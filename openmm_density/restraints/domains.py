"""The domains of a model, from the contacts within each chain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mdtraj
import numpy as np
from openmm import app
from scipy import sparse
from scipy.sparse.linalg import eigsh
from scipy.spatial import cKDTree

from ..base.errors import InputError
from ..base.units import takes_units
from ..models.chemistry.backbone import atoms_by_name, chains, trace_atom

CONTACT = 10.0
"""Å; the longest distance between the Cα (or C1') of residues in contact."""
SMALLEST_DOMAIN = 40
"""Residues; a chain of fewer than twice as many is one domain."""
LOOSEST = 0.12
"""The largest conductance of a cut between two domains: the part of the smaller one's contacts that cross it."""


@takes_units("positions")
def find_domains(topology: app.Topology, positions: np.ndarray) -> np.ndarray:
    """Split each chain into domains: parts that have far more contacts inside than with each other.

    A chain's contact graph (Cα within 10 Å) is cut where its conductance is least among the cuts along the Fiedler vector of
    its normalised Laplacian, as long as both parts have 40 residues and share less than 12% of the contacts of the smaller
    part; and the parts are cut again. The limits err towards too many domains: springs across a hinge would hold what has to
    move, while the halves of one domain still have the force field between them. Open adenylate kinase is divided into its
    CORE, NMP and LID domains.

    Parameters
    ----------
    topology : openmm.app.Topology
        Chains with one id are taken as one chain, so that a gap does not divide a domain.
    positions : np.ndarray, shape (N, 3)
        Å.

    Returns
    -------
    np.ndarray of int, shape (R,)
        The number of each residue's domain, -1 for residues that belong to no polymer.
    """
    residues = atoms_by_name(topology)
    numbers = np.full(len(residues), -1)
    count = 0
    for chain in chains(residues):
        traces = positions[[trace_atom(residues[r]) for r in chain]]
        touching = cKDTree(traces).query_pairs(CONTACT, output_type="ndarray")
        size = (len(chain), len(chain))
        half = sparse.coo_array((np.ones(len(touching)), (touching[:, 0], touching[:, 1])), shape=size)
        for part in _parts((half + half.T).tocsr(), np.arange(len(chain))):
            numbers[chain[part]] = count
            count += 1
    return numbers


def given_domains(topology: app.Topology, positions: np.ndarray, domains: Any) -> np.ndarray:
    """Return each residue's domain (R,) as a user gives it: a word or selections as in `find_domains`, or numbers, or -1."""
    residues = atoms_by_name(topology)
    if isinstance(domains, str):
        if domains == "automatic":
            return find_domains(topology, positions)
        if domains in ("chain", "all"):
            numbers = np.full(len(residues), -1)
            for number, chain in enumerate(chains(residues)):
                numbers[chain] = number if domains == "chain" else 0
            return numbers
        raise InputError(
            "must be known domains",
            argument="domains",
            found=f'"{domains}"',
            remedy='use "automatic", "chain", "all", a list of mdtraj selections, or a number for each residue',
        )
    if len(domains) and all(isinstance(domain, str) for domain in domains):
        return _selected(topology, domains, len(residues))
    numbers = np.asarray(domains)
    if numbers.shape != (len(residues),) or not np.issubdtype(numbers.dtype, np.integer):
        raise InputError(
            f"must be a whole number for each of the {len(residues)} residues, or mdtraj selections",
            argument="domains",
            found=f"shape {numbers.shape} of {numbers.dtype}",
            remedy='give these, or "automatic"',
        )
    return numbers


def _selected(topology: app.Topology, selections: Sequence[str], n_residues: int) -> np.ndarray:
    numbers = np.full(n_residues, -1)
    trajectory_topology = mdtraj.Topology.from_openmm(topology)
    for number, selection in enumerate(selections):
        try:
            atoms = trajectory_topology.select(selection)
        except Exception as error:  # mdtraj's parser raises whatever its parts raise
            raise InputError(
                "must be mdtraj selections",
                argument="domains",
                found=f'"{selection}"',
                remedy='give selections such as "resid 0 to 99"',
            ) from error
        own = np.unique([trajectory_topology.atom(atom).residue.index for atom in atoms]).astype(int)
        if not len(own):
            raise InputError(
                "must each hold a residue",
                argument="domains",
                found=f'"{selection}", which selects nothing',
                remedy="give residues of the model",
            )
        if (numbers[own] >= 0).any():
            raise InputError(
                "must not overlap",
                argument="domains",
                found=f'"{selection}", which overlaps one before it',
                remedy="give each residue one domain",
            )
        numbers[own] = number
    return numbers


def _parts(touching: sparse.csr_array, members: np.ndarray) -> list[np.ndarray]:
    """Cut a contact graph recursively, as long as a cut has a small conductance."""
    n_pieces, piece = sparse.csgraph.connected_components(touching, directed=False)
    if n_pieces > 1:
        return [
            part
            for k in range(n_pieces)
            for part in _parts(touching[piece == k][:, piece == k], members[piece == k])
        ]
    if len(members) < 2 * SMALLEST_DOMAIN:
        return [members]
    conductance, inside = _best_cut(touching)
    if conductance > LOOSEST:
        return [members]
    return [part for side in (inside, ~inside) for part in _parts(touching[side][:, side], members[side])]


def _best_cut(touching: sparse.csr_array) -> tuple[float, np.ndarray]:
    """Return the least conductance of the cuts along the Fiedler vector, and which residues are on one side."""
    degree = np.asarray(touching.sum(axis=1)).ravel()
    scale = sparse.diags_array(degree**-0.5)
    laplacian = sparse.eye_array(len(degree)) - scale @ touching @ scale
    # Inverted about a number below its spectrum, since Lanczos' method does not find the small eigenvalues of long chains by
    # itself. A given first vector makes the result the same every time.
    first = np.linspace(1.0, 2.0, len(degree))
    values, vectors = eigsh(laplacian.tocsc(), k=2, sigma=-0.01, which="LM", v0=first)
    order = np.argsort(vectors[:, np.argmax(values)] / np.sqrt(degree), kind="stable")
    rank = np.empty(len(order), dtype=int)
    rank[order] = np.arange(len(order))
    # A contact is cut by every cut between the ranks of its two residues.
    pair = sparse.triu(touching, 1).tocoo()
    low, high = np.sort([rank[pair.row], rank[pair.col]], axis=0)
    opened = np.bincount(low, minlength=len(order)) - np.bincount(high, minlength=len(order))
    cut = np.cumsum(opened)[:-1]
    volume = np.cumsum(degree[order])
    smaller = np.minimum(volume[:-1], volume[-1] - volume[:-1])
    conductance = cut / smaller
    conductance[: SMALLEST_DOMAIN - 1] = np.inf
    conductance[len(order) - SMALLEST_DOMAIN :] = np.inf
    best = int(np.argmin(conductance))
    return float(conductance[best]), rank <= best
