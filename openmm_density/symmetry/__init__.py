"""The symmetry of an assembly: point groups and helices as operators, found in a model's chains or in a map."""

from .chains import FoundSymmetry, find_in_chains
from .groups import helix, point_group
from .map_agreement import MapAgreement, find_in_map, map_agreement
from .words import SymmetryWord, parse_symmetry

__all__ = [
    "FoundSymmetry",
    "MapAgreement",
    "SymmetryWord",
    "find_in_chains",
    "find_in_map",
    "helix",
    "map_agreement",
    "parse_symmetry",
    "point_group",
]
