"""``openmm-density fit``: fit a model flexibly into a map, or go on with a fit that was interrupted."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..energies.measures import SIMILARITIES
from ..errors import InputError
from ..stopwatch import Stopwatch
from .arguments import (
    PROGRAM,
    add_columns,
    add_corrections,
    add_dictionary,
    check_files,
    check_halves,
    corrections,
    number,
    spelled,
    whole_number,
)
from .console import Display
from .outcome import print_outcome
from .startup import loading, started

if TYPE_CHECKING:
    from pathlib import Path

    from ..fitting.flexible_fit import FlexibleFit
    from ..fitting.half_maps import StrengthScan
    from ..fitting.interrupts import Stop
    from ..fitting.output import OutputFolder
    from ..fitting.protocols import Protocol
    from .arguments import Commands


def add_parser(commands: Commands) -> None:
    """Add what ``fit`` takes."""
    parser = commands.add_parser(
        "fit",
        help="fit a model flexibly into a map",
        description="Fit MODEL flexibly into MAP: minimise, molecular dynamics with the density from weak to strong, anneal, "
        "minimise. Writes models, trajectory, log, summary.json and pictures into DIR.",
    )
    _add_arguments(parser)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL", help="PDB or mmCIF, .gz or not")
    parser.add_argument("map", nargs="?", metavar="MAP", help="MRC, CCP4, SITUS (.gz or not), or MTZ")
    parser.add_argument("--resolution", type=number, metavar="R", help="of the map, in Å")
    add_columns(parser)
    add_corrections(parser)
    parser.add_argument("--output", metavar="DIR", help="folder for the results")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier fit in DIR")
    parser.add_argument(
        "--resume", metavar="DIR", help="go on with the fit in DIR that was interrupted; it knows all else"
    )
    parser.add_argument(
        "--reference", metavar="TARGET", help="a model of the target, to report the distance to"
    )
    parser.add_argument(
        "--protocol",
        default="standard",
        metavar="NAME|FILE.toml",
        help="quick, standard (default), cascade, gentle, or a file; see protocol.toml of any fit",
    )
    parser.add_argument(
        "--half-map",
        action="append",
        default=[],
        metavar="FILE",
        help="given twice: find the strength by fitting into the one and scoring in the other",
    )
    parser.add_argument(
        "--place",
        choices=("auto", "on", "off"),
        default="auto",
        help="place the model in the map as a rigid body first (auto: if it lies outside the density or beside its own)",
    )
    parser.add_argument(
        "--forcefield",
        action="append",
        default=[],
        metavar="NAME|FILE.xml",
        help="amber14 (default), charmm36, or an OpenMM file; may be given several times, as for ligands",
    )
    parser.add_argument(
        "--allow-scripts",
        action="store_true",
        help="let force field files run the Python code in them (also beside --resume): only if you trust them",
    )
    parser.add_argument(
        "--solvent",
        default="none",
        metavar="NAME",
        help="none (default, screened), obc, gbn2, or water (with ions, in a box around model and density)",
    )
    parser.add_argument(
        "--ligand-forcefield",
        choices=("openff", "gaff"),
        help="parametrise ligands that have a SMILES (needs openmmforcefields) in place of keeping them rigid",
    )
    parser.add_argument(
        "--ligand",
        type=_ligand,
        action="append",
        default=[],
        metavar="NAME=SMILES",
        help="what a ligand is, in its protonation, where its --dictionary does not say; may be given several times",
    )
    parser.add_argument(
        "--steps", type=whole_number, metavar="N", help="steps of all stages (those of the protocol)"
    )
    parser.add_argument(
        "--search",
        choices=("off", "auto", "full"),
        help="searches for rotamers and registers: none, as far as they take about as long as the steps (that of the protocol, "
        "auto), or all that the protocol asks for",
    )
    parser.add_argument(
        "--restrain",
        metavar="LIST",
        help="what is held as it was, in place of the protocol's cis,chirality,ramachandran,planarity,water,ss and, at the end, "
        "rotamers: any of these, elastic, distance, position, symmetry, or none",
    )
    parser.add_argument(
        "--restrain-to",
        metavar="MODEL2",
        help="also hold distances as they are in another model of the same, where the density does not insist",
    )
    parser.add_argument(
        "--density-interval",
        type=whole_number,
        metavar="N",
        help="let the density force act every N-th step, N times as strongly (1)",
    )
    parser.add_argument(
        "--similarity",
        default=SIMILARITIES[0],
        metavar="NAME",
        help=f"{SIMILARITIES[0]} (default), {', '.join(SIMILARITIES[1:-1])} or {SIMILARITIES[-1]}",
    )
    parser.add_argument("--about-mean", action="store_true", help="correlate about the mean")
    parser.add_argument(
        "--weights",
        default="mass",
        metavar="NAME",
        help="what an atom's density is: mass (default), unity, number, charge, electron or xray",
    )
    parser.add_argument(
        "--atoms",
        default="heavy",
        metavar="SELECTION",
        help='"heavy" (default), "all" or an mdtraj selection',
    )
    parser.add_argument(
        "--strength",
        type=_strength,
        metavar="auto|X",
        help="kJ/mol per fitted atom at full strength (that of the protocol, auto)",
    )
    parser.add_argument(
        "--planarity",
        type=_planarity,
        default="on",
        metavar="on|off|SIGMA",
        help="hold flat groups flat, with a standard deviation in Å (on, which is 0.02)",
    )
    add_dictionary(parser)
    parser.add_argument("--temperature", type=number, metavar="K", help="in K (that of the protocol)")
    parser.add_argument(
        "--platform",
        default="CPU",
        metavar="NAME",
        help="OpenMM platform: CPU (default), CUDA, HIP, OpenCL or Reference",
    )
    parser.add_argument("--threads", type=whole_number, metavar="N", help="CPU threads (all cores)")
    parser.add_argument(
        "--seed", type=whole_number, default=0, metavar="N", help="of velocities and noise (%(default)s)"
    )
    parser.add_argument(
        "--report-interval",
        type=whole_number,
        default=200,
        metavar="N",
        help="steps between rows of the log and frames of the trajectory (%(default)s)",
    )
    parser.add_argument(
        "--save-interval",
        type=whole_number,
        default=2000,
        metavar="N",
        help="steps between states from which a fit can go on (%(default)s)",
    )


def _strength(text: str) -> float | str:
    try:
        return text if text == "auto" else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'found "{text}"; give auto or a number of kJ/mol') from None


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


def run(options: argparse.Namespace) -> int:
    """Run a fit, or go on with one; give the exit status."""
    if options.resume is None:
        _check_new(options)
    else:
        _check_resumed(options)
    with Display() as display:
        return _run(options, display, Stopwatch(started(), display.begin))


def _run(options: argparse.Namespace, display: Display, stopwatch: Stopwatch) -> int:
    with loading():
        from rich import table, text  # noqa: F401  (what is imported at the end would take time that is not told)

        from ..fitting.interrupts import PromptExit, StopRequest
        from ..fitting.output import OutputFolder

    if options.resume is None:
        protocol = _protocol(options)
        folder = OutputFolder(options.output, options.overwrite)
    else:
        folder = OutputFolder(options.resume, resume=True)
    try:
        with PromptExit(lambda: _left(folder, display)):
            if options.resume is not None:
                options, protocol = _as_begun(options, folder)
            scan = _strength_scan(options, protocol, folder, display, stopwatch)
            if scan is not None:
                # What half maps allow is what the fit is to end with.
                protocol = replace(protocol, strength=scan.chosen / (protocol.stages[-1].strength[1] or 1.0))
            fit = _flexible_fit(options, protocol, stopwatch)
            if options.resume is None:
                _remember(options, protocol, fit, scan, folder)
            display.expect(
                [
                    (stage.name, fit.rebuilds_before(number))
                    for number, stage in enumerate(fit.protocol.stages)
                ]
            )
            display.print(f"fitting {options.model} into {options.map} at {options.resolution:g} Å")
            if fit.unsearched:
                display.print(
                    f"few steps: searches are left out before {', '.join(fit.unsearched)}; --search full makes them"
                )

        def stopped() -> None:
            display.ended(_stopped(folder))

        # While the fit runs it hears signals itself; from then on this does, with no gap in between.
        with StopRequest(lambda: display.interrupted("writing results without pictures"), stopped) as stop:
            hurry = _Hurry(stop)
            result = fit.run(
                folder.run, display.update, lambda: (hurry.begin(), display.interrupted()), stopped
            )
            display.expect()
            summary = folder.write(fit, result, options.model, options.map, scan, hurry)
            display.stop()
            print_outcome(summary, folder.path)
    except KeyboardInterrupt:
        if not folder.run.holds_a_state:
            raise
        _say(f"{PROGRAM} fit: interrupted; {PROGRAM} fit --resume {folder.path} goes on")
        return 130
    finally:
        folder.discard()
    if result.interrupted:
        where = f"{folder.path}{'' if folder.has_pictures else ', without pictures'}"
        _say(
            f"{PROGRAM} fit: interrupted at step {result.steps} of {fit.protocol.steps}; results so far are in {where}, "
            f"and {PROGRAM} fit --resume {folder.path} goes on"
        )
        return 130
    if not folder.has_pictures:
        _say(
            f"{PROGRAM} fit: interrupted at its end; results are in {folder.path}, without pictures, and {PROGRAM} fit --resume "
            f"{folder.path} draws them"
        )
        return 130
    return 0


class _Hurry:
    """What leaves out pictures: a signal after the fit, or one that ended it so long ago that a batch system soon ends all.

    Parameters
    ----------
    stop : StopRequest
        Of signals that come after the fit.
    """

    def __init__(self, stop: Stop) -> None:
        self._stops = [stop]

    def begin(self) -> None:
        """Take note of a signal that ends the fit."""
        from ..fitting.interrupts import Deadline

        self._stops.append(Deadline(_ANSWER_SECONDS))

    @property
    def requested(self) -> bool:
        """Whether no picture is to be begun any more."""
        return any(stop.requested for stop in self._stops)


# After a signal.
_ANSWER_SECONDS = 8.0


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def _left(folder: OutputFolder, display: Display) -> None:
    """Leave a fit that is not prepared yet as it was."""
    goes_on = (
        f"{PROGRAM} fit --resume {folder.path} goes on" if folder.run.holds_a_state else "nothing was written"
    )
    display.ended(f"{PROGRAM} fit: interrupted; {goes_on}")
    folder.discard()


def _stopped(folder: OutputFolder) -> str:
    """Say how to go on with a fit that is ended at once."""
    goes_on = "goes on" if folder.run.holds_a_state else "begins it again"
    return f"{PROGRAM} fit: stopped; {PROGRAM} fit --resume {folder.path} {goes_on}"


def _check_new(options: argparse.Namespace) -> None:
    missing = [name for name in ("model", "map", "resolution", "output") if getattr(options, name) is None]
    if missing:
        raise InputError(
            "fit needs MODEL, MAP, --resolution and --output (or --resume DIR alone), and "
            f"{spelled(missing[0])} was not given."
        )
    check_halves(options)
    check_files((options.model, options.reference, options.restrain_to), (options.map, *options.half_map))
    if options.half_map and options.strength is not None:
        raise InputError("--strength is what the half maps are to find: leave out --strength or --half-map.")


def _check_resumed(options: argparse.Namespace) -> None:
    alone = _alone(options)
    given = [
        name
        for name, value in vars(options).items()
        if value != getattr(alone, name) and name not in _NEVER_KEPT
    ]
    if given:
        raise InputError(f"--resume goes on as the fit began: leave out {spelled(given[0])}.")


def _alone(options: argparse.Namespace) -> argparse.Namespace:
    """Return the options of ``fit --resume DIR``: all others have their defaults."""
    parser = argparse.ArgumentParser()
    _add_arguments(parser)
    return parser.parse_args([], argparse.Namespace(command=options.command, resume=options.resume))


def _as_begun(options: argparse.Namespace, folder: OutputFolder) -> tuple[argparse.Namespace, Protocol]:
    """Return the options and the protocol with which a fit began."""
    from ..fitting.protocols import read_protocol
    from .command_file import read_command

    written = read_command(folder.run.path, _FILES, _force_field_files)
    known = vars(_alone(options))
    # An option that an earlier version did not know has its default; and a folder may be somebody else's, who must not allow what
    # was not allowed here.
    kept = {name: written.get(name, value) for name, value in known.items() if name not in _NEVER_KEPT}
    now = {name: getattr(options, name) for name in _NEVER_KEPT}
    found = {name: written.get(name) for name in ("map_checks", "strength_scan")}
    told = argparse.Namespace(**kept, **now, **found)
    return told, read_protocol(folder.run.path / _PROTOCOL)


def _force_field_files(options: Mapping[str, Any]) -> list[Path]:
    """Name the user's files that a force field is read from."""
    from ..models.force_field_xml import files_read
    from ..models.force_fields import force_field_files

    named = options.get("forcefield")
    return files_read(force_field_files(named)) if named else []


def _remember(
    options: argparse.Namespace,
    protocol: Protocol,
    fit: FlexibleFit,
    scan: StrengthScan | None,
    folder: OutputFolder,
) -> None:
    """Write what a fit is asked to do beside its states."""
    from ..models.force_fields import lasting_names
    from .command_file import write_command

    told = {name: value for name, value in vars(options).items() if name not in _NEVER_KEPT}
    told["place"] = "off" if fit.placement is None else fit.placement.as_dict()
    told["map_checks"] = fit.map_checks.as_dict()
    told["strength_scan"] = None if scan is None else scan.as_dict()
    told["forcefield"] = lasting_names(options.forcefield)
    write_command(folder.run.path, told, _FILES, _force_field_files(told))
    protocol.write(folder.run.path / _PROTOCOL)


_PROTOCOL = "protocol.toml"
# The options that hold a path, or several.
_FILES = ("model", "map", "reference", "restrain_to", "dictionary", "half_map")
# Of the command line of the day, not of the fit.
_NEVER_KEPT = ("command", "resume", "allow_scripts")


def _protocol(options: argparse.Namespace) -> Protocol:
    from ..fitting.protocols import find_protocol

    protocol = find_protocol(options.protocol, options.resolution)
    if options.strength is not None:
        protocol = replace(protocol, strength=options.strength)
    if options.density_interval is not None:
        protocol = replace(protocol, density_interval=options.density_interval)
    if options.steps is not None:
        protocol = protocol.with_steps(options.steps)
    if options.search is not None:
        protocol = replace(protocol, search=options.search)
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


def _flexible_fit(options: argparse.Namespace, protocol: Protocol, stopwatch: Stopwatch) -> FlexibleFit:
    from ..fitting.flexible_fit import FlexibleFit
    from ..maps.density_map import DensityMap
    from ..models.structures import read_model

    with stopwatch.part("reading"):
        model = read_model(options.model)
        density_map = DensityMap.from_file(options.map, columns=options.columns)
        reference = read_model(options.reference) if options.reference else None
        fit_options = _fit_options(options)
    return FlexibleFit(
        model,
        density_map,
        options.resolution,
        protocol,
        report_interval=options.report_interval,
        save_interval=options.save_interval,
        reference=reference,
        stopwatch=stopwatch,
        **fit_options,
    )


def _fit_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return what a fit and a scan of strengths have in common."""
    from ..fitting.placement import Placement
    from ..models.structures import read_model
    from ..restraints.planarity import SIGMA
    from ..validation.map_checks import MapChecks

    return {
        "seed": options.seed,
        "platform": options.platform,
        "threads": options.threads,
        "corrections": corrections(options),
        "map_checks": MapChecks.from_dict(checked)
        if (checked := getattr(options, "map_checks", None))
        else None,
        "place": Placement(**options.place) if isinstance(options.place, dict) else options.place,
        "forcefield": options.forcefield or "amber14",
        "allow_scripts": options.allow_scripts,
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


def _strength_scan(
    options: argparse.Namespace,
    protocol: Protocol,
    folder: OutputFolder,
    display: Display,
    stopwatch: Stopwatch,
) -> StrengthScan | None:
    """Find the strength with half maps where there are any, or take what was found before the fit was interrupted."""
    from ..fitting.half_maps import COOLING_STEPS, STEPS_AT_EACH, STRENGTHS, StrengthScan, scan_strengths
    from ..maps.density_map import DensityMap
    from ..models.structures import read_model

    if not options.half_map:
        return None
    if options.resume is not None:
        return StrengthScan(**options.strength_scan)
    display.print(
        f"finding the strength with half maps: {STEPS_AT_EACH + COOLING_STEPS} steps at each of "
        f"{', '.join(f'{strength:g}' for strength in STRENGTHS)} kJ/mol per fitted atom"
    )
    with stopwatch.part("half_maps"):
        return scan_strengths(
            read_model(options.model),
            tuple(DensityMap.from_file(path) for path in options.half_map),
            options.resolution,
            protocol,
            progress=display.update,
            on_interrupt=lambda: display.interrupted("then stopping, as no fit has begun"),
            on_end=lambda: (display.ended(f"{PROGRAM} fit: stopped; no fit has begun"), folder.discard()),
            **_fit_options(options),
        )
