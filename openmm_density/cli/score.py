"""``openmm-density score``: correlate a model or a trajectory with a map."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import InputError, as_argument
from ..base.given_files import check_given_file, check_output_folder
from ..base.plugins import defer_torch
from ..base.progress import SYMMETRY, Display
from ..base.units import checked_length, resolution_in_angstrom
from ..energies.selection_syntax import check_selection
from ..fitting.installed_extensions import function_of_extension
from ..maps.map_suffixes import check_columns
from .amplitudes import takes_amplitudes
from .arguments import (
    PREDICTED,
    PROGRAM,
    add_amplitudes,
    add_map,
    add_predicted,
    check_files,
    check_halves,
    check_new_file,
    check_order,
    map_corrections,
    number,
    spellings,
)
from .command_line import command_line
from .startup import loading

if TYPE_CHECKING:
    import mdtraj

    from ..maps.density_map import DensityMap
    from .arguments import Commands
    from .score_report import ScoreReport

# As argparse says it of commands that always need one.
_RESOLUTION_MISSING = f"the following arguments are required: --resolution (see {PROGRAM} score --help)"


def add_parser(commands: Commands) -> None:
    """Add what ``score`` takes."""
    _add_arguments(
        commands.add_parser(
            "score",
            help="correlate a model or trajectory with a map",
            description="Print the correlation of a model, or of every frame of a trajectory, with MAP, the worst residues, "
            "and warnings. Frames are counted from 0.",
        )
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL-or-TRAJECTORY", help="PDB, mmCIF, or any trajectory that mdtraj reads"
    )
    add_map(parser, of_amplitudes=True)
    add_amplitudes(parser)
    add_predicted(parser)
    parser.add_argument("--topology", metavar="T", help="a model with the trajectory's atoms")
    parser.add_argument(
        "--atoms", metavar="SELECTION", help='score only these, as mdtraj selects: "element != H"'
    )
    parser.add_argument("--q-score", action="store_true", help="also Q-scores")
    parser.add_argument(
        "--sigma",
        type=number,
        default=0.4,
        metavar="S",
        help="width of their reference in Å (%(default)g, as on EMDB's pages; published with 0.6)",
    )
    parser.add_argument(
        "--fsc",
        action="store_true",
        help="also the Fourier shell correlation of map and model, and where it is 0.5",
    )
    parser.add_argument(
        "--half-map",
        action="append",
        default=[],
        metavar="HALF",
        help="give both half maps: their Fourier shell correlation around the model (its last frame), and where it is 0.143; "
        "drawn on the page of --report too",
    )
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="also write a page that shows the model (of a trajectory, its last frame) in the map, with plots and geometry: "
        "an HTML file that needs no network",
    )
    parser.add_argument(
        "--table1",
        metavar="FILE",
        help="also write a Table 1 (of a trajectory, for its last frame): composition, B factors, geometry, correlations, "
        "EMRinger, Q-score, SMOC and MolProbity's figures, in Markdown",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the Table 1 if it is there")
    parser.add_argument(
        "--symmetry",
        metavar="WORD",
        help="also the symmetry of model and map: C4, D7, T, O, I, helical:RISE,TWIST or auto; how the map agrees with its "
        "copies, and CC of the whole assembly",
    )
    parser.add_argument(
        "--per-residue",
        action="store_true",
        help="list every residue too (of a trajectory, of its last frame)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON, which has every residue of every frame"
    )


def _defaults() -> dict[str, Any]:
    """Return the value of each option that is not given."""
    parser = argparse.ArgumentParser()
    _add_arguments(parser)
    return vars(parser.parse_args(["", "", "--resolution", "1"]))


def run(options: argparse.Namespace) -> int:
    """Print correlations and what else is asked for; return the exit status."""
    of_amplitudes = options.amplitudes, options.free_flags, options.free_value
    if of_amplitudes != (None,) * 3 or takes_amplitudes(options.map, options.columns):
        return function_of_extension("score_of_amplitudes")(options)
    if options.resolution is None:
        # A file that is not there cannot say that it needs none.
        check_given_file(options.map, "give the path of a map or an MTZ file")
        raise InputError(_RESOLUTION_MISSING)
    _check(options)
    defer_torch()
    if options.atoms:
        check_selection(options.atoms)
    with loading():
        from ..analysis import load_trajectory
        from ..energies.atom_selection import select_atoms
        from ..maps.density_map import DensityMap
        from .score_report import ScoreReport

    trajectory = load_trajectory(options.model, options.topology)
    if options.atoms:
        trajectory = trajectory.atom_slice(select_atoms(trajectory.topology.to_openmm(), options.atoms))
    corrections = map_corrections(options.voxel_size, options.mirror, options.invert)
    density_map = corrections.apply(DensityMap.from_file(options.map, columns=options.columns))
    report = ScoreReport(
        trajectory, density_map, options.resolution, (options.model, options.map), spellings(vars(options))
    )
    if options.q_score:
        report.add_q_scores(options.sigma)
    if options.fsc:
        report.add_model_fsc()
    if options.half_map:
        report.add_half_map_fsc([corrections.apply(DensityMap.from_file(path)) for path in options.half_map])
    if options.per_residue or options.json:
        _add_confidence(report, options)
    report.add_residues()
    if options.symmetry:
        figures = assembly_figures(
            options.symmetry, options.topology or options.model, density_map, options.resolution
        )
        report.found["assembly"] = figures
    if options.report:
        _write_page(options, trajectory, density_map, report.found)
    if options.table1:
        report.found["table1"] = _write_table(options, trajectory, density_map, report.found)
    if options.json:
        print(json.dumps(report.found, indent=2, allow_nan=False))
    else:
        report.show(options.per_residue)
        if options.symmetry:
            print(*assembly_lines(report.found["assembly"]), sep="\n")
    if options.report:  # beside JSON, which is all that is printed there
        print(f"{options.report}: open it in a browser", file=sys.stderr if options.json else sys.stdout)
    if options.table1:
        print(
            f"{options.table1}: Table 1, to be filled in where it says so",
            file=sys.stderr if options.json else sys.stdout,
        )
    return 0


def _add_confidence(report: ScoreReport, options: argparse.Namespace) -> None:
    """Add what a prediction is sure of, from the file that names the atoms."""
    from ..models.structures import read_model
    from ..models.trajectory_files import is_model

    path = Path(options.topology or options.model)
    if is_model(path):
        report.add_confidence(read_model(path, PREDICTED[options.predicted]))


def _write_table(
    options: argparse.Namespace,
    trajectory: mdtraj.Trajectory,
    density_map: DensityMap,
    scored: Mapping[str, Any],
) -> dict[str, Any]:
    """Write the Table 1 of the last frame, and return its figures."""
    from ..base.units import ANGSTROM_PER_NANOMETER
    from ..models.odd_atoms import check_b_factors, check_occupancies
    from ..models.structures import read_model
    from ..validation.crystal import check_crystal

    model = read_model(options.topology or options.model, PREDICTED[options.predicted])
    check_occupancies(model)
    check_b_factors(model)
    check_crystal(model, density_map)
    positions = trajectory.xyz[-1].astype(float) * ANGSTROM_PER_NANOMETER
    names = options.model, options.map
    return function_of_extension("table_of_model")(
        options.table1, model, positions, density_map, options.resolution, names, scored
    )


def _check(options: argparse.Namespace) -> None:
    """Refuse at once what cannot be right, whatever the files hold."""
    check_order(options.model, options.map)
    check_files((), (options.map, *options.half_map))
    check_given_file(options.model, "check the path of the model")
    if options.topology:
        check_given_file(options.topology, "check the path of the topology")
    check_columns(Path(options.map), options.columns)
    check_halves(options.half_map)
    for name in ("report", "table1"):
        path = getattr(options, name)
        if path:
            check_output_folder(path)
        if path and name == "table1":  # its authors may have filled it in
            check_new_file(Path(path), options.overwrite)
        if path and options.atoms:
            raise InputError(
                "shows all atoms of the model, and does not go with a selection",
                argument=name,
                remedy=f"leave {as_argument('atoms')} out",
            )
    resolution_in_angstrom(options.resolution)
    checked_length(options.sigma, "sigma", zero=False)


def _write_page(
    options: argparse.Namespace,
    trajectory: mdtraj.Trajectory,
    density_map: DensityMap,
    scored: Mapping[str, Any],
) -> None:
    """Write the page of the last frame, with the bonds of the model that names its atoms."""
    from ..base.units import ANGSTROM_PER_NANOMETER
    from ..models.predictions import residue_confidence
    from ..models.structures import read_model
    from ..report.page import write_page
    from ..report.shown_model import ShownModel
    from ..report.summary import versions
    from ..validation.model_geometry import geometry_of_model
    from ..validation.model_report import report
    from .score_page import score_page

    model = read_model(options.topology or options.model, PREDICTED[options.predicted])
    positions = trajectory.xyz[-1].astype(float) * ANGSTROM_PER_NANOMETER
    geometry = geometry_of_model(model, positions)
    found = report(model.topology, positions, density_map, options.resolution, geometry=geometry)
    plddt = residue_confidence(model)
    for row, value in zip(found["residues"], [] if plddt is None else plddt.tolist()):
        row["plddt"] = value if value == value else None
    shown = ShownModel("after", "model", model.topology, positions, model.known_b_factors)
    command = command_line(
        vars(options), _defaults(), options.report, command="score", output_option="report"
    )
    page = score_page(
        shown,
        density_map,
        found,
        (options.model, options.map),
        scored["warnings"],
        versions(),
        command,
        scored if options.half_map else None,
    )
    write_page(options.report, page)


def assembly_figures(word: str, path: str, density_map: DensityMap, resolution: float) -> dict[str, Any]:
    """Return a model's symmetry, the map's correlation with each copy of itself, and CC of all copies; resolution in Å."""
    from ..models.assembly import copied_topology
    from ..models.structures import read_model
    from ..validation.correlation import cc_mask

    find = function_of_extension("find_assembly")
    asked, model = function_of_extension("parse_symmetry")(word), read_model(path)
    bar = Display()
    bar.start("symmetry")
    try:
        with tempfile.TemporaryDirectory() as folder:
            searched = partial(bar.update, stage=SYMMETRY, row=None)
            unit, found = find(asked, model, density_map, Path(folder) / "unit.cif", searched)
    finally:
        bar.stop()
    topology = copied_topology(unit.topology, len(found.operators))
    positions = found.operators.expanded(unit.positions).reshape(-1, 3)
    return found.as_dict() | {"cc": cc_mask(density_map, topology, positions, resolution)}


def assembly_lines(figures: dict[str, Any]) -> list[str]:
    """Return what is printed of it."""
    each = ", ".join("-" if value is None else f"{value:.3f}" for value in figures["map_correlations"][1:])
    lines = [
        f"symmetry {figures['symmetry']}, axes from the {figures['axes_from']}: the map correlates with its copies by {each}",
        f"CC of the unit and its copies ({figures['copies']}): {figures['cc']:.3f}; "
        f"{figures['clashes_at_start']} heavy atoms of the unit are within 2.2 Å of a copy",
    ]
    if figures["unit"]:
        off = figures["copies_rmsd"]
        lines.append(
            f"the unit is chain {' '.join(figures['unit'])}; the other copies are {off:.2f} Å off it"
        )
    return lines
