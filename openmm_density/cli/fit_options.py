"""What ``openmm-density fit`` is asked to do, by what it concerns: read once, then passed on, written down and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..energies.measures import SIMILARITIES
from ..fitting.extension import Option
from ..fitting.installed_extensions import extension_options, protocol_asked
from ..restraints.names import DEFAULT_STAGE_RESTRAINTS, RESTRAINT_NAMES
from .arguments import PREDICTED, PREDICTED_HELP, map_corrections, refused

if TYPE_CHECKING:
    from ..fitting.protocols import Protocol
    from ..maps.corrections import MapCorrections
    from ..maps.density_map import DensityMap
    from ..models.model import Model

_Options = TypeVar("_Options")

DOMAINS = "domains"
CUT = ("chains", DOMAINS)
"""Words of ``--place`` for what is placed by itself."""
CRYSTAL, OFF = "crystal", "off"
"""Words of ``--symmetry`` beside those of assemblies: the copies in the crystal, default where file and map name it; none."""


def option(
    says: str, metavar: str | None = None, kind: Callable[[str], Any] | None = None, **how: Any
) -> Any:
    """Return a field of a group that is an option of the command line; `options_of` has its name, and its kind by its type."""
    return field(metadata={"option": {"help": says, "metavar": metavar, "kind": kind, **how}})


def options_of(group: type) -> Iterator[Option]:
    """Yield the options that a group declares."""
    for each in fields(group):
        if "option" in each.metadata:
            told, hint = each.metadata["option"], str(each.type)
            kind = told["kind"] or {"int": int, "float": float, "bool": bool}.get(hint.split(" |")[0], str)
            yield Option(each.name, **{**told, "kind": kind, "many": hint.startswith("Sequence[")})


def _ligand_forcefield(text: str) -> str:
    if text in ("rigid", "openff", "gaff", "xtb") or (text.startswith("openmmml:") and text != "openmmml:"):
        return text
    raise refused("rigid, openff, gaff, xtb or openmmml:NAME", text)


def _strength(text: str) -> float | str:
    try:
        return text if text == "auto" else float(text)
    except ValueError:
        raise refused("auto or a number of kJ/mol", text) from None


def _ligand(text: str) -> list[str]:
    name, equals, smiles = text.partition("=")
    if not (name and equals and smiles):
        raise refused("NAME=SMILES, such as BNZ=c1ccccc1", text)
    return [name, smiles]


def _planarity(text: str) -> float | str | None:
    if text in ("on", "off"):
        return text if text == "on" else None
    try:
        return float(text)
    except ValueError:
        raise refused("on, off or a number of Å", text) from None


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where results go, or from where a fit goes on."""

    output: str | None = option("folder for the results", "DIR")
    overwrite: bool = option("replace an earlier fit in DIR")
    resume: str | None = option(
        "resume the fit in DIR that was interrupted, with the options that it began with", "DIR"
    )


@dataclass(frozen=True, kw_only=True)
class Files:
    """The model, the map and what they are compared with."""

    model: str
    map: str
    resolution: float
    columns: list[str] | None
    voxel_size: float | list[float] | None
    mirror: bool
    invert: bool
    half_map: Sequence[str] = option(
        "given twice: find the strength, and whether --replicas are better than one model, by fitting into the one and "
        "scoring in the other",
        "FILE",
    )
    reference: str | None = option("a model of the target, to report the distance to", "TARGET")
    place: str = option(
        "place the model in the map as a rigid body first (auto: if it lies outside or beside its density); chains, domains: "
        "each by itself",
        choices=("auto", "on", "off", *CUT),
        default="auto",
    )
    symmetry: str | None = option(
        "fit one unit of a symmetric assembly, its copies following: C4, D7, T, O, I, helical:RISE,TWIST (Å, degrees), "
        "or auto, which finds it in the chains, the file or the map. crystal: the copies in the crystal that the model's file "
        "names; by default where the map is that of its whole cell, and off leaves them out",
        "WORD",
    )

    # Models that are placed one by one, as in ``B.cif:3`` for three copies; none where the model is one of its own.
    parts: list[str]

    @property
    def to_be_placed(self) -> list[str]:
        """The models that are placed one by one, before they are one model; none where there is one."""
        has_copies = self.model and ":" in self.model and not Path(self.model).exists()
        return self.parts or ([self.model] if has_copies or self.place in CUT else [])

    @property
    def corrections(self) -> MapCorrections:
        """What is corrected of the map, and of its half maps."""
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


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Whether the model is a prediction, and what of it is used."""

    predicted: str = option(
        PREDICTED_HELP,
        choices=tuple(PREDICTED),
        default="auto",
    )
    trim: float | None = option(
        "leave residues of a prediction out whose confidence (pLDDT, 0 to 100) is below P, such as 50", "P"
    )
    pae: str | None = option(
        "the errors that a prediction expects between its residues, by which its domains are placed first: JSON of AlphaFold or "
        "ColabFold, .npz of Boltz",
        "FILE",
    )

    def read_model(self, path: str) -> Model:
        """Return the model in a file."""
        from ..models.structures import read_model

        model = read_model(path, PREDICTED[self.predicted], self.trim)
        if self.pae is None:
            return model
        from ..models.predicted_errors import with_predicted_errors

        return with_predicted_errors(model, self.pae)

    def to_be_placed(self) -> Prediction:
        """Return what is placed: with expected errors all residues that these are of; the fit leaves some out."""
        return self if self.pae is None else replace(self, trim=None)

    def has_domains(self, path: str) -> bool:
        """Return whether a prediction is sure of several domains, and not of how they lie beside each other."""
        if self.pae is None:
            return False
        from ..models.predicted_errors import predicted_domains

        errors = self.read_model(path).confidence.errors
        return int(predicted_domains(errors).max()) > 0


@dataclass(frozen=True, kw_only=True)
class CrystalData:
    """What is fitted to the measured amplitudes of a crystal."""

    amplitudes: list[str] | None
    free_flags: str | None
    free_value: int | None
    make_free_flags: bool = option(
        "hold out 5%% of the reflections of a file without free flags, and write the flags into DIR"
    )
    cycles: int = option(
        "cycles of phases and a fit, at most (%(default)s); --protocol and --steps are those of one cycle (2000 steps)",
        "N",
        default=8,
    )


@dataclass(frozen=True, kw_only=True)
class ProtocolChoice:
    """The protocol, and what is changed of it."""

    protocol: str = option(
        "quick, standard (default), cascade, gentle, exchange, or a file; see protocol.toml of any fit",
        "NAME|FILE.toml",
        default="standard",
    )
    steps: int | None = option("steps of all stages together (those of the protocol)", "N")
    strength: float | str | None = option(
        "kJ/mol per fitted atom at full strength (that of the protocol, auto)", "auto|X", _strength
    )
    final_strength: float | str | None = option(
        "kJ/mol per fitted atom at the end: auto is the largest that keeps the geometry as it is without the map (auto, or "
        "the number of --strength)",
        "auto|X",
        _strength,
    )
    temperature: float | None = option("highest temperature, in K (that of the protocol)", "K")
    density_interval: int | None = option(
        "apply the density force every N-th step, N times as strongly: 1, 2 or 4 (1)", "N"
    )
    restrain: str | None = option(
        f"what is restrained to the start, in place of the protocol's {','.join(DEFAULT_STAGE_RESTRAINTS)},ss and, at the "
        f"end, rotamers: any of {', '.join(RESTRAINT_NAMES)}, or none",
        "LIST",
    )
    restrain_to: str | None = option(
        "also restrain distances to those of another model of the same molecule, released where the density "
        "contradicts them",
        "MODEL2",
    )
    planarity: float | str | None = option(
        "restrain flat groups to planes, with a standard deviation in Å (on, which is 0.02)",
        "on|off|SIGMA",
        _planarity,
        default="on",
    )

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


@dataclass(frozen=True, kw_only=True)
class Density:
    """The density force."""

    similarity: str = option(
        f"{SIMILARITIES[0]} (default), {', '.join(SIMILARITIES[1:-1])} or {SIMILARITIES[-1]}",
        "NAME",
        default=SIMILARITIES[0],
    )
    about_mean: bool = option("correlate about the mean")
    weights: str = option(
        "what an atom's density is: mass (default), unity, number, charge, electron or xray",
        "NAME",
        default="mass",
    )
    atoms: str = option(
        'which atoms are fitted: "heavy" (default: no hydrogens, waters or single ions), "all" or an mdtraj selection',
        "SELECTION",
        default="heavy",
    )


@dataclass(frozen=True, kw_only=True)
class ForceField:
    """The force field, its solvent, and ligands."""

    forcefield: Sequence[str] = option(
        "amber14 (default), charmm36 (no nucleic acids), or an OpenMM file; may be given several times, as for ligands",
        "NAME|FILE.xml",
    )
    allow_scripts: bool = option(
        "let force field files run the Python code in them (also beside --resume): only if you trust them"
    )
    solvent: str = option(
        "none (default: screened charges), obc or gbn2 (generalised Born), or water (a box with ions, at 1 bar)",
        "NAME",
        default="none",
    )
    ligand_forcefield: str | None = option(
        "rigid (default), or for ligands that have a SMILES: openff or gaff (parameters, by openmmforcefields); xtb (a "
        "potential learned from GFN2-xTB, by openmm-density[ligands]); openmmml:NAME (one of OpenMM-ML, as in openmmml:ani2x)",
        "NAME",
        _ligand_forcefield,
    )
    ligand: Sequence[list[str]] = option(
        "what a ligand is, in its protonation, where its --dictionary does not say; may be given several times",
        "NAME=SMILES",
        _ligand,
    )
    ligand_potential: Sequence[str] = option(
        "a potential that distill has made of a ligand, for --ligand-forcefield xtb; may be given several times",
        "FILE",
    )
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


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How the fit is run."""

    platform: str | None = option(
        "OpenMM platform: CUDA, CPU, HIP, OpenCL or Reference (CUDA where it runs, else CPU); our forces are slower on HIP and "
        "OpenCL",
        "NAME",
    )
    threads: int | None = option("CPU threads, and processes of the searches (all cores)", "N")
    seed: int = option(
        "seed of velocities and noise (%(default)s); with --platform CPU --threads 1 the same seed gives the same bits",
        "N",
        default=0,
    )
    report_interval: int = option(
        "steps between rows of the log and frames of the trajectory (%(default)s)", "N", default=200
    )
    save_interval: int = option(
        "steps between states from which a fit can go on (%(default)s)", "N", default=2000
    )
    explain_time: bool = option("say at the end where the time went")

    def fit_arguments(self) -> dict[str, Any]:
        """Return them as arguments of a `FlexibleFit`, but the intervals and `explain_time`, which a scan of strengths lacks."""
        return {"platform": self.platform, "threads": self.threads, "seed": self.seed}


@dataclass(frozen=True)
class FitOptions:
    """All options of the command."""

    output: Output
    files: Files
    course: ProtocolChoice
    density: Density
    force_field: ForceField
    run: Execution
    crystal: CrystalData
    prediction: Prediction
    extensions: Mapping[str, Any]

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> FitOptions:
        """Return the options from their values by name, among which there may be others."""
        return cls(
            *(
                _chosen(group, options)
                for group in (
                    Output,
                    Files,
                    ProtocolChoice,
                    Density,
                    ForceField,
                    Execution,
                    CrystalData,
                    Prediction,
                )
            ),
            {option.name: options[option.name] for option in extension_options()},
        )

    def by_name(self) -> dict[str, Any]:
        """Return the values by name, as `of` takes them."""
        groups = [each for each in values(self).values() if each is not self.extensions]
        return {name: value for group in groups for name, value in values(group).items()} | {
            **self.extensions
        }

    def on_platform(self, name: str) -> FitOptions:
        """Return the options with a platform."""
        return replace(self, run=replace(self.run, platform=name))

    def read_model(self) -> Model:
        """Return the model."""
        return self.prediction.read_model(self.files.model)

    def changed_protocol(self) -> Protocol:
        """Return the protocol with all changes."""
        return protocol_asked(self.course.changed_protocol(self.files.resolution), self.by_name())

    def given_not_with(self, name: str) -> dict[str, Any]:
        """Return the options of extensions that are given and cannot be used with one of the core, by name."""
        return {
            option.name: self.extensions[option.name]
            for option in extension_options()
            if name in option.not_with and self.extensions[option.name] != option.default
        }

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
    return group(**{each.name: options[each.name] for each in fields(group)})


def values(group: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, as they are."""
    return {each.name: getattr(group, each.name) for each in fields(group)}
