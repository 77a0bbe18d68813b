"""Fit the predictions of a folder into their maps, and print the table that papers on such fits have.

    python examples/predicted_models.py FOLDER [options of openmm-density batch, such as --protocol quick]

FOLDER/jobs.csv has a line for each fit (docs/guide/batch.md): the columns model, map and resolution (Å), and pae, reference,
name and any option of `fit` where they are wanted. Fits are kept in FOLDER/fits: give the same command again to go on. For each
the table has a row of the model where the flexible fit began, one of the fitted model and, with a reference, one of that:
CC_mask, CC_box and CC around the main chain, residues in favoured regions of the Ramachandran plot, side chains that are no
rotamer outliers (%), the root mean square Z-score of bond angles, clashscore, Q-score, and seconds.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from openmm_density import DensityMap
from openmm_density.models import Model, read_model
from openmm_density.validation.box_correlations import box_correlations
from openmm_density.validation.correlation import MapCorrelation

COLUMNS = ("CC_mask", "CC_box", "CC main chain", "favoured", "rotamers", "angle Z", "clashscore", "Q", "s")


def main() -> int:
    """Fit, and print the table; return the status of the fits."""
    folder = Path(sys.argv[1])
    table, fits = folder / "jobs.csv", folder / "fits"
    command = [sys.executable, "-m", "openmm_density", "batch", "--table", str(table), "--output", str(fits)]
    status = subprocess.run([*command, *sys.argv[2:]], check=False, stdout=sys.stderr).returncode
    with open(table, encoding="utf-8-sig", newline="") as file:
        jobs = list(csv.DictReader(file))
    found = json.loads((fits / "batch.json").read_text(encoding="utf-8"))["jobs"]
    print(f"| | {' | '.join(COLUMNS)} |\n|{' --- |' * (len(COLUMNS) + 1)}")
    for job, fit in zip(jobs, found):
        if fit["state"] == "finished":
            for name, figures in rows(folder, job, fits / fit["folder"]):
                print(f"| {fit['name']}, {name} | {' | '.join(figures)} |")
    return status


def rows(folder: Path, job: dict[str, str], fitted: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield what a row is of, and its figures."""
    summary = json.loads((fitted / "summary.json").read_text(encoding="utf-8"))
    density_map = DensityMap.from_file(folder / job["map"])
    models = {
        "initial": _written(fitted, "fitted_before_input.cif", "fitted_before.pdb"),
        "final": _written(fitted, "fitted_input.cif", "fitted.pdb"),
    }
    if job.get("reference"):
        models["reference"] = folder / job["reference"]
    for name, path in models.items():
        yield name, figures(read_model(path), name, density_map, float(job["resolution"]), summary)


def _written(folder: Path, *names: str) -> Path:
    return next(folder / name for name in names if (folder / name).exists())


def figures(model: Model, name: str, density_map: DensityMap, resolution: float, summary: dict) -> list[str]:
    """Return the figures of a model."""
    main_chain = np.array([atom.name in ("N", "CA", "C", "O") for atom in model.topology.atoms()])
    around = MapCorrelation(density_map, model.topology, resolution, counted=main_chain)
    geometry = summary[f"geometry_{name}"]
    outliers = 100 * (geometry["rotamer_outlier_count"] or 0) / max(geometry["rotamer_count"], 1)
    favoured, residues = geometry["ramachandran_favoured_count"], geometry["ramachandran_count"]
    return [
        f"{summary[f'cc_{name}']:.3f}",
        f"{box_correlations(density_map, model.topology, model.positions, resolution).cc_box:.3f}",
        f"{around.cc_mask(model.positions):.3f}",
        f"{100 * favoured / residues:.1f}" if residues else "",  # none without the package pyrama
        f"{100 - outliers:.1f}",
        f"{geometry['angle_rmsz']:.2f}",
        f"{geometry['clashscore']:.1f}",
        f"{summary[f'q_score_{name}']:.3f}",
        f"{summary['wall_seconds']:.0f}" if name == "final" else "",
    ]


if __name__ == "__main__":
    sys.exit(main())
