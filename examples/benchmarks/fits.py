"""Fit the start models of known cases; tabulate correlation, distance to the deposited model, and geometry.

    python examples/benchmarks/fits.py [CASES...] [--data DIR] [--protocol NAME] [--seeds N] [--json FILE]

CASES are adk, adk3 (the same at 3 Å), kinesin, 5925-1 to 5925-5, 6374-1 to 6374-5 and hemoglobin, or 5925 and 6374 for all five
starts; without any, all but adk3. Maps and models are in DIR: $OPENMM_DENSITY_DATA, else ../shared/data beside the project.
Adenylate kinase needs no data, as its map is simulated. Every case takes minutes.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from figures import write_figures
from interleaved import processor
from rich.console import Console
from rich.table import Table

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.fitting import FlexibleFit, find_protocol
from openmm_density.models import Model, read_model
from openmm_density.models.matching import match_alpha_carbons
from openmm_density.validation.geometry import GeometryReport, compare_geometry

PROJECT = Path(__file__).resolve().parents[2]
MODELS = PROJECT / "examples" / "data"
# Residues of kinesin's start that are farther from the deposited model than this, in Å, are in another conformation.
REACH = 5.69
NOISE, SEED = 0.1, 1


@dataclass(frozen=True)
class Case:
    """A start, the map it is fitted into (simulated from the deposited model where no file is named), and that model."""

    resolution: float
    start: str
    deposited: str
    map_file: str | None = None
    reach: float = np.inf

    def read(self, data: Path) -> tuple[Model, Model, DensityMap]:
        """Read start, deposited model and map."""
        folder = MODELS if self.map_file is None else data
        start, deposited = read_model(folder / self.start), read_model(folder / self.deposited)
        if self.map_file is not None:
            return start, deposited, DensityMap.from_file(data / self.map_file)
        voxel = min(1.0, self.resolution / 4)
        simulated = DensityMap.simulate(
            deposited.topology, deposited.positions, self.resolution, voxel_size=voxel, noise=NOISE, seed=SEED
        )
        return start, deposited, simulated


def _starts(entry: str, resolution: float) -> dict[str, Case]:
    folder = f"emd{entry}_frag"
    deposited, density = f"{folder}/{entry}_native.pdb", f"{folder}/emd{entry}.mrc.gz"
    return {
        f"{entry}-{i}": Case(resolution, f"{folder}/{entry}_original_{i}.pdb", deposited, density)
        for i in range(1, 6)
    }


CASES = {
    "adk": Case(5.0, "adk_open.pdb", "adk_closed.pdb"),
    "adk3": Case(3.0, "adk_open.pdb", "adk_closed.pdb"),
    "kinesin": Case(
        5.0,
        "emd6187_kinesin/1bg2_K_fitted.pdb",
        "emd6187_kinesin/chain_K_box_complete.pdb",
        "emd6187_kinesin/chain_K_box.ccp4",
        REACH,
    ),
    **_starts("5925", 3.64),
    **_starts("6374", 2.9),
    "hemoglobin": Case(
        3.2, "emd3488_5ni1/5me2.pdb", "emd3488_5ni1/5ni1_updated.cif", "emd3488_5ni1/emd_3488.mrc"
    ),
}


def fit_case(
    name: str, data: Path, protocol: str = "standard", steps: int | None = None, **options: Any
) -> dict[str, Any]:
    """Fit one case; return its figures.

    Parameters
    ----------
    name : str
        One of `CASES`.
    data : Path
        The folder of maps and models.
    protocol : str
        As for `find_protocol`.
    steps : int, optional
        Of all stages, in place of the protocol's.
    **options
        Passed to `FlexibleFit`.
    """
    case = CASES[name]
    start, deposited, density_map = case.read(data)
    chosen = find_protocol(protocol, case.resolution)
    if steps is not None:
        chosen = chosen.with_steps(steps)
    fit = FlexibleFit(start, density_map, case.resolution, chosen, reference=deposited, **options)
    result = fit.run()
    final = result.prepared.input_positions(result.final)
    own, other = match_alpha_carbons(
        start.topology, deposited.topology, positions=start.positions, reference_positions=deposited.positions
    )
    distances = [
        np.linalg.norm(where[own] - deposited.positions[other], axis=1) for where in (start.positions, final)
    ]
    within = distances[0] < case.reach
    before, without_map, after = map(fit.geometry, (result.initial, result.relaxed, result.final))
    change = compare_geometry(before, after)
    return {
        "case": name,
        "protocol": chosen.name,
        "seed": options.get("seed", 0),
        "steps": result.steps,
        "minutes": result.wall_seconds / 60,
        "seconds_by_part": fit.stopwatch.seconds_by_part,
        "seconds_within": fit.stopwatch.seconds_within,
        "ms_per_step": result.ms_per_step,
        "strength": result.strength,
        "final_strength": result.final_strength,
        "final_search": result.final_search,
        "kept": result.kept,
        "cc": [result.cc_initial, result.cc_final],
        "cc_deposited": result.cc_reference,
        "similarity": [result.similarity_initial, result.similarity_final],
        "ca_rmsd": [_root_mean_square(each) for each in distances],
        "within_reach": int(within.sum()),
        "ca_rmsd_within_reach": [_root_mean_square(each[within]) for each in distances],
        "geometry": [_figures(before), _figures(after)],
        "geometry_relaxed": _figures(without_map),
        "strain": {
            "angles": after.angle_rmsd / without_map.angle_rmsd,
            "bonds": after.bond_rmsd / without_map.bond_rmsd,
        },
        "peptide_flips": change.peptide_flips,
        "inverted_centres": change.inverted_centres,
        "stages": result.stages,
        "blow_ups": result.blow_ups,
    }


def _root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt((values**2).mean()))


def _figures(report: GeometryReport) -> dict[str, Any]:
    return {
        "clashscore": report.clashscore,
        "ramachandran_outliers": report.ramachandran_outlier_count,
        "rotamer_outliers": report.rotamer_outlier_count,
        "cis_peptides": report.cis_count,
        "twisted_peptides": report.twisted_count,
        "wrong_centres": report.wrong_alpha_count + report.wrong_centre_count,
        "bond_rmsd": report.bond_rmsd,
        "angle_rmsd": report.angle_rmsd,
    }


def table(rows: list[dict[str, Any]]) -> Table:
    """Put start and end side by side."""
    shown = Table(
        caption="From start to end; clashes per 1000 heavy atoms; k: at full strength and at the end, kJ/mol per atom; angles, "
        "bonds: RMSD after over that of the model relaxed without the map; flips: peptides that turned between cis and trans"
    )
    for heading in (
        "case",
        "CC",
        "deposited",
        "ratio",
        "Cα RMSD (Å)",
        "clashes",
        "Ramachandran",
        "k",
        "angles",
        "bonds",
        "flips",
        "hands",
        "min",
    ):
        shown.add_column(heading, justify="left" if heading == "case" else "right")
    for row in rows:
        before, after = row["geometry"]
        rmsd = "{:.2f} → {:.2f}".format(*row["ca_rmsd"])
        if row["ca_rmsd_within_reach"] != row["ca_rmsd"]:
            rmsd += "\n{}: {:.2f} → {:.2f}".format(row["within_reach"], *row["ca_rmsd_within_reach"])
        shown.add_row(
            row["case"] if row["seed"] == 0 else f"{row['case']}, seed {row['seed']}",
            "{:.3f} → {:.3f}".format(*row["cc"]),
            f"{row['cc_deposited']:.3f}",
            f"{row['cc'][1] / row['cc_deposited']:.3f}",
            rmsd,
            f"{before['clashscore']:.1f} → {after['clashscore']:.1f}",
            f"{before['ramachandran_outliers']} → {after['ramachandran_outliers']}",
            f"{row['strength']:.0f} → {row['final_strength']:.0f}",
            f"{row['strain']['angles']:.2f}",
            f"{row['strain']['bonds']:.2f}",
            str(len(row["peptide_flips"])),
            str(len(row["inverted_centres"])),
            f"{row['minutes']:.1f}",
        )
    return shown


def chosen_cases(words: list[str]) -> list[str]:
    """Return the cases that are asked for; an entry's number stands for all of its starts.

    Raises
    ------
    InputError
        If one is not known.
    """
    if not words:
        return [name for name in CASES if name != "adk3"]
    names = []
    for word in words:
        found = [name for name in CASES if name == word or name.startswith(f"{word}-")]
        if not found:
            raise InputError(
                "must be a case that is known",
                argument="case",
                found=f'"{word}"',
                remedy=f"use {', '.join(CASES)}",
            )
        names += found
    return list(dict.fromkeys(names))


def main() -> None:
    """Fit, show each case as it ends, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="*", metavar="CASES", help="which (all but adk3)")
    data = Path(os.environ.get("OPENMM_DENSITY_DATA", PROJECT.parent / "shared" / "data"))
    parser.add_argument("--data", type=Path, default=data, help="folder of maps and models")
    parser.add_argument("--protocol", default="standard", help="a protocol's name or TOML file (standard)")
    parser.add_argument("--steps", type=int, help="of all stages (those of the protocol)")
    parser.add_argument("--seeds", type=int, default=1, help="fit every case with so many seeds (1)")
    parser.add_argument("--platform", default="CPU", help="OpenMM's (CPU)")
    parser.add_argument("--threads", type=int, help="of the CPU platform (all cores)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    console = Console(width=max(140, Console().width))
    rows: list[dict[str, Any]] = []
    try:
        for name in chosen_cases(arguments.cases):
            for seed in range(arguments.seeds):
                options = {"platform": arguments.platform, "threads": arguments.threads, "seed": seed}
                rows.append(fit_case(name, arguments.data, arguments.protocol, arguments.steps, **options))
                console.print(table(rows[-1:]))
                if arguments.json:
                    figures = {"processor": processor(), "threads": arguments.threads, "fits": rows}
                    write_figures(arguments.json, figures)
    except InputError as error:
        sys.exit(str(error))
    if len(rows) > 1:
        console.print(table(rows))


if __name__ == "__main__":
    main()
