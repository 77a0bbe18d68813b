"""The former place of `openmm_density.chemistry.planes`."""

from ..lazy_names import moved_names

_NAMES = (
    *("Deviations", "PlanarityReport", "PlanarityRow", "Plane", "PlaneSet"),
    *("find_planes", "planarity_report"),
)

__getattr__ = moved_names(__name__, dict.fromkeys(_NAMES, "openmm_density.chemistry.planes"))
