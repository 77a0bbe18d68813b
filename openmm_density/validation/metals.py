"""What the metals of a model bind and how far it is, as a report of its geometry tells of them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from openmm import app

from ..base.wording import atom_label, listing, residue_label
from ..models.chemistry.elements import is_metal
from ..models.chemistry.ideal_geometry import lengths_of
from ..models.chemistry.metal_sites import USUAL, find_metal_sites

MOVED = 0.3
"""Å by which a bound atom has to be nearer or farther than before to count as gained or lost."""


@dataclass(frozen=True)
class MetalReport:
    """What metals bind."""

    names: tuple[str, ...] = ()  # As in ``A ZN 301``, with the atom's name in a residue of several
    shells: tuple[dict[int, float], ...] = ()  # By each bound atom its distance in Å
    targets: tuple[dict[int, float], ...] = ()  # The usual one
    labels: dict[int, str] = field(default_factory=dict, repr=False)  # Of bound atoms
    metals: tuple[int, ...] = ()  # Atoms
    positions: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)), repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return the metals with their coordination number, and distances (Å) that are not usual."""
        return {
            "metals": [
                {
                    "metal": name,
                    "coordination": len(shell),
                    "unusual_distances": {
                        self.labels[atom]: round(distance, 2)
                        for atom, distance in shell.items()
                        if not USUAL[0] <= distance - target[atom] <= USUAL[1]
                    },
                }
                for name, shell, target in zip(self.names, self.shells, self.targets)
            ]
        }

    def changes(self, after: MetalReport) -> list[str]:
        """Return the metals that bind others in another report: ``A MG 301 (6 to 5: without A HOH 401 O)``."""
        found = []
        for k, name in enumerate(self.names):
            before, now = self.shells[k], after.shells[k]
            lost = [a for a in before if a not in now and after._apart(k, a) - before[a] > MOVED]
            gained = [a for a in now if a not in before and self._apart(k, a) - now[a] > MOVED]
            said = [
                f"{word} {listing([of.labels[atom] for atom in which])}"
                for word, which, of in (("without", lost, self), ("with", gained, after))
                if which
            ]
            if said:
                found.append(f"{name} ({len(before)} to {len(now)}: {', '.join(said)})")
        return found

    def _apart(self, metal: int, atom: int) -> float:
        return float(np.linalg.norm(self.positions[atom] - self.positions[self.metals[metal]]))


class Metals:
    """The metals of a topology."""

    def __init__(self, topology: app.Topology) -> None:
        self._topology = topology
        self._atoms = list(topology.atoms())
        self._has_any = any(map(is_metal, self._atoms))

    def report(self, positions: np.ndarray) -> MetalReport:
        """Assess them. `positions` (N, 3) in Å."""
        if not self._has_any:
            return MetalReport()
        sites = find_metal_sites(self._topology, positions)
        names = tuple(
            residue_label(atom.residue) if len(atom.residue) == 1 else atom_label(atom)
            for atom in (self._atoms[k] for k in sites.metals)
        )
        shells: dict[int, dict[int, float]] = defaultdict(dict)
        targets: dict[int, dict[int, float]] = defaultdict(dict)
        ends = np.column_stack([sites.metals[sites.pairs[:, 0]], sites.pairs[:, 1]])
        for (place, atom), length, target in zip(
            sites.pairs.tolist(), lengths_of(positions, ends), sites.targets
        ):
            shells[place][atom], targets[place][atom] = float(length), float(target)
        each = range(len(sites.metals))
        return MetalReport(
            names,
            tuple(shells[k] for k in each),
            tuple(targets[k] for k in each),
            {atom: atom_label(self._atoms[atom]) for atom in np.unique(sites.pairs[:, 1]).tolist()},
            tuple(sites.metals.tolist()),
            positions,
        )
