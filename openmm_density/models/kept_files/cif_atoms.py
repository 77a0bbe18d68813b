"""The rows of ``_atom_site`` with the places of their atoms changed, and rows like theirs for atoms that were built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import gemmi
import numpy as np

from .numbers import rewritten

DISPLACED = ("aniso_U", "aniso_B")
"""What the names of columns with anisotropic displacements begin with, where they are not in a loop of their own."""
_MODEL = "pdbx_PDB_model_num"
_OF_PLACE = (
    *("fract_x", "fract_y", "fract_z", "Cartn_x_esd", "Cartn_y_esd", "Cartn_z_esd"),
    *("fract_x_esd", "fract_y_esd", "fract_z_esd", "B_iso_or_equiv_esd", "occupancy_esd"),
)


@dataclass(frozen=True)
class CifAtom:
    """An atom to be written in a row of ``_atom_site``."""

    # The row of the file, from 1, that it is, or, of an atom that was built, that of another atom of its residue
    row: int
    is_built: bool  # Whether the file does not have it
    name: str  # `name`, `residue_name`, `element`, `altloc` as they are written.
    residue_name: str
    element: str
    altloc: str
    position: np.ndarray  # (3,), Å
    b_factor: float  # `b_factor`, `occupancy` in Å² and a fraction.
    occupancy: float


class AtomTable:
    """The ``_atom_site`` loop of a block, whose atoms are replaced.

    Attributes: `columns`: the values as they are written in the file, by names without the category; `places` (R, 3) of
    the rows of the file, in Å.
    """

    def __init__(self, block: gemmi.cif.Block) -> None:
        self._loop = block.find_loop("_atom_site.Cartn_x").get_loop()
        width, values = self._loop.width(), self._loop.values
        self.columns = {tag.partition(".")[2]: values[k::width] for k, tag in enumerate(self._loop.tags)}
        names = ("Cartn_x", "Cartn_y", "Cartn_z")
        self.places = np.array(
            [[gemmi.cif.as_number(value) for value in self.columns[name]] for name in names]
        ).T
        self._b_factors = [gemmi.cif.as_number(value) for value in self.columns.get("B_iso_or_equiv", ())]

    def replaced(
        self, models: Sequence[Sequence[CifAtom]], renumbered: bool
    ) -> tuple[dict[str, list[str]], dict[str, str]]:
        """Replace the rows by those of other atoms."""
        atoms = [atom for model in models for atom in model]
        columns = {name: [values[atom.row - 1] for atom in atoms] for name, values in self.columns.items()}
        _write_values(columns, atoms)
        _write_names(columns, atoms)
        changed = [atom.is_built or self.moved(atom) for atom in atoms]
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
        return columns, still

    def moved(self, atom: CifAtom) -> bool:
        """Return whether an atom is not where its row has it, or has another B factor."""
        row = atom.row - 1
        x, y, z = self.places[row]
        position = atom.position
        shift = max(abs(position[0] - x), abs(position[1] - y), abs(position[2] - z))
        old = self._b_factors[row] if self._b_factors else atom.b_factor
        return bool(shift > 5.001e-4 or abs(atom.b_factor - old) > 5.001e-3)


def _write_values(columns: dict[str, list[str]], atoms: Sequence[CifAtom]) -> None:
    """Write coordinates, B factors and occupancies where they are others."""
    for axis, name in enumerate(("Cartn_x", "Cartn_y", "Cartn_z")):
        columns[name] = [
            rewritten(text, float(atom.position[axis]), 3) for text, atom in zip(columns[name], atoms)
        ]
    for name, values, unsaid in (
        ("B_iso_or_equiv", [atom.b_factor for atom in atoms], 0.0),
        ("occupancy", [atom.occupancy for atom in atoms], 1.0),
    ):
        if name in columns:
            columns[name] = [
                text if text in ("?", ".") and abs(value - unsaid) < 5e-3 else rewritten(text, value, 2)
                for text, value in zip(columns[name], values)
            ]


def _write_names(columns: dict[str, list[str]], atoms: Sequence[CifAtom]) -> None:
    """Write names, elements and labels where they are others, as those of atoms that were built."""
    for names, values in (
        (("label_atom_id", "auth_atom_id"), [atom.name for atom in atoms]),
        (("label_comp_id", "auth_comp_id"), [atom.residue_name for atom in atoms]),
    ):
        told = [columns[name] for name in names if name in columns]
        for row, (value, *texts) in enumerate(zip(values, *told)):
            # The file may call it otherwise for its authors: then only what is renamed is written anew.
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
    """Take from rows what is true only where their atoms were."""
    for name, values in columns.items():
        if name in _OF_PLACE or name.startswith(DISPLACED):
            columns[name] = ["?" if new else value for value, new in zip(values, changed)]
