"""`ContactRestraint`: atoms that are not bonded do not come nearer than contact."""

from __future__ import annotations

from typing import Any

import gemmi
import numpy as np
from openmm import app
from scipy.sparse import csr_array
from scipy.spatial import cKDTree

from openmm_density.models.elements import is_hydrogen, is_metal

from .pairs import PairRestraint, distances
from .restraint import Violation

CONTACT_STRENGTH = 1.0e5
"""kJ/mol/nm²: as stiff as an angle between bonds. 0.1 Å too near costs 5 kJ/mol."""
CLASH_OVERLAP = 0.4
"""Å by which the van der Waals spheres of a clashing pair overlap (as MolProbity)."""
HYDROGEN_BOND_ALLOWANCE = 0.4
"""Å by which a pair of N, O, F or S may come nearer than that: a hydrogen may sit between them."""
CONTACT_MARGIN = 0.05
"""Å by which a pair is kept farther apart than a clash."""
BONDS_APART = 4
"""Over so many bonds backbones and rings hold atoms close by themselves (O to the next C in a helix: 2.8 Å)."""

# Å beyond contact within which pairs are held: a minimisation moves atoms by less.
_REACH = 1.5
_POLAR = frozenset({"N", "O", "F", "S"})


class ContactRestraint(PairRestraint):
    """Keep heavy atoms that are more than four bonds apart from overlapping by more than 0.35 Å.

    E = ½ k max(0, r₀ - r)² of each pair, with r₀ the sum of their van der Waals radii less that, and for two of N, O, F and S,
    which may share a hydrogen, less 0.4 Å more; k is the Context parameter. Metals are let alone. Force fields let two atoms that
    a density presses together overlap; programs for refinement have such a repulsion for this.

    The pairs are those near contact in ``positions``. Use it in a minimisation, not in dynamics, in which others meet.

    Parameters
    ----------
    topology : openmm.app.Topology or mdtraj.Topology
        With bonds.
    positions : Quantity or array_like of shape (N, 3)
        Å where plain; they decide which pairs may meet.
    strength, parameter_name, force_group, periodic
        As for `openmm_density.restraints.Restraint`; k is in kJ/mol/nm².

    Raises
    ------
    InputError
        The numbers of atoms differ, a position is not a number, or the strength is negative.
    """

    name = "contact"
    usual_strength = CONTACT_STRENGTH
    usual_parameter_name = "contact_strength"

    def __init__(self, topology: app.Topology, positions: Any, strength: Any = None, **common: Any) -> None:
        super().__init__(topology, positions, strength, **common)
        self.pairs, clash = near_contacts(self.topology, self.start, _REACH)
        self.lengths = clash + CONTACT_MARGIN

    def _energy(self) -> str:
        return f"0.5*{self.parameter_name}*max(0, target - r)^2"

    def _limits(self) -> float:
        return CONTACT_MARGIN

    def violations(self, positions: Any) -> list[Violation]:
        """List the clashes among the pairs, the worst first; see `Restraint.violations`."""
        return [found for found in super().violations(positions) if found.value < found.target]


def near_contacts(
    topology: app.Topology, positions: np.ndarray, reach: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Find the pairs of heavy atoms that clash, or are at most so much farther apart.

    Parameters
    ----------
    topology : openmm.app.Topology
        With bonds.
    positions : np.ndarray, shape (N, 3)
        Å.
    reach : float
        Å beyond the distance at which a pair clashes.

    Returns
    -------
    pairs : np.ndarray of int, shape (P, 2)
    clash : np.ndarray, shape (P,)
        The distance in Å below which each pair clashes.
    """
    radii, polar = contact_radii(topology)
    counted = [a.element is not None and not is_hydrogen(a) and not is_metal(a) for a in topology.atoms()]
    chosen = np.flatnonzero(counted)
    if len(chosen) < 2:
        return np.zeros((0, 2), dtype=np.int64), np.zeros(0)
    farthest = 2 * radii[chosen].max() - CLASH_OVERLAP + reach
    pairs = chosen[cKDTree(positions[chosen]).query_pairs(farthest, output_type="ndarray")]
    i, j = pairs[:, 0], pairs[:, 1]
    clash = radii[i] + radii[j] - CLASH_OVERLAP - HYDROGEN_BOND_ALLOWANCE * (polar[i] & polar[j])
    near = distances(positions, pairs) < clash + reach
    pairs, clash = pairs[near], clash[near]
    apart = ~_joined(topology, pairs)
    order = np.lexsort((pairs[apart, 1], pairs[apart, 0]))
    return pairs[apart][order], clash[apart][order]


def contact_radii(topology: app.Topology) -> tuple[np.ndarray, np.ndarray]:
    """Return van der Waals radii in Å, 0 for what is no atom, and which atoms may share a hydrogen, each of shape (N,)."""
    symbols = [None if atom.element is None else atom.element.symbol for atom in topology.atoms()]
    radii = {symbol: gemmi.Element(symbol).vdw_r for symbol in set(symbols) if symbol is not None}
    return (
        np.array([radii.get(symbol, 0.0) for symbol in symbols], dtype=np.float64),
        np.array([symbol in _POLAR for symbol in symbols], dtype=bool),
    )


def _joined(topology: app.Topology, pairs: np.ndarray) -> np.ndarray:
    """Tell which pairs are at most `BONDS_APART` bonds apart."""
    bonds = np.array([(a.index, b.index) for a, b in topology.bonds()], dtype=np.int64).reshape(-1, 2)
    both = np.concatenate([bonds, bonds[:, ::-1]])
    size = (topology.getNumAtoms(),) * 2
    step = csr_array((np.ones(len(both), dtype=np.int32), (both[:, 0], both[:, 1])), shape=size)
    walks, near = step, step
    for _ in range(BONDS_APART - 1):
        walks = walks @ step
        near = near + walks
    if not len(pairs):
        return np.zeros(0, dtype=bool)
    return np.asarray(near[pairs[:, 0], pairs[:, 1]]).ravel() > 0
