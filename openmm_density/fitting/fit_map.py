"""The map of a fit: corrected, with the resolution that it has, and with the correlations of models with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from openmm import app

from ..maps.corrections import MapCorrections
from ..maps.density_map import DensityMap
from ..validation.correlation import MapCorrelation


@dataclass(frozen=True, eq=False)
class FitMap:
    """A map that knows its resolution.

    Attributes
    ----------
    read : DensityMap
        As it was read.
    resolution : float
        In Å.
    corrections : MapCorrections
        What it is corrected for.
    """

    read: DensityMap
    resolution: float
    corrections: MapCorrections = field(default_factory=MapCorrections)
    _correlations: dict[tuple[app.Topology, float], MapCorrelation] = field(
        default_factory=dict, init=False, repr=False
    )

    @cached_property
    def density_map(self) -> DensityMap:
        """The map, corrected."""
        return self.corrections.apply(self.read)

    def correlation(self, topology: app.Topology, resolution: float | None = None) -> MapCorrelation:
        """Return what correlates positions of a topology's atoms with the map; each is built once.

        Parameters
        ----------
        topology : openmm.app.Topology
        resolution : float, optional
            Of the model's density, in Å; that of the map by default. A model with wider Gaussians is correlated at a coarser one.
        """
        key = topology, self.resolution if resolution is None else resolution
        if key not in self._correlations:
            self._correlations[key] = MapCorrelation(self.density_map, *key)
        return self._correlations[key]
