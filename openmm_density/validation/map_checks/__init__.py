"""Checks of a map with a model: its units, box, contrast, handedness, voxel size and resolution, and where the model lies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.units import positions_in_angstrom, resolution_in_angstrom, takes_units
from ...maps.density_map import DensityMap
from .box import check_box, check_units
from .contrast import check_contrast
from .detail import check_detail
from .findings import Finding, MapChecks
from .handedness import check_handedness
from .place import best_places, check_place
from .scale import check_voxel_size
from .stretching import check_stretching
from .subject import Subject

if TYPE_CHECKING:
    from openmm.app import Topology

    from ..correlation import MapCorrelation

__all__ = ["Finding", "MapChecks", "check_map_units", "check_map_with_model", "check_stretching"]


@takes_units("positions")
def check_map_units(density_map: DensityMap, topology: Topology, positions: Any) -> None:
    """Raise InputError for a map in nm, before other errors follow from it.

    Parameters
    ----------
    density_map : DensityMap
    topology : openmm.app.Topology
    positions : Quantity or array_like, shape (N, 3)
        In Å.

    Raises
    ------
    InputError
        If the map's voxels look like nm.
    """
    check_units(density_map, Subject(density_map, topology, positions_in_angstrom(positions), 1.0).heavy)


@takes_units("positions", "resolution")
def check_map_with_model(
    density_map: DensityMap,
    topology: Topology,
    positions: Any,
    resolution: Any,
    *,
    cc: float | None = None,
    correlation: MapCorrelation | None = None,
    threads: int | None = None,
) -> MapChecks:
    """Return what is wrong with a map, from a model at the position that it is said to have in it.

    The cost follows the model: about 0.1 s for 40 residues, and 3 s for 9000 atoms; where a model fits badly its place is
    searched for in the map and in its mirror image, which takes as long again for small ones, and some seconds for large ones.
    A model that has a far better place in the map is looked at there for the voxel size.

    Parameters
    ----------
    density_map : DensityMap
        The map as it was read.
    topology : openmm.app.Topology
        Names the elements of the N atoms.
    positions : Quantity or array_like, shape (N, 3)
        In Å.
    resolution : float or Quantity
        In Å.
    cc : float, optional
        The model's correlation with the map (CC mask), where it is known already.
    correlation : MapCorrelation, optional
        Of this topology with this map at this resolution, where it is built already.
    threads : int, optional
        Of the search for its place; all cores by default.

    Returns
    -------
    MapChecks
        Of the checks ``contrast``, ``box``, ``resolution``, ``place``, ``voxel_size`` and ``handedness``, each explained in its
        module.
    """
    positions, resolution = positions_in_angstrom(positions), resolution_in_angstrom(resolution)
    subject = Subject(density_map, topology, positions, resolution, cc, correlation)
    if not subject.is_heavy.any() or not np.isfinite(subject.positions).all():
        return MapChecks()
    checks = check_contrast(subject)
    if not checks.findings:
        checks += check_box(subject)
    if not checks.findings:
        checks += check_detail(subject)
    if not checks.findings:
        places = best_places(subject, threads)
        place, placed = check_place(subject, None if places is None else places[0])
        handedness = check_handedness(subject, places)
        if handedness.findings:
            # The place is that in the wrong image.
            place, placed = MapChecks(place.figures), subject
        checks = checks + place + check_voxel_size(placed) + handedness
    return checks
