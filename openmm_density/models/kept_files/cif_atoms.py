"""The rows of ``_atom_site`` with new positions, and similar rows for atoms that were built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


class CifAtoms(NamedTuple):
    """Atoms to be written in rows of ``_atom_site``; each field has an entry for each."""

    # int (N,): its row in the file, from 1; for an atom that was built, the row of another atom of its residue
    rows: np.ndarray
    is_built: np.ndarray  # bool (N,): whether it is missing from the file
    # `names`, `residue_names`, `elements`, `altlocs`: of str (N,), as they are written.
    names: np.ndarray
    residue_names: np.ndarray
    elements: np.ndarray
    altlocs: np.ndarray
    positions: np.ndarray  # (N, 3), Å
    b_factors: np.ndarray  # `b_factors`, `occupancies` (N,), in Å² and fractions.
    occupancies: np.ndarray


class AtomTable:
    """The ``_atom_site`` loop of a block, whose atoms are replaced.

    Attributes: `columns`: the values as written in the file, by names without the category, arrays of str; `places` (R, 3): the
    positions of the file's rows, in Å.
    """

    def __init__(self, block: gemmi.cif.Block) -> None:
        self._loop = block.find_loop("_atom_site.Cartn_x").get_loop()
        values = np.array(self._loop.values, dtype=object).reshape(-1, self._loop.width())
        names = [tag.partition(".")[2] for tag in self._loop.tags]
        self.columns = dict(zip(names, np.ascontiguousarray(values.T)))
        self.places = np.stack([self._numbers(name) for name in _PLACES], axis=1)

    def _numbers(self, name: str) -> np.ndarray:
        """Return the values of a column as numbers, NaN where the file has none."""
        return np.array([*map(gemmi.cif.as_number, self.columns[name])], dtype=np.float64)

    def replaced(
        self, models: Sequence[CifAtoms], renumbered: bool
    ) -> tuple[dict[str, np.ndarray], dict[str, str], bool]:
        """Replace the rows; return columns, serial numbers of unchanged atoms by the old ones, and whether any moved."""
        rows, built, *names, positions, b_factors, occupancies = (
            np.concatenate(each) for each in zip(*models)
        )
        columns = {name: values[rows - 1] for name, values in self.columns.items()}
        moved = self._write_values(columns, rows - 1, positions, b_factors, occupancies)
        _write_names(columns, built, *names)
        changed = built | moved
        for name, values in columns.items():
            if name in _OF_PLACE or name.startswith(DISPLACED):  # true only at the old positions
                values[changed] = "?"
        if len(models) > 1:
            if _MODEL not in columns:
                self._loop.add_columns([f"_atom_site.{_MODEL}"], "1")
            numbers = [[str(number)] * len(model.rows) for number, model in enumerate(models, start=1)]
            columns[_MODEL] = np.concatenate(numbers).astype(object)
        still: dict[str, str] = {}
        if "id" in columns:
            old = columns["id"]
            if renumbered:
                columns["id"] = np.array([*map(str, range(1, len(rows) + 1))], dtype=object)
            if len(models) == 1:
                still = dict(zip(old[~changed], columns["id"][~changed]))
        self._loop.set_all_values([values.tolist() for values in columns.values()])
        first = slice(len(models[0].rows))
        return columns, still, bool((moved & ~built)[first].any())

    def _write_values(
        self,
        columns: dict[str, np.ndarray],
        rows: np.ndarray,
        positions: np.ndarray,
        b_factors: np.ndarray,
        occupancies: np.ndarray,
    ) -> np.ndarray:
        """Write coordinates, B factors and occupancies where they changed; return which atoms moved or have another B factor."""
        before = self.places[rows]
        moved = np.abs(positions - before).max(axis=1, initial=0.0) > 5.001e-4
        for axis, name in enumerate(_PLACES):
            _rewrite(columns[name], before[:, axis], positions[:, axis], 3)
        for name, new, unsaid in (("B_iso_or_equiv", b_factors, 0.0), ("occupancy", occupancies, 1.0)):
            if name in columns:
                old = self._numbers(name)[rows]
                if name == "B_iso_or_equiv":
                    moved |= np.abs(new - old) > 5.001e-3
                unsaid_still = np.abs(new - unsaid) < 5e-3
                # An omitted value equals the default that it stands for.
                for k in np.flatnonzero(np.isnan(old) & unsaid_still):
                    if columns[name][k] in ("?", "."):
                        old[k] = new[k]
                _rewrite(columns[name], old, new, 2)
        return moved


def _rewrite(texts: np.ndarray, old: np.ndarray, new: np.ndarray, decimals: int) -> None:
    """Rewrite texts of numbers, as `rewritten` does for new values."""
    differs = ~(np.abs(old - new) <= TOLERANCE * 10.0**-decimals)
    texts[differs] = [f"{value:.{decimals}f}" for value in new[differs].tolist()]


def _write_names(
    columns: dict[str, np.ndarray],
    built: np.ndarray,
    names: np.ndarray,
    residue_names: np.ndarray,
    elements: np.ndarray,
    altlocs: np.ndarray,
) -> None:
    """Write names, elements and labels where they differ, as for atoms that were built."""
    for tags, values in (
        (("label_atom_id", "auth_atom_id"), names),
        (("label_comp_id", "auth_comp_id"), residue_names),
    ):
        told = [columns[tag] for tag in tags if tag in columns]
        differs = ~np.any([texts == values for texts in told], axis=0) if told else ()
        for row in np.flatnonzero(differs):
            # The authors' name may differ: then only a renamed atom is rewritten.
            if values[row] not in [gemmi.cif.as_string(texts[row]) for texts in told]:
                for texts in told:
                    texts[row] = gemmi.cif.quote(values[row])
    if "label_alt_id" in columns:
        labels = columns["label_alt_id"]
        for row in np.flatnonzero(converted(gemmi.cif.as_string, labels) != altlocs):
            labels[row] = gemmi.cif.quote(altlocs[row]) if altlocs[row] else "."
    if "type_symbol" in columns:
        symbols = columns["type_symbol"]
        differs = converted(str.upper, symbols) != converted(str.upper, elements)
        symbols[differs] = elements[differs]
    if "pdbx_formal_charge" in columns:
        columns["pdbx_formal_charge"][built] = "?"


def converted(function: Callable[[str], str], texts: np.ndarray) -> np.ndarray:
    """Return texts (N,), of which most repeat many times, converted by a function."""
    known = {text: function(text) for text in set(texts)}
    return np.array([*map(known.__getitem__, texts)], dtype=object)
