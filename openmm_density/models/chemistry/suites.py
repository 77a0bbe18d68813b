"""Suites of RNA, the backbone from one sugar to the next, and the known conformer that each matches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from openmm import app

from .backbone import named_atom_table
from .topologies import bonded_partners
from .torsions import torsion_angles

OUTLIER = "!!"
"""The name of a suite that matches no conformer."""

# Means of the 54 conformers in degrees: δ of the previous nucleotide, ε, ζ, α, β, γ and δ. J. S. Richardson et al., RNA 14, 465
# (2008), with the averages of its authors' program suitename (cluster averages 070506), to 0.1°.
_MEANS = Path(__file__).with_name("suite_means.csv")
# Half the width of a conformer in each of the seven torsions, and the ranges of these: degrees, by the same authors.
_WIDTHS = np.array([28.0, 60.0, 55.0, 50.0, 70.0, 35.0, 28.0])
_LEAST = np.array([60.0, 155.0, 25.0, 25.0, 50.0, 20.0, 60.0])
_MOST = np.array([165.0, 310.0, 335.0, 335.0, 290.0, 335.0, 165.0])
_PUCKERS, _GAMMAS = ((60.0, 105.0), (125.0, 165.0)), ((20.0, 95.0), (140.0, 215.0), (260.0, 335.0))
# Satellites of a dominant conformer, that conformer, and the widths (ε, ζ, α, β) of each in between.
_SATELLITES = {
    "1m": ("1a", (60, 55, 50, 32), (60, 55, 50, 64)),
    "1L": ("1a", (18, 55, 50, 18), (70, 55, 50, 70)),
    "&a": ("1a", (20, 20, 50, 70), (60, 60, 50, 70)),
    "1f": ("1c", (60, 55, 50, 47), (60, 55, 50, 65)),
    "1[": ("1b", (60, 55, 50, 34), (60, 55, 50, 56)),
    "4a": ("0a", (40, 40, 50, 70), (50, 50, 50, 70)),
    "#a": ("0a", (26, 26, 50, 70), (36, 36, 50, 70)),
    "0i": ("6n", (60, 55, 50, 60), (60, 55, 50, 60)),
    "6j": ("6n", (60, 55, 50, 60), (60, 55, 50, 60)),
}
_MIDDLE = slice(1, 5)  # ε, ζ, α and β, by which a suite is assigned


class _Conformers(NamedTuple):
    """The 54 conformers of suites."""

    names: np.ndarray  # (C,)
    means: np.ndarray  # (C, 7), degrees
    bins: np.ndarray  # int (C,), see `_bins`
    is_dominant: np.ndarray  # bool (C,)
    dominant: np.ndarray  # int (C,), for a satellite its dominant conformer, else -1
    own_widths: np.ndarray  # `own_widths`, `dominant_widths` (C, 4): between both
    dominant_widths: np.ndarray


@dataclass(frozen=True)
class Suites:
    """The suites of a model's RNA: each from the sugar of one nucleotide to that of the next."""

    residues: np.ndarray  # int (S,), the residue at which each suite ends
    torsions: np.ndarray  # int (S, 7, 4): δ of the previous nucleotide, ε, ζ, α, β, γ, δ

    def conformers(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return name (S,) and suiteness (S,) of each, see `named_suites`. `positions` (N, 3) in Å."""
        angles = torsion_angles(positions, self.torsions.reshape(-1, 4)).reshape(-1, 7)
        return named_suites(np.degrees(angles))


def find_suites(topology: app.Topology) -> Suites:
    """Return the suites of a model, between nucleotides with O2' that are bonded to each other."""
    table = named_atom_table(topology, ("C5'", "C4'", "C3'", "O3'", "P", "O5'", "O2'"))
    residue_of = np.array([atom.residue.index for atom in topology.atoms()], dtype=np.int64)
    before = np.flatnonzero((table[:, [0, 1, 2, 3, 6]] >= 0).all(axis=1))
    phosphates = bonded_partners(topology, "O3'", "P")[table[before, 3]]
    before, phosphates = before[phosphates >= 0], phosphates[phosphates >= 0]
    behind = residue_of[phosphates]
    path = np.concatenate([table[before, :4], table[behind][:, [4, 5, 0, 1, 2, 3]]], axis=1)
    whole = (path >= 0).all(axis=1) & (table[behind, 6] >= 0)
    steps = np.arange(7)[:, None] + np.arange(4)
    return Suites(behind[whole], path[whole][:, steps])


def named_suites(degrees: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the names of the suites' conformers, `OUTLIER` for none, and their suiteness, 0 for outliers, else up to 1.

    A suite is compared with the conformers that have its puckers and its γ. By ε, ζ, α and β it is the one at the least distance
    below 1, in half widths (the cube root of the sum of cubes); between a dominant conformer and its satellite,
    each has a width of its own. Suiteness is ½ [cos(π d) + 1], at least 0.01, with d the distance in all seven torsions.
    J. S. Richardson et al., RNA 14, 465 (2008). `degrees` (S, 7), in any period.
    """
    known = _conformers()
    degrees = np.mod(degrees, 360.0)
    bins = _bins(degrees)
    apart = (degrees[:, None] - known.means) / _WIDTHS
    distances = np.where(bins[:, None] == known.bins, _length(apart[..., _MIDDLE]), np.inf)
    rows = np.arange(len(degrees))
    chosen = distances.argmin(axis=1)
    # Where several match, a satellite is compared with its dominant conformer.
    other = np.where(known.is_dominant, np.inf, distances).argmin(axis=1)
    dominant = np.where(known.is_dominant, distances, np.inf).argmin(axis=1)
    several = (distances < 1).sum(axis=1) > 1
    beside = several & (known.dominant[other] == dominant)
    between = beside & _are_between(degrees, known, other, dominant)
    own, its = (
        _length((degrees - known.means[which])[:, _MIDDLE] / widths[other])
        for which, widths in ((other, known.own_widths), (dominant, known.dominant_widths))
    )
    chosen = np.where(between, np.where(its < own, dominant, other), chosen)
    whole = _length(apart[rows, chosen])
    found = (distances[rows, chosen] < 1) & (whole <= 1)
    suiteness = np.where(found, np.maximum(0.5 * (np.cos(np.pi * np.minimum(whole, 1)) + 1), 0.01), 0.0)
    return np.where(found, known.names[chosen], OUTLIER), suiteness


def _are_between(
    degrees: np.ndarray, known: _Conformers, satellites: np.ndarray, dominant: np.ndarray
) -> np.ndarray:
    """Return whether suites are between a satellite and its dominant conformer, bool (S,)."""
    ends = [known.means[which][:, _MIDDLE] for which in (dominant, satellites)]
    line = ends[0] - ends[1]
    own = degrees[:, _MIDDLE]
    return (((ends[0] - own) * line).sum(axis=1) > 0) & (((ends[1] - own) * -line).sum(axis=1) > 0)


def _bins(degrees: np.ndarray) -> np.ndarray:
    """Return a number for both puckers and γ of suites (S, 7), -1 where a torsion is in no usual range."""
    usual = ((degrees >= _LEAST) & (degrees <= _MOST)).all(axis=1)
    number = np.zeros(len(degrees), dtype=np.int64)
    for column, ranges in ((0, _PUCKERS), (6, _PUCKERS), (5, _GAMMAS)):
        value = degrees[:, column, None]
        within = np.stack([(value >= low) & (value <= high) for low, high in ranges], axis=-1)[:, 0]
        usual &= within.any(axis=1)
        number = number * len(ranges) + within.argmax(axis=1)
    return np.where(usual, number, -1)


def _length(apart: np.ndarray) -> np.ndarray:
    return np.cbrt((np.abs(apart) ** 3).sum(axis=-1))


@cache
def _conformers() -> _Conformers:
    rows = [line.split(",") for line in _MEANS.read_text().splitlines()[1:]]
    names = np.array([row[0] for row in rows])
    means = np.array([row[1:] for row in rows], dtype=np.float64)
    number = {name: place for place, name in enumerate(names.tolist())}
    dominant = np.full(len(names), -1)
    widths = np.broadcast_to(_WIDTHS[_MIDDLE], (2, len(names), 4)).copy()
    for name, (beside, *both) in _SATELLITES.items():
        dominant[number[name]] = number[beside]
        widths[:, number[name]] = both
    is_dominant = np.isin(np.arange(len(names)), dominant)
    return _Conformers(names, means, _bins(means), is_dominant, dominant, *widths)
