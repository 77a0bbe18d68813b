"""The System of an ensemble: replicas side by side, each with force field and restraints, and one density force over all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import openmm

from ...base.errors import InputError
from ...base.units import ANGSTROM_PER_NANOMETER
from ...energies.density_fit import DensityFit
from ...energies.ensemble_fit import EnsembleFit
from ...energies.forces import backend_problem
from ...energies.form_factors import SIGMA_PER_RESOLUTION
from ...fitting.fit_systems import DENSITY_GROUP, RESTRAINT_GROUP, FitSystems
from ...fitting.ligand_watch import LigandWatch
from ...fitting.protocols import Protocol, Stage
from ...fitting.widths import BLURS
from ...maps.density_map import DensityMap
from ...models.merging import MergedSystem, displacements_apart, masses_of, merge_systems
from ...models.preparation.ligand_terms import add_potentials, of_copies
from ...restraints import make_restraints
from .stages import RESTRAINTS

FREE_SPACE = 5.0
"""nm between replicas, the cut-off among them, into which domains may swing."""


class Copies:
    """The force field and restraints of replicas side by side in one System, always in the same places.

    `systems` of the single fit; `protocol`: whose hydrogen mass is taken; `model` (N, 3) in Å: around it replicas have
    `FREE_SPACE`. Raises InputError if the fit is in water, where copies would need boxes of their own.
    """

    def __init__(self, systems: FitSystems, protocol: Protocol, platform: str, model: np.ndarray) -> None:
        prepared = systems.prepared
        if prepared.solvent == "water":
            raise InputError(
                "of a fit in water cannot be made: each would need a box of its own",
                argument="replicas",
                remedy="take another solvent",
            )
        self._planarity, self._model = systems.planarity, model / ANGSTROM_PER_NANOMETER
        self.backend = "CudaGraphForce" if platform == "CUDA" else "NativeForce"
        self._ligands = prepared.potentials
        self._one = prepared.system(hydrogen_mass=protocol.hydrogen_mass, ligand_energies="none")
        restraints = [name for name in RESTRAINTS if name != "planarity"]
        for each in make_restraints(
            restraints, prepared.topology, prepared.positions, force_group=RESTRAINT_GROUP
        ):
            # One of OpenMM's own, which can be merged.
            self._one.addForce(each.create_force())
        self._merged: dict[int, MergedSystem] = {}

    def watch(self, replicas: int) -> LigandWatch:
        """Return what watches the ligands of so many replicas that have a learned potential, replica by replica."""
        count = self._one.getNumParticles()
        placed = of_copies(self._ligands, [k * count for k in range(replicas)])
        return LigandWatch(placed, np.tile(masses_of(self._one), replicas))

    def merged(self, replicas: int) -> MergedSystem:
        """Return a System of so many replicas of its own, to which a density can be added."""
        if replicas not in self._merged:
            apart = displacements_apart([self._model] * replicas, FREE_SPACE)
            self._merged[replicas] = merge_systems([self._one] * replicas, apart)
        kept = self._merged[replicas]
        merged = replace(kept, system=openmm.XmlSerializer.clone(kept.system))
        first, count = merged.first[:-1].tolist(), int(merged.first[-1])
        add_potentials(merged.system, self._ligands, first)
        if self._planarity is not None:
            options: dict[str, Any] = {} if backend_problem(self.backend) else {"backend": self.backend}
            merged.system.addForce(self._planarity.create_force_of_copies(first, count, **options))
        return merged


@dataclass(frozen=True)
class ReplicaSystem:
    """Replicas side by side in one System, with the force of their mean density."""

    ensemble: EnsembleFit
    merged: MergedSystem


class ReplicaSystems:
    """The Systems of an ensemble that is fitted to a map.

    `systems` of the single fit, whose density is taken; `density_map`: that the replicas are fitted to; `resolution` of
    it, in Å; `match_blur`: whether atoms are as wide as the map shows them, as in a fit of one model.
    """

    def __init__(
        self,
        copies: Copies,
        systems: FitSystems,
        density_map: DensityMap,
        resolution: float,
        match_blur: bool,
    ) -> None:
        self._copies, self._systems = copies, systems
        self._map, self.resolution, self._match_blur = density_map, resolution, match_blur
        self._densities: dict[tuple[float, float], DensityFit] = {}
        self._made: dict[tuple[float, float, int], ReplicaSystem] = {}

    def watch(self, replicas: int) -> LigandWatch:
        """Return what watches the ligands of so many replicas; see `Copies.watch`."""
        return self._copies.watch(replicas)

    def density(self, resolution: float | None = None, blur: float = 1.0) -> DensityFit:
        """Return the density of one replica at a resolution in Å (the map's, or coarser), with atoms so many times as wide."""
        coarse = self.resolution if resolution is None else max(resolution, self.resolution)
        if (coarse, blur) not in self._densities:
            one = self._systems.density
            if coarse > self.resolution:
                sigma = SIGMA_PER_RESOLUTION * np.sqrt(coarse**2 - self.resolution**2)
                fit = one.with_map(self._map.gaussian_filter(sigma), coarse)
            else:
                fit = one.with_map(self._map, coarse)
            self._densities[coarse, blur] = fit if blur == 1.0 else fit.with_atoms_wider(blur)
        return self._densities[coarse, blur]

    def system(
        self, resolution: float | None, models: Sequence[np.ndarray], weights: np.ndarray
    ) -> ReplicaSystem:
        """Return the System of replicas with a density at a resolution, its atoms as wide as the map shows these models (Å)."""
        blur = self._blur(resolution, models, weights)
        key = (resolution or self.resolution, blur, len(models))
        if key not in self._made:
            ensemble = EnsembleFit(self.density(resolution, blur), len(models))
            merged = self._copies.merged(len(models))
            force = ensemble.create_force(merged, self._copies.backend)
            force.setForceGroup(DENSITY_GROUP)
            merged.system.addForce(force)
            self._made[key] = ReplicaSystem(ensemble, merged)
        return self._made[key]

    def _blur(self, resolution: float | None, models: Sequence[np.ndarray], weights: np.ndarray) -> float:
        widens = self._match_blur and self._systems.density.measure.compares_widths
        if resolution is not None or not widens:
            return 1.0

        def similarity(blur: float) -> float:
            return EnsembleFit(self.density(blur=blur), len(models), weights).similarity(models)

        return max(BLURS, key=similarity)

    def restrain_planarity(self, context: openmm.Context, stage: Stage, timestep: float | None) -> None:
        """Restrain planarity in full, or by what is stable at a time step in ps."""
        self._systems.set_stiff_restraints(context, stage, timestep)
