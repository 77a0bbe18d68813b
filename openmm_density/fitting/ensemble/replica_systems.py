"""The System of an ensemble: replicas side by side, each with force field and restraints, and one density force over all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import openmm

from ...energies.density_fit import DensityFit
from ...energies.ensemble_fit import EnsembleFit
from ...energies.forces import backend_problem
from ...energies.form_factors import SIGMA_PER_RESOLUTION
from ...errors import InputError
from ...maps.density_map import DensityMap
from ...merging import MergedSystem, displacements_apart, merge_systems
from ...restraints import make_restraints
from ...units import ANGSTROM_PER_NANOMETER
from ..fit_systems import BLURS, DENSITY_GROUP, RESTRAINT_GROUP, FitSystems
from ..protocols import Protocol
from .stages import RESTRAINTS

REACH = 1.0
"""nm: the cut-off of the force field. Replicas that come so near to each other side by side would interact."""
FREE_SPACE = 4.0
"""nm between replicas beyond it, into which domains may swing."""


@dataclass(frozen=True)
class ReplicaSystem:
    """Replicas side by side in one System, with the force of their mean density."""

    ensemble: EnsembleFit
    merged: MergedSystem


class ReplicaSystems:
    """Make the Systems of an ensemble from those of a fit.

    Parameters
    ----------
    systems : FitSystems
        Of the single fit.
    protocol : Protocol
        Whose hydrogen mass is taken.
    density_map : DensityMap
        That the replicas are fitted to.
    resolution : float
        Of it, in Å.
    platform : str

    Raises
    ------
    InputError
        If the fit is in water, where copies would need boxes of their own.
    """

    def __init__(
        self,
        systems: FitSystems,
        protocol: Protocol,
        density_map: DensityMap,
        resolution: float,
        platform: str,
    ) -> None:
        prepared = systems.prepared
        if prepared.solvent == "water":
            raise InputError(
                "of a fit in water cannot be made: each would need a box of its own",
                argument="replicas",
                remedy="take another solvent",
            )
        self._systems, self._map, self.resolution = systems, density_map, resolution
        self._match_blur = protocol.match_blur
        self.platform = platform
        self.one = prepared.system(hydrogen_mass=protocol.hydrogen_mass)
        restraints = [name for name in RESTRAINTS if name != "planarity"]
        for each in make_restraints(
            restraints, prepared.topology, prepared.positions, force_group=RESTRAINT_GROUP
        ):
            # One of OpenMM's own, which can be merged.
            self.one.addForce(each.create_force())

    def density(self, resolution: float | None = None, blur: float = 1.0) -> DensityFit:
        """Return the density of one replica at a resolution in Å (the map's, or coarser), with atoms so many times as wide."""
        one = self._systems.density
        if resolution is not None and resolution > self.resolution:
            sigma = SIGMA_PER_RESOLUTION * np.sqrt(resolution**2 - self.resolution**2)
            return one.with_map(self._map.gaussian_filter(sigma), resolution)
        fit = one.with_map(self._map, self.resolution)
        return fit if blur == 1.0 else fit.with_atoms_wider(blur)

    def best_density(
        self, resolution: float | None, positions: Sequence[np.ndarray], weights: np.ndarray
    ) -> DensityFit:
        """Return the density whose atoms are as wide as the map shows these replicas (nm), as a fit of one model does."""
        if (
            resolution is not None
            or not self._match_blur
            or not self._systems.density.measure.compares_widths
        ):
            return self.density(resolution)
        angstrom = [each * ANGSTROM_PER_NANOMETER for each in positions]
        widths = [self.density(blur=blur) for blur in BLURS]
        return max(widths, key=lambda fit: EnsembleFit(fit, len(positions), weights).similarity(angstrom))

    def system(
        self, density: DensityFit, positions: Sequence[np.ndarray], weights: np.ndarray
    ) -> ReplicaSystem:
        """Build the System of replicas with these positions (nm), so far apart that they know of each other by the map alone."""
        ensemble = EnsembleFit(density, len(positions), weights)
        apart = displacements_apart(list(positions), REACH + FREE_SPACE)
        merged = merge_systems([self.one] * len(positions), apart)
        backend = "CudaGraphForce" if self.platform == "CUDA" else "NativeForce"
        planarity = self._systems.planarity
        if planarity is not None:
            first, count = merged.first[:-1].tolist(), int(merged.first[-1])
            options: dict[str, Any] = {} if backend_problem(backend) else {"backend": backend}
            merged.system.addForce(planarity.create_force_of_copies(first, count, **options))
        force = ensemble.create_force(merged, backend)
        force.setForceGroup(DENSITY_GROUP)
        merged.system.addForce(force)
        return ReplicaSystem(ensemble, merged)

    def restrain_planarity(self, context: openmm.Context, stage: Any, timestep: float | None) -> None:
        """Restrain planarity in full, or by what is stable at a time step in ps."""
        self._systems.set_planarity(context, stage, timestep)
