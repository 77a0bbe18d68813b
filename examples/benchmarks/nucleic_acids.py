"""Fit displaced DNA and RNA into simulated maps of known models: how near they end, and what becomes of pairs, puckers, suites.

    python examples/benchmarks/nucleic_acids.py [--cases 1bna,4p5j] [--starts heat,modes] [--resolutions 2.5,3.5,5] [--output DIR]

Truths are deposited models without ligands and water, as a rule in folder ``zoo`` of $OPENMM_DENSITY_DATA, else of ../shared/data
beside the project. Starts are made once and kept: by molecular dynamics at 500 K without a map, or bent along low normal modes.
Rows are added to DIR/fits.jsonl as they come, models to DIR/fitted; --tabulate FILES shows what files hold, and fits nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import gemmi
import numpy as np
from known_truth import displaced_by_heat, displaced_by_modes, protein_alone, rmsd_to_truth

from openmm_density import DensityMap
from openmm_density.fitting import FlexibleFit, find_protocol
from openmm_density.models import Model, read_model
from openmm_density.models.structure_files import write_pdb
from openmm_density.validation.nucleic_acids import NucleicAcidReport, NucleicAcids, base_pair_changes

PROJECT = Path(__file__).resolve().parents[2]
CASES = {
    "1bna": ("1bna_dna.pdb.gz", 1.0, 1.5),
    "104d": ("104D_v30.pdb.gz", 1.0, 1.5),
    "4p5j": ("4p5j_rna.pdb.gz", 1.5, 3.0),
    "4gxy": ("4gxy_riboswitch_b12.cif.gz", 1.5, 3.0),
    "1j59": ("1j59_cap_dna.cif.gz", 1.5, 3.0),
    "3mht": ("3mht_mtase_dna.pdb.gz", 1.5, 3.0),
    "trna": ("trna_eftu.pdb.gz", 1.5, 3.0),
}
"""Files, and the RMSD in Å of Cα and C1' of starts that are heated and bent."""
GOALS = {2.5: 0.5, 3.5: 0.8, 5.0: 1.5}
"""Å by resolution: the largest RMSD of all atoms to the truth."""


def models(case: str, start: str, output: Path, platform: str) -> tuple[Model, Model]:
    """Return the truth and a start of a case, which are made once."""
    file, heated, bent = CASES[case]
    folder = output / "models"
    truth, goal = folder / f"{case}.pdb", folder / f"{case}-{start}.pdb"
    folder.mkdir(parents=True, exist_ok=True)
    if not truth.exists():
        data = Path(os.environ.get("OPENMM_DENSITY_DATA", PROJECT.parent / "shared" / "data"))
        structure = gemmi.read_structure(str(data / "zoo" / file))
        for chain in list(structure[0]):  # some have protein and RNA in one
            parts = [[r for r in chain if _is_nucleic(r) == nucleic] for nucleic in (False, True)]
            is_protein = any(gemmi.find_tabulated_residue(r.name).is_amino_acid() for r in parts[0])
            if is_protein and parts[1]:
                taken = {each.name for each in structure[0]}
                free = next(name for name in ascii_uppercase if name not in taken)
                own, nucleic = gemmi.Chain(chain.name), gemmi.Chain(free)
                own.append_residues(parts[0])
                nucleic.append_residues(parts[1])
                structure[0].remove_chain(chain.name)
                structure[0].add_chain(own)
                structure[0].add_chain(nucleic)
        parted = folder / f"{case}-parted.pdb"
        structure.write_pdb(str(parted))
        protein_alone(parted, truth)
    if not goal.exists():
        known = read_model(truth)
        how, rmsd = (displaced_by_heat, heated) if start == "heat" else (displaced_by_modes, bent)
        displaced = how(known, rmsd, platform)
        write_pdb(goal, known, displaced)
    return read_model(truth), read_model(goal)


def _is_nucleic(residue: gemmi.Residue) -> bool:
    return gemmi.find_tabulated_residue(residue.name).is_nucleic_acid()


def fit(case: str, start: str, resolution: float, asked: argparse.Namespace) -> dict[str, Any]:
    """Fit, and return the figures of one row."""
    truth, displaced = models(case, start, asked.output, asked.platform)
    density_map = DensityMap.simulate(
        truth.topology, truth.positions, resolution, resolution / 3, noise=0.05, seed=1
    )
    protocol = find_protocol(asked.protocol, resolution)
    if asked.suites:
        protocol = replace(
            protocol,
            stages=[replace(each, restraints=(*each.restraints, "suites")) for each in protocol.stages],
        )
    begun = time.perf_counter()
    result = FlexibleFit(
        displaced,
        density_map,
        resolution,
        protocol,
        platform=asked.platform,
        threads=asked.threads,
        place="off",
        search=asked.search,
    ).run()
    seconds = time.perf_counter() - begun
    final = result.prepared.input_positions(result.as_simulated().final)
    fitted = asked.output / "fitted" / f"{case}-{start}-{resolution:g}.pdb"
    fitted.parent.mkdir(exist_ok=True)
    write_pdb(fitted, displaced, final)
    of = NucleicAcids(truth.topology)
    known, began, ended = (of.report(each) for each in (truth.positions, displaced.positions, final))
    return {
        "case": case,
        "start": start,
        "resolution": resolution,
        "protocol": asked.protocol,
        "search": asked.search,
        "suites_held": asked.suites,
        "rmsd": [rmsd_to_truth(truth, each) for each in (displaced.positions, final)],
        "cc": [result.cc_initial, result.cc_final],
        "pairs": len(known.base_pairs),
        "pairs_kept": [_kept(known, each) for each in (began, ended)],
        "pairs_lost": [base_pair_changes(known, each)["base_pairs_lost"] for each in (began, ended)],
        "pucker_outliers": [len(each.pucker_outliers) for each in (known, began, ended)],
        "puckers_made": sorted({*ended.pucker_outliers} - {*known.pucker_outliers}),
        "suites": known.suite_count,
        "suite_outliers": [len(each.suite_outliers) for each in (known, began, ended)],
        "sugars": [
            each for search in result.found.get("rebuilding", ()) for each in search.get("sugars", ())
        ],
        "seconds": seconds,
    }


def _kept(known: NucleicAcidReport, found: NucleicAcidReport) -> int:
    return len(known.base_pairs) - len(base_pair_changes(known, found)["base_pairs_lost"])


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Return rows as Markdown."""
    lines = [
        "| model, start | resolution (Å) | RMSD, start → end (Å) | goal | pairs kept, start → end "
        "| pucker outliers, truth, start → end | suite outliers, the same | CC, start → end | s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in sorted(rows, key=lambda each: (each["case"], each["start"], each["resolution"])):
        (began, ended), (cc_began, cc_ended) = row["rmsd"], row["cc"]
        puckers, suites = (
            f"{known}, {first} → {last}"
            for known, first, last in (row["pucker_outliers"], row["suite_outliers"])
        )
        pairs = row["pairs_kept"]
        lines.append(
            f"| {row['case']}, {row['start']} | {row['resolution']:g} | {began:.2f} → {ended:.2f} "
            f"| {GOALS.get(row['resolution'], np.nan):g} | {pairs[0]} → {pairs[1]} of {row['pairs']} | {puckers} | {suites} "
            f"| {cc_began:.3f} → {cc_ended:.3f} | {row['seconds']:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Fit what is asked for, and print a table of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--starts", default="heat,modes")
    parser.add_argument("--resolutions", default="2.5,3.5,5")
    parser.add_argument("--protocol", default="standard")
    parser.add_argument("--search", default="auto", choices=("off", "auto", "full"))
    parser.add_argument("--suites", action="store_true", help="hold the backbone's suites as well")
    parser.add_argument("--platform", default="CPU")
    parser.add_argument("--threads", type=int, default=1, help="of each fit on a CPU")
    parser.add_argument("--jobs", type=int, default=1, help="fits at once")
    parser.add_argument("--output", type=Path, default=Path("nucleic_acids"))
    parser.add_argument("--tabulate", type=Path, nargs="+", help="files of rows")
    parser.add_argument("--only-make", action="store_true", help="make truths and starts alone")
    asked = parser.parse_args()
    if asked.tabulate:
        lines = [line for file in asked.tabulate for line in file.read_text().splitlines()]
        print(table(map(json.loads, lines)))
        return
    pairs = list(product(asked.cases.split(","), asked.starts.split(",")))
    for case, start in pairs:
        _, displaced = models(case, start, asked.output, asked.platform)
        if asked.only_make:
            print(case, start, len(displaced.positions), "atoms")
    if asked.only_make:
        return
    tasks = [(*pair, float(resolution)) for pair in pairs for resolution in asked.resolutions.split(",")]
    rows = []
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn")) as pool:
        for future in [pool.submit(fit, *task, asked) for task in tasks]:
            try:
                rows.append(future.result())
            except Exception as error:  # the others are wanted all the same
                print(f"a fit failed: {error}", file=sys.stderr)
                continue
            with (asked.output / "fits.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
