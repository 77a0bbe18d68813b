"""Chains and domains thrown about and placed in maps whose model is known: how far off they end, how surely, and how fast.

    python examples/benchmarks/placing.py [--cases haemoglobin_3.2,row_8] [--device cuda] [--threads 2]

`haemoglobin_…`: one α and one β chain of 5ME2, two copies of each, in EMD-3488 as it is and low-passed, against
5NI1. `adk_…`: the core, the AMP-binding domain and the lid of adenylate kinase. `row_8`: eight haemoglobins
from one of 5ME2. `ring_8`, `helix_8`: a C6 ring and an actin-like helix of six from one chain of the model of
EMD-6374. The maps of all but haemoglobin are simulated, with noise of 0.3 of their density's standard
deviation. Each model is turned at random and put far from its density. All but adk need the folder of maps and
models: $OPENMM_DENSITY_DATA, else ../shared/data beside the project.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import gemmi
import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.transform import Rotation

from openmm_density import DensityMap
from openmm_density.extensions.placing.placing import place_parts
from openmm_density.maps.fourier import fourier_filtered
from openmm_density.models import read_model

PROJECT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("OPENMM_DENSITY_DATA", PROJECT.parent / "shared" / "data"))
MOST = 4
"""Bodies of which each is listed."""
DEPOSITED, NOISE = 3.2, 0.3
AWAY = 150.0
"""Å by which a model is moved, and each further one more."""
DOMAINS = {"AMP domain": range(30, 68), "lid": range(118, 161)}
# Å from the axis to the middle of a unit of the ring; and the twist and rise of actin's helix, degrees and Å.
RADIUS, TWIST, RISE = 50.0, -166.6, 27.5
HELIX_RADIUS = 25.0
APART = 75.0
"""Å between haemoglobins of the row."""
CASES = [f"haemoglobin_{each}" for each in ("3.2", "6", "8", "10")] + [
    "adk_5",
    "adk_8",
    "row_8",
    "ring_8",
    "helix_8",
]

Unit = dict[int, tuple[str, np.ndarray]]
"""A chain or a domain: names of residues and places of Cα by number."""


def domain_of(number: int) -> str:
    """Return the domain of adenylate kinase that a residue is of."""
    return next((name for name, numbers in DOMAINS.items() if number in numbers), "core")


def units(structure: gemmi.Structure, domains: bool) -> list[Unit]:
    """Return the chains of a structure, or the domains of adenylate kinase."""
    found: dict[str, Unit] = {}
    for chain in structure[0]:
        for residue in chain.get_polymer():
            atom = residue.find_atom("CA", "*")
            if atom is not None:
                name = domain_of(residue.seqid.num) if domains else chain.name
                found.setdefault(name, {})[residue.seqid.num] = (residue.name, np.array(atom.pos.tolist()))
    return list(found.values())


def apart(one: Unit, other: Unit) -> float:
    """Return the Cα RMSD of two units in Å; large if they are of different sequences."""
    both = [number for number in one if number in other]
    alike = sum(one[number][0] == other[number][0] for number in both)
    if alike < 0.9 * max(len(one), len(other), 1):
        return 1e3
    return float(np.sqrt(np.mean([((one[k][1] - other[k][1]) ** 2).sum() for k in both])))


def moved(structure: gemmi.Structure, move: Callable[[np.ndarray, int], np.ndarray]) -> gemmi.Structure:
    """Return a structure whose places `move` gives, from places (1, 3) and the number of a residue."""
    result = structure.clone()
    for chain in result[0]:
        for residue in chain:
            for atom in residue:
                atom.pos = gemmi.Position(*move(np.array(atom.pos.tolist()), residue.seqid.num))
    return result


def thrown(structure: gemmi.Structure, seed: int) -> gemmi.Structure:
    """Return a structure turned at random and put elsewhere."""
    turn = Rotation.random(random_state=seed)
    return moved(structure, lambda place, _: turn.apply(place) + AWAY * (seed + 1))


def chains_of(structure: gemmi.Structure, names: str) -> gemmi.Structure:
    """Return the protein of some chains of a structure."""
    result = gemmi.Structure()
    result.add_model(gemmi.Model(1))
    for name in names:
        chain = gemmi.Chain(name)
        for residue in structure[0][name].get_polymer():
            chain.add_residue(residue)
        result[0].add_chain(chain)
    result.setup_entities()
    return result


def assembly(unit: gemmi.Structure, moves: list[Callable[[np.ndarray, int], np.ndarray]]) -> gemmi.Structure:
    """Return copies of a unit, each with chains of its own."""
    result = gemmi.Structure()
    result.add_model(gemmi.Model(1))
    for number, move in enumerate(moves):
        for chain in moved(unit, move)[0]:
            chain.name = f"{chain.name}{number}"
            result[0].add_chain(chain)
    result.setup_entities()
    return result


def about_axis(unit: gemmi.Structure, radius: float, angle: float, rise: float) -> gemmi.Structure:
    """Return six copies of a unit around the z axis."""
    middle = np.mean(
        [atom.pos.tolist() for chain in unit[0] for residue in chain for atom in residue], axis=0
    )
    turns = [Rotation.from_euler("z", angle * k, degrees=True) for k in range(6)]
    outside, along = np.array([radius, 0.0, 0.0]), np.array([0.0, 0.0, rise])
    return assembly(
        unit,
        [
            lambda place, _, turn=turn, k=k: turn.apply(place - middle + outside) + k * along
            for k, turn in enumerate(turns)
        ],
    )


@dataclass(frozen=True)
class Case:
    """Models that are placed, each so many times, how they are cut, what they are to become, and in what map; None: simulated."""

    models: list[gemmi.Structure]
    truth: gemmi.Structure
    copies: int = 1
    cut: str = "auto"
    density_map: DensityMap | None = None

    def write(self, folder: Path) -> list[str]:
        """Write the models, and return the words for them."""
        words = []
        for number, model in enumerate(self.models):
            path = folder / f"model{number}.cif"
            model.make_mmcif_document().write_file(str(path))
            words.append(f"{path}:{self.copies}" if self.copies > 1 else str(path))
        return words


def case(name: str) -> Case:
    """Return a case."""
    kind, _, resolution = name.partition("_")
    if kind == "adk":
        return thrown_domains()
    if kind == "haemoglobin":
        return haemoglobin(float(resolution))
    if kind == "row":
        truth = assembly(
            chains_of(protein("emd3488_5ni1/5ni1_updated.cif"), "ABCD"),
            [lambda place, _, k=k: place + np.array([APART * k, 0, 0]) for k in range(8)],
        )
        return Case([thrown(chains_of(protein("emd3488_5ni1/5me2.pdb"), "ABCD"), 0)], truth, 8)
    whole = protein("emd6374_frag/6374_native.pdb")
    unit = chains_of(whole, whole[0][0].name)
    around = (
        about_axis(unit, RADIUS, 60.0, 0.0) if kind == "ring" else about_axis(unit, HELIX_RADIUS, TWIST, RISE)
    )
    return Case([thrown(unit, 0)], around, 6)


def protein(file: str) -> gemmi.Structure:
    """Return a structure of the folder of maps and models, without hydrogens."""
    structure = gemmi.read_structure(str(DATA / file))
    structure.remove_hydrogens()
    structure.setup_entities()
    return structure


def thrown_domains() -> Case:
    """Return adenylate kinase with each domain turned and put elsewhere."""
    truth = gemmi.read_structure(str(PROJECT / "examples" / "data" / "adk_closed.pdb"))
    truth.remove_hydrogens()
    seeds = {each: seed for seed, each in enumerate(["core", *DOMAINS])}
    turns = {each: Rotation.random(random_state=seed) for each, seed in seeds.items()}

    def move(place: np.ndarray, number: int) -> np.ndarray:
        domain = domain_of(number)
        return turns[domain].apply(place) + AWAY * (seeds[domain] + 1)

    return Case([moved(truth, move)], truth, cut="domains")


def haemoglobin(resolution: float) -> Case:
    """Return two chains of 5ME2 beside EMD-3488, low-passed to a resolution."""
    start = protein("emd3488_5ni1/5me2.pdb")
    truth = chains_of(protein("emd3488_5ni1/5ni1_updated.cif"), "ABCD")
    density_map = DensityMap.from_file(DATA / "emd3488_5ni1" / "emd_3488.mrc")
    if resolution > DEPOSITED:
        data = fourier_filtered(density_map.data, density_map.matrix, lambda s2: s2 < 1 / resolution**2)
        density_map = DensityMap(data, density_map.matrix, density_map.origin)
    models = [thrown(chains_of(start, chain), seed) for seed, chain in enumerate("AB")]
    return Case(models, truth, 2, density_map=density_map)


def measured(name: str, device: str, threads: int | None) -> str:
    """Return a row of the table: distances and scores of all bodies, and seconds."""
    given, resolution = case(name), float(name.rpartition("_")[2])
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        placed, words = folder / "placed.cif", given.write(folder)
        density_map = given.density_map
        if density_map is None:
            given.truth.make_mmcif_document().write_file(str(folder / "truth.cif"))
            model = read_model(folder / "truth.cif", predicted=False)
            density_map = DensityMap.simulate(model.topology, model.positions, resolution, noise=NOISE)
        wall, cpu = time.perf_counter(), time.process_time()
        place_parts(words, given.cut, density_map, resolution, placed, device=device, threads=threads)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        found = gemmi.read_structure(str(placed))
        found.setup_entities()
        scores = [each["score"] for each in json.loads(placed.with_suffix(".json").read_text())["bodies"]]
    ends, true = (units(each, given.cut == "domains") for each in (found, given.truth))
    distances = np.array([[apart(one, other) for other in true] for one in ends])
    off = distances[linear_sum_assignment(distances)]
    return f"| {name} | {listed(off, 2)} | {listed(scores, 1)} | {wall:.1f} | {cpu:.1f} |"


def listed(values: Sequence[float], digits: int) -> str:
    """Return some numbers, or from which to which many are."""
    if len(values) <= MOST:
        return ", ".join(f"{each:.{digits}f}" for each in values)
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def main() -> None:
    """Print a table of the cases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    print("| case | Cα RMSD from the truth (Å) | scores | s | CPU s |\n| --- | --- | --- | --- | --- |")
    for name in options.cases.split(","):
        print(measured(name, options.device, options.threads), flush=True)


if __name__ == "__main__":
    main()
