"""`PeptideRestraint`: every peptide bond stays cis or trans, as it was, or becomes trans where it was neither."""

from __future__ import annotations

import numpy as np

from ..base.wording import listing
from ..models.chemistry.backbone import atoms_by_name
from ..models.chemistry.torsions import peptide_torsions, torsion_angles
from .torsions import TorsionRestraint

PEPTIDE_FORCE_CONSTANT = 400.0
"""kJ/mol/rad²: an ω that is turned by 90° costs 340 kJ/mol, one by 15° nothing."""
PEPTIDE_TOLERANCE = np.radians(15.0)
"""Deviation from cis or trans that costs no energy: the spread of ω in well-refined structures is about 6°."""
UNDECIDED = np.radians(30.0)
"""Deviation of ω from ±90° within which it is neither cis nor trans."""


class PeptideRestraint(TorsionRestraint):
    """Hold each ω torsion at cis or trans, whichever the model is nearer to.

    One within 30° of ±90° is held at trans, as 99.97% of peptide bonds are, and 95% of those before proline (Weiss,
    Jabs and Hilgenfeld 1998).

    ``E = ½ k max(0, |ω - ω₀| - 15°)²`` with ω₀ = 0 or π, and k the Context parameter. An ω more than 30° from ω₀ counts as
    violated.

    Parameters
    ----------
    topology : openmm.app.Topology or mdtraj.Topology
        Peptide bonds are found by its bonds between an atom C and an atom N of another residue. Caps (ACE, NME) have an ω too.
    positions : Quantity or array_like, shape (N, 3)
        Å where plain; they decide between cis and trans.
    force_constant, parameter_name, force_group, periodic
        As for `openmm_density.restraints.Restraint`, with its errors; k is in kJ/mol/rad².
    """

    name = "cis"
    default_force_constant = PEPTIDE_FORCE_CONSTANT
    default_parameter_name = "peptide_strength"
    tolerance = PEPTIDE_TOLERANCE
    limit = np.radians(30.0)

    def _find(self) -> tuple[np.ndarray, np.ndarray]:
        torsions = peptide_torsions(self.topology)
        if (
            not len(torsions)
            and sum(names.keys() >= {"N", "CA", "C"} for names in atoms_by_name(self.topology)) > 1
        ):
            self.notes.append(
                "the topology joins no two residues by a bond from C to N, so no peptide bond is held"
            )
        omega = torsion_angles(self.start, torsions)
        undecided = np.abs(np.abs(omega) - np.pi / 2) < UNDECIDED
        if undecided.any():
            named = [self._label(atom) for atom in torsions[undecided, 2]]
            self.notes.append(
                f"The peptide bonds before {listing(named)} are neither cis nor trans in the start, and are held "
                "at trans, as nearly all are."
            )
        return torsions, np.where(undecided | (np.abs(omega) > np.pi / 2), np.pi, 0.0)

    def _quantity(self, torsion: np.ndarray) -> str:
        return "ω"
