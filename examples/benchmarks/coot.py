"""A fit beside one by Coot: the same start, map and resolution; agreement, geometry, distance to a deposited model, time.

Coot runs in an environment of its own (`python3.11 -m venv coot; coot/bin/pip install coot-headless-api`), whose interpreter
`--coot` names, as `coot_worker.py` says. All models, the start and the deposited one as well, are scored by the same code. What
follows an option that is not known goes to `fit`.

    python examples/benchmarks/coot.py START MAP --resolution 4.3 --reference DEPOSITED --coot coot/bin/python --json coot.json
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from figures import write_figures

from openmm_density import DensityMap
from openmm_density.models import Model, read_model
from openmm_density.models.matching import ca_rmsd, match_alpha_carbons
from openmm_density.validation.correlation import cc_mask
from openmm_density.validation.fsc import model_fsc
from openmm_density.validation.model_geometry import geometry_of_model
from openmm_density.validation.q_score import q_scores

WORKER = Path(__file__).with_name("coot_worker.py")


def main() -> None:
    """Fit by both, and print a line a model."""
    arguments, more = _arguments()
    density_map = DensityMap.from_file(arguments.map)
    reference = read_model(arguments.reference)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = {"start": (arguments.start, 0.0)}
        models["this project"] = fitted(arguments, more, folder)
        models["Coot"] = refined_by_coot(arguments, density_map, folder)
        models["deposited"] = (arguments.reference, 0.0)
        rows = []
        for program, (path, seconds) in models.items():
            row = scored(read_model(path), density_map, arguments.resolution, reference)
            rows.append({"model": program, **row, "seconds": seconds})
            print(rows[-1], flush=True)
    if arguments.json:
        write_figures(arguments.json, rows)


def fitted(arguments: argparse.Namespace, more: Sequence[str], folder: Path) -> tuple[str, float]:
    """Fit by the command; return the fitted model and the seconds."""
    given = [arguments.start, arguments.map, "--resolution", f"{arguments.resolution:g}"]
    command = [sys.executable, "-m", "openmm_density", "fit", *given, "--output", str(folder / "fit"), *more]
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return str(folder / "fit" / "fitted.pdb"), time.perf_counter() - begun


def refined_by_coot(
    arguments: argparse.Namespace, density_map: DensityMap, folder: Path
) -> tuple[str, float]:
    """Refine by Coot; return the refined model and the seconds."""
    plain, refined = folder / "map.mrc", folder / "coot.pdb"
    density_map.write(plain)  # Coot reads no compressed map
    command = [arguments.coot, str(WORKER), arguments.start, str(plain), str(refined)]
    command += [arguments.blurs, str(arguments.cycles), f"{arguments.weight:g}"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=folder)
    return str(refined), float(done.stdout.split()[-1])


def scored(model: Model, density_map: DensityMap, resolution: float, reference: Model) -> dict[str, Any]:
    """Return how a model agrees with map and reference, and its geometry."""
    geometry = geometry_of_model(model)
    pairs = match_alpha_carbons(model.topology, reference.topology)
    curve = model_fsc(density_map, model.topology, model.positions, resolution)
    return {
        "cc": cc_mask(density_map, model.topology, model.positions, resolution),
        "q": q_scores(density_map, model.topology, model.positions).mean,
        "fsc": curve.crossing().resolution,
        "ca_rmsd": ca_rmsd(model.positions, reference.positions, pairs),
        "bond_rmsz": geometry.bond_rmsz,
        "angle_rmsz": geometry.angle_rmsz,
        "beyond_4": geometry.beyond_4_count,
        "clashscore": geometry.clashscore,
        "ramachandran_favoured": geometry.ramachandran_favoured_count / geometry.ramachandran_count,
        "ramachandran_outliers": geometry.ramachandran_outlier_count,
        "rotamer_outliers": geometry.rotamer_outlier_count,
    }


def _arguments() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("start")
    parser.add_argument("map")
    parser.add_argument("--resolution", type=float, required=True)
    parser.add_argument("--reference", required=True, help="the deposited model")
    parser.add_argument("--coot", required=True, help="Python that has coot-headless-api")
    parser.add_argument("--blurs", default="400,100,0", help="B factors by which its map is blurred")
    parser.add_argument("--cycles", type=int, default=1000, help="of Coot for each of them")
    parser.add_argument("--weight", type=float, default=15.0, help="times the map's standard deviation")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_known_args()


if __name__ == "__main__":
    main()
