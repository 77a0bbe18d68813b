"""`RotamerRestraint`: side chains have staggered torsions."""

from __future__ import annotations

from typing import Any

import numpy as np
import openmm
from openmm import app, unit

from ..models.chemistry.side_chains import LARGEST_DEVIATION, from_staggered, side_chain_torsions
from ..models.chemistry.torsions import torsion_angles
from .restraint import Restraint, Violation

ROTAMER_FORCE_CONSTANT = 20.0
"""kJ/mol: what a torsion 40° from staggered costs. An eclipsed one costs 45 kJ/mol."""
NO_VALIDATION = (
    "Side chains are held staggered at the end, so that few rotamer outliers are no sign of a good fit."
)


class RotamerRestraint(Restraint):
    """Push the torsions of side chains about bonds of two tetrahedral atoms towards staggered ones.

    E = k max(0, 1 + cos 3χ - ½)², with k the Context parameter: no force within 20° of -60°, 60° and 180°, and none at 0°, 120°
    and -120°, so that the density chooses between them. A torsion counts as violated more than 40° from staggered.

    Do not use it where side chains have to change their rotamer: it raises the barriers between them.

    Parameters
    ----------
    topology : openmm.app.Topology or mdtraj.Topology
        Standard amino acids have such torsions.
    positions : Quantity or array_like, shape (N, 3)
        Å where plain. The energy does not depend on them.
    force_constant, parameter_name, force_group, periodic
        As for `openmm_density.restraints.Restraint`, with its errors; k is in kJ/mol.
    """

    name = "rotamers"
    default_force_constant = ROTAMER_FORCE_CONSTANT
    force_constant_unit = unit.kilojoule_per_mole
    default_parameter_name = "rotamer_strength"

    def __init__(
        self, topology: app.Topology, positions: Any, force_constant: Any = None, **common: Any
    ) -> None:
        super().__init__(topology, positions, force_constant, **common)
        self.torsions = side_chain_torsions(self.topology)[0]
        if self.n_terms:
            self.notes.append(NO_VALIDATION)

    @property
    def n_terms(self) -> int:
        """Number of torsions."""
        return len(self.torsions)

    def create_force(self) -> openmm.CustomTorsionForce:
        """Build the force that ``System.addForce`` takes; each call builds another."""
        force = openmm.CustomTorsionForce(f"{self.parameter_name}*max(0, 0.5 + cos(3*theta))^2")
        for atoms in self.torsions.tolist():
            force.addTorsion(*atoms, [])
        return self._finish(force)

    def violations(self, positions: Any) -> list[Violation]:
        """List the eclipsed torsions, the worst first; see `Restraint.violations`."""
        angles = torsion_angles(self._checked(positions), self.torsions)
        deviations = from_staggered(angles)
        return self._violated(
            self.torsions,
            np.degrees(angles),
            np.degrees(angles - deviations),
            float(np.degrees(LARGEST_DEVIATION)),
            ["side-chain torsion"] * len(angles),
            "°",
        )
