"""What map checks take: a map, the resolution given for it, and a model at its position in it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ...maps.density_map import DensityMap
from ..correlation import MapCorrelation

if TYPE_CHECKING:
    from openmm.app import Topology


@dataclass(frozen=True)
class Subject:
    """A model in a map."""

    density_map: DensityMap
    topology: Topology
    positions: np.ndarray  # (N, 3), in Å
    resolution: float  # In Å
    known_cc: float | None = None  # The model's correlation with the map (CC mask), where it is known already
    # What correlates such models with the map, where it is built already
    built_correlation: MapCorrelation | None = None

    @cached_property
    def atomic_numbers(self) -> np.ndarray:
        """Of all atoms, shape (N,); 0 where there is no element."""
        elements = (atom.element for atom in self.topology.atoms())
        return np.array([0 if element is None else element.atomic_number for element in elements])

    @cached_property
    def is_heavy(self) -> np.ndarray:
        """Which atoms are neither hydrogens nor without element, shape (N,)."""
        return self.atomic_numbers > 1

    @property
    def heavy(self) -> np.ndarray:
        """Positions of the non-hydrogen atoms in Å, shape (n, 3)."""
        return self.positions[self.is_heavy]

    @property
    def weights(self) -> np.ndarray:
        """Atomic numbers of the non-hydrogen atoms, shape (n,)."""
        return self.atomic_numbers[self.is_heavy].astype(np.float64)

    @cached_property
    def correlation(self) -> MapCorrelation:
        """Of the model with the map."""
        built = self.built_correlation
        # A subject that was made of another one may have another map.
        if built is not None and built.density_map is self.density_map:
            return built
        return MapCorrelation(self.density_map, self.topology, self.resolution)

    @cached_property
    def cc(self) -> float:
        """The model's correlation with the map where it is (CC mask)."""
        return self.correlation.cc_mask(self.positions) if self.known_cc is None else self.known_cc
