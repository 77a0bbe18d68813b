"""The rows of ``_atom_site`` with new positions, and similar rows for atoms that were built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import gemmi
import numpy as np

from .numbers import TOLERANCE

DISPLACED = ("aniso_U", "aniso_B")
"""Prefix of the columns with anisotropic displacements, where they are not in a loop of their own."""
_PLACES = ("Cartn_x", "Cartn_y", "Cartn_z")
_MODEL = "pdbx_PDB_model_num"
_OF_PLACE = (
    *("fract_x", "fract_y", "fract_z", "Cartn_x_esd", "Cartn_y_esd", "Cartn_z_esd"),
    *("fract_x_esd", "fract_y_esd", "fract_z_esd", "B_iso_or_equiv_esd", "occupancy_esd"),
)


class CifAtom(NamedTuple):
    """An atom to be written in a row of ``_atom_site``."""

    # Its row in the file, from 1; for an atom that was built, the row of another atom of its residue
    row: int
    is_built: bool  # Whether it is missing from the file
    name: str  # `name`, `residue_name`, `element`, `altloc` as they are written.
    residue_name: str
    element: str
    altloc: str
    position: Sequence[float]  # (3,), Å
    b_factor: float  # `b_factor`, `occupancy` in Å² and a fraction.
    occupancy: float


class AtomTable:
    """The ``_atom_site`` loop of a block, whose atoms are replaced.

    Attributes: `columns`: the values as written in the file, by names without the category; `places` (R, 3): the positions of
    the file's rows, in Å.
    """

    def __init__(self, block: gemmi.cif.Block) -> None:
        self._loop = block.find_loop("_atom_site.Cartn_x").get_loop()
        width, values = self._loop.width(), self._loop.values
        self.columns = {tag.partition(".")[2]: values[k::width] for k, tag in enumerate(self._loop.tags)}
        self.places = np.stack([self._numbers(name) for name in _PLACES], axis=1)

    def _numbers(self, name: str) -> np.ndarray:
        """Return the values of a column as numbers, NaN where the file has none."""
        return np.array([gemmi.cif.as_number(value) for value in self.columns[name]], dtype=np.float64)

    def replaced(
        self, models: Sequence[Sequence[CifAtom]], renumbered: bool
    ) -> tuple[dict[str, list[str]], dict[str, str], bool]:
        """Replace the rows; return columns, serial numbers of unchanged atoms by the old ones, and whether any moved."""
        atoms = [atom for model in models for atom in model]
        rows = [atom.row - 1 for atom in atoms]
        columns = {name: [*map(values.__getitem__, rows)] for name, values in self.columns.items()}
        moved = self._write_values(columns, atoms, rows)
        _write_names(columns, atoms)
        built = np.array([atom.is_built for atom in atoms], dtype=bool)
        changed = (built | moved).tolist()
        _forget_displacements(columns, changed)
        if len(models) > 1:
            if _MODEL not in columns:
                self._loop.add_columns([f"_atom_site.{_MODEL}"], "1")
            columns[_MODEL] = [str(number) for number, model in enumerate(models, start=1) for _ in model]
        still: dict[str, str] = {}
        if "id" in columns:
            old = columns["id"]
            if renumbered:
                columns["id"] = [str(serial) for serial in range(1, len(atoms) + 1)]
            if len(models) == 1:
                still = {before: now for before, now, new in zip(old, columns["id"], changed) if not new}
        self._loop.set_all_values([*columns.values()])
        first = slice(len(models[0]))
        return columns, still, bool((moved & ~built)[first].any())

    def _write_values(
        self, columns: dict[str, list[str]], atoms: Sequence[CifAtom], rows: list[int]
    ) -> np.ndarray:
        """Write coordinates, B factors and occupancies where they changed; return which atoms moved or have another B factor."""
        before, after = self.places[rows], np.array([atom.position for atom in atoms]).reshape(-1, 3)
        moved = np.abs(after - before).max(axis=1, initial=0.0) > 5.001e-4
        for axis, name in enumerate(_PLACES):
            columns[name] = _rewritten(columns[name], before[:, axis], after[:, axis], 3)
        for name, given, unsaid in (
            ("B_iso_or_equiv", [atom.b_factor for atom in atoms], 0.0),
            ("occupancy", [atom.occupancy for atom in atoms], 1.0),
        ):
            if name in columns:
                old, new = self._numbers(name)[rows], np.array(given, dtype=np.float64)
                if name == "B_iso_or_equiv":
                    moved |= np.abs(new - old) > 5.001e-3
                unsaid_still = np.abs(new - unsaid) < 5e-3
                # An omitted value equals the default that it stands for.
                for k in np.flatnonzero(np.isnan(old) & unsaid_still):
                    if columns[name][k] in ("?", "."):
                        old[k] = new[k]
                columns[name] = _rewritten(columns[name], old, new, 2)
        return moved


def _rewritten(texts: Sequence[str], old: np.ndarray, new: np.ndarray, decimals: int) -> list[str]:
    """Return texts of numbers, rewritten by `rewritten` for new values."""
    same = np.abs(old - new) <= TOLERANCE * 10.0**-decimals
    return [
        text if kept else f"{value:.{decimals}f}"
        for text, kept, value in zip(texts, same.tolist(), new.tolist())
    ]


def _write_names(columns: dict[str, list[str]], atoms: Sequence[CifAtom]) -> None:
    """Write names, elements and labels where they differ, as for atoms that were built."""
    for names, values in (
        (("label_atom_id", "auth_atom_id"), [atom.name for atom in atoms]),
        (("label_comp_id", "auth_comp_id"), [atom.residue_name for atom in atoms]),
    ):
        told = [columns[name] for name in names if name in columns]
        for row, (value, *texts) in enumerate(zip(values, *told)):
            # The authors' name may differ: then only a renamed atom is rewritten.
            if value not in texts and value not in map(gemmi.cif.as_string, texts):
                for column in told:
                    column[row] = gemmi.cif.quote(value)
    labels, symbols = columns.get("label_alt_id"), columns.get("type_symbol")
    charges = columns.get("pdbx_formal_charge")
    for row, atom in enumerate(atoms):
        if labels is not None and gemmi.cif.as_string(labels[row]) != atom.altloc:
            labels[row] = gemmi.cif.quote(atom.altloc) if atom.altloc else "."
        if symbols is not None and symbols[row].upper() != atom.element.upper():
            symbols[row] = atom.element
        if atom.is_built and charges is not None:
            charges[row] = "?"


def _forget_displacements(columns: dict[str, list[str]], changed: Sequence[bool]) -> None:
    """Remove from rows what was true only at the old positions."""
    for name, values in columns.items():
        if name in _OF_PLACE or name.startswith(DISPLACED):
            columns[name] = ["?" if new else value for value, new in zip(values, changed)]
