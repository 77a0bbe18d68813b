"""The rows of ``_atom_site`` with the places of their atoms changed, and rows like theirs for atoms that were built."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import gemmi
import numpy as np

from .numbers import rewritten

DISPLACED = ("aniso_U", "aniso_B")
"""What the names of columns with anisotropic displacements begin with, where they are not in a loop of their own."""
_OF_PLACE = (
    *("fract_x", "fract_y", "fract_z", "Cartn_x_esd", "Cartn_y_esd", "Cartn_z_esd"),
    *("fract_x_esd", "fract_y_esd", "fract_z_esd", "B_iso_or_equiv_esd", "occupancy_esd"),
)


@dataclass(frozen=True)
class CifAtom:
    """An atom to be written in a row of ``_atom_site``.

    Attributes
    ----------
    row : int
        The row of the file, from 1, that it is, or, of an atom that was built, that of another atom of its residue.
    is_built : bool
        Whether the file does not have it.
    name, residue_name, element, altloc : str
        As they are written.
    position : np.ndarray, shape (3,)
        Å.
    b_factor, occupancy : float
        Å² and a fraction.
    """

    row: int
    is_built: bool
    name: str
    residue_name: str
    element: str
    altloc: str
    position: np.ndarray
    b_factor: float
    occupancy: float


class AtomTable:
    """The ``_atom_site`` loop of a block, whose atoms are replaced.

    Parameters
    ----------
    block : gemmi.cif.Block

    Attributes
    ----------
    columns : dict of str to list of str
        The values as they are written in the file, by names without the category.
    places : np.ndarray, shape (R, 3)
        Of the rows of the file, in Å.
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
        """Replace the rows by those of other atoms.

        Parameters
        ----------
        models : sequence of sequence of CifAtom
            Of each model its atoms, in the order of the file to be.
        renumbered : bool
            Whether atoms get new serial numbers; else they keep the file's.

        Returns
        -------
        columns : dict of str to list of str
            As they are now.
        still : dict of str to str
            Old serial numbers of the atoms that neither moved nor have another B factor, and their new ones.
        """
        columns: dict[str, list[str]] = defaultdict(list)
        still: dict[str, str] = {}
        numbers = self.columns.get("id")
        for number, atoms in enumerate(models, start=1):
            for atom in atoms:
                serial = str(len(columns["Cartn_x"]) + 1)
                row = self._row(atom)
                unmoved = not atom.is_built and not self.moved(atom)
                if not unmoved:
                    _forget_displacement(row)
                if numbers is not None:
                    if unmoved and len(models) == 1:
                        still[row["id"]] = serial if renumbered else row["id"]
                    if renumbered:
                        row["id"] = serial
                if "pdbx_PDB_model_num" in row and len(models) > 1:
                    row["pdbx_PDB_model_num"] = str(number)
                for name, value in row.items():
                    columns[name].append(value)
        self._loop.set_all_values([columns[name] for name in self.columns])
        return dict(columns), still

    def moved(self, atom: CifAtom) -> bool:
        """Return whether an atom is not where its row has it, or has another B factor."""
        row = atom.row - 1
        shift = float(np.abs(np.asarray(atom.position) - self.places[row]).max())
        old = self._b_factors[row] if self._b_factors else atom.b_factor
        return shift > 5.001e-4 or abs(atom.b_factor - old) > 5.001e-3

    def _row(self, atom: CifAtom) -> dict[str, str]:
        """Return the row of an atom with what differs from the file's."""
        index = atom.row - 1
        row = {name: values[index] for name, values in self.columns.items()}
        for axis, name in enumerate(("Cartn_x", "Cartn_y", "Cartn_z")):
            row[name] = rewritten(row[name], float(atom.position[axis]), 3)
        for name, value, unsaid in (
            ("B_iso_or_equiv", atom.b_factor, 0.0),
            ("occupancy", atom.occupancy, 1.0),
        ):
            if name in row and not (gemmi.cif.is_null(row[name]) and abs(value - unsaid) < 5e-3):
                row[name] = rewritten(row[name], value, 2)
        for names, value in (
            (("label_atom_id", "auth_atom_id"), atom.name),
            (("label_comp_id", "auth_comp_id"), atom.residue_name),
        ):
            # The file may call it otherwise for its authors: then only what is renamed is written anew.
            known = [gemmi.cif.as_string(row[name]) for name in names if name in row]
            if value not in known:
                row.update((name, gemmi.cif.quote(value)) for name in names if name in row)
        if "label_alt_id" in row and gemmi.cif.as_string(row["label_alt_id"]) != atom.altloc:
            row["label_alt_id"] = gemmi.cif.quote(atom.altloc) if atom.altloc else "."
        if row.get("type_symbol", atom.element).upper() != atom.element.upper():
            row["type_symbol"] = atom.element
        if atom.is_built:
            row.update((name, "?") for name in ("pdbx_formal_charge",) if name in row)
        return row


def _forget_displacement(row: dict[str, str]) -> None:
    """Take from a row what is true only where the atom was."""
    for name in row:
        if name in _OF_PLACE or name.startswith(DISPLACED):
            row[name] = "?"
