"""`ContactRestraint`: atoms that are not bonded do not come nearer than contact."""

from __future__ import annotations

from typing import Any

import numpy as np
from openmm import app

from ..models.chemistry.contacts import ContactAtoms
from .pairs import PairRestraint

CONTACT_FORCE_CONSTANT = 1.0e5
"""kJ/mol/nm²: as stiff as an angle between bonds. 0.1 Å too near costs 5 kJ/mol."""
CONTACT_MARGIN = 0.05
"""Å by which a pair is kept farther apart than a clash."""

REACH = 1.5
"""Å beyond contact within which pairs are held: a minimisation moves atoms by less."""


class ContactRestraint(PairRestraint):
    """Keep atoms, hydrogens among them, that are more than four bonds apart from overlapping by more than 0.35 Å.

    E = ½ k max(0, r₀ - r)² of each pair, with r₀ the sum of their van der Waals radii less that, and for two of N, O, F and S,
    which may form a hydrogen bond, less 0.4 Å more, or 0.6 Å for one of these and its hydrogen; k is the Context parameter.
    Metals are excluded. Force fields let two atoms overlap that a density presses together; programs for refinement have such
    a repulsion, too.

    The pairs are those near contact in ``positions``, up to `reach` Å beyond. Use it in a minimisation, not in dynamics, in which
    others meet.

    `topology` with bonds. `positions` (N, 3) in Å where plain; they decide which pairs may meet. `apart` int (P, 2), the lower
    index first: pairs that never occur together, as atoms of alternate conformers. `force_constant`, `parameter_name`,
    `force_group`, `periodic` as for `openmm_density.restraints.Restraint`; k is in kJ/mol/nm². Raises InputError if the
    numbers of atoms differ, a position is not a number, or the force constant is negative.
    """

    name = "contact"
    default_force_constant = CONTACT_FORCE_CONSTANT
    default_parameter_name = "contact_strength"

    def __init__(
        self,
        topology: app.Topology,
        positions: Any,
        force_constant: Any = None,
        *,
        reach: float = REACH,
        apart: np.ndarray | None = None,
        **common: Any,
    ) -> None:
        super().__init__(topology, positions, force_constant, **common)
        pairs, clash = ContactAtoms(self.topology).near(self.start, reach)
        meet = np.ones(len(pairs), dtype=bool)
        if apart is not None:
            numbers = np.array([len(self._atoms), 1])
            meet = ~np.isin(pairs @ numbers, apart @ numbers)
        self.pairs, self.lengths = pairs[meet], clash[meet] + CONTACT_MARGIN

    def _energy(self) -> str:
        return f"0.5*{self.parameter_name}*max(0, target - r)^2"

    def _limits(self) -> float:
        return CONTACT_MARGIN

    def _measured(self, positions: np.ndarray) -> np.ndarray:
        """Return distances as for any pairs, but none of those that are farther apart than they need be."""
        return np.minimum(super()._measured(positions), self.lengths)
