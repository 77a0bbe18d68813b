"""`SuiteRestraint`: the backbone of RNA stays in the conformers that it has."""

from __future__ import annotations

import numpy as np

from ..models.chemistry.suites import OUTLIER, find_suites
from ..models.chemistry.torsions import torsion_angles
from .torsions import TorsionRestraint

SUITE_FORCE_CONSTANT = 30.0
"""kJ/mol/rad²: a torsion that the density turns far costs some 15 kJ/mol."""

_NAMES = ("ε", "ζ", "α", "β", "γ")


class SuiteRestraint(TorsionRestraint):
    """Hold ε, ζ, α, β and γ of the suites of RNA that are one of the 54 conformers (J. S. Richardson et al., RNA 14, 465 (2008)).

    ``E = k w² [1 - exp(-x²/2w²)]``, ``x = max(0, |θ - θ₀| - 20°)``, w = 40°, with θ₀ the torsion in the start: soft, and
    released where the density turns it far. Suites that are no conformer in the start are not held. A torsion counts as
    violated from 60° off.

    Parameters
    ----------
    topology : openmm.app.Topology or mdtraj.Topology
    positions : Quantity or array_like, shape (N, 3)
        Å where plain; they decide the conformers.
    force_constant, parameter_name, force_group, periodic
        As for `openmm_density.restraints.Restraint`, with its errors; k is in kJ/mol/rad².
    """

    name = "suites"
    default_force_constant = SUITE_FORCE_CONSTANT
    default_parameter_name = "suite_strength"
    tolerance = np.radians(20.0)
    limit = np.radians(60.0)
    well = np.radians(40.0)

    def _find(self) -> tuple[np.ndarray, np.ndarray]:
        suites = find_suites(self.topology)
        names, _ = suites.conformers(self.start)
        torsions = suites.torsions[names != OUTLIER, 1:6].reshape(-1, 4)
        return torsions, torsion_angles(self.start, torsions)

    def _quantity(self, torsion: np.ndarray) -> str:
        first = self._atoms[torsion[0]].name.replace("*", "'")
        return dict(zip(("C4'", "C3'", "O3'", "P", "O5'"), _NAMES))[first]
