"""Sugars of nucleotides: their puckers by pseudorotation and by Pperp, and their glycosidic torsion."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from openmm import app

from .backbone import named_atom_table
from .topologies import bonded_partners, found_once
from .torsions import torsion_angles

C3_ENDO, C2_ENDO = np.radians(18.0), np.radians(162.0)
"""Phases of pseudorotation of RNA's two puckers."""
AMPLITUDE = np.radians(38.0)
"""The amplitude of a furanose's pseudorotation."""
LONGEST_OF_C2_ENDO = 2.9
"""Å of Pperp, above which the pucker is C3'-endo."""

DELTA_C3, DELTA_C2 = (65.0, 104.0), (129.0, 162.0)
"""Degrees: the ranges of δ of the two puckers in RNA, as MolProbity has them: J. S. Richardson et al., RNA 14, 465 (2008)."""
# Phases of RNA from here on are nearer to C2'-endo.
_MIDDLE = np.radians(90.0)
_EPSILON = (155.0, 310.0)  # the range of ε

_RING = ("C1'", "C2'", "C3'", "C4'", "O4'")
_NAMES = (*_RING, "C5'", "O3'", "O2'", "P", "N9", "N1", "C2", "C4", "C5")


@dataclass(frozen=True)
class Sugars:
    """The sugars of a model's nucleotides, and what they are bonded to; -1 for missing atoms."""

    residues: np.ndarray  # int (S,), indices of the residues
    rings: np.ndarray  # int (S, 5): C1', C2', C3', C4', O4'
    delta: np.ndarray  # int (S, 4), atoms of δ
    epsilon: np.ndarray  # int (S, 4), atoms of ε, of which the last is P of the next nucleotide
    chi: np.ndarray  # int (S, 4), atoms of χ
    is_rna: np.ndarray  # bool (S,), by O2'

    @property
    def ring_torsions(self) -> np.ndarray:
        """The atoms of ν0 to ν4, int (S, 5, 4)."""
        return _ring_torsions(self.rings)

    def phases(self, positions: np.ndarray) -> np.ndarray:
        """Return the phases of pseudorotation (S,) in radians, see `ring_phases`."""
        return ring_phases(self.rings, positions)

    def perpendiculars(self, positions: np.ndarray) -> np.ndarray:
        """Return Pperp in Å, (S,): the distance of the 3' phosphate from the line of the glycosidic bond; nan without one."""
        origin = positions[self.chi[:, 1]]
        line = positions[self.chi[:, 2]] - origin
        line /= np.maximum(np.linalg.norm(line, axis=1, keepdims=True), 1e-6)
        away = np.linalg.norm(np.cross(positions[self.epsilon[:, 3]] - origin, line), axis=1)
        return np.where((self.epsilon[:, 3] >= 0) & (self.chi >= 0).all(axis=1), away, np.nan)

    def outliers(self, positions: np.ndarray) -> np.ndarray:
        """Return whether the pucker of each is an outlier, bool (S,): in RNA, where δ contradicts Pperp or ε is unusual."""
        perpendicular = self.perpendiculars(positions)
        known = self.is_rna & np.isfinite(perpendicular) & (self.delta >= 0).all(axis=1)
        is_c2 = perpendicular < LONGEST_OF_C2_ENDO
        delta, epsilon = (
            np.degrees(torsion_angles(positions, atoms)) % 360.0 for atoms in (self.delta, self.epsilon)
        )
        usual = np.where(is_c2, _within(delta, DELTA_C2), _within(delta, DELTA_C3))
        return known & ~(usual & _within(epsilon, _EPSILON))

    def contradicted(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return whether Pperp contradicts the phase of each, bool (S,), in RNA only, and the phase it implies, radians (S,)."""
        perpendicular = self.perpendiculars(positions)
        told = np.where(perpendicular < LONGEST_OF_C2_ENDO, C2_ENDO, C3_ENDO)
        differs = (np.abs(self.phases(positions)) > _MIDDLE) != (told > _MIDDLE)
        return self.is_rna & np.isfinite(perpendicular) & differs, told

    def judged(self) -> np.ndarray:
        """Return which sugars `outliers` judges, bool (S,): those of RNA followed by a phosphate."""
        whole = np.concatenate([self.epsilon, self.chi, self.delta], axis=1) >= 0
        return self.is_rna & whole.all(axis=1)


def ring_phases(rings: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return the phases of pseudorotation of rings int (S, 5), as in `Sugars`, in radians (S,).

    C. Altona and M. Sundaralingam, JACS 94, 8205 (1972). `positions` (N, 3).
    """
    nu = torsion_angles(positions, _ring_torsions(rings).reshape(-1, 4)).reshape(-1, 5).T
    lever = 2 * (np.sin(np.radians(36.0)) + np.sin(np.radians(72.0)))
    return np.arctan2(nu[4] + nu[1] - nu[3] - nu[0], lever * nu[2])


def _ring_torsions(rings: np.ndarray) -> np.ndarray:
    # C4'-O4'-C1'-C2', and on around the ring.
    return rings[:, (np.array([[3, 4, 0, 1]]) + np.arange(5)[:, None]) % 5]


@found_once
def find_sugars(topology: app.Topology) -> Sugars:
    """Return the sugars of the nucleotides of a model."""
    table = named_atom_table(topology, _NAMES)
    residues = np.flatnonzero((table[:, : len(_RING)] >= 0).all(axis=1))
    table = table[residues]
    atoms = dict(zip(_NAMES, table.T))
    base = np.where(atoms["N9"] >= 0, atoms["N9"], atoms["N1"])
    behind = np.where(atoms["N9"] >= 0, atoms["C4"], atoms["C2"])
    by_carbon = bonded_partners(topology, "C1'", "C5")[atoms["C1'"]] >= 0  # as in pseudouridine
    base = np.where(by_carbon, atoms["C5"], base)
    behind = np.where(by_carbon, atoms["C4"], behind)
    following = np.append(bonded_partners(topology, "O3'", "P"), -1)[atoms["O3'"]]
    return Sugars(
        residues,
        table[:, : len(_RING)],
        np.stack([atoms[name] for name in ("C5'", "C4'", "C3'", "O3'")], axis=1),
        np.stack([*(atoms[name] for name in ("C4'", "C3'", "O3'")), following], axis=1),
        np.stack([atoms["O4'"], atoms["C1'"], base, behind], axis=1),
        atoms["O2'"] >= 0,
    )


def _within(degrees: np.ndarray, bounds: tuple[float, float]) -> np.ndarray:
    return (degrees >= bounds[0]) & (degrees <= bounds[1])
