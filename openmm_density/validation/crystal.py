"""Whether a model can be in the crystal whose map is given: its cell, and what its space group makes of it."""

from __future__ import annotations

import gemmi
import numpy as np
from scipy.spatial import cKDTree

from ..base.errors import InputError
from ..maps.density_map import DensityMap
from ..models.chemistry.elements import is_hydrogen
from ..models.chemistry.residues import is_water
from ..models.model import Model

SAME_CELL = 0.02
"""By this part the axes of a model's cell and of its map's may differ, and the angles by as many radians."""
SAME_PLACE, MOST_ON_OTHERS = 0.5, 0.2
"""Å within which two atoms are one, and the part of them that a space group may lay onto others."""


def check_crystal(model: Model, density_map: DensityMap) -> None:
    """Refuse a model in a crystal's map whose cell or space group contradicts map or model; without these none is looked at."""
    if not density_map.periodic or model.cell is None:
        return
    own, of_map = np.array(model.cell), np.array(density_map.cell)
    differ = np.abs(own[:3] / of_map[:3] - 1).max() > SAME_CELL
    if differ or np.radians(np.abs(own[3:] - of_map[3:])).max() > SAME_CELL:
        raise InputError(
            f"its cell is not that of the map, {_in_words(of_map)}",
            source=model.path,
            found=_in_words(own),
            remedy="give the map of this crystal, or take the cell (CRYST1, _cell) out of a model that comes from another one",
        )
    cell = gemmi.UnitCell(*model.cell)
    # "R 3" is of a rhombohedral or a hexagonal cell: the angles tell which.
    name = model.space_group
    group = gemmi.find_spacegroup_by_name(name, cell.alpha, cell.gamma) if name else None
    if group is None:
        return
    if not cell.is_compatible_with_spacegroup(group):
        raise InputError(
            f"its space group {model.space_group} is not possible in its cell, {_in_words(own)}",
            source=model.path,
            remedy="correct CRYST1, or _symmetry and _cell",
        )
    part = _laid_on_others(model, cell, group)
    if part > MOST_ON_OTHERS:
        raise InputError(
            f"its space group {model.space_group} lays {100 * part:.0f}% of its atoms onto others of the file",
            source=model.path,
            remedy="leave out the copies that the symmetry makes, or name the space group that the file has, such as P 1",
        )


def _in_words(cell: np.ndarray) -> str:
    return ", ".join(f"{number:.4g}" for number in cell)


def _laid_on_others(model: Model, cell: gemmi.UnitCell, group: gemmi.SpaceGroup) -> float:
    """Return the part of the atoms, without hydrogens and waters, that an operator lays onto another one."""
    chosen = [
        atom.index
        for atom in model.topology.atoms()
        if not is_hydrogen(atom) and not is_water(atom.residue.name)
    ]
    if not chosen:
        return 0.0
    to_fraction = np.array(cell.frac.mat.tolist())
    places = model.positions[chosen] @ to_fraction.T
    tree = cKDTree(places % 1.0 % 1.0, boxsize=1.0)
    on_another = np.zeros(len(places), dtype=bool)
    for operator in group.operations():
        rotation, shift = np.array(operator.rot) / operator.DEN, np.array(operator.tran) / operator.DEN
        moved = places @ rotation.T + shift
        _, nearest = tree.query(moved % 1.0 % 1.0)
        away = moved - places[nearest]
        distance = np.linalg.norm((away - np.rint(away)) @ np.linalg.inv(to_fraction).T, axis=1)
        on_another |= (distance < SAME_PLACE) & (nearest != np.arange(len(places)))
    return float(on_another.mean())
