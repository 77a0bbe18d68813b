"""The symmetry of an assembly: point groups and helices as operators, found in a model's chains, its file or in a map."""

from typing import TYPE_CHECKING

from ...base.lazy_names import lazy_names

if TYPE_CHECKING:
    from ...maps.moved_maps import MapAgreement, map_agreement
    from ...models.assembly import AssemblySymmetry
    from .assembly_file import write_assembly, write_expanded
    from .assembly_search import find_assembly
    from .axes_in_map import find_in_map
    from .chains import FoundSymmetry, find_in_chains
    from .file_operators import operators_of_file
    from .groups import helix, point_group
    from .helices import HelixPlace, find_helix_in_map, helix_of_motion
    from .helix_in_chains import find_helix_in_chains
    from .words import SymmetryWord, parse_symmetry

__all__ = [
    "AssemblySymmetry",
    "FoundSymmetry",
    "HelixPlace",
    "MapAgreement",
    "SymmetryWord",
    "find_assembly",
    "find_helix_in_chains",
    "find_helix_in_map",
    "find_in_chains",
    "find_in_map",
    "helix",
    "helix_of_motion",
    "map_agreement",
    "operators_of_file",
    "parse_symmetry",
    "point_group",
    "write_assembly",
    "write_expanded",
]

__getattr__, __dir__ = lazy_names(__name__)
