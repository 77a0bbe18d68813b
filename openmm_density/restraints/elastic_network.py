"""`ElasticNetworkRestraint`: domains move as rigid bodies."""

from __future__ import annotations

from typing import Any

import numpy as np
from openmm import app
from scipy.spatial import cKDTree

from ..base.units import positive, takes_units
from ..models.chemistry.backbone import atoms_by_name, is_nucleotide, trace_atom
from .domains import given_domains
from .pairs import PairRestraint, distances

ELASTIC_NETWORK_FORCE_CONSTANT = 500.0
"""kJ/mol/nm², as elastic networks on coarse-grained proteins have it."""
ELASTIC_NETWORK_CUTOFF = 10.0
"""Å."""
ELASTIC_NETWORK_LIMIT = 1.0
"""Å by which a spring that counts as violated is too long or too short."""


class ElasticNetworkRestraint(PairRestraint):
    """Join the Cα (of nucleotides, P and C1') of each domain by springs, so that domains move as rigid bodies.

    E = ½ k (r - r₀)² for each pair of one domain that is within the cutoff in the start, with r₀ its distance there and k the
    Context parameter. There are no springs between domains. A spring counts as violated from 1 Å off.

    Parameters
    ----------
    topology : openmm.app.Topology or mdtraj.Topology
    positions : Quantity or array_like, shape (N, 3)
        Å where plain; they give the lengths, and the domains where these are to be found.
    domains : {"automatic", "chain", "all"}, sequence of str, or array_like of int
        By default found in the contacts of each chain, see `openmm_density.restraints.domains.find_domains`; or each chain, or
        all of the model as one; or an mdtraj selection for each domain; or a number for each residue, -1 for none.
    cutoff : float or Quantity
        In Å.
    force_constant, parameter_name, force_group, periodic
        As for `openmm_density.restraints.Restraint`; k is in kJ/mol/nm². Molecules of one domain may be wrapped apart.

    Attributes
    ----------
    domains : np.ndarray of int, shape (R,)
        The number of each residue's domain, -1 for none.

    Raises
    ------
    InputError
        The numbers of atoms differ, a position is not a number, the force constant is negative, or domains or cutoff are wrong.
    """

    name = "elastic"
    default_force_constant = ELASTIC_NETWORK_FORCE_CONSTANT
    default_parameter_name = "elastic_network_strength"

    @takes_units("positions", "cutoff")
    def __init__(
        self,
        topology: app.Topology,
        positions: Any,
        force_constant: Any = None,
        *,
        domains: Any = "automatic",
        cutoff: Any = ELASTIC_NETWORK_CUTOFF,
        **common: Any,
    ) -> None:
        super().__init__(topology, positions, force_constant, **common)
        reach = positive(cutoff, "cutoff", f"Å, such as {ELASTIC_NETWORK_CUTOFF:g}")
        self.domains = given_domains(self.topology, self.start, domains)
        nodes = [
            (atom, self.domains[names.index])
            for names in atoms_by_name(self.topology)
            if self.domains[names.index] >= 0 and (trace := trace_atom(names)) is not None
            for atom in sorted({trace, names.get("P", trace) if is_nucleotide(names) else trace})
        ]
        atoms, numbers = np.array(nodes, dtype=np.int64).reshape(-1, 2).T
        near = near_pairs(self.start[atoms], reach)
        near = near[numbers[near[:, 0]] == numbers[near[:, 1]]]
        self.pairs = atoms[near]
        self.lengths = distances(self.start, self.pairs)

    @property
    def n_domains(self) -> int:
        """Number of domains."""
        return len(np.unique(self.domains[self.domains >= 0]))

    def _energy(self) -> str:
        return f"0.5*{self.parameter_name}*(r - target)^2"

    def _limits(self) -> float:
        return ELASTIC_NETWORK_LIMIT


def near_pairs(points: np.ndarray, cutoff: float) -> np.ndarray:
    """Return the pairs of points within a cutoff, int (P, 2), sorted; the first is the smaller."""
    if len(points) < 2:
        return np.zeros((0, 2), dtype=np.int64)
    pairs = np.sort(cKDTree(points).query_pairs(cutoff, output_type="ndarray"), axis=1)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))].astype(np.int64)
