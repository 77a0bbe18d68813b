"""`PredictedTorsionRestraint`: φ and ψ of a prediction, held where it is sure of them until the density turns them far."""

from __future__ import annotations

from typing import Any

import numpy as np
from openmm import app

from ..base.errors import InputError
from ..models.chemistry.ramachandran_tables import backbone_torsions
from ..models.chemistry.torsions import torsion_angles
from .torsions import BackboneTorsionRestraint

PREDICTED_TORSION_FORCE_CONSTANT = 200.0
"""kJ/mol/rad²: a torsion that is released has cost 55 kJ/mol at most."""


class PredictedTorsionRestraint(BackboneTorsionRestraint):
    """Hold φ and ψ where they are in the start, and release those that the density turns far.

    E = k w² [1 - exp(-x²/2w²)], x = max(0, abs(φ - φ₀) - 10°), w = 30°, k the Context parameter. A torsion counts as violated
    from 40° off.

    Parameters
    ----------
    topology : openmm.app.Topology or mdtraj.Topology
        Residues are joined by its bonds.
    positions : Quantity or array_like, shape (N, 3)
        Å where plain; they give the targets.
    residues : array_like of bool, shape (R,), optional
        Of which residues; all by default.
    force_constant, parameter_name, force_group, periodic
        As for `openmm_density.restraints.Restraint`; k is in kJ/mol/rad².

    Raises
    ------
    InputError
        As `openmm_density.restraints.Restraint`, or `residues` are not bool (R,).
    """

    name = "torsion"
    default_force_constant = PREDICTED_TORSION_FORCE_CONSTANT
    default_parameter_name = "predicted_torsion_strength"
    tolerance = np.radians(10.0)
    limit = np.radians(40.0)
    well = float(np.radians(30.0))

    def __init__(
        self,
        topology: app.Topology,
        positions: Any,
        force_constant: Any = None,
        *,
        residues: Any = None,
        **common: Any,
    ) -> None:
        self._held = residues
        super().__init__(topology, positions, force_constant, **common)
        if self.n_terms:
            self.notes.append(
                f"φ and ψ of {self.n_terms // 2} residues of which the prediction is sure were held where it has them unless the "
                "density turned them far: that is no fault, and `torsion` of `restraints_violated` in summary.json lists these."
            )

    def _find(self) -> tuple[np.ndarray, np.ndarray]:
        found, count = backbone_torsions(self.topology), self.topology.getNumResidues()
        held = np.ones(count, dtype=bool) if self._held is None else np.asarray(self._held)
        if held.dtype != bool or held.shape != (count,):
            raise InputError(
                f"must be true or false for each of {count} residues",
                argument="residues",
                found=f"{held.dtype} of shape {held.shape}",
                remedy="give an array such as plddt >= 70",
            )
        atoms = found.atoms[held[found.residues]]
        torsions = np.concatenate([atoms[:, :4], atoms[:, 1:]])
        return torsions, torsion_angles(self.start, torsions)
