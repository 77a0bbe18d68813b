"""The copies of a model in the crystal whose map is given: on by default where file and map agree that it is one."""

from __future__ import annotations

from dataclasses import dataclass

import gemmi
import numpy as np

from ..base.errors import InputError
from ..energies.symmetry_mates import check_whole_cell
from ..maps.density_map import DensityMap
from ..maps.moved_maps import map_agreement
from ..models.model import Model
from ..models.symmetry_operators import SymmetryOperators

LEAST_AGREEMENT = 0.8
"""The least correlation of a crystal's map with each copy by the space group: those of deposited maps have 0.98 and more."""


@dataclass(frozen=True)
class CrystalMates:
    """Whether the copies of a model by its space group can have part in its fit."""

    operators: SymmetryOperators | None  # None where they cannot
    # The least correlation of the map with its copies; NaN where there are none to compare
    agreement: float = float("nan")
    problem: str = ""  # Why not, in a few words; empty where they can

    def sentence(self) -> str:
        """Return what a user should know of them."""
        assert self.operators is not None
        return (
            f"The copies of the model in the crystal ({self.operators.space_group}) take part in its density and contacts; the "
            f"map agrees with them by a correlation of at least {self.agreement:.3f}."
        )


def crystal_mates(model: Model, density_map: DensityMap) -> CrystalMates:
    """Return the operators of the crystal that both a model's file and a map name."""
    if not density_map.periodic:
        return CrystalMates(None, problem="the map is not that of a crystal's whole cell")
    if model.cell is None or not model.space_group:
        return CrystalMates(None, problem="the model's file names no cell or no space group")
    cell = gemmi.UnitCell(*model.cell)
    group = gemmi.find_spacegroup_by_name(model.space_group, cell.alpha, cell.gamma)
    if group is None:
        return CrystalMates(None, problem=f"the space group {model.space_group} is not known")
    try:
        operators = SymmetryOperators.crystal(cell, group)
        check_whole_cell(operators, density_map)
    except InputError as error:
        return CrystalMates(None, problem=str(error))
    if len(operators) == 1:
        return CrystalMates(operators, 1.0)
    found = map_agreement(density_map, operators.rotations, operators.translations).correlations[1:]
    least = float(np.min(found))
    if not least >= LEAST_AGREEMENT:
        problem = f"the map has not the symmetry {group.xhm()} (its least correlation with a copy of itself is {least:.2f})"
        return CrystalMates(None, least, problem)
    return CrystalMates(operators, least)
