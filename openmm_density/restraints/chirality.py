"""`ChiralityRestraint`: every stereocentre keeps its handedness."""

from __future__ import annotations

import numpy as np

from ..base.wording import listing
from ..models.chemistry.residue_names import standard_residue_names
from ..models.chemistry.stereocentres import (
    FLAT,
    IDEAL_IMPROPER,
    chiral_centres,
    other_centres,
    prochiral_centres,
)
from ..models.chemistry.torsions import torsion_angles
from .torsions import TorsionRestraint

CHIRALITY_FORCE_CONSTANT = 1000.0
"""kJ/mol/rad²: a flat centre costs 83 kJ/mol beyond the force field, an inverted one 520."""
CHIRALITY_TOLERANCE = np.radians(12.0)
"""Deviation of an improper torsion from ideal (35.3°) that costs no energy."""
STEEPEST = np.radians(50.0)
"""The largest improper torsion at which a centre of another residue is held, however bad the start is there."""


class ChiralityRestraint(TorsionRestraint):
    """Hold each chiral centre at the handedness that it has.

    ``E = ½ k max(0, |χ - χ₀| - 12°)²`` of the improper torsion χ of the centre and three heavy neighbours, with k the Context
    parameter. A centre counts as violated from 25° off: then it is nearly flat, or inverted.

    The centres are Cα of amino acids, Cβ of threonine, isoleucine and valine, Cγ of leucine (whose methyl groups keep their
    names so), C1', C2' (RNA), C3' and C4' of nucleotides, held at χ₀ = ±35.3°, and in all other residues (sugars, ligands,
    modified residues) what `other_centres` finds, held at the χ of the start. A standard residue's centre that is flat in the
    start is held at the handedness of most: L, and D of sugars, except where the model is a mirror image; another residue's is
    left free, for it may belong flat.

    Parameters
    ----------
    topology : openmm.app.Topology or mdtraj.Topology
        With bonds, as far as ligands are concerned.
    positions : Quantity or array_like, shape (N, 3)
        Å where plain; they decide the handedness.
    force_constant, parameter_name, force_group, periodic
        As for `openmm_density.restraints.Restraint`, with its errors; k is in kJ/mol/rad².
    """

    name = "chirality"
    default_force_constant = CHIRALITY_FORCE_CONSTANT
    default_parameter_name = "chirality_strength"
    tolerance = CHIRALITY_TOLERANCE
    limit = np.radians(25.0)

    def _find(self) -> tuple[np.ndarray, np.ndarray]:
        centres = np.concatenate([chiral_centres(self.topology), prochiral_centres(self.topology)])
        improper = torsion_angles(self.start, centres)
        flat = np.abs(improper) < FLAT
        standard = standard_residue_names()
        of_standard = np.array([self._atoms[k].residue.name in standard for k in centres[:, 0]], dtype=bool)
        self._note(
            centres[flat & of_standard], "flat in the start, and held at the handedness of most centres"
        )
        self._note(centres[flat & ~of_standard], "flat in the start, so with no handedness to hold")
        # Positive is the hand of nature.
        natural = np.where(flat, 0, np.sign(improper)).sum() >= 0
        improper[flat] = 1.0 if natural else -1.0
        has_hand = ~flat | of_standard
        centres = centres[has_hand]
        targets = np.copysign(IDEAL_IMPROPER, improper[has_hand])
        others = other_centres(self.topology, self.start)
        others = others[~np.isin(others[:, 0], centres[:, 0])]
        improper = torsion_angles(self.start, others)
        held = np.copysign(np.minimum(np.abs(improper), STEEPEST), improper)
        return np.concatenate([centres, others]), np.concatenate([targets, held])

    def _note(self, centres: np.ndarray, what: str) -> None:
        if len(centres):
            named = listing([f"{self._label(k)} {self._atoms[k].name}" for k in centres[:, 0]])
            self.notes.append(f"{what}: {named}")

    def _quantity(self, torsion: np.ndarray) -> str:
        return f"handedness of {self._atoms[torsion[0]].name}"
