"""The command line: ``openmm-density fit | simulate | score | planes | doctor``."""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from .errors import InputError, SimulationError
from .wording import in_options, one_line

if TYPE_CHECKING:
    from rich.console import Console

    from .fitting.flexible_fit import FlexibleFit, Row
    from .fitting.half_maps import StrengthScan
    from .fitting.protocols import Protocol
    from .fitting.results import OutputFolder

_PROGRAM = "openmm-density"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; give the exit status: 0, 1 for a simulation that failed, 2 for input that cannot be used."""
    options, unknown = _parser().parse_known_args(arguments)
    name = f"{_PROGRAM} {options.command}"
    try:
        os.getcwd()
    except OSError:  # torch would end the process without a word of ours
        print(
            f"{name}: error: the folder that this was started in is gone: change to another one",
            file=sys.stderr,
        )
        return 2
    if unknown:
        print(f'{name}: error: "{unknown[0]}" is not understood (see {name} --help)', file=sys.stderr)
        return 2
    empty = [given for given, value in vars(options).items() if value == "" or value == [""]]
    if empty:
        print(f"{name}: error: {_spelled(empty[0])} is empty (see {name} --help)", file=sys.stderr)
        return 2
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed by the shell
            setattr(sys, stream, open(os.devnull, "w"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a locale that has no Å is no reason to fail
    if threading.current_thread() is threading.main_thread():
        # A batch system's limit ends a fit as Ctrl-C does.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    warnings.showwarning = _once_each()
    try:
        return _COMMANDS[options.command](options)
    except BrokenPipeError:
        return 141
    except KeyboardInterrupt:
        status, said = 130, "interrupted; nothing was written"
    except (InputError, SimulationError, OSError, MemoryError) as error:
        status = 2 if isinstance(error, (InputError, OSError)) else 1
        sentence = _sentence(error, options)
        said = f"error: {sentence}{'' if sentence[-1:] in '.?!' else '.'}"
    print(f"{name}: {said}", file=sys.stderr)
    return status


def _sentence(error: Exception, options: argparse.Namespace) -> str:
    if isinstance(error, InputError):
        return in_options(str(error), _spellings(options))
    if isinstance(error, OSError):
        return f"{error.filename or 'a file'}: {error.strerror or one_line(error)}"
    if isinstance(error, MemoryError):
        return f"not enough memory ({one_line(error)}): is the resolution right, or the map too large?"
    return str(error)


class _Parser(argparse.ArgumentParser):
    """Without the usage before every error: one sentence, and where the rest stands."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message.removeprefix('argument ')} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=_PROGRAM, description="Fit atomic models into density maps with OpenMM.")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")

    fit = commands.add_parser(
        "fit",
        help="fit a model flexibly into a map",
        description="Fit MODEL flexibly into MAP: minimise, molecular dynamics with the density from weak to strong, anneal, "
        "minimise. Writes models, trajectory, log, summary.json and pictures into DIR.",
    )
    fit.add_argument("model", nargs="?", metavar="MODEL", help="PDB or mmCIF, .gz or not")
    fit.add_argument("map", nargs="?", metavar="MAP", help="MRC, CCP4, SITUS (.gz or not), or MTZ")
    fit.add_argument("--resolution", type=_number, metavar="R", help="of the map, in Å")
    _add_columns(fit)
    fit.add_argument("--output", metavar="DIR", help="folder for the results")
    fit.add_argument("--overwrite", action="store_true", help="replace an earlier fit in DIR")
    fit.add_argument(
        "--resume", metavar="DIR", help="go on with the fit in DIR that was interrupted; it knows all else"
    )
    fit.add_argument("--reference", metavar="TARGET", help="a model of the target, to report the distance to")
    fit.add_argument(
        "--protocol",
        default="standard",
        metavar="NAME|FILE.toml",
        help="quick, standard (default), cascade, gentle, or a file; see protocol.toml of any fit",
    )
    fit.add_argument(
        "--half-map",
        action="append",
        default=[],
        metavar="FILE",
        help="given twice: find the strength by fitting into the one and scoring in the other",
    )
    fit.add_argument(
        "--place",
        choices=("auto", "on", "off"),
        default="auto",
        help="place the model in the map as a rigid body first (auto: if it lies outside the density)",
    )
    fit.add_argument(
        "--forcefield",
        action="append",
        default=[],
        metavar="NAME|FILE.xml",
        help="amber14 (default), charmm36, or an OpenMM file; may be given several times, as for ligands",
    )
    fit.add_argument(
        "--solvent",
        default="none",
        metavar="NAME",
        help="none (default, screened), obc, gbn2, or water (with ions, in a box around model and density)",
    )
    fit.add_argument(
        "--ligand-forcefield",
        choices=("openff", "gaff"),
        help="parametrise ligands that have a SMILES (needs openmmforcefields) in place of keeping them rigid",
    )
    fit.add_argument(
        "--ligand",
        type=_ligand,
        action="append",
        default=[],
        metavar="NAME=SMILES",
        help="what a ligand is, in its protonation, where its --dictionary does not say; may be given several times",
    )
    fit.add_argument(
        "--steps", type=_whole_number, metavar="N", help="steps of all stages (those of the protocol)"
    )
    fit.add_argument(
        "--restrain",
        metavar="LIST",
        help="what is held as it was, in place of the protocol's cis,chirality,ramachandran,planarity,ss and, at the end, "
        "rotamers: any of these, elastic, distance, position, symmetry, or none",
    )
    fit.add_argument(
        "--restrain-to",
        metavar="MODEL2",
        help="also hold distances as they are in another model of the same, where the density does not insist",
    )
    fit.add_argument(
        "--density-interval",
        type=_whole_number,
        metavar="N",
        help="let the density force act every N-th step, N times as strongly (1)",
    )
    fit.add_argument(
        "--similarity",
        default="cross-correlation",
        metavar="NAME",
        help="cross-correlation (default), inner-product, relative-entropy, least-squares or map-potential",
    )
    fit.add_argument("--about-mean", action="store_true", help="correlate about the mean")
    fit.add_argument(
        "--weights",
        default="mass",
        metavar="NAME",
        help="what an atom's density is: mass (default), unity, number, charge, electron or xray",
    )
    fit.add_argument(
        "--atoms",
        default="heavy",
        metavar="SELECTION",
        help='"heavy" (default), "all" or an mdtraj selection',
    )
    fit.add_argument(
        "--strength",
        type=_strength,
        metavar="auto|X",
        help="kJ/mol per fitted atom at full strength (that of the protocol, auto)",
    )
    fit.add_argument(
        "--planarity",
        type=_planarity,
        default="on",
        metavar="on|off|SIGMA",
        help="hold flat groups flat, with a standard deviation in Å (on, which is 0.02)",
    )
    _add_dictionary(fit)
    fit.add_argument("--temperature", type=_number, metavar="K", help="in K (that of the protocol)")
    fit.add_argument(
        "--platform",
        default="CPU",
        metavar="NAME",
        help="OpenMM platform: CPU (default), CUDA, HIP, OpenCL or Reference",
    )
    fit.add_argument("--threads", type=_whole_number, metavar="N", help="CPU threads (all cores)")
    fit.add_argument(
        "--seed", type=_whole_number, default=0, metavar="N", help="of velocities and noise (%(default)s)"
    )
    fit.add_argument(
        "--report-interval",
        type=_whole_number,
        default=200,
        metavar="N",
        help="steps between rows of the log and frames of the trajectory (%(default)s)",
    )
    fit.add_argument(
        "--save-interval",
        type=_whole_number,
        default=2000,
        metavar="N",
        help="steps between states from which a fit can go on (%(default)s)",
    )

    simulate = commands.add_parser(
        "simulate", help="simulate the map of a model", description="Write the density of MODEL as a map."
    )
    simulate.add_argument("model", metavar="MODEL", help="PDB or mmCIF, .gz or not")
    simulate.add_argument("--resolution", type=_number, required=True, metavar="R", help="in Å")
    simulate.add_argument("--voxel-size", type=_number, required=True, metavar="V", help="in Å")
    simulate.add_argument(
        "--output", required=True, metavar="MAP", help=".mrc, .map, .ccp4 (or .gz of these), .situs"
    )
    simulate.add_argument("--overwrite", action="store_true", help="replace MAP if it is there")
    simulate.add_argument(
        "--margin", type=_number, default=10.0, metavar="A", help="around the model, in Å (%(default)g)"
    )
    simulate.add_argument(
        "--scattering", choices=("electron", "xray"), default="electron", help="form factors (%(default)s)"
    )
    simulate.add_argument(
        "--noise",
        type=_number,
        default=0.0,
        metavar="X",
        help="standard deviation of noise up to the resolution, in that of the density inside the molecule (0)",
    )
    simulate.add_argument(
        "--seed", type=_whole_number, default=0, metavar="N", help="of the noise (%(default)s)"
    )

    score = commands.add_parser(
        "score",
        help="correlate a model or trajectory with a map",
        description="Print the correlation of a model, or of every frame of a trajectory, with MAP. Frames are counted from 0.",
    )
    score.add_argument(
        "model", metavar="MODEL-or-TRAJECTORY", help="PDB, mmCIF, or any trajectory that mdtraj reads"
    )
    _add_map(score)
    score.add_argument("--topology", metavar="T", help="a model with the trajectory's atoms")
    score.add_argument(
        "--atoms", metavar="SELECTION", help='score only these, as mdtraj selects: "element != H"'
    )
    score.add_argument("--q-score", action="store_true", help="also Q-scores")
    score.add_argument(
        "--sigma",
        type=_number,
        default=0.6,
        metavar="S",
        help="width of their reference in Å (%(default)g, as published; EMDB's pages have 0.4)",
    )
    score.add_argument(
        "--fsc",
        action="store_true",
        help="also the Fourier shell correlation of map and model, and where it is 0.5",
    )
    score.add_argument(
        "--half-map",
        action="append",
        default=[],
        metavar="HALF",
        help="give both half maps: their Fourier shell correlation around the model (its last frame), and where it is 0.143",
    )
    score.add_argument("--json", action="store_true", help="print JSON")

    planes = commands.add_parser(
        "planes",
        help="list the flat groups of a model and how flat they are",
        description="Print what is flat in MODEL, by residue type, and how far its atoms are from their planes, the worst first.",
    )
    planes.add_argument("model", metavar="MODEL", help="PDB or mmCIF, .gz or not")
    _add_dictionary(planes)
    planes.add_argument("--json", action="store_true", help="print JSON")

    doctor = commands.add_parser(
        "doctor",
        help="examine this installation",
        description="Print versions, which backends and platforms run, the compiler and the kernels, each with a remedy.",
    )
    doctor.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _add_map(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("map", metavar="MAP", help="MRC, CCP4, SITUS (.gz or not), or MTZ")
    parser.add_argument("--resolution", type=_number, required=True, metavar="R", help="of the map, in Å")
    _add_columns(parser)


def _add_columns(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--columns",
        type=_columns,
        metavar="F,PHI",
        help="the map coefficients of an MTZ file, where their names are not the usual ones",
    )


def _add_dictionary(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dictionary",
        action="append",
        default=[],
        metavar="FILE",
        help="restraint dictionary (CCP4, AceDRG) or wwPDB component file of a ligand; may be given several times",
    )


class _Version(argparse.Action):
    """Print the version, looked up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        from importlib.metadata import version

        print(f"openmm-density {version('openmm-density')}")
        parser.exit()


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'found "{text}"; give a number') from None


def _whole_number(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'found "{text}"; give a whole number') from None
    if abs(number) > _LARGEST:
        raise argparse.ArgumentTypeError(f"found {text}; give a whole number up to {_LARGEST}")
    return number


# More steps than any simulation makes, and what OpenMM counts with.
_LARGEST = 2**31 - 1


def _strength(text: str) -> float | str:
    try:
        return text if text == "auto" else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'found "{text}"; give auto or a number of kJ/mol') from None


def _columns(text: str) -> list[str]:
    labels = text.split(",")
    if len(labels) != 2 or not all(labels):
        raise argparse.ArgumentTypeError(
            f'found "{text}"; give the labels of amplitude and phase, as in FWT,PHWT'
        )
    return labels


def _ligand(text: str) -> list[str]:
    name, equals, smiles = text.partition("=")
    if not (name and equals and smiles):
        raise argparse.ArgumentTypeError(f'found "{text}"; give NAME=SMILES, such as BNZ=c1ccccc1')
    return [name, smiles]


def _planarity(text: str) -> float | str | None:
    if text in ("on", "off"):
        return text if text == "on" else None
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'found "{text}"; give on, off or a number of Å') from None


# What errors call by the names of Python arguments, where the names differ by more than their spelling.
_SAME = {"density_map": "map", "dictionaries": "dictionary", "restraints": "restrain", "ligands": "ligand"}


def _spelled(name: str) -> str:
    """Give an argument as users type it."""
    return name.upper() if name in ("model", "map") else f"--{name.replace('_', '-')}"


def _spellings(options: argparse.Namespace) -> dict[str, str]:
    """Give what users of a command type for the Python arguments that its errors name."""
    names = {name: name for name in vars(options) if name != "command"}
    same = {**_SAME, "sigma": "planarity"}  # of planes, in a fit
    names |= {name: other for name, other in same.items() if name not in names and other in names}
    return {name: _spelled(other) for name, other in names.items()}


def _once_each() -> Callable[..., None]:
    """Give what prints a warning the first time: a fit makes its forces anew for each of its segments."""
    said: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in said:
            said.add(str(message))
            print(f"openmm-density: warning: {message}", file=sys.stderr)

    return show


def _fit(options: argparse.Namespace) -> int:
    if options.resume is None:
        _check_new(options)
    else:
        _check_resumed(options)
    from .fitting.results import OutputFolder

    if options.resume is None:
        protocol = _protocol(options)
        folder = OutputFolder(options.output, options.overwrite)
    else:
        folder = OutputFolder(options.resume, resume=True)
    try:
        if options.resume is not None:
            options, protocol = _as_begun(options, folder)
        scan = _strength_scan(options, protocol)
        if scan is not None:
            protocol = replace(protocol, strength=scan.chosen)
        fit = _flexible_fit(options, protocol)
        if options.resume is None:
            _remember(options, protocol, fit, scan, folder)
        with _Display() as display:
            display.print(f"fitting {options.model} into {options.map} at {options.resolution:g} Å")
            result = fit.run(folder.run, display.update, display.interrupted)
        summary = folder.write(fit, result, options.model, options.map, scan)
    except KeyboardInterrupt:
        if not folder.run.holds_a_state:
            raise
        print(f"{_PROGRAM} fit: interrupted; {_PROGRAM} fit --resume {folder.path} goes on", file=sys.stderr)
        return 130
    finally:
        folder.discard()
    _print_outcome(summary, folder.path)
    if result.interrupted:
        print(
            f"{_PROGRAM} fit: interrupted at step {result.steps} of {fit.protocol.steps}; results so far are in {folder.path}, "
            f"and {_PROGRAM} fit --resume {folder.path} goes on",
            file=sys.stderr,
        )
        return 130
    return 0


def _check_new(options: argparse.Namespace) -> None:
    missing = [name for name in ("model", "map", "resolution", "output") if getattr(options, name) is None]
    if missing:
        raise InputError(
            "fit needs MODEL, MAP, --resolution and --output (or --resume DIR alone), and "
            f"{_spelled(missing[0])} was not given."
        )
    _check_halves(options)
    if options.half_map and options.strength is not None:
        raise InputError("--strength is what the half maps are to find: leave out --strength or --half-map.")
    output = Path(options.output)
    for folder in (output, *output.parents):
        if os.path.islink(folder) and not os.path.exists(folder):
            raise InputError(
                f"{folder} is a symbolic link to {os.readlink(folder)}, which leads nowhere: mend it, or choose another folder."
            )


def _check_halves(options: argparse.Namespace) -> None:
    given = len(options.half_map)
    if given not in (0, 2):
        raise InputError(f"--half-map must be given twice, once for each half, found {given}.")


def _check_resumed(options: argparse.Namespace) -> None:
    alone = _alone(options)
    given = [name for name, value in vars(options).items() if value != getattr(alone, name)]
    if given:
        raise InputError(f"--resume goes on as the fit began: leave out {_spelled(given[0])}.")


def _alone(options: argparse.Namespace) -> argparse.Namespace:
    """Give the options of ``fit --resume DIR``: all others have their defaults."""
    return _parser().parse_args(["fit", "--resume", options.resume])


def _as_begun(options: argparse.Namespace, folder: OutputFolder) -> tuple[argparse.Namespace, Protocol]:
    """Give the options and the protocol with which a fit began."""
    from .commands import read_command
    from .fitting.protocols import read_protocol

    # An option that an earlier version did not know has its default.
    told = argparse.Namespace(**{**vars(_alone(options)), **read_command(folder.run.path)})
    return told, read_protocol(folder.run.path / _PROTOCOL)


def _remember(
    options: argparse.Namespace,
    protocol: Protocol,
    fit: FlexibleFit,
    scan: StrengthScan | None,
    folder: OutputFolder,
) -> None:
    """Write what a fit is asked to do beside its states."""
    from .commands import write_command

    told = {name: value for name, value in vars(options).items() if name not in ("command", "resume")}
    told["place"] = "off" if fit.placement is None else fit.placement.as_dict()
    told["strength_scan"] = None if scan is None else scan.as_dict()
    told["forcefield"] = [
        str(Path(name).resolve()) if Path(name).is_file() else name for name in options.forcefield
    ]
    write_command(
        folder.run.path, told, files=("model", "map", "reference", "restrain_to", "dictionary", "half_map")
    )
    protocol.write(folder.run.path / _PROTOCOL)


_PROTOCOL = "protocol.toml"


def _protocol(options: argparse.Namespace) -> Protocol:
    from .fitting.protocols import find_protocol

    protocol = find_protocol(options.protocol, options.resolution)
    if options.strength is not None:
        protocol = replace(protocol, strength=options.strength)
    if options.density_interval is not None:
        protocol = replace(protocol, density_interval=options.density_interval)
    if options.steps is not None:
        protocol = protocol.with_steps(options.steps)
    if options.temperature is not None:
        protocol = protocol.with_temperature(options.temperature)
    if options.restrain is None and options.restrain_to is None:
        return protocol
    names = [name for stage in protocol.stages for name in stage.restraints]
    if options.restrain is not None:
        names = [name.strip() for name in options.restrain.split(",")]
        names = [] if names == ["none"] else names
    if options.restrain_to is not None:
        names.append("distance")
    return protocol.with_restraints(names)


def _flexible_fit(options: argparse.Namespace, protocol: Protocol) -> FlexibleFit:
    from .fitting.flexible_fit import FlexibleFit
    from .maps.density_map import DensityMap
    from .models.structures import read_model

    return FlexibleFit(
        read_model(options.model),
        DensityMap.from_file(options.map, columns=options.columns),
        options.resolution,
        protocol,
        report_interval=options.report_interval,
        save_interval=options.save_interval,
        reference=read_model(options.reference) if options.reference else None,
        **_fit_options(options),
    )


def _fit_options(options: argparse.Namespace) -> dict[str, Any]:
    """Give what a fit and a scan of strengths have in common."""
    from .energies.planarity import SIGMA
    from .fitting.placement import Placement
    from .models.structures import read_model

    return {
        "seed": options.seed,
        "platform": options.platform,
        "threads": options.threads,
        "place": Placement(**options.place) if isinstance(options.place, dict) else options.place,
        "forcefield": options.forcefield or "amber14",
        "solvent": options.solvent,
        "ligand_forcefield": options.ligand_forcefield,
        "ligands": dict(options.ligand),
        "restrain_to": read_model(options.restrain_to) if options.restrain_to else None,
        "similarity": options.similarity,
        "about_mean": options.about_mean,
        "weights": options.weights,
        "atoms": options.atoms,
        "planarity": SIGMA if options.planarity == "on" else options.planarity,
        "dictionaries": options.dictionary,
    }


def _strength_scan(options: argparse.Namespace, protocol: Protocol) -> StrengthScan | None:
    """Find the strength with half maps where there are any, or take what was found before the fit was interrupted."""
    from .fitting.half_maps import StrengthScan, scan_strengths
    from .maps.density_map import DensityMap
    from .models.structures import read_model

    if not options.half_map:
        return None
    if options.resume is not None:
        return StrengthScan(**options.strength_scan)
    halves = tuple(DensityMap.from_file(path) for path in options.half_map)
    with _Display() as display:
        return scan_strengths(
            read_model(options.model),
            halves,
            options.resolution,
            protocol,
            progress=display.update,
            on_interrupt=lambda: display.interrupted("then stopping, as no fit has begun"),
            **_fit_options(options),
        )


def _print_outcome(summary: dict[str, Any], folder: Path) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("")
    columns = ("before", "relaxed", "after", *(["reference"] if summary["reference"] else []))
    for heading in columns:
        table.add_column(heading, justify="right")

    def row(name: str, form: str, *values: float | None) -> None:
        shown = values[: len(columns)]
        table.add_row(name, *("" if value is None else format(value, form) for value in shown))

    def compare(name: str, form: str, key: str) -> None:
        row(
            name,
            form,
            summary[f"{key}_initial"],
            None,
            summary[f"{key}_final"],
            summary.get(f"{key}_reference"),
        )

    compare("correlation (CC mask)", ".3f", "cc")
    compare("Q-score", ".3f", "q_score")
    compare("FSC with the model 0.5 at (Å)", ".2f", "fsc_resolution")
    compare(f"{summary['similarity']} in the energy", ".3f", "similarity")
    if summary["ca_rmsd_final"] is not None:
        compare("Cα RMSD to the reference (Å)", ".2f", "ca_rmsd")
    compare("deviation from planarity (Å)", ".3f", "planarity_rms")
    compare("  of the worst atom (Å)", ".3f", "planarity_worst")
    ligands = {
        stage: max((each["rms"] for each in summary[f"flat_ligands_{stage}"] or ()), default=None)
        for stage in ("initial", "final", "reference")
    }
    if ligands["initial"] is not None:
        bent = (ligands["initial"], None, ligands["final"], ligands["reference"])
        row("  of the most bent ligand, RMS (Å)", ".3f", *bent)
    stages = ("initial", "relaxed", "final", "reference")
    geometry = [summary[f"geometry_{stage}"] or {} for stage in stages]
    for label, key, form in (
        ("bond RMSD (Å)", "bond_rmsd", ".3f"),
        ("angle RMSD (°)", "angle_rmsd", ".2f"),
        ("clashes per 1000 atoms", "clashscore", ".1f"),
        ("Ramachandran outliers", "ramachandran_outlier_count", "d"),
        ("rotamer outliers", "rotamer_outlier_count", "d"),
        ("twisted peptides", "twisted_count", "d"),
        ("wrong-handed Cα", "wrong_alpha_count", "d"),
    ):
        row(label, form, *(figures.get(key) for figures in geometry))
    console = _console()
    console.print(table)
    turned = len(summary["peptide_flips"]), len(summary["inverted_centres"])
    console.print(f"{turned[0]} peptides flipped, {turned[1]} chiral centres inverted")
    worst = (f"{each['residue']} ({each['correlation']:.2f})" for each in summary["worst_residues"][:5])
    console.print(f"lowest correlations: {', '.join(worst)}")
    violated = {name: len(each) for name, each in summary["restraints_violated"].items() if each}
    if violated:
        console.print(f"restraints violated: {', '.join(f'{name} {n}' for name, n in violated.items())}")
    console.print(
        f"{summary['ms_per_step']:.1f} ms a step, {summary['density_ms_per_step']:.2f} of it the density force; "
        f"{summary['wall_seconds']:.0f} s in all; k = {summary['strength']:.1f} kJ/mol per fitted atom"
    )
    for note in summary["notes"]:
        console.print(Text.assemble(("Note:", "bold"), f" {note}"))
    for doubt in summary["doubts"]:
        console.print(Text.assemble(("Doubt:", "bold"), f" {doubt}"))
    console.print(
        f"results are in {folder}: see overview.png (the fit), residues.png (where to doubt it) and summary.json"
    )


def _console() -> Console:
    """Give a console for results: a terminal's width, and in a pipe lines as long as they are."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _LONGEST_LINE
    return Console(highlight=False, markup=False, emoji=False, width=width)


_LONGEST_LINE = 100_000


class _Display:
    """Progress on a terminal, nothing in a pipe."""

    def __enter__(self) -> _Display:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description:<9}"),
            BarColumn(),
            TextColumn("step {task.completed:.0f}/{task.total:.0f}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
            console=Console(stderr=True, highlight=False, markup=False, emoji=False),
            disable=not sys.stderr.isatty(),
        )
        self._task = self._progress.add_task("prepare", total=1, figures="")
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def print(self, text: str) -> None:
        if not self._progress.disable:
            self._progress.console.print(text)

    def update(self, step: int, total: int, stage: str, row: Row | None) -> None:
        found = {}
        if row is not None:
            rmsd = "" if row.ca_rmsd is None else f"  RMSD {row.ca_rmsd:.2f} Å"
            found["figures"] = f"CC {row.cc:.3f}{rmsd}"
        self._progress.update(self._task, completed=step, total=total, description=stage, **found)

    def interrupted(self, doing: str = "minimising, writing results") -> None:
        """Say at once that Ctrl-C was heard."""
        self.print(f"Interrupted: finishing this step, {doing}; Ctrl-C again to stop now")
        # A second signal leaves no time to put it back.
        self._progress.console.show_cursor(True)


def _simulate(options: argparse.Namespace) -> int:
    from .maps.density_map import DensityMap
    from .models.structures import read_model

    output = Path(options.output)
    if output.exists() and not options.overwrite:
        raise InputError(f"{output} is already there: choose another name, or pass --overwrite.")
    model = read_model(options.model)
    density_map = DensityMap.simulate(
        model.topology,
        model.positions,
        options.resolution,
        options.voxel_size,
        margin=options.margin,
        scattering=options.scattering,
        noise=options.noise,
        seed=options.seed,
    )
    density_map.write(output)
    nz, ny, nx = density_map.shape
    print(f"{output}: {nx} x {ny} x {nz} voxels of {options.voxel_size:g} Å")
    return 0


def _score(options: argparse.Namespace) -> int:
    import numpy as np

    from .analysis import fsc, load_trajectory, q_score, score
    from .energies.fitted_atoms import select_atoms
    from .maps.density_map import DensityMap
    from .units import ANGSTROM_PER_NANOMETER
    from .validation.fsc import HALF_MAP_THRESHOLD, half_map_fsc

    _check_halves(options)
    trajectory = load_trajectory(options.model, options.topology)
    if options.atoms:
        trajectory = trajectory.atom_slice(select_atoms(trajectory.topology.to_openmm(), options.atoms))
    density_map = DensityMap.from_file(options.map, columns=options.columns)
    scores = score(trajectory, density_map, options.resolution)
    if not np.any(scores.cc_mask) and np.isnan(scores.residue_correlations).all():
        raise InputError(
            f"no residue of {options.model} lies in the density of {options.map}: check that they belong together, or place the "
            f"model with {_PROGRAM} fit --place on."
        )
    found = scores.as_dict()
    figures = [[f"CC {cc:.4f}"] for cc in scores.cc_mask]
    columns = {"CC": scores.residue_correlations[-1]}
    remarks = []
    if options.q_score:
        q = q_score(trajectory, density_map, sigma=options.sigma)
        found |= {
            "q_score_sigma": options.sigma,
            "q_score": _plain(q.mean),
            "residue_q_scores": _plain(q.residues),
        }
        columns["Q"] = q.residues[-1]
        for row, mean in zip(figures, q.mean):
            row.append(f"Q {mean:.4f}")
    if options.fsc:
        curves = fsc(trajectory, density_map, options.resolution)
        crossings = [curve.resolution() for curve in curves]
        found |= {"fsc_resolution": _plain(crossings), "fsc": [curve.as_dict() for curve in curves]}
        for row, crossing in zip(figures, crossings):
            row.append(f"FSC 0.5 at {crossing:.2f} Å")
    if options.half_map:
        halves = [DensityMap.from_file(path) for path in options.half_map]
        curve = half_map_fsc(*halves, trajectory.xyz[-1] * ANGSTROM_PER_NANOMETER)
        crossing = curve.resolution(HALF_MAP_THRESHOLD, dips=False)
        found |= {"half_map_resolution": _plain([crossing])[0], "half_map_fsc": curve.as_dict()}
        remarks.append(f"half maps: FSC {HALF_MAP_THRESHOLD} at {crossing:.2f} Å")
    if options.json:
        print(json.dumps(found, indent=2, allow_nan=False))
        return 0
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("residue")
    for name in columns:
        table.add_column(name if len(figures) == 1 else f"{name}, last frame", justify="right")
    for label, *values in zip(scores.residue_labels, *columns.values()):
        table.add_row(label, *("" if value != value else f"{value:.3f}" for value in values))
    _console().print(table)
    # The figures of the whole come last, where a terminal still shows them.
    for frame, row in enumerate(figures):
        print("  ".join(row if len(figures) == 1 else [f"frame {frame:5d}", *row]))
    for remark in remarks:
        print(remark)
    return 0


def _plain(values: Any) -> list[Any]:
    """Give an array as lists for JSON; None for what is not finite."""
    import numpy as np

    array = np.asarray(values, dtype=np.float64)
    return np.where(np.isfinite(array), array, None).tolist()


def _planes(options: argparse.Namespace) -> int:
    from .energies.planarity import planarity_report
    from .energies.planes import find_planes
    from .models.structures import read_model
    from .validation.flatness import flat_ligands

    model = read_model(options.model)
    planes = find_planes(model.topology, model.positions, dictionaries=options.dictionary)
    report = planarity_report(model.topology, planes, model.positions)
    ligands = flat_ligands(model.topology, planes, model.positions)
    if options.json:
        found = {**report.as_dict(), "flat_ligands": [ligand.as_dict() for ligand in ligands]}
        print(json.dumps(found, indent=2))
        return 0
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("residue", "group", "planes", "RMS (Å)", "worst (Å)", "where"):
        table.add_column(
            heading, justify="right" if heading in ("planes", "RMS (Å)", "worst (Å)") else "left"
        )
    for row in report.rows:
        table.add_row(
            row.residue_name,
            row.kind,
            str(row.n_planes),
            f"{row.rms:.3f}",
            f"{row.worst:.3f}",
            row.worst_atom,
        )
    console = _console()
    console.print(table)
    console.print(f"{report.n_planes} planes, RMS {report.rms:.3f} Å, worst {report.worst:.3f} Å")
    for ligand in ligands:
        console.print(
            f"{ligand.residue}: {ligand.n_atoms} atoms in one conjugated system, RMS {ligand.rms:.3f} Å, "
            f"worst {ligand.worst:.3f} Å ({ligand.worst_atom})"
        )
    for label in report.dropped:
        console.print(f"too few atoms present: {label}")
    for label in report.undetermined:
        console.print(f"cannot be told without a dictionary: {label}")
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from rich.console import Console

    # In a pipe nothing shows.
    with Console(stderr=True, highlight=False, markup=False).status("loading torch and OpenMM") as status:
        from . import doctor

        diagnosis = doctor.examine(progress=lambda doing: status.update(doing or "almost done"))
    if options.json:
        print(json.dumps(diagnosis.as_dict(), indent=2))
    else:
        _console().print(doctor.report(diagnosis))
    return 0 if diagnosis.ok else 1


_COMMANDS = {"fit": _fit, "simulate": _simulate, "score": _score, "planes": _planes, "doctor": _doctor}

if __name__ == "__main__":
    sys.exit(main())
