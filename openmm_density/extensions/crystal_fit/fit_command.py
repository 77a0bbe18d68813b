"""``openmm-density fit`` of measured amplitudes: cycles of phases and fits, or going on with them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.errors import InputError, as_argument
from ...base.progress import Display, console_for_results
from ...base.stopwatch import Stopwatch, in_words
from ...cli.amplitudes import check_of_amplitudes
from ...cli.arguments import PROGRAM, check_files, missing
from ...cli.command_line import command_line
from ...cli.fit_arguments import defaults
from ...cli.fit_checks import check_resumed_options
from ...cli.fit_options import FitOptions, values
from ...cli.startup import loading, started
from ...fitting.installed_extensions import protocol_asked
from ...report.results import SUMMARY

if TYPE_CHECKING:
    from ...fitting.flexible_fit import FlexibleFit
    from . import CrystalFit, CrystalResult

_OF_MAPS = (
    "columns",
    "voxel_size",
    "mirror",
    "invert",
    "half_map",
    "place",
    "symmetry",
    "explain_time",
)
"""Options that say something of a map, or that cycles do not have."""


def run_crystal(options: FitOptions, display: Display | None = None) -> int:
    """Carry out a fit of measured amplitudes, or go on with one; return the exit status."""
    if options.output.resume is None:
        check_new_crystal(options)
    else:
        check_resumed_options(options)
    with loading():
        from ...fitting.end_within import EndWithin, seconds_to_end
        from . import CrystalFit  # noqa: F401  (where the time that it takes is counted)
        from .cycles import Listener, finished_cycle

    seconds = seconds_to_end()
    with display or Display() as shown:
        fit = _crystal_fit(options, shown.milestone)

        def begun(cycle: FlexibleFit) -> None:
            shown.expect(
                [
                    (stage.name, cycle.rebuilds_before(number))
                    for number, stage in enumerate(cycle.protocol.stages)
                ]
            )

        data = fit.reflections
        shown.milestone(
            f"fitting {fit.settings.model} to {len(data)} amplitudes of {fit.settings.data} at {data.resolution:.2f} Å in "
            f"{data.space_group.xhm()}, {fit.settings.cycles} cycles at most, on "
            f"{fit.settings.fit_options.get('platform', 'CPU')}"
        )
        listener = Listener(lambda line: (shown.expect(), shown.milestone(line)), begun, shown.update)
        command = None  # of one that goes on its folder knows
        if options.output.resume is None:
            command = command_line(options.by_name(), defaults(), str(fit.folder))
        try:
            stopwatch = Stopwatch()
            stopwatch.add({"start_up": time.monotonic() - started()})
            what = f"{PROGRAM} fit"
            with EndWithin(seconds, what, f"{what} --resume {fit.folder} goes on"):
                result = fit.run(listener, options.output.overwrite, command, stopwatch)
        except KeyboardInterrupt:
            shown.stop()
            so_far = ""
            if finished_cycle(fit.folder, 1) is None:
                so_far = " before its first cycle came to an end, so that there is no result yet"
            elif (fit.folder / SUMMARY).exists():
                so_far = f"; results so far, of the cycles that came to their end, are in {fit.folder}"
            said = f"{PROGRAM} fit: interrupted{so_far}; {PROGRAM} fit --resume {fit.folder} goes on"
            print(said, file=sys.stderr, flush=True)
            return 130
    _print_outcome(result)
    return 0


def check_new_crystal(options: FitOptions) -> None:
    """Refuse the options of a new fit to amplitudes that cannot be right, whatever its files hold."""
    files, given, alone = options.files, options.by_name(), defaults()
    needed = {"model": files.model, "map": files.map, "output": options.output.output}
    if absent := [name for name, value in needed.items() if value is None]:
        raise missing(absent, "give MODEL, MAP and --output (or --resume DIR alone)")
    check_of_amplitudes(files.map, given)
    check_files(
        (files.model, files.reference, options.course.restrain_to),
        (files.map,),
        options.force_field.dictionary,
    )
    for name in (*_OF_MAPS, *options.given_not_with("amplitudes")):
        if given[name] != alone[name]:
            raise InputError(
                "does not go with measured amplitudes, whose maps follow from the model",
                argument=name,
                remedy=f"leave {as_argument(name)} out",
            )
    if options.force_field.solvent == "water":
        raise InputError(
            "of a crystal must be none, obc or gbn2: water between molecules is part of the model",
            argument="solvent",
            found='"water"',
            remedy="leave it out",
        )


def _crystal_fit(options: FitOptions, say: Callable[[str], object]) -> CrystalFit:
    """Return the fit that the options ask for, on a platform that is found where none is named, or that a folder records."""
    from ...fitting.platforms import platform_of_command
    from . import CrystalFit

    if options.output.resume is not None:
        return CrystalFit.resumed(options.output.resume, options.force_field.allow_scripts)
    options = options.on_platform(platform_of_command(options.run.platform, say))
    files, course, crystal = options.files, options.course, options.crystal
    is_own = course.protocol == defaults()["protocol"]
    return CrystalFit(
        files.model,
        files.map,
        options.output.output or "",
        resolution=files.resolution,
        amplitudes=crystal.amplitudes,
        free_flags=crystal.free_flags,
        make_free_flags=crystal.make_free_flags,
        free_value=crystal.free_value,
        cycles=crystal.cycles,
        protocol=_protocol(options, is_own),
        steps=None,
        **_fit_options(options),
    )


def _protocol(options: FitOptions, is_own: bool) -> Any:
    """Return the protocol of a cycle with what the options change of it."""
    from dataclasses import replace

    from .protocol import cycle_protocol

    course = options.course
    if not is_own:
        return protocol_asked(course.changed_protocol(options.files.resolution or 2.0), options.by_name())
    protocol = cycle_protocol() if course.steps is None else cycle_protocol(course.steps)
    changed = replace(course, steps=None)
    return protocol_asked(changed.changes_of(protocol), options.by_name())


def _fit_options(options: FitOptions) -> dict[str, Any]:
    """Return what each cycle's fit is given, as plain values."""
    from ...models.force_fields import lasting_names

    course, force_field, run = options.course, options.force_field, options.run
    found = {
        **course.fit_arguments(),
        **values(options.density),
        **force_field.fit_arguments(),
        **run.fit_arguments(),
        "report_interval": run.report_interval,
        "save_interval": run.save_interval,
    }
    found["restrain_to"] = None if course.restrain_to is None else os.path.abspath(course.restrain_to)
    reference = options.files.reference
    found["reference"] = None if reference is None else os.path.abspath(reference)
    found["dictionaries"] = [os.path.abspath(path) for path in force_field.dictionary]
    found["ligand_potentials"] = [os.path.abspath(path) for path in force_field.ligand_potential]
    if force_field.forcefield:
        found["forcefield"] = lasting_names(force_field.forcefield)
    return found


def _print_outcome(result: CrystalResult) -> None:
    """Print R factors by cycle and by shell, what the best cycle's fit came to, doubts, and where the results are."""
    from rich.text import Text

    from ..crystals import cycles_table, r_free_in_words, shells_table

    console = console_for_results()
    section = result.summary["crystal"]
    console.print(cycles_table(section["cycles"], section["best_cycle"]))
    console.print(shells_table(section["shells"]))
    best = "the start" if section["best_cycle"] == 0 else f"cycle {section['best_cycle']}"
    free = r_free_in_words(section["r_free"], section["r_free_error"])
    console.print(
        f"{best} is the result: R-work {section['r_work']:.4f}, {free}; solvent "
        f"{section['solvent_density']:.2f} e/Å³, B {section['solvent_b']:.0f} Å²"
    )
    summary = result.summary
    console.print(f"{summary['wall_seconds']:.0f} s in all: {in_words(summary['seconds_by_part'])}")
    for note in result.summary["notes"]:
        console.print(Text.assemble(("Note:", "bold"), f" {note}"))
    for doubt in result.summary["doubts"]:
        console.print(Text.assemble(("Doubt:", "bold"), f" {doubt}"))
    where = Path(result.folder)
    console.print(
        f"results are in {where}: open report.html in a browser, crystal.mtz with fitted.pdb in Coot; summary.json has "
        "all figures"
    )
