"""`ChiralityRestraint`: every stereocentre keeps its hand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from openmm import app

from openmm_density.wording import listing

from .backbone import NamedAtoms, atoms_by_name
from .stereocentres import other_centres
from .torsions import TorsionRestraint, torsion_angles

CHIRALITY_STRENGTH = 1000.0
"""kJ/mol/rad²: a flat centre costs 83 kJ/mol beyond the force field, an inverted one 520."""
CHIRALITY_TOLERANCE = np.radians(12.0)
"""Deviation of an improper torsion from ideal (35.3°) that is free."""
IDEAL_IMPROPER = np.arcsin(1.0 / np.sqrt(3.0))
"""Angle (35.3°) between two planes of a tetrahedral centre's improper torsion of its three neighbours."""
FLAT = np.radians(10.0)
"""A centre of a standard residue that is flatter than this in the start has no hand to keep."""
STEEPEST = np.radians(50.0)
"""The most that a centre of another residue is held at, however bad the start is there."""

# Neighbours of each centre, in the order in which the improper torsion (centre, a, b, c) is positive for
# the natural handedness.
_PROTEIN_CENTRES = {"THR": ("CB", "CA", "OG1", "CG2"), "ILE": ("CB", "CA", "CG1", "CG2")}
_ALPHA_CENTRE = ("CA", "N", "C", "CB")
_SUGAR_CENTRES = (
    ("C1'", "O4'", "C2'", ("N9", "N1")),
    ("C3'", "O3'", "C4'", ("C2'",)),
    ("C4'", "O4'", "C5'", ("C3'",)),
    ("C2'", "O2'", "C3'", ("C1'",)),
)


class ChiralityRestraint(TorsionRestraint):
    """Hold each chiral centre at the handedness that it has.

    E = ½ k max(0, |χ - χ₀| - 12°)² of the improper torsion χ of the centre and three heavy neighbours, with k the Context
    parameter. A centre counts as violated from 25° off: then it is nearly flat, or has changed hand.

    The centres are Cα of amino acids, Cβ of threonine and isoleucine, C1', C2' (RNA), C3' and C4' of nucleotides, held at
    χ₀ = ±35.3°, and in all other residues (sugars, ligands, modified residues) what
    `openmm_density.restraints.stereocentres.other_centres` finds, held at the χ of the start.

    Parameters
    ----------
    topology : openmm.app.Topology or mdtraj.Topology
        With bonds, as far as ligands are concerned.
    positions : Quantity or array_like of shape (N, 3)
        Å where plain; they decide the handedness.
    strength, parameter_name, force_group, periodic
        As for `openmm_density.restraints.Restraint`; k is in kJ/mol/rad².

    Raises
    ------
    InputError
        The numbers of atoms differ, a position is not a number, or the strength is negative.
    """

    name = "chirality"
    usual_strength = CHIRALITY_STRENGTH
    usual_parameter_name = "chirality_strength"
    tolerance = CHIRALITY_TOLERANCE
    limit = np.radians(25.0)

    def _find(self) -> tuple[np.ndarray, np.ndarray]:
        centres = chiral_centres(self.topology)
        improper = torsion_angles(self.start, centres)
        flat = np.abs(improper) < FLAT
        if flat.any():
            self.notes.append(f"flat in the start, so with no hand to keep: {self._listed(centres[flat])}")
        centres = centres[~flat]
        targets = np.copysign(IDEAL_IMPROPER, improper[~flat])
        others = other_centres(self.topology, self.start)
        others = others[~np.isin(others[:, 0], centres[:, 0])]
        improper = torsion_angles(self.start, others)
        held = np.copysign(np.minimum(np.abs(improper), STEEPEST), improper)
        return np.concatenate([centres, others]), np.concatenate([targets, held])

    def _listed(self, centres: np.ndarray) -> str:
        return listing([f"{self._label(i)} {self._atoms[i].name}" for i in centres[:, 0]])

    def _quantity(self, torsion: np.ndarray) -> str:
        return f"handedness of {self._atoms[torsion[0]].name}"


def chiral_centres(topology: app.Topology) -> np.ndarray:
    """Return the chiral centres of amino acids and nucleotides, as the atoms of an improper torsion.

    Cα of amino acids, Cβ of threonine and isoleucine, and C1', C2' (RNA), C3' and C4' of nucleotides.

    Returns
    -------
    ndarray of shape (C, 4), int64
        Centre and neighbours, in the order in which :func:`torsion_angles` is positive for L-amino acids and
        D-ribose.
    """
    centres = [found for names in atoms_by_name(topology) for found in _centres_of(names)]
    return np.array(centres, dtype=np.int64).reshape(-1, 4)


def _centres_of(names: NamedAtoms) -> Iterator[tuple[int, ...]]:
    candidates = []
    if "C1'" in names:
        for centre, a, b, choices in _SUGAR_CENTRES:
            candidates += [(centre, a, b, c) for c in choices if c in names][:1]
    else:
        candidates.append(_ALPHA_CENTRE)
        if names.residue.name in _PROTEIN_CENTRES:
            candidates.append(_PROTEIN_CENTRES[names.residue.name])
    for candidate in candidates:
        if all(name in names for name in candidate):
            yield tuple(names[name] for name in candidate)
