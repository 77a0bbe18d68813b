"""What a user asks of a fit, grouped by what it is for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..base.errors import InputError, as_argument
from ..base.progress import shown_progress
from ..maps.density_map import DensityMap
from ..models.chemistry.planes import PlaneSet, find_planes
from ..models.confidence import SURE
from ..models.force_field_xml import load_force_field
from ..models.force_fields import force_field_files
from ..models.ligand_potentials import XTB, FoundPotentials, gives_potentials
from ..models.predicted_errors import expected_errors, predicted_domains
from ..models.preparation import Prepared, prepare
from ..models.structures import Model
from ..restraints.planarity import SIGMA
from .installed_extensions import function_of_extension
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
    ligand_files: Paths = ()
    completed: Model | None = None
    potentials: FoundPotentials | None = None

    @property
    def forcefield_names(self) -> list[str]:
        """The names or files of the force field."""
        return [self.forcefield] if isinstance(self.forcefield, str) else list(self.forcefield)

    @property
    def notes(self) -> list[str]:
        """Sentences on ligands that have no potential, or a poor one."""
        return [] if self.potentials is None else self.potentials.notes

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> PreparationOptions:
        """Return the options from the arguments of a `FlexibleFit`, among which there may be others."""
        names = ("forcefield", "solvent", "ligand_forcefield", "ligands", "dictionaries", "allow_scripts")
        return cls(*(arguments[name] for name in names), ligand_files=arguments["ligand_potentials"])

    def with_potentials(
        self, model: Model, threads: int | None, say: Callable[[int, int, str], None] | None = None
    ) -> PreparationOptions:
        """Return the options with potentials for ligands, where these are to have some; what there is not is distilled."""
        if self.ligand_forcefield != XTB and self.ligand_files:
            raise InputError(
                f"can only be used with {as_argument('ligand_forcefield', XTB)}",
                argument="ligand_potentials",
                remedy="add it, or leave them out",
            )
        if not gives_potentials(self.ligand_forcefield):
            return self
        forcefield = load_force_field(force_field_files(self.forcefield, self.solvent), self.allow_scripts)
        with shown_progress(None if say is None else False, []) as told:
            if told is not None:
                say = lambda done, of, doing: told(done, of, doing, None)  # noqa: E731
            asked = model, forcefield, self, threads, say
            return replace(self, potentials=function_of_extension("ligand_potentials")(*asked))

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
            ligand_potentials=None if self.potentials is None else self.potentials.by_name,
            completed=self.completed,
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
    asked: Mapping[str, Any]

    def planes(self, model: Model) -> PlaneSet:
        """Return the flat groups of a model, with σ by default where they are left to the force field."""
        sigma = SIGMA if self.planarity is None else self.planarity
        return find_planes(model.topology, model.positions, sigma, self.dictionaries)

    def of_each(self, names: Iterable[str], prepared: Prepared) -> dict[str, dict[str, Any]]:
        """Return what restraints are told beside the start, by their names."""
        options: dict[str, dict[str, Any]] = {}
        if prepared.solvent == "water" and "position" in names:
            options["position"] = {"periodic": True}
        if self.restrain_to is not None:
            if "distance" not in names:
                raise InputError(
                    'is for the restraint "distance", which no stage has',
                    argument="restrain_to",
                    remedy=f"add it to {as_argument('restraints')}, or leave {as_argument('restrain_to')} out",
                )
            options["distance"] = {"reference": self.restrain_to}
        elif "distance" in names and prepared.plddt is not None:
            error = expected_errors(prepared.plddt, prepared.predicted_errors)
            options["distance"] = {"expected_error": error}
        if "torsion" in names and prepared.plddt is not None:
            options["torsion"] = {"residues": prepared.plddt >= SURE}
        if "elastic" in names and prepared.predicted_errors is not None:
            options["elastic"] = {"domains": predicted_domains(prepared.predicted_errors)}
        if "ideal-geometry" in names:
            options["ideal-geometry"] = {"dictionaries": self.dictionaries}
        return options
