"""Models and frames as the page draws them: atoms but hydrogens and waters, with their bonds and secondary structure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from openmm import app

from ..base.errors import InputError
from ..base.wording import residue_label
from ..models.chemistry.backbone import BACKBONE
from ..models.chemistry.elements import is_hydrogen
from ..models.chemistry.residues import is_water, residue_kind
from ..models.chemistry.secondary_structure import secondary_structure
from ..models.trajectory_files import dcd_frames
from .page import base64_of
from .shown_model import COPIES, ShownModel

MOST_ATOMS = 60_000
"""Of models that have more, only the backbone is shown."""
FILM_BYTES = 1_500_000
"""That the frames take; of those of large models only the backbone is shown, and not all of them; none if few would fit."""
FEWEST_FRAMES, MOST_FRAMES = 8, 120
# In a film, steps in which coordinates are written, in Å, as far as 16 bits reach.
_FILM_STEP = 0.01
_LARGEST = 32767


class DrawnAtoms:
    """What of a topology the page draws: `indices` int (n,); `rows`: the place of each residue in the summary by its label."""

    def __init__(self, topology: app.Topology, rows: Mapping[str, int]) -> None:
        self._topology, self._rows = topology, rows
        atoms = [atom for atom in topology.atoms() if not (is_hydrogen(atom) or is_water(atom.residue.name))]
        if len(atoms) > MOST_ATOMS:
            atoms = [atom for atom in atoms if atom.name in TRACE]
        self._atoms = atoms
        self.indices = np.array([atom.index for atom in atoms], dtype=np.int64)

    @property
    def backbone(self) -> np.ndarray:
        """Which of the drawn atoms a cartoon needs, by their places among these."""
        return np.array([i for i, atom in enumerate(self._atoms) if atom.name in TRACE], dtype=np.int64)

    def as_dict(self, positions: np.ndarray) -> dict[str, Any]:
        """Return atoms, residues and bonds for the page, with the secondary structure at positions (N, 3) in Å of all atoms."""
        residues = list(dict.fromkeys(atom.residue for atom in self._atoms))
        labels = [residue_label(residue) for residue in residues]
        place = {residue: number for number, residue in enumerate(residues)}
        codes = secondary_structure(self._topology, positions)
        names, name_codes = _coded([atom.name for atom in self._atoms])
        elements, element_codes = _coded(
            [atom.element.symbol if atom.element else "X" for atom in self._atoms]
        )
        drawn = {index: number for number, index in enumerate(self.indices.tolist())}
        bonds = [
            (drawn[a.index], drawn[b.index])
            for a, b in self._topology.bonds()
            if a.index in drawn and b.index in drawn
        ]
        return {
            "names": names,
            "elements": elements,
            "name": base64_of(name_codes, "<u2"),
            "element": base64_of(element_codes, "u1"),
            "residue": base64_of(np.array([place[atom.residue] for atom in self._atoms]), "<u4"),
            "bonds": base64_of(np.array(bonds).reshape(-1, 2), "<u4"),
            "residues": {
                "label": labels,
                "name": [residue.name for residue in residues],
                "row": [self._rows.get(label) for label in labels],
                "chain": [residue.chain.index for residue in residues],
                "structure": [codes[residue.index] for residue in residues],
                "polymer": [residue_kind(residue) == "polymer" for residue in residues],
            },
        }


TRACE = frozenset((*BACKBONE, "P", "O5'", "C3'", "C4'", "O3'", "C5'", "C1'", "N1", "N9", "C2", "O2'"))
"""Names of the atoms that a cartoon is drawn through, of proteins and of nucleic acids."""


def drawn_models(
    models: Sequence[ShownModel], residues: Sequence[Mapping[str, Any]], trajectory: Path | None = None
) -> dict[str, Any]:
    """Return models for the page: ``atoms``, by topology, ``models`` with their places in them, and ``film``."""
    rows: dict[str, int] = {}
    for row, residue in enumerate(residues):
        rows.setdefault(residue["residue"], row)
    drawn: dict[int, tuple[DrawnAtoms, int]] = {}
    atoms, shown = [], []
    for model in models:
        if id(model.topology) not in drawn:
            own = DrawnAtoms(model.topology, rows if model.key not in ("reference", COPIES) else {})
            drawn[id(model.topology)] = own, len(atoms)
            atoms.append(own.as_dict(model.positions))
        own, number = drawn[id(model.topology)]
        shown.append(
            {
                "key": model.key,
                "label": model.label,
                "color": model.color,
                "atoms": number,
                "positions": base64_of(np.nan_to_num(model.positions[own.indices], nan=_NOWHERE), "<f4"),
            }
        )
    film = None if trajectory is None else _film(trajectory, drawn[id(models[0].topology)][0])
    return {"atoms": atoms, "models": shown, "film": film}


_NOWHERE = 1e9
"""The coordinates of an atom that a model does not have."""


def _film(path: Path, drawn: DrawnAtoms) -> dict[str, Any] | None:
    """Return the frames of a trajectory, as many as are of use, in whole steps of a length; None where there are none."""
    places = np.arange(len(drawn.indices))
    if _most_frames(len(places)) < MOST_FRAMES / 2:
        places = drawn.backbone
    most = _most_frames(len(places))
    if not len(places) or most < FEWEST_FRAMES:
        return None
    try:
        frames, every = dcd_frames(path, drawn.indices[places], most)
    except InputError:
        return None
    if len(frames) < 2 or not np.isfinite(frames).all():
        return None
    centre = frames.reshape(-1, 3).mean(axis=0, dtype=np.float64)
    moved = frames - centre
    step = max(_FILM_STEP, float(np.abs(moved).max()) / _LARGEST)
    return {
        "atoms": None if len(places) == len(drawn.indices) else base64_of(places, "<u4"),
        "frames": len(frames),
        "every": every,
        "centre": centre.tolist(),
        "step": step,
        "values": base64_of(np.rint(moved / step), "<i2"),
    }


def _most_frames(n_atoms: int) -> int:
    return min(FILM_BYTES // max(6 * n_atoms, 1), MOST_FRAMES)


def _coded(texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Return the different texts, and the place of each among them."""
    different = list(dict.fromkeys(texts))
    number = {text: place for place, text in enumerate(different)}
    return different, np.array([number[text] for text in texts])
