"""``openmm-density simulate``: write the density of a model as a map, or the amplitudes of its crystal."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.errors import InputError, as_argument
from ..base.given_files import check_output_folder
from ..base.plugins import defer_torch
from ..base.units import checked_length, resolution_in_angstrom
from ..fitting.installed_extensions import function_of_extension
from ..maps.map_suffixes import FORMATS, check_can_be_written, format_of_map_name
from .arguments import check_files, check_new_file, number, whole_number
from .startup import loading

if TYPE_CHECKING:
    from .arguments import Commands


def add_parser(commands: Commands) -> None:
    """Add what ``simulate`` takes."""
    parser = commands.add_parser(
        "simulate",
        help="simulate the map of a model, or the amplitudes of its crystal",
        description="Write the density of MODEL as a map, or the amplitudes of its crystal as an MTZ file: F-obs and SIGF-obs "
        "with bulk solvent, and R-free-flags (1 is free, 5% of them).",
    )
    parser.add_argument("model", metavar="MODEL", help="PDB or mmCIF, .gz or not")
    parser.add_argument("--resolution", type=number, required=True, metavar="R", help="resolution in Å")
    parser.add_argument("--voxel-size", type=number, metavar="V", help="voxel size of a map, in Å")
    parser.add_argument(
        "--output",
        required=True,
        metavar="FILE",
        help=".mrc, .map, .ccp4 (or .gz of these), .situs; .mtz for the amplitudes of the crystal that MODEL names",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace FILE if it is there")
    parser.add_argument(
        "--margin", type=number, default=10.0, metavar="A", help="around the model, in Å (%(default)g)"
    )
    parser.add_argument(
        "--scattering", choices=("electron", "xray"), default="electron", help="form factors (%(default)s)"
    )
    parser.add_argument(
        "--conformers",
        choices=("all", "major"),
        default="all",
        help="all alternate conformers, every atom by its occupancy, or the most occupied one of each residue, every atom whole "
        "(%(default)s)",
    )
    parser.add_argument(
        "--noise",
        type=number,
        default=0.0,
        metavar="X",
        help="standard deviation of noise up to the resolution, in that of the density inside the molecule; of amplitudes the "
        "root mean square of a complex error, in that of those of its resolution (0)",
    )
    parser.add_argument(
        "--seed", type=whole_number, default=0, metavar="N", help="seed of noise and free flags (%(default)s)"
    )


def _check(options: argparse.Namespace, output: Path) -> None:
    """Refuse at once what needs no model for it."""
    check_files([options.model])
    resolution_in_angstrom(options.resolution)
    if format_of_map_name(output) == "MTZ":
        _check_of_amplitudes(options, output)
    else:
        if options.voxel_size is None:
            raise InputError("is required for a map", argument="voxel_size", remedy="give Å, as 1")
        checked_length(options.voxel_size, "voxel_size", zero=False)
        checked_length(options.margin, "margin")
        check_can_be_written(output)
    check_new_file(output, options.overwrite)


def _check_of_amplitudes(options: argparse.Namespace, output: Path) -> None:
    """Refuse what is asked of amplitudes that only a map has."""
    for name, default in _OF_MAPS.items():
        if getattr(options, name) != default:
            raise InputError(
                "is of a map, and .mtz asks for amplitudes",
                argument=name,
                found=getattr(options, name),
                remedy=f"leave it out, or give {as_argument('output')} the name of a map",
            )
    if not output.name.lower().endswith(FORMATS["MTZ"]):
        raise InputError("amplitudes are not written compressed", source=output, remedy="use .mtz")
    check_output_folder(output)
    if not (math.isfinite(options.noise) and options.noise >= 0):
        raise InputError(
            "must be 0 or more", argument="noise", found=options.noise, remedy="give a number such as 0.1"
        )


def run(options: argparse.Namespace) -> int:
    """Write the map or the amplitudes; return the exit status."""
    output = Path(options.output)
    _check(options, output)
    if format_of_map_name(output) == "MTZ":
        return _write_amplitudes(options, output)
    defer_torch()
    with loading():
        from ..maps.density_map import DensityMap
        from ..models.conformer_topology import all_conformers
        from ..models.structures import read_model

    model = read_model(options.model)
    shown = {"topology": model.topology, "positions": model.positions}
    if options.conformers == "all":
        shown = all_conformers(model)._asdict()
    density_map = DensityMap.simulate(
        **shown,
        resolution=options.resolution,
        voxel_size=options.voxel_size,
        margin=options.margin,
        scattering=options.scattering,
        noise=options.noise,
        seed=options.seed,
    )
    density_map.write(output)
    nz, ny, nx = density_map.shape
    print(f"{output}: {nx} x {ny} x {nz} voxels of {options.voxel_size:g} Å")
    return 0


def _write_amplitudes(options: argparse.Namespace, output: Path) -> int:
    of = options.model, output, options.resolution, options.noise, options.seed
    found = function_of_extension("simulated_amplitudes")(*of)
    print(
        f"{output}: {len(found)} amplitudes to {found.resolution:.2f} Å in {found.space_group.xhm()}, {found.free.sum()} of them "
        "held out"
    )
    return 0


_OF_MAPS = {"voxel_size": None, "margin": 10.0, "scattering": "electron", "conformers": "all"}
"""Options that amplitudes do not have, with their defaults."""
