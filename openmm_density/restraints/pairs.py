"""`PairRestraint`: distances between atoms held at lengths; `AdaptivePairRestraint`: released where they are pulled far off."""

from __future__ import annotations

from typing import Any

import numpy as np
import openmm
from openmm import unit

from ..models.merging import call_for_each
from .restraint import Restraint, Violation


class PairRestraint(Restraint):
    """Hold distances r of pairs of atoms at lengths r₀, by default with k in kJ/mol/nm²."""

    force_constant_unit = unit.kilojoule_per_mole / unit.nanometer**2
    pairs: np.ndarray  # int (P, 2)
    lengths: np.ndarray  # (P,), r₀ in Å

    @property
    def n_terms(self) -> int:
        """Number of pairs."""
        return len(self.pairs)

    def _energy(self) -> str:
        """Return the energy of a pair as an expression of r and the names of `_parameters`."""
        raise NotImplementedError

    def _parameters(self) -> dict[str, np.ndarray]:
        """Return the parameters of each pair in the expression, by name; lengths in nm."""
        return {"target": self.lengths / 10.0}

    def _limits(self) -> np.ndarray | float:
        """Return the deviations in Å above which pairs count as violated."""
        raise NotImplementedError

    def create_force(self) -> openmm.CustomBondForce:
        """Build the force that ``System.addForce`` takes; each call builds another."""
        force = openmm.CustomBondForce(self._energy())
        parameters = self._parameters()
        for name in parameters:
            force.addPerBondParameter(name)
        rows = np.stack(list(parameters.values()), axis=1).tolist()
        call_for_each(force, "addBond", self.pairs, rows)
        return self._finish(force)

    def violations(self, positions: Any) -> list[Violation]:
        """List the distances beyond their limit, the worst first; see `Restraint.violations`."""
        measured = self._measured(self._checked(positions))
        limits = np.broadcast_to(self._limits(), measured.shape)
        # Few of many are named.
        rows = np.flatnonzero(np.abs(measured - self.lengths) > limits)
        pairs = self.pairs[rows]
        names = [f"{self._atoms[i].name} to {self._atoms[j].name}" for i, j in pairs.tolist()]
        return self._violated(pairs, measured[rows], self.lengths[rows], limits[rows], names, "Å")

    def _measured(self, positions: np.ndarray) -> np.ndarray:
        """Return the distances that are compared with the lengths, in Å, as are the positions (N, 3)."""
        return distances(positions, self.pairs)


class AdaptivePairRestraint(PairRestraint):
    """Hold distances by Barron's loss, see `DistanceRestraint`, which releases those that are pulled far off; k in kJ/mol."""

    force_constant_unit = unit.kilojoule_per_mole
    tolerance: float  # Half the width of the flat bottom, and of the well beyond it, as parts of the length
    well: float
    fall_off: float  # How much faster the loss of long distances levels off than that of short ones

    def _energy(self) -> str:
        return (
            f"{self.parameter_name}*(2 - alpha)/alpha*((1 + (excess/well)^2/(2 - alpha))^(alpha/2) - 1);"
            "excess = max(0, abs(r - target) - tolerance)"
        )

    def _parameters(self) -> dict[str, np.ndarray]:
        lengths = self.lengths / 10.0
        return {
            "target": lengths,
            "tolerance": self.tolerance * lengths,
            "well": self._wells() / 10.0,
            "alpha": -2.0 - self.fall_off * np.log(self.lengths),
        }

    def _limits(self) -> np.ndarray:
        return self.tolerance * self.lengths + 2 * self._wells()

    def _wells(self) -> np.ndarray:
        """Return half the width of each well, in Å."""
        return self.well * self.lengths


def distances(positions: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return the distances between pairs of atoms, shape (P,). `positions` (N, 3); `pairs` int (P, 2)."""
    return np.linalg.norm(positions[pairs[:, 0]] - positions[pairs[:, 1]], axis=1)
