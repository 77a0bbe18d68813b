"""`SugarPuckerRestraint` and `GlycosidicRestraint`: sugars of nucleic acids keep their pucker, bases stay syn or anti."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import openmm

from ..models.chemistry.pyranoses import sugar_links
from ..models.chemistry.sugar_puckers import AMPLITUDE, find_sugars
from ..models.chemistry.torsions import torsion_angles
from .torsions import TorsionRestraint

SUGAR_PUCKER_FORCE_CONSTANT = 100.0
"""kJ/mol/rad²: in the other pucker, with torsions turned by up to 75°, a sugar costs some 35 kJ/mol."""
GLYCOSIDIC_FORCE_CONSTANT = 50.0
"""kJ/mol/rad²: a base that the density turns by 90° costs some 20 kJ/mol."""

_HELD = (1, 2, 3)  # ν1, ν2 and ν3 tell phase and amplitude


class _SugarRestraint(TorsionRestraint):
    """What holds each nucleotide by one angle, from which the targets of its torsions follow; another one may be told."""

    kind: ClassVar[str]
    """What a search that turns it over calls it."""
    _nucleotides: np.ndarray  # int (S,)
    _angles: np.ndarray  # (S,), radians, of the start

    def flip(self, flipped: Mapping[int, float]) -> None:
        """Hold some residues, by their indices, at other angles (radians), and all others as at the start."""
        angles = self._angles.copy()
        for residue, angle in flipped.items():
            angles[self._nucleotides == residue] = angle
        self.targets = self._targets_of(angles)

    def update(self, force: openmm.CustomTorsionForce) -> None:
        """Set the targets of a force that was made before they changed."""
        for number, (atoms, target) in enumerate(zip(self.torsions.tolist(), self.targets.tolist())):
            force.setTorsionParameters(number, *atoms, [target])

    def _targets_of(self, angles: np.ndarray) -> np.ndarray:
        """Return the targets of all torsions by the angles (S,) of the nucleotides."""
        raise NotImplementedError


class SugarPuckerRestraint(_SugarRestraint):
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
    kind = "pucker"
    tolerance = np.radians(8.0)
    limit = np.radians(35.0)
    well = np.radians(35.0)

    def _find(self) -> tuple[np.ndarray, np.ndarray]:
        sugars = find_sugars(self.topology)
        contradicted, told = sugars.contradicted(self.start)
        self._nucleotides, self._angles = (
            sugars.residues,
            np.where(contradicted, told, sugars.phases(self.start)),
        )
        return sugars.ring_torsions[:, _HELD].reshape(-1, 4), self._targets_of(self._angles)

    def _targets_of(self, angles: np.ndarray) -> np.ndarray:
        steps = np.radians(144.0) * (np.array(_HELD) - 2)
        return (AMPLITUDE * np.cos(angles[:, None] + steps)).ravel()

    def _quantity(self, torsion: np.ndarray) -> str:
        return {"O4": "ν1", "C1": "ν2", "C2": "ν3"}[self._atoms[torsion[0]].name[:2]]


class GlycosidicRestraint(_SugarRestraint):
    """Hold the glycosidic torsions: χ, so that bases stay syn or anti, and φ and ψ of the links of pyranoses.

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
    kind = "base"
    tolerance = np.radians(20.0)
    limit = np.radians(60.0)
    well = np.radians(50.0)

    def _find(self) -> tuple[np.ndarray, np.ndarray]:
        sugars = find_sugars(self.topology)
        whole = (sugars.chi >= 0).all(axis=1)
        chi = sugars.chi[whole]
        links = sugar_links(self.topology)
        torsions = np.concatenate([chi, links])
        self._nucleotides = np.append(sugars.residues[whole], np.full(len(links), -1))
        self._angles = torsion_angles(self.start, torsions)
        return torsions, self._angles

    def _targets_of(self, angles: np.ndarray) -> np.ndarray:
        return angles

    def _quantity(self, torsion: np.ndarray) -> str:
        first, second, third, _ = (self._atoms[k] for k in torsion)
        if second.residue is third.residue and first.residue is second.residue and second.name == "C1'":
            return "χ"
        return "φ" if first.element is not None and first.element.symbol == "O" else "ψ"
