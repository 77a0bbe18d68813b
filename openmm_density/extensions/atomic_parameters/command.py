"""``openmm-density b-factors``: refine B factors and occupancies of a model as it stands."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.errors import InputError
from ...base.given_files import check_output_folder
from ...base.plugins import defer_torch
from ...base.units import resolution_in_angstrom
from ...cli.arguments import (
    PREDICTED,
    add_map,
    add_predicted,
    check_files,
    check_halves,
    check_new_file,
    map_corrections,
)
from ...cli.startup import loading
from ...models.structure_suffixes import CIF_SUFFIXES, PDB_SUFFIXES

if TYPE_CHECKING:
    from ...cli.arguments import Commands
    from ...energies.atomic_parameters import BFactors, Occupancies
    from ...models.model import Model


def add_parser(commands: Commands) -> None:
    """Add what ``b-factors`` takes."""
    parser = commands.add_parser(
        "b-factors",
        help="refine B factors and occupancies of a model where it is",
        description="Refine the B factors of MODEL, whose atoms stay where they are, against MAP, and write it with them.",
    )
    parser.add_argument("model", metavar="MODEL", help="PDB or mmCIF, .gz or not")
    add_map(parser)
    add_predicted(parser)
    parser.add_argument("--output", metavar="FILE", help="the model with its new B factors, .pdb or .cif")
    parser.add_argument("--overwrite", action="store_true", help="replace FILE if it is there")
    parser.add_argument(
        "--level",
        choices=("auto", "atom", "residue", "group"),
        default="auto",
        help="what has a B factor of its own: the finest that resolution and half maps support (auto), atoms, residues or chains",
    )
    parser.add_argument(
        "--half-map",
        action="append",
        default=[],
        metavar="HALF",
        help="give both: B factors refined in the one are scored in the other, which chooses the level",
    )
    parser.add_argument(
        "--occupancies",
        metavar="LIST",
        help="refine these occupancies first: ligands, waters, side-chains, or some of these separated by commas",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Refine, write and print; return the exit status."""
    output = None if options.output is None else Path(options.output)
    _check(options, output)
    defer_torch()
    with loading():
        from ...energies.atomic_parameters import BFactorRefinement, OccupancyRefinement
        from ...maps.density_map import DensityMap
        from ...maps.half_maps import check_half_maps, check_halves_of_map
        from ...models.odd_atoms import check_occupancies
        from ...models.structures import read_model

    corrections = map_corrections(options.voxel_size, options.mirror, options.invert)
    model = read_model(options.model, PREDICTED[options.predicted])
    check_occupancies(model)
    density_map = corrections.apply(DensityMap.from_file(options.map, columns=options.columns))
    halves = [corrections.apply(DensityMap.from_file(path)) for path in options.half_map] or None
    if halves is not None:
        check_half_maps(*halves)
        check_halves_of_map(*halves, density_map, options.resolution)
    occupancies: Occupancies | None = None
    if options.occupancies:
        occupancies = OccupancyRefinement(
            model, density_map, options.resolution, options.occupancies
        ).refine()
    refined = BFactorRefinement(
        model,
        density_map,
        options.resolution,
        occupancies=None if occupancies is None else occupancies.occupancies,
        level=options.level,
        half_maps=halves,
    ).refine()
    left_out = [] if output is None else _write(output, model, refined, occupancies)
    _show(options, refined, occupancies, model, left_out)
    return 0


def _check(options: argparse.Namespace, output: Path | None) -> None:
    """Refuse at once what needs no model for it."""
    check_files((options.model,), (options.map, *options.half_map))
    check_halves(options.half_map)
    resolution_in_angstrom(options.resolution)
    if output is None:
        return
    if output.suffix.lower() not in PDB_SUFFIXES + CIF_SUFFIXES:
        raise InputError(
            "must end in .pdb or .cif", argument="output", found=output.name, remedy="give another name"
        )
    check_output_folder(output)
    check_new_file(output, options.overwrite)


def _write(output: Path, model: Model, refined: BFactors, occupancies: Occupancies | None) -> list[str]:
    """Write the model; return what of its file is left out, in sentences."""
    from ...models.structure_files import write_model_cif, write_pdb

    write = write_pdb if output.suffix.lower() in PDB_SUFFIXES else write_model_cif
    values = None if occupancies is None else occupancies.occupancies
    alternates = model.alternates
    if len(alternates):
        alternates = alternates.with_b_factors(refined.of_conformers)
    return write(output, model, model.positions, refined.b_factors, values, alternates)


def _show(
    options: argparse.Namespace,
    refined: BFactors,
    occupancies: Occupancies | None,
    model: Model,
    left_out: list[str],
) -> None:
    from ...energies.atomic_parameters.b_factors import b_factor_rows
    from .output import b_factors_in_words

    rows, in_words = b_factor_rows(model.topology, refined), b_factors_in_words(refined.as_dict())
    if options.json:
        found: dict[str, Any] = {"in_words": in_words, "b_factors": refined.as_dict(), "residues": rows}
        found["left_out"] = left_out
        if occupancies is not None:
            found["occupancies"] = occupancies.as_dict()
        print(json.dumps(found, indent=2, allow_nan=False))
        return
    print(in_words)
    if occupancies is not None:
        for name, value in occupancies.values.items():
            print(f"occupancy of {name}: {value:.2f} ± {occupancies.deviations[name]:.2f}")
    highest = sorted(rows, key=lambda row: -row["b_factor"])[:5]
    print("largest: " + ", ".join(f"{row['residue']} ({row['b_factor']:.0f})" for row in highest))
    for sentence in left_out:
        print(f"Note: {sentence}")
    if options.output is not None:
        print(f"{options.output}: {len(model.b_factors)} atoms")
