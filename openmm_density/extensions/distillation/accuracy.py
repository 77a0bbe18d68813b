"""How near the students are to their teacher, in kcal/mol and Å, the units in which force fields are compared."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...base.units import takes_units

KJ_PER_KCAL = 4.184
FORCE_LIMIT = 1.0
"""kcal/mol/Å: the mean error of a force's component on held-out geometries at 300 K that a potential may have."""


@dataclass(frozen=True)
class Accuracy:
    """Errors of the students' mean on geometries that none of them was trained on.

    Attributes
    ----------
    n_geometries : int
        Held-out ones.
    temperature : float
        K at which these were drawn.
    energy_mae, energy_worst : float
        Of energies without their mean, which no force depends on, in kcal/mol: the mean and the largest.
    force_mae, force_worst : float
        Of components of forces, in kcal/mol/Å.
    force_mae_each : tuple of float
        That of each student alone.
    disagreement, disagreement_worst : float
        The root mean square over a geometry's components of the standard deviation among the students, in kcal/mol/Å: its mean,
        and its largest. A geometry where they disagree far more is one that they do not know.
    """

    n_geometries: int
    temperature: float
    energy_mae: float
    energy_worst: float
    force_mae: float
    force_worst: float
    force_mae_each: tuple[float, ...]
    disagreement: float
    disagreement_worst: float

    @property
    def is_within_limit(self) -> bool:
        """Whether the forces are as near as `FORCE_LIMIT` asks."""
        return math.isfinite(self.force_mae) and self.force_mae <= FORCE_LIMIT

    @classmethod
    @takes_units(temperature="K", energies="kJ/mol", forces="kJ/mol/nm")
    def of(
        cls,
        temperature: float,
        energies: np.ndarray,
        forces: np.ndarray,
        true_energies: np.ndarray,
        true_forces: np.ndarray,
    ) -> Accuracy:
        """Compare students with their teacher on M geometries of n atoms.

        Parameters
        ----------
        temperature : float
            K.
        energies : ndarray, shape (K, M)
            Of K students, in kJ/mol.
        forces : ndarray, shape (K, M, n, 3)
            In kJ/mol/nm.
        true_energies : ndarray, shape (M,)
        true_forces : ndarray, shape (M, n, 3)
        """
        energy_errors = energies.mean(0) - true_energies
        energy_errors = np.abs(energy_errors - energy_errors.mean()) / KJ_PER_KCAL
        force_errors = np.abs(forces.mean(0) - true_forces) / (KJ_PER_KCAL * 10)
        each = np.abs(forces - true_forces).mean((1, 2, 3)) / (KJ_PER_KCAL * 10)
        apart = disagreement(forces)
        return cls(
            n_geometries=len(true_energies),
            temperature=float(temperature),
            energy_mae=float(energy_errors.mean()),
            energy_worst=float(energy_errors.max()),
            force_mae=float(force_errors.mean()),
            force_worst=float(force_errors.max()),
            force_mae_each=tuple(float(mean) for mean in each),
            disagreement=float(apart.mean()),
            disagreement_worst=float(apart.max()),
        )


def disagreement(forces: np.ndarray) -> np.ndarray:
    """Return the RMS (M,) in kcal/mol/Å of the deviation among students' forces (K, M, n, 3) in kJ/mol/nm."""
    return np.sqrt(forces.var(0, ddof=1).mean((-2, -1))) / (KJ_PER_KCAL * 10)
