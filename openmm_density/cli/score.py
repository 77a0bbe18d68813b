"""``openmm-density score``: correlate a model or a trajectory with a map."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..plugins import defer_torch
from .arguments import PROGRAM, add_map, check_files, check_halves, corrections, number
from .console import console_for_results
from .startup import loading

if TYPE_CHECKING:
    import numpy as np
    from rich.table import Table

    from .arguments import Commands


def add_parser(commands: Commands) -> None:
    """Add what ``score`` takes."""
    parser = commands.add_parser(
        "score",
        help="correlate a model or trajectory with a map",
        description="Print the correlation of a model, or of every frame of a trajectory, with MAP, the worst residues, "
        "and warnings. Frames are counted from 0.",
    )
    parser.add_argument(
        "model", metavar="MODEL-or-TRAJECTORY", help="PDB, mmCIF, or any trajectory that mdtraj reads"
    )
    add_map(parser)
    parser.add_argument("--topology", metavar="T", help="a model with the trajectory's atoms")
    parser.add_argument(
        "--atoms", metavar="SELECTION", help='score only these, as mdtraj selects: "element != H"'
    )
    parser.add_argument("--q-score", action="store_true", help="also Q-scores")
    parser.add_argument(
        "--sigma",
        type=number,
        default=0.6,
        metavar="S",
        help="width of their reference in Å (%(default)g, as published; EMDB's pages have 0.4)",
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
        help="give both half maps: their Fourier shell correlation around the model (its last frame), and where it is 0.143",
    )
    parser.add_argument(
        "--per-residue",
        action="store_true",
        help="list every residue too (of a trajectory, of its last frame)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON, which has every residue of every frame"
    )


def run(options: argparse.Namespace) -> int:
    """Print correlations and what else is asked for; give the exit status."""
    check_files((), (options.map, *options.half_map))
    defer_torch()
    with loading():
        import numpy as np
        from rich.text import Text

        from ..analysis import frames_in_map, fsc, load_trajectory, q_score, score
        from ..energies.atom_selection import select_atoms
        from ..maps.density_map import DensityMap
        from ..models.trajectory_files import as_openmm_topology
        from ..units import ANGSTROM_PER_NANOMETER
        from ..validation.fsc import HALF_MAP_THRESHOLD, half_map_fsc
        from ..validation.map_checks import check_map_units, check_map_with_model
        from .score_summary import MOST_WORST, residue_rows, residue_sentences, warnings_about, worst_residues

    check_halves(options)
    trajectory = load_trajectory(options.model, options.topology)
    if options.atoms:
        trajectory = trajectory.atom_slice(select_atoms(trajectory.topology.to_openmm(), options.atoms))
    correct = corrections(options)
    density_map = correct.apply(DensityMap.from_file(options.map, columns=options.columns))
    last = trajectory.xyz[-1].astype(np.float64) * ANGSTROM_PER_NANOMETER
    inside = frames_in_map(trajectory, density_map).any()
    topology = as_openmm_topology(trajectory.topology)
    check_map_units(density_map, topology, last)
    scores = score(trajectory, density_map, options.resolution) if inside else None
    checks = check_map_with_model(
        density_map,
        topology,
        last,
        options.resolution,
        cc=None if scores is None else float(scores.cc_mask[-1]),
    )
    if scores is None or (not np.any(scores.cc_mask) and np.isnan(scores.residue_correlations).all()):
        if checks.findings:
            raise InputError(checks.doubts[0])
        raise InputError(
            f"no residue of {options.model} lies in the density of {options.map}: check that they belong together, or place the "
            f"model with {PROGRAM} fit --place on."
        )
    found = {**scores.as_dict(), "map_checks": checks.as_dict()}
    figures = [[f"CC {cc:.4f}"] for cc in scores.cc_mask]
    columns = {"CC": scores.residue_correlations[-1]}
    remarks = []
    if options.q_score:
        q = q_score(trajectory, density_map, sigma=options.sigma)
        found |= {
            "q_score_sigma": options.sigma,
            "q_score": _plain(q.mean),
            "residue_q_scores": _plain(q.residues),
        }
        columns["Q"] = q.residues[-1]
        for row, mean in zip(figures, q.mean):
            row.append(f"Q {mean:.4f}")
    if options.fsc:
        curves = fsc(trajectory, density_map, options.resolution)
        crossings = [curve.crossing() for curve in curves]
        found |= {
            "fsc_resolution": _plain([crossing.resolution for crossing in crossings]),
            "fsc_falls": [crossing.falls for crossing in crossings],
            "fsc": [curve.as_dict() for curve in curves],
        }
        for row, crossing in zip(figures, crossings):
            row.append(f"FSC {crossing}")
    if options.half_map:
        halves = [correct.apply(DensityMap.from_file(path)) for path in options.half_map]
        curve = half_map_fsc(*halves, trajectory.xyz[-1] * ANGSTROM_PER_NANOMETER)
        crossing = curve.crossing(HALF_MAP_THRESHOLD, dips=False)
        found |= {
            "half_map_resolution": _plain([crossing.resolution])[0],
            "half_map_falls": crossing.falls,
            "half_map_fsc": curve.as_dict(),
        }
        remarks.append(f"half maps: FSC {crossing}")
    rows = residue_rows(trajectory.topology, scores.residue_labels, columns)
    found["worst_residues"] = [
        {"residue": residue, "correlation": value}
        for residue, value in worst_residues(rows, "CC")[:MOST_WORST]
    ]
    found["warnings"] = checks.doubts + warnings_about(
        trajectory, density_map, float(scores.cc_mask[-1]), rows, checks
    )
    if options.json:
        print(json.dumps(found, indent=2, allow_nan=False))
        return 0
    console = console_for_results()
    if options.per_residue:
        console.print(_table(scores.residue_labels, columns, "" if len(figures) == 1 else ", last frame"))
    for frame, row in enumerate(figures):
        print("  ".join(row if len(figures) == 1 else [f"frame {frame:5d}", *row]))
    # What it comes to stands last, where a terminal still shows it.
    for remark in remarks:
        print(remark)
    if len(figures) > 1:
        cc = scores.cc_mask
        print(f"CC of {len(cc)} frames: mean {cc.mean():.4f}, {cc.min():.4f} to {cc.max():.4f}; of the last:")
    for sentence in residue_sentences(rows, columns):
        print(sentence)
    for warning in found["warnings"]:
        console.print(Text.assemble(("Warning:", "bold"), f" {warning}"))
    if not options.per_residue:
        print("each residue: --per-residue; all figures: --json")
    return 0


def _table(labels: Sequence[str], columns: Mapping[str, np.ndarray], ending: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("residue")
    for name in columns:
        table.add_column(f"{name}{ending}", justify="right")
    for label, *values in zip(labels, *columns.values()):
        table.add_row(label, *("" if value != value else f"{value:.3f}" for value in values))
    return table


def _plain(values: Any) -> list[Any]:
    """Return an array as lists for JSON; None for what is not finite."""
    import numpy as np

    array = np.asarray(values, dtype=np.float64)
    return np.where(np.isfinite(array), array, None).tolist()
