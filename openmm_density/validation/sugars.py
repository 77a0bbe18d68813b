"""Conformations and anomers of a model's sugars, as a report of its geometry tells of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from openmm import app

from ..base.wording import residue_label
from ..models.chemistry.pyranoses import find_pyranoses

TURNED = 30.0
"""Degrees on Cremer and Pople's sphere from which the conformation of a ring is another one: half way from a chair to a boat
is 45."""
_ANOMERS = {1: "β", -1: "α", 0: None}


@dataclass(frozen=True)
class SugarReport:
    """How good the pyranoses of a model are: sugars with a ring of six, in the order of the model."""

    names: tuple[str, ...]  # As in ``A NAG 401``
    conformations: tuple[str, ...]  # The nearest of the 38, as in ``4C1``
    puckers: np.ndarray  # (S, 3): Q in Å, φ and θ in degrees
    anomers: np.ndarray  # (S,): see `Pyranoses.anomers`
    is_aldose: np.ndarray  # bool (S,)
    is_unusual: np.ndarray  # bool (S,): see `Pyranoses.unusual`

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers and names; None for the outliers of a model without such sugars."""
        outliers = [name for name, bad in zip(self.names, self.is_unusual) if bad]
        return {
            "pyranose_outlier_count": len(outliers) if self.names else None,
            "pyranose_outliers": outliers,
            "pyranoses": [
                {
                    "residue": name,
                    "conformation": conformation,
                    "q": round(q, 3),
                    "phi": round(phi, 1),
                    "theta": round(theta, 1),
                    "anomer": _ANOMERS[int(anomer)] if is_aldose else None,
                }
                for name, conformation, (q, phi, theta), anomer, is_aldose in zip(
                    self.names, self.conformations, self.puckers.tolist(), self.anomers, self.is_aldose
                )
            ],
        }

    def changes(self, after: SugarReport) -> list[str]:
        """Return the sugars whose ring or anomer is another one in another report, as in ``A NAG 401 (4C1 to 1S5)``."""
        cosines = (_directions(self.puckers) * _directions(after.puckers)).sum(axis=1)
        turned = cosines < np.cos(np.radians(TURNED))
        found = []
        for k, name in enumerate(self.names):
            if turned[k]:
                found.append(f"{name} ({self.conformations[k]} to {after.conformations[k]})")
            if self.anomers[k] * after.anomers[k] < 0:
                found.append(f"{name} (anomer inverted)")
        return found


class SugarRings:
    """The pyranoses of a topology, found once for many positions."""

    def __init__(self, topology: app.Topology) -> None:
        self._sugars = find_pyranoses(topology)
        labels = [residue_label(residue) for residue in topology.residues()]
        self._names = tuple(labels[index] for index in self._sugars.residues)

    def report(self, positions: np.ndarray) -> SugarReport:
        """Assess them. `positions` (N, 3) in Å."""
        sugars = self._sugars
        return SugarReport(
            self._names,
            tuple(sugars.conformations(positions)),
            np.stack(sugars.puckers(positions), axis=1),
            sugars.anomers(positions),
            sugars.is_aldose,
            sugars.unusual(positions),
        )


def _directions(puckers: np.ndarray) -> np.ndarray:
    """Return unit vectors (S, 3) of puckers on Cremer and Pople's sphere."""
    phi, theta = np.radians(puckers[:, 1:]).T
    return np.stack([np.sin(theta) * np.cos(phi), np.sin(theta) * np.sin(phi), np.cos(theta)], axis=1)
