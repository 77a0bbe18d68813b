"""``openmm-density fit``: fit a model flexibly into a map, or go on with a fit that was interrupted."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.errors import InputError
from ..base.progress import SYMMETRY, Display
from ..base.stopwatch import Stopwatch
from ..fitting.helper_processes import begin_ahead, end_ahead
from ..fitting.installed_extensions import function_of_extension
from .amplitudes import is_of_amplitudes
from .arguments import PROGRAM, spellings
from .command_line import command_line
from .fit_arguments import add_arguments, defaults
from .fit_checks import check_new, check_resumed, check_whole
from .fit_options import CRYSTAL, DOMAINS, OFF, FitOptions
from .outcome import print_outcome
from .startup import INTERRUPTED, loading, started

if TYPE_CHECKING:
    from ..fitting.fit_result import FitResult
    from ..fitting.flexible_fit import FlexibleFit
    from ..maps.density_map import DensityMap
    from ..models.model import Model
    from ..report import OutputFolder
    from ..validation.crystal_mates import CrystalMates
    from .arguments import Commands
    from .fit_record import FitRecord


def add_parser(commands: Commands) -> None:
    """Add what ``fit`` takes."""
    parser = commands.add_parser(
        "fit",
        help="fit a model flexibly into a map",
        description="Fit MODEL flexibly into MAP: minimise, molecular dynamics with the density from weak to strong, anneal, "
        "minimise. Writes models, trajectory, log, summary.json, a picture and a page into DIR.",
    )
    add_arguments(parser)


def run(options: argparse.Namespace, display: Display | None = None) -> int:
    """Run a fit, or resume one; return the exit status."""
    asked = FitOptions.of(vars(options))
    of_amplitudes = is_of_amplitudes(asked)
    if of_amplitudes:
        check_whole(asked)
    elif asked.output.resume is None:
        check_new(asked)
    else:
        check_resumed(asked)
    if asked.output.resume is None:
        begin_ahead(asked.run.platform, asked.run.threads)
    try:
        if of_amplitudes:
            return function_of_extension("fit_of_amplitudes")(asked, display)
        with display or Display() as shown:
            return _run(asked, shown, Stopwatch(started(), shown.begin))
    finally:
        end_ahead()


def _run(options: FitOptions, display: Display, stopwatch: Stopwatch) -> int:
    with loading():
        from rich import table, text  # noqa: F401  (imported here, where the time that it takes is counted)

        from openmm_density.kernels import compilation

        from ..energies import native_force
        from ..fitting.end_within import EndWithin, seconds_to_end
        from ..fitting.flexible_fit import FlexibleFit  # noqa: F401
        from ..fitting.interrupts import PromptExit
        from ..models.ligand_potentials import XTB
        from ..report import OutputFolder
        from .fit_record import FitRecord

    seconds = seconds_to_end()
    # What any fit on a CPU needs, first its forces: where it is not compiled yet, it is while files are read.
    compilation.load_kernels_ahead(("density", "pairs", "bonded", "planarity", "torsion_maps"))
    native_force.load_force_ahead()
    compilation.load_ahead(("torsion_maps", "density"))
    if options.force_field.ligand_forcefield == XTB:
        compilation.load_kernels_ahead(("messages",))
        compilation.load_ahead(("messages",))
    output = options.output
    resume = output.resume
    spelled = spellings(options.by_name())
    if resume is None:
        record = _with_platform(FitRecord.new(options), display)
        folder = OutputFolder(output.output, output.overwrite, spellings=spelled)
    else:
        folder = OutputFolder(resume, resume=True, spellings=spelled)
    fit: FlexibleFit | None = None
    try:
        with EndWithin(seconds, f"{PROGRAM} fit", _goes_on(folder), folder.run.states, "no fit has begun"):
            with PromptExit(lambda: _left(folder, options, display)):
                if resume is None:
                    record = _with_parts(record, folder, display, stopwatch)
                    record = _with_potentials(record, display, stopwatch)
                    record = _with_strength(record, folder, display, stopwatch)
                else:
                    record = FitRecord.read(folder.run.path, options)
                fit = _flexible_fit(record, folder, display, stopwatch)
                if resume is None:
                    record = _with_findings(record, fit)
                    record.write(folder.run.path)
                goes_on_from = folder.run.load().step if folder.run.holds_a_state else None
                _announce(record, fit, display, goes_on_from)
            result = _carried_out(record, fit, folder, display)
    except KeyboardInterrupt:
        _say(f"{PROGRAM} fit: interrupted; {_kept(folder, options)}")
        return INTERRUPTED
    finally:
        if fit is not None:
            fit.beside.end()
        folder.discard()
    return _status(fit, result, folder)


def _with_platform(record: FitRecord, display: Display) -> FitRecord:
    """Find the platform where none is named: the fit is resumed on the same."""
    from ..fitting.platforms import platform_of_command

    platform = platform_of_command(record.options.run.platform, display.milestone)
    if platform == "CPU":
        end_ahead()
    return replace(record, options=record.options.on_platform(platform))


def _with_parts(record: FitRecord, folder: OutputFolder, display: Display, stopwatch: Stopwatch) -> FitRecord:
    """Place models, chains or domains one by one where that is asked for: what they make is then the model."""
    options, files = record.options, record.options.files
    words, cut = files.to_be_placed, files.place
    unasked = not words and cut == "auto" and files.symmetry in (None, OFF)
    if unasked and options.prediction.has_domains(files.model):
        words, cut = [files.model], DOMAINS
    if not words:
        return record
    path = folder.run.path / "placed.cif"
    try:
        with stopwatch.part("placement"):
            is_prediction = function_of_extension("place_parts")(
                words,
                cut,
                files.corrections.apply(files.read_map()),
                files.resolution,
                path,
                read=options.prediction.to_be_placed().read_model,
                device="cuda" if options.run.platform == "CUDA" else "cpu",
                threads=options.run.threads,
                tell=lambda done, total, label: display.update(done, total, f"placing {label}", None),
            )
    except InputError as error:
        if not unasked:
            raise
        display.print(f"its domains are placed as one: {error}")
        return record
    finally:
        display.expect()
    prediction = replace(options.prediction, predicted="yes") if is_prediction else options.prediction
    files = replace(files, model=str(path), parts=words, place="off")
    options = replace(options, files=files, prediction=prediction)
    return replace(record, options=options, findings=replace(record.findings, place="off"))


def _with_potentials(record: FitRecord, display: Display, stopwatch: Stopwatch) -> FitRecord:
    """Find the potentials of ligands, or make them, where there are to be some: the fit is resumed with their files."""
    from ..fitting.options import PreparationOptions
    from ..models.ligand_potentials import gives_potentials

    options = record.options
    given = options.force_field
    if not gives_potentials(given.ligand_forcefield):
        return record
    with stopwatch.part("preparation"):
        asked = PreparationOptions.of(given.fit_arguments())
        found = asked.with_potentials(
            options.read_model(), options.run.threads, lambda *done: display.update(*done, None)
        )
    force_field = replace(given, ligand_potential=[str(path) for path in found.potentials.paths])
    return replace(record, options=replace(options, force_field=force_field))


def _with_strength(
    record: FitRecord, folder: OutputFolder, display: Display, stopwatch: Stopwatch
) -> FitRecord:
    """Find the strength with half maps where there are any."""
    from ..fitting.half_maps import COOLING_STEPS, STEPS_AT_EACH, STRENGTHS, scan_strengths
    from ..maps.half_maps import check_half_maps, check_halves_of_map

    files = record.options.files
    if not files.half_map:
        return record
    with stopwatch.part("reading"):
        half_maps = files.read_half_maps()
        first, second, whole = (files.corrections.apply(each) for each in (*half_maps, files.read_map()))
        check_half_maps(first, second)
        check_halves_of_map(first, second, whole, files.resolution)
    display.milestone(
        f"finding the strength with half maps on {record.options.run.platform}: {STEPS_AT_EACH + COOLING_STEPS} steps at each of "
        f"{', '.join(f'{strength:g}' for strength in STRENGTHS)} kJ/mol per fitted atom"
    )
    with stopwatch.part("half_maps"):
        scan = scan_strengths(
            record.options.read_model(),
            half_maps,
            files.resolution,
            record.protocol,
            progress=display.update,
            on_interrupt=lambda: display.interrupted("then stopping, as no fit has started"),
            on_end=lambda: (display.ended(f"{PROGRAM} fit: stopped; no fit has started"), folder.discard()),
            place=record.findings.place,
            **record.options.fit_arguments(),
        )
    return record.with_scan(scan)


def _flexible_fit(
    record: FitRecord, folder: OutputFolder, display: Display, stopwatch: Stopwatch
) -> FlexibleFit:
    from ..fitting.flexible_fit import FlexibleFit
    from ..validation.crystal import check_crystal

    options, files = record.options, record.options.files
    with stopwatch.part("reading"):
        model, density_map = options.read_model(), files.read_map()
        if record.findings.place in ("off", "auto"):
            check_crystal(model, density_map)
        reference = files.read_reference()
        arguments = options.fit_arguments()
        mates = _crystal_mates(record, model, density_map)
        if mates is not None:
            arguments["operators"] = mates.operators
        elif files.symmetry not in (None, OFF):
            corrected, unit = files.corrections.apply(density_map), folder.run.path / "unit.cif"
            with stopwatch.part("symmetry"):
                searched = partial(display.update, stage=SYMMETRY, row=None)
                word = function_of_extension("parse_symmetry")(files.symmetry)
                find = function_of_extension("find_assembly")
                model, found = find(word, model, corrected, unit, searched)
            display.expect()
            arguments["symmetry"] = found
    fit = FlexibleFit(
        model,
        density_map,
        files.resolution,
        record.protocol,
        report_interval=options.run.report_interval,
        save_interval=options.run.save_interval,
        explain_time=options.run.explain_time,
        reference=reference,
        place=record.findings.place,
        map_checks=record.findings.map_checks,
        stopwatch=stopwatch,
        half_maps=files.read_half_maps(),
        **options.extensions,
        **arguments,
    )
    if mates is not None:
        fit.notes.insert(0, mates.sentence())
    return fit


def _crystal_mates(record: FitRecord, model: Model, density_map: DensityMap) -> CrystalMates | None:
    """Return the copies of the model in the crystal that take part in the fit, by default where file and map name one."""
    from ..validation.crystal_mates import crystal_mates

    options, decided = record.options, record.findings.crystal_mates
    files, asked = options.files, options.files.symmetry == CRYSTAL
    without = files.half_map or options.force_field.solvent == "water" or options.given_not_with("symmetry")
    if decided is False or (files.symmetry is not None and not asked) or (without and not asked):
        return None
    found = crystal_mates(model, files.corrections.apply(density_map))
    if found.operators is None and asked:
        raise InputError(
            f"cannot be used: {found.problem}",
            argument="symmetry",
            found=CRYSTAL,
            remedy="give the map of the crystal that the model's file names, or leave it out",
        )
    return None if found.operators is None else found


def _with_findings(record: FitRecord, fit: FlexibleFit) -> FitRecord:
    """Return the record with what the fit found out about model and map."""
    found = replace(
        record.findings,
        place="off" if fit.placement is None else fit.placement,
        map_checks=fit.map_checks,
        crystal_mates=fit.density.operators is not None and fit.symmetry is None,
    )
    return replace(record, findings=found)


def _announce(record: FitRecord, fit: FlexibleFit, display: Display, goes_on_from: int | None) -> None:
    """Show what is fitted, where it was placed, from which step it goes on, and the stages to come."""
    from ..report.notes import placement_note

    files = record.options.files
    models = " ".join(files.parts or [files.model])
    display.expect(
        [(stage.name, fit.rebuilds_before(number)) for number, stage in enumerate(fit.protocol.stages)]
    )
    display.milestone(f"fitting {models} into {files.map} at {files.resolution:g} Å on {fit.platform}")
    if goes_on_from is not None:
        display.milestone(f"going on from step {goes_on_from} of {fit.protocol.steps}")
    for sentence in placement_note(fit):
        display.milestone(sentence)
    for finding in fit.map_checks.findings:
        if finding.check != "voxel_size":  # which a start of another conformation looks like
            display.print(f"Warning: {finding.spelled(spellings(record.options.by_name()))}")


def _carried_out(record: FitRecord, fit: FlexibleFit, folder: OutputFolder, display: Display) -> FitResult:
    """Run the fit and write its results."""
    from ..fitting.interrupts import StopRequest

    def stopped() -> None:
        display.ended(_stopped(folder))

    # While the fit runs it handles signals itself; afterwards this does, without a gap.
    doing = "saving what is under way, writing results"
    with StopRequest(lambda: display.interrupted(doing), stopped) as stop:
        result = fit.run(folder.run, display.update, display.interrupted, stopped, stop)
        display.expect()
        files = record.options.files
        command = command_line(record.options.by_name() | record.asked, defaults(), str(folder.path))
        # What was placed is kept in the folder.
        model = str(folder.path / Path(files.model).name) if files.parts else files.model
        summary = folder.write(
            fit, result, model, files.map, record.findings.scan, command, given=files.parts or ()
        )
        display.stop()
        print_outcome(summary, folder.path)
    return result


def _status(fit: FlexibleFit, result: FitResult, folder: OutputFolder) -> int:
    """Return the exit status of a fit that has written its results; say so where it was interrupted."""
    if result.interrupted:
        at = f"at step {result.steps} of {fit.protocol.steps}"
        if result.unfinished is not None:
            at = f"in {result.unfinished.what}, after the fit of one model"
        _say(
            f"{PROGRAM} fit: interrupted {at}; results so far are in {folder.path}, and {_resuming(folder)} goes on"
        )
        return INTERRUPTED
    return 0


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def _resuming(folder: OutputFolder) -> str:
    return f"{PROGRAM} fit --resume {folder.path}"


def _goes_on(folder: OutputFolder) -> str:
    return f"{_resuming(folder)} goes on"


def _left(folder: OutputFolder, options: FitOptions, display: Display) -> None:
    """Discard a fit that was interrupted before it was prepared, and say so: the process then ends at once."""
    from openmm_density.kernels.compilation.commands import end_commands

    end_commands()
    display.ended(f"{PROGRAM} fit: interrupted; {_kept(folder, options)}")
    folder.discard()


def _kept(folder: OutputFolder, options: FitOptions) -> str:
    """Return what is left of a fit that was interrupted before it wrote results."""
    from ..models.ligand_potentials import XTB

    if folder.run.holds_a_state:
        return _goes_on(folder)
    if options.force_field.ligand_forcefield == XTB:
        return "no fit has begun; the same command goes on from what its ligands' potentials were learned from so far"
    return "nothing was written"


def _stopped(folder: OutputFolder) -> str:
    """Return how to resume a fit that is ended at once."""
    goes_on = "goes on" if folder.run.holds_a_state else "begins it again"
    return f"{PROGRAM} fit: stopped; {_resuming(folder)} {goes_on}"
