"""What ``openmm-density fit`` is asked to do, by what it concerns: read once, then passed on, written down and compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ..fitting.installed_extensions import extension_options, protocol_asked

if TYPE_CHECKING:
    from ..fitting.protocols import Protocol
    from ..maps.corrections import MapCorrections
    from ..maps.density_map import DensityMap
    from ..models.model import Model

_Options = TypeVar("_Options")

CRYSTAL, OFF = "crystal", "off"
"""Words of ``--symmetry`` beside those of assemblies: the copies in the crystal, default where file and map name it; none."""


@dataclass(frozen=True)
class Output:
    """Where results go, or from where a fit goes on."""

    output: str | None
    overwrite: bool
    resume: str | None


@dataclass(frozen=True)
class Files:
    """The model, the map and what they are compared with."""

    model: str
    map: str
    resolution: float
    columns: list[str] | None
    voxel_size: float | list[float] | None
    mirror: bool
    invert: bool
    half_map: list[str]
    reference: str | None
    place: str
    symmetry: str | None

    @property
    def corrections(self) -> MapCorrections:
        """What is corrected of the map, and of its half maps."""
        from .arguments import map_corrections

        return map_corrections(self.voxel_size, self.mirror, self.invert)

    def read_map(self) -> DensityMap:
        """Return the map, not corrected."""
        from ..maps.density_map import DensityMap

        return DensityMap.from_file(self.map, columns=self.columns)

    def read_half_maps(self) -> tuple[DensityMap, ...]:
        """Return the half maps, not corrected."""
        from ..maps.density_map import DensityMap

        return tuple(DensityMap.from_file(path) for path in self.half_map)

    def read_reference(self) -> Model | None:
        """Return the model of the target, where there is one."""
        from ..models.structures import read_model

        return read_model(self.reference) if self.reference else None


@dataclass(frozen=True)
class Prediction:
    """Whether the model is a prediction, and what of it is used."""

    predicted: str
    trim: float | None
    pae: str | None

    def read_model(self, path: str) -> Model:
        """Return the model in a file."""
        from ..models.structures import read_model

        model = read_model(path, {"yes": True, "no": False}.get(self.predicted), self.trim)
        if self.pae is None:
            return model
        from ..models.predicted_errors import with_predicted_errors

        return with_predicted_errors(model, self.pae)


@dataclass(frozen=True)
class Crystal:
    """What is fitted to the measured amplitudes of a crystal."""

    amplitudes: list[str] | None
    free_flags: str | None
    free_value: int | None
    make_free_flags: bool
    cycles: int


@dataclass(frozen=True)
class Course:
    """The protocol, and what is changed of it."""

    protocol: str
    steps: int | None
    strength: float | str | None
    final_strength: float | str | None
    temperature: float | None
    density_interval: int | None
    restrain: str | None
    restrain_to: str | None
    planarity: float | str | None

    def changed_protocol(self, resolution: float) -> Protocol:
        """Return the protocol for a map of a resolution in Å, with all changes."""
        from ..fitting.protocols import find_protocol

        return self.changes_of(find_protocol(self.protocol, resolution))

    def changes_of(self, protocol: Protocol) -> Protocol:
        """Return a protocol with all changes."""
        names = ("strength", "final_strength", "density_interval")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.strength not in (None, "auto"):  # a number that is asked for is kept to the end
            given = {"final_strength": None, **given}
        protocol = replace(protocol, **given)
        if self.steps is not None:
            protocol = protocol.with_steps(self.steps)
        if self.temperature is not None:
            protocol = protocol.with_temperature(self.temperature)
        if self.restrain is None and self.restrain_to is None:
            return protocol
        return protocol.with_restraints(self._restraint_names(protocol))

    def _restraint_names(self, protocol: Protocol) -> list[str]:
        names = [name for stage in protocol.stages for name in stage.restraints]
        if self.restrain is not None:
            names = [name.strip() for name in self.restrain.split(",")]
            names = [] if names == ["none"] else names
        return names if self.restrain_to is None else [*names, "distance"]

    def fit_arguments(self) -> dict[str, Any]:
        """Return the arguments of a `FlexibleFit` that no protocol holds."""
        from ..models.structures import read_model
        from ..restraints.planarity import SIGMA

        return {
            "restrain_to": read_model(self.restrain_to) if self.restrain_to else None,
            "planarity": SIGMA if self.planarity == "on" else self.planarity,
        }


@dataclass(frozen=True)
class Density:
    """The density force."""

    similarity: str
    about_mean: bool
    weights: str
    atoms: str


@dataclass(frozen=True)
class ForceField:
    """The force field, its solvent, and ligands."""

    forcefield: list[str]
    allow_scripts: bool
    solvent: str
    ligand_forcefield: str | None
    ligand: list[list[str]]
    ligand_potential: list[str]
    dictionary: list[str]

    def fit_arguments(self) -> dict[str, Any]:
        """Return them as arguments of a `FlexibleFit`."""
        return {
            "forcefield": self.forcefield or "amber14",
            "allow_scripts": self.allow_scripts,
            "solvent": self.solvent,
            "ligand_forcefield": self.ligand_forcefield,
            "ligands": dict(self.ligand),
            "ligand_potentials": self.ligand_potential,
            "dictionaries": self.dictionary,
        }


@dataclass(frozen=True)
class Run:
    """How the fit is run."""

    platform: str
    threads: int | None
    seed: int
    report_interval: int
    save_interval: int
    explain_time: bool

    def fit_arguments(self) -> dict[str, Any]:
        """Return them as arguments of a `FlexibleFit`, but the intervals and `explain_time`, which a scan of strengths lacks."""
        return {"platform": self.platform, "threads": self.threads, "seed": self.seed}


@dataclass(frozen=True)
class FitOptions:
    """All options of the command."""

    output: Output
    files: Files
    course: Course
    density: Density
    force_field: ForceField
    run: Run
    crystal: Crystal
    prediction: Prediction
    extensions: Mapping[str, Any]

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> FitOptions:
        """Return the options from their values by name, among which there may be others."""
        return cls(
            *(
                _chosen(group, options)
                for group in (Output, Files, Course, Density, ForceField, Run, Crystal, Prediction)
            ),
            {option.name: options[option.name] for option in extension_options()},
        )

    def by_name(self) -> dict[str, Any]:
        """Return the values by name, as `of` takes them."""
        groups = [each for each in values(self).values() if each is not self.extensions]
        return {name: value for group in groups for name, value in values(group).items()} | {
            **self.extensions
        }

    def read_model(self) -> Model:
        """Return the model."""
        return self.prediction.read_model(self.files.model)

    def changed_protocol(self) -> Protocol:
        """Return the protocol with all changes."""
        return protocol_asked(self.course.changed_protocol(self.files.resolution), self.by_name())

    def given_not_with(self, name: str) -> dict[str, Any]:
        """Return the options of extensions that are given and cannot be used with one of the core, by name."""
        asked = {
            option.name: self.extensions[option.name]
            for option in extension_options()
            if name in option.not_with
        }
        return {name: value for name, value in asked.items() if value is not None}

    def fit_arguments(self) -> dict[str, Any]:
        """Return the arguments that a `FlexibleFit` and a scan of strengths have in common."""
        return {
            "corrections": self.files.corrections,
            **self.course.fit_arguments(),
            **values(self.density),
            **self.force_field.fit_arguments(),
            **self.run.fit_arguments(),
        }


def _chosen(group: type[_Options], options: Mapping[str, Any]) -> _Options:
    return group(**{field.name: options[field.name] for field in fields(group)})


def values(group: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, as they are."""
    return {field.name: getattr(group, field.name) for field in fields(group)}
