"""Residues whose atoms stand in several places of a file, as Coot and others write hydrogens: each is one again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.spatial import cKDTree

from .conformers import ReadResidue

FARTHEST = 2.5
"""Å between parts of one residue: a bond, even where hydrogens were placed badly."""


def united(residues: Sequence[ReadResidue]) -> list[ReadResidue]:
    """Return residues, those of one chain, number and name whose atoms are different and near one another as one.

    Whatever their segments, and on which side of a TER they stand. A part joins the nearest that it fits, hydrogens alone come
    last; the residue is where its first part is that has other atoms.
    """
    parts: dict[tuple[str, int, str, str], list[int]] = defaultdict(list)
    for k, residue in enumerate(residues):
        parts[residue.chain, residue.number, residue.insertion_code, residue.name].append(k)
    gone: set[int] = set()
    for members in parts.values():
        names = {k: {atom.name for atom in residues[k].atoms} for k in members} if len(members) > 1 else {}
        # Waters whose numbers ran out are thousands, all with an oxygen.
        if not names or set.intersection(*names.values()):
            continue
        whole: list[int] = []
        for k in sorted(members, key=lambda k: _is_hydrogens(residues[k])):
            fitting = [(_distance(residues[k], residues[q]), q) for q in whole if not names[k] & names[q]]
            distance, nearest = min(fitting, default=(np.inf, k))
            if distance > FARTHEST:
                whole.append(k)
                continue
            names[nearest] |= names[k]
            _join(residues[nearest], residues[k])
            gone.add(k)
            if residues[k].after_gap and k + 1 < len(residues):
                residues[k + 1].after_gap = True
    return [residue for k, residue in enumerate(residues) if k not in gone]


def _is_hydrogens(residue: ReadResidue) -> bool:
    return all(atom.is_hydrogen() for atom in residue.atoms)


def _distance(first: ReadResidue, second: ReadResidue) -> float:
    places = [np.array([atom.pos.tolist() for atom in each.atoms]) for each in (first, second)]
    return float(cKDTree(places[0]).query(places[1])[0].min())


def _join(residue: ReadResidue, part: ReadResidue) -> None:
    """Put the atoms of a part behind those of its residue."""
    before = len(residue.atoms)
    residue.alternates += [replace(each, after=each.after + before) for each in part.alternates]
    residue.atoms += part.atoms
    residue.sources += part.sources
    residue.parts += part.parts
    part.whole = residue
