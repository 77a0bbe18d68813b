"""Which residues of a model a sentence about it names, so that a picture can turn there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LocatedPlace:
    """Where in a model something is doubted."""

    label: str  # What a list calls it, as in ``A 134-138`` or ``A LYS 45 CA - A GLY 46 N``
    rows: tuple[int, ...]  # Places among the residues of the summary
    # Of these residues in the fitted model, in Å
    centre: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class LocatedDoubt:
    """A sentence that speaks against a model, and where to look."""

    sentence: str  # As ``summary.json`` has it
    # Places among the residues of the summary that it is about, in their order; none where it is about the whole
    # model
    rows: tuple[int, ...]
    places: tuple[LocatedPlace, ...] = ()  # The same one by one, as a list shows them
    # What is doubted, see `openmm_density.fitting.doubt.KINDS`
    kind: str | None = None


def doubts_in(summary: Mapping[str, Any]) -> list[LocatedDoubt]:
    """Return the doubts of a fit with the residues that each is about."""
    doubts = []
    for doubt in summary["located_doubts"]:
        places = tuple(
            LocatedPlace(each["label"], tuple(each["residues"]), tuple(each["centre"]))
            for each in doubt["places"]
        )
        rows = tuple(sorted({row for place in places for row in place.rows}))
        doubts.append(LocatedDoubt(doubt["sentence"], rows, places, doubt["kind"]))
    return doubts


class ResidueFinder:
    """Finds the residues of a model that sentences name, as ``A HIS 57B`` or, of a stretch, as ``residues A 48-50``.

    `residues`: each with ``residue`` (as in ``A HIS 57B``), ``chain``, ``number`` and ``insertion_code``.
    """

    def __init__(self, residues: Sequence[Mapping[str, Any]]) -> None:
        self._by_label: dict[str, int] = {}
        self._by_place: dict[tuple[str, str], int] = {}
        for row, residue in enumerate(residues):
            self._by_label.setdefault(residue["residue"], row)
            place = residue["chain"].strip(), f"{residue['number']}{residue['insertion_code']}"
            self._by_place.setdefault(place, row)

    def named_in(self, sentence: str) -> tuple[int, ...]:
        """Return the places of the residues that a sentence names, in ascending order."""
        return tuple(sorted({*self._labelled(sentence), *self._in_stretches(sentence)}))

    def _labelled(self, sentence: str) -> Iterator[int]:
        """Yield what is named by its label; of a name inside another, as where one chain has no letter, only the longer."""
        found = [
            (match.start(), match.end(), row)
            for label, row in self._by_label.items()
            if label in sentence
            for match in re.finditer(rf"(?<!\w){re.escape(label)}(?!\w)", sentence)
        ]
        for start, end, row in found:
            if not any(
                other[0] <= start and end <= other[1] and other[:2] != (start, end) for other in found
            ):
                yield row

    def _in_stretches(self, sentence: str) -> Iterator[int]:
        """Yield all residues of a stretch from the first to the last that is named; see `Stretch.label`."""
        for chain, first, last in _STRETCH.findall(sentence):
            ends = [self._by_place.get((chain, number)) for number in (first, last or first)]
            if None not in ends:
                yield from range(ends[0], ends[1] + 1)


_STRETCH = re.compile(r"\bresidues? (?:(\S+) )?(-?\d+[A-Za-z]?)(?:-(-?\d+[A-Za-z]?))? fit the map\b")
