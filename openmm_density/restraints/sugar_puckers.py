"""`SugarPuckerRestraint` and `GlycosidicRestraint`: sugars of nucleic acids keep their pucker, bases stay syn or anti."""

from __future__ import annotations

import numpy as np

from ..models.chemistry.sugar_puckers import AMPLITUDE, C2_ENDO, C3_ENDO, LONGEST_OF_C2_ENDO, find_sugars
from ..models.chemistry.torsions import torsion_angles
from .torsions import TorsionRestraint

SUGAR_PUCKER_FORCE_CONSTANT = 100.0
"""kJ/mol/rad²: in the other pucker, with torsions turned by up to 75°, a sugar costs some 35 kJ/mol."""
GLYCOSIDIC_FORCE_CONSTANT = 50.0
"""kJ/mol/rad²: a base that the density turns by 90° costs some 20 kJ/mol."""

# Phases of RNA from here on are nearer to C2'-endo.
_MIDDLE = np.radians(90.0)
_HELD = (1, 2, 3)  # ν1, ν2 and ν3 tell phase and amplitude


class SugarPuckerRestraint(TorsionRestraint):
    """Hold the puckers of the sugars of nucleotides.

    ``E = k w² [1 - exp(-x²/2w²)]``, ``x = max(0, |ν - ν₀| - 8°)``, w = 35°, for ν₁, ν₂ and ν₃ of a ring: soft, and released
    where the density turns it far. ν₀ are those of a ring with an amplitude of 38° and the phase of the start. In RNA the
    distance of the phosphate behind a sugar from the glycosidic bond (Pperp; J. S. Richardson et al., RNA 14, 465 (2008)) shows
    the pucker better than a map shows the sugar: where a ring contradicts it, ν₀ are those of C3'-endo (beyond 2.9 Å)
    or C2'-endo.
    A torsion counts as violated from 35° off.

    ``make_restraints("sugar-puckers", …)`` builds this and `GlycosidicRestraint`.

    Parameters
    ----------
    topology : openmm.app.Topology or mdtraj.Topology
    positions : Quantity or array_like, shape (N, 3)
        Å where plain; they decide the puckers.
    force_constant, parameter_name, force_group, periodic
        As for `openmm_density.restraints.Restraint`, with its errors; k is in kJ/mol/rad².
    """

    name = "sugar-puckers"
    default_force_constant = SUGAR_PUCKER_FORCE_CONSTANT
    default_parameter_name = "sugar_pucker_strength"
    tolerance = np.radians(8.0)
    limit = np.radians(35.0)
    well = np.radians(35.0)

    def _find(self) -> tuple[np.ndarray, np.ndarray]:
        sugars = find_sugars(self.topology)
        phases = sugars.phases(self.start)
        perpendicular = sugars.perpendiculars(self.start)
        by_phosphate = np.where(perpendicular < LONGEST_OF_C2_ENDO, C2_ENDO, C3_ENDO)
        contradicts = (np.abs(phases) > _MIDDLE) != (by_phosphate > _MIDDLE)
        chosen = sugars.is_rna & np.isfinite(perpendicular) & contradicts
        phases = np.where(chosen, by_phosphate, phases)
        steps = np.radians(144.0) * (np.array(_HELD) - 2)
        return (
            sugars.ring_torsions[:, _HELD].reshape(-1, 4),
            (AMPLITUDE * np.cos(phases[:, None] + steps)).ravel(),
        )

    def _quantity(self, torsion: np.ndarray) -> str:
        return {"O4": "ν1", "C1": "ν2", "C2": "ν3"}[self._atoms[torsion[0]].name[:2]]


class GlycosidicRestraint(TorsionRestraint):
    """Hold the glycosidic torsions χ, so that bases stay syn or anti.

    E is that of `SugarPuckerRestraint`, with ``x = max(0, |χ - χ₀| - 20°)``, w = 50°, and χ₀ the torsion in the start. A torsion
    counts as violated from 60° off.

    Parameters
    ----------
    topology, positions, force_constant, parameter_name, force_group, periodic
        As for `SugarPuckerRestraint`, with its errors.
    """

    name = "sugar-puckers"
    default_force_constant = GLYCOSIDIC_FORCE_CONSTANT
    default_parameter_name = "glycosidic_strength"
    tolerance = np.radians(20.0)
    limit = np.radians(60.0)
    well = np.radians(50.0)

    def _find(self) -> tuple[np.ndarray, np.ndarray]:
        chi = find_sugars(self.topology).chi
        chi = chi[(chi >= 0).all(axis=1)]
        return chi, torsion_angles(self.start, chi)

    def _quantity(self, torsion: np.ndarray) -> str:
        return "χ"
