"""The phosphates that nucleotides lack, between the oxygens that they join; pdbfixer sees one residue at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from openmm import app

from ...chemistry.residue_names import is_standard_polymer
from .work_residues import WorkAtom, WorkResidue

# Å and degrees, of nucleic acids at high resolution.
_P_O3, _P_O5, _P_OP = 1.607, 1.593, 1.485
_C_O_P = 120.3
_OP_P_OP = 119.6
FARTHEST_OXYGENS = 4.0
"""Å between O3' and the next O5' up to which a phosphate joins them; in good models they are 2.5 Å apart."""


def add_phosphates(residues: list[WorkResidue]) -> Iterator[tuple[WorkResidue, list[str]]]:
    """Add P, OP1 and OP2 where a nucleotide lacks P or both oxygens, and yield it with the names of what was added."""
    for previous, work in pairwise(residues):
        has_oxygens = work.find("OP1") is not None or work.find("OP2") is not None
        if work.chain != previous.chain or has_oxygens or not is_standard_polymer(work.name):
            continue
        ends = (previous.find("C3'"), previous.find("O3'"), work.find("O5'"), work.find("C5'"))
        if None in ends:
            continue
        c3, o3, o5, c5 = (atom.position for atom in ends)
        if not 0.5 < np.linalg.norm(o5 - o3) < FARTHEST_OXYGENS:
            continue
        added = (
            [] if work.find("P") is not None else [("P", app.element.phosphorus, _phosphorus(c3, o3, o5, c5))]
        )
        phosphorus = added[0][2] if added else work.find("P").position
        first, second = _oxygens(phosphorus, o3, o5)
        added += [("OP1", app.element.oxygen, first), ("OP2", app.element.oxygen, second)]
        work.atoms += [WorkAtom(*each) for each in added]
        yield work, [name for name, _, _ in added]


def _phosphorus(c3: np.ndarray, o3: np.ndarray, o5: np.ndarray, c5: np.ndarray) -> np.ndarray:
    """Return the place at the right distance from both oxygens that has the best angles there."""
    axis = o5 - o3
    apart = np.linalg.norm(axis)
    axis /= apart
    along = (apart**2 + _P_O3**2 - _P_O5**2) / (2 * apart)
    radius = np.sqrt(max(_P_O3**2 - along**2, 0.0))
    across = np.cross(axis, np.eye(3)[np.argmin(np.abs(axis))])
    across /= np.linalg.norm(across)
    turns = np.radians(np.arange(0, 360, 5.0))[:, None]
    places = o3 + along * axis + radius * (np.cos(turns) * across + np.sin(turns) * np.cross(axis, across))
    bent = [np.abs(_angles(carbon, oxygen, places) - _C_O_P) for carbon, oxygen in ((c3, o3), (c5, o5))]
    return places[np.argmin(np.maximum(*bent))]


def _oxygens(phosphorus: np.ndarray, o3: np.ndarray, o5: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of OP1 and OP2, the other corners of a tetrahedron."""
    arms = np.array([o3, o5]) - phosphorus
    arms /= np.linalg.norm(arms, axis=1, keepdims=True)
    outward, normal = -arms.sum(axis=0), np.cross(*arms)
    if min(np.linalg.norm(outward), np.linalg.norm(normal)) < 1e-3:  # the oxygens are too far apart
        outward = np.cross(arms[0], np.eye(3)[np.argmin(np.abs(arms[0]))])
        normal = np.cross(arms[0], outward)
    outward, normal = outward / np.linalg.norm(outward), normal / np.linalg.norm(normal)
    half = np.radians(_OP_P_OP / 2)
    first, second = (
        phosphorus + _P_OP * (np.cos(half) * outward + side * np.sin(half) * normal) for side in (1, -1)
    )
    return first, second


def _angles(a: np.ndarray, b: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the angles in degrees at b between a and each of the places."""
    u, v = a - b, places - b
    return np.degrees(np.arccos(np.clip(v @ u / np.linalg.norm(u) / np.linalg.norm(v, axis=1), -1, 1)))
