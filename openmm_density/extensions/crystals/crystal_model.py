"""The atoms of a model file in the crystal of its data: the same cell and the same symmetry, or a sentence on what differs."""

from __future__ import annotations

import os
from pathlib import Path

import gemmi

from ...base.errors import InputError
from ...models.structure_text import check_has_atoms, read_structure
from .reflections import Reflections

LENGTH_TOLERANCE, ANGLE_TOLERANCE = 0.015, 1.5
"""Of cells that are taken for the same one: relative, and in degrees. Crystals of one form that were frozen differ by so much."""


def crystal_structure(path: str | os.PathLike[str], reflections: Reflections) -> gemmi.Structure:
    """Return the atoms of a model file, its hydrogens and all conformers among them, in the cell and space group of the data.

    Parameters
    ----------
    path : path-like
        PDB or mmCIF. Of several models the first one counts.
    reflections : Reflections

    Raises
    ------
    InputError
        If it cannot be read, has no atoms, or its crystal is another one.
    """
    path = Path(path)
    structure = read_structure(path)
    check_has_atoms(path, structure)
    check_same_crystal(structure, reflections, path)
    structure.cell = reflections.cell
    structure.spacegroup_hm = reflections.space_group.xhm()
    structure.setup_cell_images()
    while len(structure) > 1:
        del structure[1]
    return structure


def check_same_crystal(structure: gemmi.Structure, reflections: Reflections, path: Path) -> None:
    """Refuse a model of another cell or space group than the data; one that names neither, as P 1 of 1 Å in cryo-EM, may stay."""
    mine, theirs = structure.cell, reflections.cell
    if mine.is_crystal():
        lengths = zip(mine.parameters[:3], theirs.parameters[:3], strict=True)
        angles = zip(mine.parameters[3:], theirs.parameters[3:], strict=True)
        if any(abs(a / b - 1) > LENGTH_TOLERANCE for a, b in lengths) or any(
            abs(a - b) > ANGLE_TOLERANCE for a, b in angles
        ):
            raise InputError(
                "its unit cell is not that of the data",
                source=path,
                found=f"{_cell(mine)} and {_cell(theirs)}",
                remedy="give a model and data of the same crystal",
            )
    group = gemmi.find_spacegroup_by_name(structure.spacegroup_hm, mine.alpha, mine.gamma)
    if group is None or group.operations() == reflections.space_group.operations():
        return
    if group.number == 1 and not mine.is_crystal():
        return
    raise InputError(
        f"its space group is not that of the data: {_difference(group, reflections.space_group)}",
        source=path,
        found=f"{group.xhm()} and {reflections.space_group.xhm()}",
        remedy="give both in the same space group and setting",
    )


def _difference(model: gemmi.SpaceGroup, data: gemmi.SpaceGroup) -> str:
    if model.number == data.number:
        return "they are two settings of one group"
    if _enantiomorph(model) == data.number:
        return "they are enantiomorphs, between which amplitudes cannot tell, and of which only one fits this model"
    if model.point_group_hm() == data.point_group_hm():
        return "they have the same rotations, and other screw axes"
    return "they have other rotations"


def _enantiomorph(group: gemmi.SpaceGroup) -> int:
    """Return the number of the group with the opposite screw axes."""
    return _ENANTIOMORPHS.get(group.number, group.number)


_PAIRS = (
    *((76, 78), (91, 95), (92, 96), (144, 145), (151, 153), (152, 154), (169, 170), (171, 172)),
    *((178, 179), (180, 181), (212, 213)),
)
_ENANTIOMORPHS = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}
"""Numbers of the eleven pairs (International Tables A)."""


def _cell(cell: gemmi.UnitCell) -> str:
    return " ".join(f"{each:.2f}" for each in cell.parameters)
