"""What ``openmm-density fit`` refuses at once, before imports that take seconds: arguments, whatever the files hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..base.errors import InputError, as_argument
from ..base.given_files import check_given_file
from ..fitting.installed_extensions import function_of_extension
from ..maps.map_suffixes import check_columns
from .arguments import PROGRAM, check_files, check_halves, missing
from .fit_arguments import defaults
from .fit_options import CRYSTAL, OFF, FitOptions

FINE = 2.0
"""Å, in place of a resolution that is not known before the data are read."""


def check_new(options: FitOptions) -> None:
    """Refuse the options of a new fit that cannot be right."""
    check_asked(options)
    _check_folder(options)


def check_asked(options: FitOptions) -> None:
    """Refuse the same, but whatever the folder holds."""
    _check_complete(options)
    files = options.files
    check_halves(files.half_map)
    models = [files.model]
    if files.to_be_placed:
        parts = function_of_extension("parse_parts")(files.to_be_placed)
        models = [str(part.path) for part in parts]
        _check_placing(options, sum(part.copies for part in parts))
    check_files(
        (*models, files.reference, options.course.restrain_to),
        (files.map, *files.half_map),
        options.force_field.dictionary,
    )
    for path in options.force_field.ligand_potential:
        check_given_file(path, f"give a file that {PROGRAM} distill has written")
    if options.prediction.pae:
        check_given_file(options.prediction.pae, "give the file that came with the prediction")
    check_columns(Path(files.map), files.columns)
    if options.crystal.cycles != defaults()["cycles"]:
        raise InputError(
            f"is for the measured amplitudes of an MTZ file, and {Path(files.map).name} is taken for a map",
            argument="cycles",
            remedy=f"leave it out, or give the MTZ file of the crystal, without {as_argument('columns')}",
        )
    for name in ("strength", "final_strength"):
        if files.half_map and getattr(options.course, name) is not None:
            raise InputError(
                "is what half maps are used to find",
                argument=name,
                remedy=f"leave out {as_argument(name)} or {as_argument('half_map')}",
            )
    check_values(options)
    _check_symmetry(options)


def check_whole(options: FitOptions) -> None:
    """Refuse models that are to be placed one by one, where there is no map."""
    if options.files.to_be_placed:
        raise InputError(
            "several models, copies, chains and domains are placed in maps only, and these are measured amplitudes",
            source=options.files.map,
            remedy="give one model, or a map in place of amplitudes",
        )


def _check_placing(options: FitOptions, n_models: int) -> None:
    """Refuse what cannot be with models that are placed one by one; `n_models` counts copies."""
    files, prediction = options.files, options.prediction
    if prediction.pae and n_models > 1:
        raise InputError(
            "is of one model, and several or copies are given",
            argument="pae",
            remedy="leave it out, or give the domains as models of their own",
        )
    if files.place == "off":
        raise InputError(
            "keeps one model where it is, and several or copies are given",
            argument="place",
            found="off",
            remedy="give one file that holds all of them",
        )


def check_resumed(options: FitOptions) -> None:
    """Refuse options beside ``--resume``, and folders that hold nothing to resume."""
    check_resumed_options(options)
    _check_folder(options)


def check_resumed_options(options: FitOptions) -> None:
    """Refuse options beside ``--resume``."""
    alone = defaults()
    also = ("resume", "allow_scripts", "explain_time")
    given = [name for name, value in options.by_name().items() if value != alone[name] and name not in also]
    if given:
        raise InputError(
            "continues a fit as it began", argument="resume", remedy=f"leave out {as_argument(given[0])}"
        )


def _check_complete(options: FitOptions) -> None:
    needed = {name: getattr(options.files, name) for name in ("model", "map", "resolution")}
    needed["output"] = options.output.output
    absent = [name for name, value in needed.items() if value is None]
    if absent == ["resolution"]:
        # A file that is not there cannot say that it needs none.
        check_given_file(options.files.map, "give the path of a map or an MTZ file")
    if absent:
        raise missing(absent, "give MODEL, MAP, --resolution and --output (or --resume DIR alone)")


def check_values(options: FitOptions) -> None:
    """Let those who use the values look at them, as far as they need neither model nor map for it."""
    from ..base.units import positive, resolution_in_angstrom
    from ..energies.measures import measure_named
    from ..energies.selection_syntax import check_selection
    from ..energies.weight_names import check_weights_name
    from ..fitting.platform_probe import KNOWN, check_platform_beside
    from ..fitting.run_numbers import check_seed, check_threads, checked_interval
    from ..models.force_fields import check_force_field_names, check_ligands

    course, density, force_field, run = options.course, options.density, options.force_field, options.run
    if options.files.resolution is None:  # of amplitudes, which say it: no value depends on it
        options = replace(options, files=replace(options.files, resolution=FINE))
    resolution_in_angstrom(options.files.resolution)
    protocol = options.changed_protocol()
    if isinstance(course.planarity, float):
        positive(course.planarity, "planarity", "Å, such as 0.02")
    measure_named(density.similarity, about_mean=density.about_mean)
    check_weights_name(density.weights)
    check_selection(density.atoms)
    check_force_field_names(force_field.forcefield or "amber14", force_field.solvent)
    check_ligands(force_field.ligand_forcefield, dict(force_field.ligand))
    if run.platform not in (None, *KNOWN):  # the others are looked for when OpenMM is there
        check_platform_beside(run.platform)
    check_seed(run.seed)
    check_threads(run.threads)
    for name in ("report_interval", "save_interval"):
        checked_interval(name, getattr(run, name), protocol)


def _check_symmetry(options: FitOptions) -> None:
    """Refuse words that are no symmetry, and what a unit with copies cannot be fitted with."""
    word = options.files.symmetry
    if word is None:
        return
    from .amplitudes import is_of_amplitudes

    if word == OFF:
        return
    if word != CRYSTAL:
        function_of_extension("parse_symmetry")(word)
    if is_of_amplitudes(options):
        raise InputError(
            "cannot be used with measured amplitudes: a crystal's copies follow from its space group",
            argument="symmetry",
            found=word,
            remedy="leave it out",
        )
    given = {
        **options.given_not_with("symmetry"),
        "half_map": options.files.half_map or None,
        "solvent": options.force_field.solvent if options.force_field.solvent == "water" else None,
    }
    for name, value in given.items():
        if value is not None:
            raise InputError(
                f"cannot be used with {as_argument(name)}",
                argument="symmetry",
                found=word,
                remedy="leave out one of them",
            )


def _check_folder(options: FitOptions) -> None:
    from ..report.results import check_usable

    output = options.output
    folder = output.output if output.resume is None else output.resume
    check_usable(Path(folder), output.overwrite, output.resume is not None)
