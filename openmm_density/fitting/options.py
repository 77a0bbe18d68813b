"""What a user asks of a fit, grouped by what it is for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..chemistry.planes import PlaneSet, find_planes
from ..maps.density_map import DensityMap
from ..models.preparation import Prepared, prepare
from ..models.structures import Model
from ..restraints.planarity import SIGMA
from .platforms import check_platform
from .protocols import Protocol
from .run_numbers import check_seed, checked_interval
from .solvation import solvated

Paths = Sequence[str | os.PathLike[str]] | str | os.PathLike[str]


@dataclass(frozen=True)
class RunOptions:
    """Where a fit runs, with what random numbers, and how often it reports; see `FlexibleFit`."""

    seed: int
    platform: str
    threads: int | None
    report_interval: int
    save_interval: int
    explain_time: bool = False

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_platform(self.platform, self.threads)

    def for_protocol(self, protocol: Protocol) -> RunOptions:
        """Return the options with intervals that a protocol can keep."""
        return RunOptions(
            self.seed,
            self.platform,
            self.threads,
            checked_interval("report_interval", self.report_interval, protocol),
            checked_interval("save_interval", self.save_interval, protocol),
            self.explain_time,
        )


@dataclass(frozen=True)
class PreparationOptions:
    """How a model is prepared for a simulation; see `FlexibleFit`."""

    forcefield: str | Sequence[str]
    solvent: str
    ligand_forcefield: str | None
    ligands: Mapping[str, str] | None
    dictionaries: Paths
    allow_scripts: bool

    @property
    def forcefield_names(self) -> list[str]:
        """The names or files of the force field."""
        return [self.forcefield] if isinstance(self.forcefield, str) else list(self.forcefield)

    def prepared(self, model: Model, density_map: DensityMap, platform: str) -> tuple[Prepared, Prepared]:
        """Return a model with what it lacked, and the same in a box of water, where that is its solvent."""
        solute = prepare(
            model,
            self.forcefield,
            solvent=self.solvent,
            platform=platform,
            ligand_forcefield=self.ligand_forcefield,
            ligands=self.ligands,
            dictionaries=self.dictionaries,
            allow_scripts=self.allow_scripts,
        )
        if self.solvent != "water":
            return solute, solute
        return solute, solvated(solute, density_map, platform=platform)


@dataclass(frozen=True)
class RestraintOptions:
    """What restraints are told beside the model; see `FlexibleFit`."""

    planarity: Any
    restrain_to: Model | None
    dictionaries: Paths

    def planes(self, model: Model) -> PlaneSet:
        """Return the flat groups of a model, with σ by default where they are left to the force field."""
        sigma = SIGMA if self.planarity is None else self.planarity
        return find_planes(model.topology, model.positions, sigma, self.dictionaries)
