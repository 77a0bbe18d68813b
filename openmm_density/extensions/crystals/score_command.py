"""``openmm-density score`` of a model and measured amplitudes: R factors, by shells, and the correlation with their map."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.errors import InputError, as_argument
from ...base.given_files import check_given_file, check_output_folder
from ...base.progress import console_for_results
from ...cli.amplitudes import check_of_amplitudes
from ...cli.arguments import PREDICTED, check_files, check_new_file
from ...cli.startup import loading
from .r_factors import r_free_in_words, shells_table

if TYPE_CHECKING:
    from .reflections import Reflections

_OF_MAPS = (
    *("columns", "voxel_size", "mirror", "invert", "half_map", "topology"),
    *("atoms", "q_score", "fsc", "report", "per_residue", "symmetry"),
)
"""Options that need a map."""


def _check(options: argparse.Namespace) -> None:
    """Refuse at once what cannot be right, whatever the files hold."""
    check_files((), (options.map,))
    check_of_amplitudes(options.map, vars(options))
    check_given_file(options.model, "check the path of the model")
    for name in _OF_MAPS:
        if getattr(options, name):
            raise InputError(
                "needs a map, and was given measured amplitudes",
                argument=name,
                remedy=f"leave {as_argument(name)} out, or score the map coefficients of crystal.mtz of a fit by "
                f"{as_argument('columns', '2FOFCWT,PH2FOFCWT')}",
            )
    if options.table1:
        check_output_folder(options.table1)
        check_new_file(Path(options.table1), options.overwrite)


def run_amplitudes(options: argparse.Namespace) -> int:
    """Print R factors and the correlation of a model with the map of its phases; return the exit status."""
    _check(options)
    with loading():
        from ...models.structures import read_model
        from ...validation.correlation import MapCorrelation
        from ..deposition import OF_OWN_PHASES, crystal_of_data, write_table_of_model
        from . import phased_file, read_reflections

    columns = options.amplitudes, options.free_flags, options.free_value
    data = read_reflections(options.map, *columns).cut(options.resolution)
    found = phased_file(options.model, data)
    model, density_map = read_model(options.model, PREDICTED[options.predicted]), found.density_map()
    cc = float(MapCorrelation(density_map, model.topology, data.resolution).cc_mask(model.positions))
    factors, scaled = found.r_factors, found.scaled
    told = {
        "r_work": factors.r_work,
        "r_free": factors.r_free,
        "r_free_error": factors.r_free_error,
        "n_work": factors.n_work,
        "n_free": factors.n_free,
        "resolution": data.resolution,
        "completeness": len(data) / len(found.hkl),
        "cc_map": cc,
        "solvent_density": scaled.solvent_density,
        "solvent_b": scaled.solvent_b,
        "b_tensor": list(scaled.b_tensor),
        "figure_of_merit": float(found.figures_of_merit[found.shown].mean()),
        "shells": factors.as_dict()["shells"],
        "space_group": data.space_group.xhm(),
        "notes": data.notes,
    }
    told |= _without_hydrogens(options.model, data)
    if options.table1:
        crystal = crystal_of_data(found)
        names = (options.model, options.map)
        table = (
            options.table1,
            model,
            model.positions,
            density_map,
            data.resolution,
            names,
            {},
            crystal,
            [OF_OWN_PHASES],
        )
        told |= {"data": crystal.diffraction.as_dict(), "table1": write_table_of_model(*table)}
    if options.json:
        print(json.dumps(told, indent=2, allow_nan=False))
        return 0
    if options.table1:
        print(f"{options.table1}: Table 1, to be filled in where it says so")
    _print_told(told)
    return 0


def _without_hydrogens(path: str, data: Reflections) -> dict[str, Any]:
    """Return how many hydrogens a model has, which force fields need, and R factors of its other atoms; nothing without."""
    from . import crystal_structure, phased

    structure = crystal_structure(path, data)
    hydrogens = sum(each.atom.is_hydrogen() for each in structure[0].all())
    structure.remove_hydrogens()
    if hydrogens == 0 or structure[0].count_atom_sites() == 0:
        return {}
    others = phased(structure, data).r_factors
    return {
        "n_hydrogens": hydrogens,
        "r_work_without_hydrogens": others.r_work,
        "r_free_without_hydrogens": others.r_free,
        "r_free_error_without_hydrogens": others.r_free_error,
    }


def _r_factors(told: Mapping[str, Any], ending: str = "") -> str:
    free = told[f"r_free{ending}"]
    error = told[f"r_free_error{ending}"]
    return f"R-work {told[f'r_work{ending}']:.4f}" + (
        "" if free is None else f", {r_free_in_words(free, error)}"
    )


def _print_told(told: Mapping[str, Any]) -> None:
    console = console_for_results()
    console.print(
        f"{_r_factors(told)} ({told['n_work']} and {told['n_free']} reflections to {told['resolution']:.2f} Å, "
        f"{told['completeness']:.1%} complete); CC {told['cc_map']:.4f} with the 2mFo-DFc map"
    )
    console.print(shells_table(told["shells"]))
    console.print(
        f"solvent {told['solvent_density']:.2f} e/Å³, B {told['solvent_b']:.0f} Å²; mean figure of merit "
        f"{told['figure_of_merit']:.2f}"
    )
    if "n_hydrogens" in told:
        console.print(
            f"This is with the {told['n_hydrogens']} hydrogens of the file; without them "
            f"{_r_factors(told, '_without_hydrogens')}."
        )
    for note in told["notes"]:
        console.print(note)
    if told["r_free"] is None:
        console.print("No free flags: R-work is that of all reflections, and cannot show overfitting.")
