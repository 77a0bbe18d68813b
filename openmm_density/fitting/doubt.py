"""A doubt about a fit, with where in the model it is: what the summary, the report and the scripts of viewers share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..validation.stretches import DoubtfulStretch
from .installed_extensions import extensions


@dataclass(frozen=True)
class Place:
    """Where in a model something is doubted."""

    label: str  # What a list calls it, as in ``A 134-138`` or ``A LYS 45 CA - A GLY 46 N``
    members: tuple[str, ...]  # Its residues, as in ``A HIS 57B``, or atoms of them, as in ``A HIS 57B CA``

    @classmethod
    def of(cls, label: str) -> Place:
        """Return the place that names its atoms or residues itself, as in ``A LYS 45 CA - A GLY 46 N``."""
        return cls(label, tuple(label.split(" - ")))


@dataclass(frozen=True)
class Doubt:
    """A sign that a fit, or a part of it, is not to be believed.

    `kind`: what is doubted, see `KINDS`, or the name of an extension; `sentence`: what speaks against the fit, and what to do;
    `places`: all places, also where the sentence names only some; none for a doubt about the whole fit.
    """

    kind: str
    sentence: str
    places: tuple[Place, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in {*KINDS, *(extension.name for extension in extensions())}:
            raise ValueError(f"no kind of doubt is called {self.kind}")


KINDS = {
    "interrupted": "the fit did not finish",
    "map": "the map itself",
    "resolution": "the resolution that was given",
    "outside": "atoms outside the map",
    "not_improved": "the fit did not improve the model",
    "correlation": "a low correlation",
    "noise": "noise may have been fitted",
    "geometry": "geometry worse than relaxed",
    "strength": "no limit to the strength was found",
    "half_maps": "half maps that are not independent",
    "ramachandran": "new Ramachandran outliers",
    "puckers": "new sugar pucker outliers",
    "suites": "more suite outliers",
    "base_pairs": "base pairs that the fit opened",
    "pyranoses": "sugars whose ring or anomer the fit changed",
    "chirality": "chiral centres flat or inverted",
    "cis": "peptide bonds twisted or flipped",
    "elements": "atoms with another element than in the file",
    "pierced": "bonds that pass through rings",
    "mates": "contacts with copies in the crystal",
    "contacts": "atoms as near as a bond that are not bonded",
    "metal": "metals that are not where they were, or bind other atoms",
    "molecules": "molecules that turned or moved within what is around them",
    "stretched": "bonds that are not as long as such are",
    "angles": "angles that were bent",
    "bent": "flat groups that were bent",
    "ligand": "ligands whose potential does not know them",
    "worse": "residues that fit the map clearly worse than at the start",
    "conformers": "alternate conformers that the map does not show",
    "stretch": "stretches of residues that fit the map badly",
}
"""What each kind of doubt is about."""


def place_of_stretch(stretch: DoubtfulStretch, residues: Sequence[Mapping[str, Any]]) -> Place:
    """Return the place of a stretch among the residues that it was found in."""
    return Place(stretch.label, tuple(residues[row]["residue"] for row in stretch.rows))


def located_doubts(
    doubts: Iterable[Doubt], residues: Sequence[Mapping[str, Any]], centres: np.ndarray
) -> list[dict[str, Any]]:
    """Return what ``summary.json`` holds of doubts as ``located_doubts``.

    `centres` (n, 3): the centre of each of them in the fitted model, in Å. Returns for each doubt its ``kind``,
    ``sentence`` and ``places``; of each of these its ``label``, ``residues`` (their numbers, from 0, in the summary's
    list) and ``centre`` (Å, in the frame of ``fitted.*``). A place whose residues are not in the list, such as one in
    the solvent, is left out.
    """
    rows: dict[str, int] = {}
    for number, row in enumerate(residues):
        rows.setdefault(row["residue"], number)
    return [
        {
            "kind": doubt.kind,
            "sentence": doubt.sentence,
            "places": [found for place in doubt.places if (found := _located(place, rows, centres))],
        }
        for doubt in doubts
    ]


def _located(place: Place, rows: Mapping[str, int], centres: np.ndarray) -> dict[str, Any] | None:
    found = [_row(member, rows) for member in place.members]
    known = list(dict.fromkeys(row for row in found if row is not None))
    if not known:
        return None
    centre = centres[known].mean(axis=0)
    return {
        "label": place.label,
        "residues": known,
        "centre": [round(float(each), 3) for each in centre],
    }


def _row(member: str, rows: Mapping[str, int]) -> int | None:
    """Return the number of a residue that is named, or of that of an atom."""
    row = rows.get(member)
    return row if row is not None else rows.get(member.rpartition(" ")[0])
