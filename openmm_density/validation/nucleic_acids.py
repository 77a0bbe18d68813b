"""Sugar puckers, suites and base pairs of a model's nucleic acids, as a report of its geometry tells of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from openmm import app

from ..base.wording import residue_label
from ..models.chemistry.backbone import atoms_by_name, is_nucleotide
from ..models.chemistry.base_pairs import Bases
from ..models.chemistry.residues import residue_kind
from ..models.chemistry.sugar_puckers import find_sugars
from ..models.chemistry.suites import OUTLIER, find_suites


@dataclass(frozen=True)
class NucleicAcidReport:
    """How good the nucleic acids of a model are; all counts are 0 where it has none."""

    # `pucker_count`, `pucker_outliers`: sugars of RNA with a phosphate behind them, and those whose δ contradicts the distance
    # of that phosphate from the glycosidic bond (Pperp), or with an unusual ε, as MolProbity counts them (J. S. Richardson
    # et al., RNA 14, 465 (2008)). DNA has no such rule.
    pucker_count: int
    pucker_outliers: list[str]
    # `suite_count`, `suite_outliers`, `mean_suiteness`: backbones of RNA from sugar to sugar, by the nucleotide that each leads
    # to; those that are none of the known conformers, and their mean suiteness, 0 to 1, see `suites.named_suites`.
    suite_count: int
    suite_outliers: list[str]
    mean_suiteness: float
    base_pairs: list[str]  # As in ``A G 1 - A C 72 (cWW)``, with the family of Leontis and Westhof
    # Complementary bases with all hydrogen bonds, however tilted, as in ``A G 1 - A C 72``
    bonded: frozenset[str]
    has_nucleotides: bool  # Of nucleic acids, not as ADP

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers and names; what there is none of has None in place of a number."""
        return {
            "pucker_count": self.pucker_count,
            "pucker_outlier_count": len(self.pucker_outliers) if self.pucker_count else None,
            "pucker_outliers": self.pucker_outliers,
            "suite_count": self.suite_count,
            "suite_outlier_count": len(self.suite_outliers) if self.suite_count else None,
            "suite_outliers": self.suite_outliers,
            "mean_suiteness": self.mean_suiteness if self.suite_count else None,
            "base_pair_count": len(self.base_pairs) if self.has_nucleotides else None,
            "base_pairs": self.base_pairs,
        }


class NucleicAcids:
    """The nucleic acids of a topology, found once for many positions."""

    def __init__(self, topology: app.Topology) -> None:
        self._names = [residue_label(residue) for residue in topology.residues()]
        self._sugars, self._bases = find_sugars(topology), Bases(topology)
        self._suites = find_suites(topology)
        self._has_nucleotides = bool((nucleotide_parts(topology) >= 0).any())

    def report(self, positions: np.ndarray) -> NucleicAcidReport:
        """Assess them. `positions` (N, 3) in Å."""
        sugars = self._sugars
        outliers = sugars.residues[sugars.outliers(positions)]
        suites, suiteness = self._suites.conformers(positions)
        return NucleicAcidReport(
            int(sugars.judged().sum()),
            [self._names[index] for index in outliers],
            len(suites),
            [self._names[index] for index in self._suites.residues[suites == OUTLIER]],
            float(suiteness.mean()) if len(suites) else 0.0,
            self._bases.pairs(positions).labels(self._names),
            frozenset(
                f"{self._names[a]} - {self._names[b]}" for a, b in self._bases.bonded(positions).tolist()
            ),
            self._has_nucleotides,
        )


def nucleotide_parts(topology: app.Topology) -> np.ndarray:
    """Return of each atom 0 in the base of a nucleic acid, 1 in its sugar or phosphate, -1 elsewhere (ADP), int (N,)."""
    parts = np.full(topology.getNumAtoms(), -1)
    found = {names.residue: names for names in atoms_by_name(topology) if is_nucleotide(names)}
    # Of modified ones names need not tell; they are bonded to others.
    ends = ((a.residue, b.residue) for a, b in topology.bonds()) if found else ()
    joined = {each for pair in ends if pair[0] is not pair[1] and found.keys() >= {*pair} for each in pair}
    for residue, names in found.items():
        if residue in joined or residue_kind(residue) == "polymer":
            for name, atom in names.items():
                parts[atom] = int("'" in name or "*" in name or "P" in name)
    return parts


def base_pair_changes(before: NucleicAcidReport, after: NucleicAcidReport) -> dict[str, list[str]]:
    """Return the base pairs that only one of two reports has: ``base_pairs_lost`` and ``base_pairs_gained``.

    A pair that is only tilted, with all bonds of complementary bases, is neither.
    """
    had, has = ({_partners(pair): pair for pair in report.base_pairs} for report in (before, after))
    return {
        "base_pairs_lost": [
            pair for partners, pair in had.items() if partners not in has.keys() | after.bonded
        ],
        "base_pairs_gained": [
            pair for partners, pair in has.items() if partners not in had.keys() | before.bonded
        ],
    }


def _partners(pair: str) -> str:
    return pair.partition(" (")[0]
