"""``openmm-density series``: fit a model into volumes along a path, each from its neighbour's model."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...base.errors import InputError
from ...base.progress import console_for_results, shown_line
from ...cli.amplitudes import takes_amplitudes
from ...cli.arguments import (
    PROGRAM,
    add_columns,
    add_corrections,
    add_mps,
    check_files,
    map_corrections,
    number,
    whole_number,
)
from ...cli.fit_arguments import add_shared
from ...cli.fit_options import Density, Execution, ForceField, values
from ...cli.startup import loading

if TYPE_CHECKING:
    from ...cli.arguments import Commands
    from . import InternalCoordinate, Series, SeriesResult
    from .settings import SeriesStart
    from .steps import Step
    from .volumes import VolumeFacts


def add_parser(commands: Commands) -> None:
    """Add what ``series`` takes."""
    parser = commands.add_parser(
        "series",
        help="fit a model into a series of maps, each from its neighbour's model",
        description="Fit MODEL into MAPS, volumes along a reaction coordinate or of a heterogeneity analysis, so that the models "
        "form a path: the volume that the model fits best first, then out in both directions and back, each from its neighbour's "
        "model. The same command goes on with a series that was interrupted.",
    )
    parser.add_argument("model", metavar="MODEL", help="PDB or mmCIF, .gz or not")
    parser.add_argument("maps", nargs="+", metavar="MAPS", help="volumes in the order of the series")
    parser.add_argument(
        "--resolution", type=number, required=True, metavar="R", help="resolution of the volumes in Å"
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="folder for the results")
    parser.add_argument("--overwrite", action="store_true", help="replace another series in DIR")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="look at the volumes, say which is fitted first, and fit nothing",
    )
    parser.add_argument(
        "--free-maps",
        nargs="+",
        default=[],
        metavar="MAP",
        help="another map of each volume, as the other half map, by whose correlation fits are judged",
    )
    add_columns(parser)
    add_corrections(parser)
    _add_course(parser.add_argument_group("the course"))
    _add_coordinates(parser.add_argument_group("what is followed along the path"))
    add_shared(parser)


def _add_course(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument(
        "--start-at",
        type=whole_number,
        metavar="N",
        help="fit volume N first, counted from 1 (the one that the model fits best)",
    )
    parser.add_argument(
        "--protocol",
        default="standard",
        metavar="NAME|FILE.toml",
        help="protocol of the first volume, and of those that are far from their neighbour (%(default)s)",
    )
    parser.add_argument("--steps", type=whole_number, metavar="N", help="steps of that protocol (its own)")
    parser.add_argument(
        "--next-protocol",
        default="gentle",
        metavar="NAME|FILE.toml",
        help="protocol of the other volumes, which start from their neighbour's model (%(default)s)",
    )
    parser.add_argument(
        "--next-steps", type=whole_number, metavar="N", help="steps of that protocol (its own)"
    )
    parser.add_argument(
        "--search",
        choices=("off", "auto", "full"),
        default="off",
        help="searches for rotamers and registers in these, as for fit (%(default)s)",
    )
    parser.add_argument(
        "--place",
        choices=("auto", "on", "off"),
        default="auto",
        help="place the model in the volumes as a rigid body first, as for fit (%(default)s)",
    )
    parser.add_argument(
        "--workers",
        type=whole_number,
        metavar="N",
        help="2: both directions side by side; 1: one after the other (2 where there are so many cores)",
    )
    add_mps(parser)


def _add_coordinates(parser: argparse._ArgumentGroup) -> None:
    centres = (
        "between the centres of {} mdtraj selections, as in --distance 'resid 30 to 59' 'resid 120 to 150'"
    )
    for kind, count, name in (("distance", 2, "two"), ("angle", 3, "three"), ("dihedral", 4, "four")):
        said = centres.format(name) if kind == "distance" else f"of the centres of {name} selections"
        parser.add_argument(
            f"--{kind}",
            nargs=count,
            action="append",
            default=[],
            metavar="SELECTION",
            help=f"{kind} {said}; may be given several times",
        )


def run(options: argparse.Namespace) -> int:
    """Carry out a series, or go on with one; return the exit status."""
    check_files((options.model,), (*options.maps, *options.free_maps), options.dictionary)
    _refuse_amplitudes(options)
    with loading():
        from . import Series  # noqa: F401  (imported here, where the time that it takes is counted)

    series = _series(options)
    if options.dry_run:
        with shown_line("reading") as told:
            plan = series.plan(told)
        _print_plan(series, *plan)
        return 0
    _say(f"fits run on {series.settings.fit_options.get('platform', 'CPU')}")
    with shown_line("reading") as told:
        try:
            result = series.run(told, options.overwrite, _command_line(), options.mps)
        except KeyboardInterrupt:
            _say("interrupted; the same command goes on")
            return 130
    _print_outcome(result, series.folder)
    return 0


def _refuse_amplitudes(options: argparse.Namespace) -> None:
    """Refuse the measured amplitudes of a crystal, whose maps follow from the model, in place of a volume."""
    for path in (*options.maps, *options.free_maps):
        if takes_amplitudes(path, options.columns, rather_than_map=False):
            raise InputError(
                "it holds measured amplitudes, and the volumes of a series are maps",
                source=path,
                remedy=f"use {PROGRAM} fit for a crystal, or {PROGRAM} batch for several",
            )


def _series(options: argparse.Namespace) -> Series:
    """Return the series that the options ask for."""
    from ...fitting.platforms import platform_of_command
    from ...models.force_fields import lasting_names
    from . import Series
    from .protocols import protocol_of
    from .settings import recorded_platform

    named = vars(options)
    density, force_field, run = (
        kind(**{name: named[name] for name in kind.__dataclass_fields__})
        for kind in (Density, ForceField, Execution)
    )
    platform = options.platform or (None if options.overwrite else recorded_platform(Path(options.output)))
    run = replace(run, platform=platform_of_command(platform, _say))
    protocols = []
    for name, steps in ((options.protocol, options.steps), (options.next_protocol, options.next_steps)):
        protocol = protocol_of(name, options.resolution, None)
        protocols.append(protocol if steps is None else protocol.with_steps(steps))
    chemistry = force_field.fit_arguments()
    if force_field.forcefield:
        chemistry["forcefield"] = lasting_names(force_field.forcefield)
    chemistry["dictionaries"] = [os.path.abspath(path) for path in force_field.dictionary]
    return Series(
        options.model,
        options.maps,
        options.resolution,
        options.output,
        free_maps=options.free_maps,
        protocols=(protocols[0], protocols[1]),
        search=options.search,
        start_at=options.start_at,
        coordinates=list(_coordinates(options)),
        workers=options.workers,
        place=options.place,
        columns=options.columns,
        corrections=map_corrections(options.voxel_size, options.mirror, options.invert),
        report_interval=run.report_interval,
        save_interval=run.save_interval,
        explain_time=run.explain_time,
        **values(density),
        **chemistry,
        **run.fit_arguments(),
    )


def _coordinates(options: argparse.Namespace) -> Iterator[InternalCoordinate]:
    from . import InternalCoordinate

    for kind in ("distance", "angle", "dihedral"):
        for selections in getattr(options, kind):
            yield InternalCoordinate(kind, tuple(selections))


def _say(sentence: str) -> None:
    print(f"{PROGRAM} series: {sentence}", file=sys.stderr, flush=True)


def _command_line() -> str:
    """Return the command as it was typed."""
    return shlex.join([PROGRAM, *sys.argv[1:]])


def _print_plan(
    series: Series, start: SeriesStart, steps: Sequence[Step], facts: Sequence[VolumeFacts]
) -> None:
    """Print what was seen of the volumes, and what would be fitted from what."""
    from rich.table import Table

    from .volumes import notes_on_volumes

    paths = [Path(path) for path in series.settings.maps]
    table = Table(box=None, pad_edge=False)
    for heading in ("volume", "", "CC of the rigid model", "voxels", "of (Å)"):
        table.add_column(heading, justify="left" if heading == "" else "right")
    for place, (path, cc, seen) in enumerate(zip(paths, start.correlations, facts), start=1):
        sides = " x ".join(dict.fromkeys(f"{each:g}" for each in seen.voxel_size))
        table.add_row(str(place), path.name, f"{cc:.3f}", " x ".join(map(str, seen.size)), sides)
    console = console_for_results()
    console.print(table)
    for sentence in (*notes_on_volumes(paths, facts), *series.doubts):
        console.print(sentence)
    later = ", ".join(f"{step.frame} from {step.source}" for step in steps[1:])
    console.print(f"volume {start.frame} would be fitted first, then {later}")


def _print_outcome(result: SeriesResult, folder: Path) -> None:
    """Print a row for each volume, what moves, notes and doubts, and where the results are."""
    from rich.table import Table
    from rich.text import Text

    from .result import fit_doubts, fit_doubts_in_words, fit_notes, frame_values

    console = console_for_results()
    table = Table(box=None, pad_edge=False)
    rows = frame_values(result)
    columns = [("volume", "frame", "d"), ("", "map", ""), ("from", "from", "d"), ("CC", "cc", ".3f")]
    if result.settings.free_maps:
        columns.append(("free CC", "cc_free", ".3f"))
    columns += [("step (Å)", "rmsd_to_previous", ".2f"), ("passes differ (Å)", "passes_differ", ".2f")]
    for heading, key, _ in columns:
        table.add_column(heading, justify="left" if key == "map" else "right")
    for row in rows:
        table.add_row(*("" if row[key] is None else format(row[key], form) for _, key, form in columns))
    console.print(table)
    for motion in result.path.motions:
        where = ", ".join(motion.residues[:4])
        console.print(f"domain {motion.domain} ({where}) turns by up to {max(motion.angle_from_first):.0f}°")
    of_all = [each.in_words(len(result.frames)) for each in fit_notes(result.frames)]
    for note in (*result.notes, *of_all):
        console.print(Text.assemble(("Note:", "bold"), f" {note}"))
    for doubt in result.doubts:
        console.print(Text.assemble(("Doubt:", "bold"), f" {doubt}"))
    of_fits = fit_doubts_in_words(fit_doubts(result.frames))
    if of_fits is not None:
        console.print(Text.assemble(("Doubt:", "bold"), f" {of_fits} series.html has their sentences."))
    console.print(f"results are in {folder}: open series.html in a browser; series.json has all figures")
