"""Predictions simulated from known truth, and how near fits bring what they are sure of.

    python examples/benchmarks/predictions.py make FOLDER [--cases adk,src]     models, maps, expected errors and jobs.csv
    python examples/benchmarks/predictions.py judge FOLDER                      a table of the fits in FOLDER/fits

Domains of a protein are turned by 10 to 60° about their hinge, where the turned model clashes least, loops are remade, and the
model relaxes in the force field. pLDDT is its lDDT to the truth within a domain, and the expected error of a residue seen from
another how far it is off where the domain of that one is superposed, both with noise. Every second prediction lies anywhere,
the others with their largest domain in the map, which is that of `noisy_maps.py`. Between the two commands, fit them all with
`examples/predicted_models.py FOLDER`. A case is made in a minute; all but adk need the folder of maps and models:
$OPENMM_DENSITY_DATA, else ../shared/data beside the project.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import permutations, product
from multiprocessing import get_context
from pathlib import Path

import gemmi
import mdtraj
import numpy as np
import openmm
from known_truth import Displacement, protein_alone, settled, springs
from noisy_maps import noisy_maps, relative_b_factors
from scipy.ndimage import uniform_filter1d
from scipy.spatial.distance import cdist
from scipy.spatial.transform import Rotation

from openmm_density.base.units import ANGSTROM_PER_NANOMETER
from openmm_density.models import Model, prepare, read_model
from openmm_density.models.structure_files import write_pdb
from openmm_density.models.superposition import superposition

PROJECT = Path(__file__).resolve().parents[2]
CONFIDENT = 70.0
LOOP, BULGE = 8, 8.0
"""Residues of a loop that is remade, and by how many Å its middle is moved."""
BLEND = 2
"""Residues on either side of a hinge over which a turn sets in."""
HOLD = 1000.0
"""kJ/mol/nm² on the Cα while the model relaxes."""


@dataclass(frozen=True)
class Case:
    """A protein, the resolution of its map in Å, and its domains: stretches by chain, and by how many degrees each is turned."""

    file: str
    resolution: float
    turned: dict[str, float]
    loops: int = 3


CASES = {
    "adk_4": Case("adk_closed.pdb", 4.0, {"A:122-159": 45, "A:30-59": 30}),
    "adk_8": Case("adk_closed.pdb", 8.0, {"A:122-159": 30, "A:30-59": 20}),
    "src_4": Case("zoo/2src_ptr.pdb.gz", 4.0, {"A:84-145": 60, "A:146-248": 40}),
    "src_6": Case("zoo/2src_ptr.pdb.gz", 6.0, {"A:84-248": 30, "A:257-340": 15}),
    "haemoglobin_5": Case("emd3488_5ni1/5ni1_updated.cif", 5.0, {"C:1-141,D:1-146": 20}),
    "haemoglobin_8": Case("emd3488_5ni1/5ni1_updated.cif", 8.0, {"C:1-141,D:1-146": 12}),
    "6374_3": Case("emd6374_frag/6374_native.pdb", 3.0, {"D:148-194,D:221-273": 10}),
    "thrombin_3": Case("zoo/1a4w_tys_inscode.pdb.gz", 3.0, {"H:125-232": 10}),
    "gfp_4": Case("zoo/1ema.cif.gz", 4.0, {}, 5),
    "cucurmosin_6": Case("zoo/3bwh.cif.gz", 6.0, {"A:180-244": 25}),
}


def make_case(name: str, folder: Path, data: Path, seed: int) -> dict[str, object]:
    """Write truth, prediction, expected errors and map of a case; return its row of the table of jobs."""
    case, folder = CASES[name], folder / name
    folder.mkdir(parents=True, exist_ok=True)
    source = next(
        each / case.file for each in (PROJECT / "examples" / "data", data) if (each / case.file).exists()
    )
    truth = settled(
        protein_alone(_as_sequence(source, folder), folder / "deposited.pdb"), folder / "truth.pdb"
    )
    rng = np.random.default_rng(seed)
    domains = _domains(truth, case)
    loops = _loops(truth, domains, case.loops)
    relaxed = _remade(truth, domains, list(case.turned.values()), loops, rng, seed)
    plddt, errors = _confidence(truth, relaxed, domains, rng)
    _write_prediction(folder / "predicted.pdb", truth, _placed(truth, relaxed, domains, seed), plddt)
    rounded = np.round(errors, 1).tolist()
    (folder / "pae.json").write_text(json.dumps([{"predicted_aligned_error": rounded}]))
    relative = relative_b_factors(truth.topology, truth.positions)
    noisy_maps(truth.topology, truth.positions, case.resolution, relative, seed).full.write(
        folder / "map.mrc"
    )
    files = {"model": "predicted.pdb", "map": "map.mrc", "reference": "truth.pdb"}
    return {key: f"{name}/{file}" for key, file in files.items()} | {"resolution": case.resolution}


def _as_sequence(source: Path, folder: Path) -> Path:
    """Write a model of what a predictor is given: no modified residues."""
    structure = gemmi.read_structure(str(source))
    atoms = {"PTR": ("P", "O1P", "O2P", "O3P"), "TYS": ("S", "O1", "O2", "O3")}
    parents = {"MSE": "MET", "PTR": "TYR", "TYS": "TYR"}
    for chain in structure[0]:
        for residue in chain:
            if residue.name in parents:
                for name in atoms.get(residue.name, ()):
                    residue.remove_atom(name, "\0", gemmi.Element(name[0]))
                for atom in residue:
                    if atom.name == "SE":
                        atom.name, atom.element = "SD", gemmi.Element("S")
                residue.name, residue.het_flag = parents[residue.name], "A"
        for row in reversed(range(len(chain))):
            if chain[row].name == "CRO":
                del chain[row]
    path = folder / "sequence.cif"
    structure.make_mmcif_document().write_file(str(path))
    return path


def _trace(model: Model) -> np.ndarray:
    return np.array([atom.index for atom in model.topology.atoms() if atom.name == "CA"])


def _domains(model: Model, case: Case) -> np.ndarray:
    """Return the domain of each residue, 0 for what is not turned."""
    records = [model.records[atom] for atom in _trace(model)]
    result = np.zeros(len(records), dtype=np.int64)
    for number, stretches in enumerate(case.turned, start=1):
        for stretch in stretches.split(","):
            chain, _, ends = stretch.partition(":")
            first, last = map(int, ends.split("-"))
            for row, record in enumerate(records):
                if record.chain == chain and first <= record.residue_number <= last:
                    result[row] = number
    return result


def _loops(model: Model, domains: np.ndarray, count: int) -> list[np.ndarray]:
    """Return the most exposed stretches without helix or strand, within one domain and unbroken, none near another."""
    trace = _trace(model)
    places = model.positions[trace]
    topology = mdtraj.Topology.from_openmm(model.topology)
    kinds = mdtraj.compute_dssp(mdtraj.Trajectory(model.positions / ANGSTROM_PER_NANOMETER, topology))[0]
    buried = (cdist(places, places) < 10).sum(axis=1)
    steps = np.linalg.norm(np.diff(places, axis=0), axis=1)
    found: list[tuple[float, int]] = []
    for first in range(2, len(trace) - LOOP - 2):
        rows = slice(first, first + LOOP)
        whole = (steps[first - 2 : first + LOOP + 1] < 4.5).all() and len(
            set(domains[first - 2 : first + LOOP + 2])
        ) == 1
        if whole and (kinds[rows] == "C").mean() > 0.6:
            found.append((float(buried[rows].mean()), first))
    chosen: list[int] = []
    for _, first in sorted(found):
        if all(abs(first - other) > 2 * LOOP for other in chosen) and len(chosen) < count:
            chosen.append(first)
    return [np.arange(first, first + LOOP) for first in chosen]


def _remade(
    model: Model,
    domains: np.ndarray,
    angles: list[float],
    loops: list[np.ndarray],
    rng: np.random.Generator,
    seed: int,
) -> np.ndarray:
    """Return relaxed positions with domains turned and other loops; both are drawn again where atoms lie in one another."""
    while True:
        moved = _bulged(model, _turned(model, domains, angles, rng), loops, rng)
        try:
            return _relaxed(replace(model, positions=moved), model, seed)
        except openmm.OpenMMException as error:
            print(f"drawn again: {error}", file=sys.stderr)


def _turned(model: Model, domains: np.ndarray, angles: list[float], rng: np.random.Generator) -> np.ndarray:
    """Return positions with each domain turned about its hinge, about that of many axes with which it clashes least."""
    trace = _trace(model)
    positions, residue_of = model.positions.copy(), _residue_of(model)
    for number, angle in enumerate(angles, start=1):
        own = domains == number
        amount = uniform_filter1d(own.astype(float), 2 * BLEND + 1)
        places = positions[trace]
        ends = np.flatnonzero(np.diff(own.astype(int)))
        near = np.linalg.norm(places[ends] - places[ends + 1], axis=1) < 4.5
        # Where no chain leads over, as between chains, about where the two touch.
        touching = places[own][cdist(places[own], places[~own]).min(axis=1) < 8]
        hinge = places[ends[near]].mean(axis=0) if near.any() else touching.mean(axis=0)

        axes = rng.normal(size=(200, 3))
        axes /= np.linalg.norm(axes, axis=1)[:, None]
        there = [
            Rotation.from_rotvec(np.radians(angle) * each).apply(places[own] - hinge) + hinge for each in axes
        ]
        axis = axes[np.argmin([(cdist(each, places[~own]) < 5).sum() for each in there])]
        turns = Rotation.from_rotvec(np.radians(angle) * amount[residue_of][:, None] * axis)
        positions = turns.apply(positions - hinge) + hinge
    return positions


def _bulged(
    model: Model, positions: np.ndarray, loops: list[np.ndarray], rng: np.random.Generator
) -> np.ndarray:
    """Return positions with loops moved away from the rest, and along themselves by chance."""
    residue_of, trace = _residue_of(model), _trace(model)
    shifts = np.zeros((len(trace), 3))
    for rows in loops:
        middle = positions[trace[rows]].mean(axis=0)
        outward = middle - positions[trace][np.linalg.norm(positions[trace] - middle, axis=1) < 15].mean(
            axis=0
        )
        way = outward / np.linalg.norm(outward) + 0.7 * rng.normal(size=3)
        shape = np.sin(np.pi * (np.arange(LOOP) + 0.5) / LOOP)
        shifts[rows] = BULGE * shape[:, None] * way / np.linalg.norm(way)
    return positions + shifts[residue_of]


def _relaxed(model: Model, truth: Model, seed: int) -> np.ndarray:
    """Return positions after a short simulation with the Cα held by springs."""
    prepared = prepare(truth)
    atoms = prepared.prepared_index[_trace(model)].tolist()
    there = model.positions[_trace(model)] / ANGSTROM_PER_NANOMETER
    # What the preparation built goes with the residue's Cα.
    built = prepared.positions.copy()
    residues = np.array([atom.residue.index for atom in prepared.topology.atoms()])
    shift = (model.positions - truth.positions)[_trace(model)]
    built += shift[residues]
    known = prepared.input_index >= 0
    built[known] = model.positions[prepared.input_index[known]]
    displaced = Displacement(
        replace(prepared, positions=built), springs(atoms, there, there, HOLD), "CPU", seed
    )
    displaced.step(1000, 300.0)
    return displaced.relaxed(pulled=True)


def _confidence(
    truth: Model, positions: np.ndarray, domains: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return pLDDT (R,) and expected errors (R, R) in Å: row by which residue is superposed, column whose error it is."""
    trace = _trace(truth)
    true, found = truth.positions[trace], positions[trace]
    apart = cdist(true, true)
    counts = (apart < 15) & (apart > 0) & (domains[:, None] == domains)
    off = np.abs(cdist(found, found) - apart)
    kept = np.mean([off < limit for limit in (0.5, 1, 2, 4)], axis=0)
    plddt = 100 * (kept * counts).sum(axis=1) / counts.sum(axis=1)
    plddt = np.clip(uniform_filter1d(plddt, 3) + rng.normal(scale=3, size=len(plddt)), 20, 97)
    errors = np.empty((len(trace), len(trace)))
    for number in np.unique(domains):
        own = domains == number
        rotation, shift = superposition(found[own], true[own])
        error = np.linalg.norm(found @ rotation.T + shift - true, axis=1)
        errors[own] = np.minimum(0.8 + error[None] + 0.5 * error[own][:, None], 30)
    return plddt, errors * np.exp(0.2 * rng.normal(size=errors.shape))


def _placed(truth: Model, positions: np.ndarray, domains: np.ndarray, seed: int) -> np.ndarray:
    """Return positions with the largest domain where it belongs; of odd seeds anywhere."""
    if seed % 2:
        turn = Rotation.random(random_state=seed)
        return turn.apply(positions - positions.mean(axis=0))
    own = _trace(truth)[domains == np.bincount(domains).argmax()]
    rotation, shift = superposition(positions[own], truth.positions[own])
    return positions @ rotation.T + shift


def _residue_of(model: Model) -> np.ndarray:
    return np.array([atom.residue.index for atom in model.topology.atoms()])


def _write_prediction(path: Path, model: Model, positions: np.ndarray, plddt: np.ndarray) -> None:
    write_pdb(path, model, positions)
    structure = gemmi.read_structure(str(path))
    residues = (residue for chain in structure[0] for residue in chain)
    for residue, value in zip(residues, plddt):
        for atom in residue:
            atom.b_iso = float(value)
    structure.write_pdb(str(path))


def make(folder: Path, names: list[str]) -> None:
    """Write cases, and the table of jobs, each with and without the expected errors."""
    data = Path(os.environ.get("OPENMM_DENSITY_DATA", PROJECT.parent / "shared" / "data"))
    rows = []
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=get_context("spawn")) as pool:
        made = [pool.submit(make_case, name, folder, data, list(CASES).index(name)) for name in names]
        for name, case in zip(names, made):
            if case.exception() is not None:
                print(f"{name} could not be made: {case.exception()}", file=sys.stderr)
                continue
            job = case.result() | {"predicted": "yes"}
            rows += [
                job | {"name": f"{name}_pae", "pae": f"{name}/pae.json"},
                job | {"name": name, "pae": ""},
            ]
    with open(folder / "jobs.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def judge(folder: Path, fits: str) -> None:
    """Print the Cα RMSD to the truth of confident residues, before and after, of all cases that are fitted."""
    print("| case | Cα RMSD (Å) of confident residues: prediction, superposed | fitted | all residues | CC |")
    print("| --- | --- | --- | --- | --- |")
    with open(folder / "jobs.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        summary = folder / fits / row["name"] / "summary.json"
        if not summary.exists():
            continue
        truth, start = (read_model(folder / row[key], predicted=False) for key in ("reference", "model"))
        sure = np.array([start.b_factors[atom] for atom in _trace(start)]) >= CONFIDENT
        written = (summary.parent / name for name in ("fitted_input.cif", "fitted.pdb"))
        fitted = read_model(next(path for path in written if path.exists()), predicted=False)
        a, b, c = (model.positions[_trace(model)] for model in (truth, start, fitted))
        rotation, shift = superposition(b[sure], a[sure])
        before = np.linalg.norm(b @ rotation.T + shift - a, axis=1)
        after = min((np.linalg.norm(c - a[rows], axis=1) for rows in _exchanged(truth)), key=np.linalg.norm)
        cc = json.loads(summary.read_text())["cc_final"]
        figures = (np.sqrt((each**2).mean()) for each in (before[sure], after[sure], after))
        print(f"| {row['name']} | {' | '.join(f'{each:.2f}' for each in figures)} | {cc:.3f} |")


def _exchanged(model: Model) -> Iterator[np.ndarray]:
    """Yield the rows of residues with chains of one sequence exchanged in every way: a map does not tell which is which."""
    chains: dict[str, list[int]] = {}
    for row, atom in enumerate(_trace(model)):
        chains.setdefault(model.records[atom].chain, []).append(row)
    names = [atom.residue.name for atom in model.topology.atoms() if atom.name == "CA"]
    kinds: dict[tuple[str, ...], list[str]] = {}
    for chain, rows in chains.items():
        kinds.setdefault(tuple(names[row] for row in rows), []).append(chain)
    for orders in product(*(permutations(each) for each in kinds.values())):
        other = {one: two for each, order in zip(kinds.values(), orders) for one, two in zip(each, order)}
        yield np.concatenate([chains[other[chain]] for chain in chains])


def main() -> None:
    """Make cases, or judge fits."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("make", "judge"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--fits", default="fits", help="the folder of fits in FOLDER (%(default)s)")
    options = parser.parse_args()
    if options.what == "judge":
        judge(options.folder, options.fits)
    else:
        make(options.folder, options.cases.split(","))


if __name__ == "__main__":
    main()
