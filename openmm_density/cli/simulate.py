"""``openmm-density simulate``: write the density of a model as a map."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..maps.map_suffixes import check_can_be_written
from ..plugins import defer_torch
from ..units import checked_length, resolution_in_angstrom
from .arguments import check_files, check_unused, number, whole_number
from .startup import loading

if TYPE_CHECKING:
    from .arguments import Commands


def add_parser(commands: Commands) -> None:
    """Add what ``simulate`` takes."""
    parser = commands.add_parser(
        "simulate", help="simulate the map of a model", description="Write the density of MODEL as a map."
    )
    parser.add_argument("model", metavar="MODEL", help="PDB or mmCIF, .gz or not")
    parser.add_argument("--resolution", type=number, required=True, metavar="R", help="in Å")
    parser.add_argument("--voxel-size", type=number, required=True, metavar="V", help="in Å")
    parser.add_argument(
        "--output", required=True, metavar="MAP", help=".mrc, .map, .ccp4 (or .gz of these), .situs"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace MAP if it is there")
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
        help="standard deviation of noise up to the resolution, in that of the density inside the molecule (0)",
    )
    parser.add_argument(
        "--seed", type=whole_number, default=0, metavar="N", help="of the noise (%(default)s)"
    )


def _check(options: argparse.Namespace, output: Path) -> None:
    """Refuse at once what needs no model for it."""
    check_files([options.model])
    resolution_in_angstrom(options.resolution)
    checked_length(options.voxel_size, "voxel_size", zero=False)
    checked_length(options.margin, "margin")
    check_can_be_written(output)
    check_unused(output, options.overwrite)


def run(options: argparse.Namespace) -> int:
    """Write the map; return the exit status."""
    output = Path(options.output)
    _check(options, output)
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
