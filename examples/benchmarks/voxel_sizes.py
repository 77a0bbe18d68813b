"""Fit models into maps whose voxel size is right, and wrong by 2 to 4%; tabulate which are doubted, before the fit and after it.

    python examples/benchmarks/voxel_sizes.py [CASES...] [--data DIR] [--json FILE]

Right maps with good and bad starts, and the same maps with a wrong voxel size. Maps, models and the zoo are in DIR:
$OPENMM_DENSITY_DATA, else ../shared/data beside the project. Each of the fits (quick, 300 steps, no searches) takes about half a
minute; a case that FILE holds already is not fitted again.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gemmi
import numpy as np
from known_truth import low_modes

from openmm_density import DensityMap
from openmm_density.base.atomic_files import write_text
from openmm_density.fitting import FlexibleFit, find_protocol
from openmm_density.fitting.map_examination import examine_fitted
from openmm_density.models import Model, read_model

PROJECT = Path(__file__).resolve().parents[2]
STEPS = 300
BENT = 2.0
"""Å by which a start is displaced along its lowest normal modes."""
NOISE, SEED = 0.1, 1
MARGIN = 12.0
CHECKS = ("voxel_size", "stretching")


@dataclass(frozen=True)
class Case:
    """A start, part of it, and its map: simulated from the start before it was bent where none is named.

    `wrong` is the factor of a wrong voxel size.
    """

    start: str
    resolution: float
    wrong: float
    map_file: str | None = None
    most: int = 100
    chain: str | None = None
    seed: int | None = None

    def read(self, data: Path, factor: float) -> tuple[Model, DensityMap]:
        """Return the start, and its map with voxels that are larger by a factor, around where the start is."""
        start = _part(data / self.start, self.chain, self.most)
        if self.map_file is not None:
            density_map = DensityMap.from_file(data / self.map_file).crop(start.positions, MARGIN)
        else:
            density_map = DensityMap.simulate(
                start.topology,
                start.positions,
                self.resolution,
                self.resolution / 4,
                noise=NOISE,
                seed=SEED,
            )
        if self.seed is not None:
            start = replace(start, positions=bent(start, self.seed))
        centre = start.positions.mean(axis=0)
        origin = centre + factor * (density_map.origin - centre)
        return start, replace(density_map, matrix=density_map.matrix * factor, origin=origin)


def _part(path: Path, chain: str | None, most: int) -> Model:
    """Return the first residues of a chain, without hydrogens, waters and all but the first of alternates."""
    structure = gemmi.read_structure(str(path))
    structure.setup_entities()
    structure.remove_alternative_conformations()
    structure.remove_hydrogens()
    structure.remove_ligands_and_waters()
    structure.connections.clear()
    while len(structure) > 1:
        del structure[1]
    left = most
    for name in [each.name for each in structure[0]]:
        if chain not in (None, name) or not left:
            structure[0].remove_chain(name)
            continue
        del structure[0][name][left:]
        left -= len(structure[0][name])
    structure.remove_empty_chains()
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, path.stem.removesuffix(".pdb").removesuffix(".cif") + ".pdb")
        structure.write_pdb(str(written))
        return read_model(written)


def bent(model: Model, seed: int) -> np.ndarray:
    """Return positions (Å) with each residue moved along low normal modes, each as much as heat would make it."""
    atoms = list(model.topology.atoms())
    named = {atom.residue.index: atom.index for atom in atoms if atom.name in ("C1'", "CA")}
    values, modes = low_modes(model.positions[list(named.values())])
    amplitudes = np.random.default_rng(seed).standard_normal(len(values)) / np.sqrt(values)
    moved = np.einsum("m,mij->ij", amplitudes, modes)
    moved *= BENT / np.sqrt((moved**2).sum(axis=1).mean())
    row = {residue: k for k, residue in enumerate(named)}
    return model.positions + moved[[row[atom.residue.index] for atom in atoms]]


def _starts(entry: str, resolution: float, wrong: tuple[float, float, float]) -> dict[str, Case]:
    folder = f"emd{entry}_frag"
    return {
        f"{entry}-{name}": Case(
            f"{folder}/{entry}_{name}.pdb", resolution, factor, f"{folder}/emd{entry}.mrc.gz"
        )
        for name, factor in zip(("native", "original_1", "original_2"), wrong)
    }


_HAEMOGLOBIN, _SPIKE = "emd3488_5ni1/emd_3488.mrc", "emd21457_ntd/emd_21457_seg.mrc"
_KINESIN, _VIRUS = "emd6187_kinesin/chain_K_box.ccp4", "qr_6i5a/6i5a_box.ccp4"
CALIBRATION = {
    **_starts("5925", 3.64, (1.03, 0.97, 1.02)),
    "3488": Case("emd3488_5ni1/5ni1_updated.cif", 3.2, 1.04, _HAEMOGLOBIN, chain="A"),
    "3488-5me2": Case("emd3488_5ni1/5me2.pdb", 3.2, 0.96, _HAEMOGLOBIN, chain="A"),
    "21457": Case("emd21457_ntd/6vyb_Ndom.pdb", 3.2, 1.03, _SPIKE),
    "21457-bent": Case("emd21457_ntd/6vyb_Ndom.pdb", 3.2, 0.97, _SPIKE, seed=7),
    "adk-bent": Case("pair_adk/4ake_t.pdb", 4.0, 1.02, seed=1),
    "1a4w-bent": Case("zoo/1a4w_tys_inscode.pdb.gz", 5.0, 1.04, chain="H", seed=8),
    "DNA-bent": Case("zoo/1bna_dna.pdb.gz", 6.0, 0.96, seed=4),
    "RNA-bent": Case("zoo/4p5j_rna.pdb.gz", 6.0, 1.03, seed=6, most=60),
}
"""Of these the thresholds were chosen."""
HELD_OUT = {
    **_starts("6374", 2.9, (1.02, 0.98, 1.04)),
    "kinesin": Case("emd6187_kinesin/chain_K_box_complete.pdb", 5.0, 1.03, _KINESIN),
    "kinesin-1bg2": Case("emd6187_kinesin/1bg2_K_fitted.pdb", 5.0, 0.97, _KINESIN),
    "6i5a": Case("qr_6i5a/6i5a_box_complete.pdb", 2.3, 1.02, _VIRUS),
    "6i5a-bent": Case("qr_6i5a/6i5a_box_complete.pdb", 2.3, 0.98, _VIRUS, seed=3),
    "6i5a-bent-3.5": Case("qr_6i5a/6i5a_box_complete.pdb", 3.5, 1.04, seed=3),
    "3bwh-bent": Case("zoo/3bwh.cif.gz", 5.0, 0.96, chain="A", seed=10),
    "CAP-bent": Case("zoo/1j59_cap_dna.cif.gz", 4.0, 1.03, chain="A", seed=11),
    "CAP-DNA-bent": Case("zoo/1j59_cap_dna.cif.gz", 6.0, 0.97, seed=12, most=60),
    "3mht-DNA-bent": Case("zoo/3mht_mtase_dna.pdb.gz", 6.0, 1.02, seed=13, most=60),
    "rRNA-bent": Case("zoo/1nkw_rna_part.cif.gz", 6.0, 0.97, seed=9, most=60),
}
CASES = {**CALIBRATION, **HELD_OUT}


def fit_case(name: str, factor: float, data: Path) -> dict[str, Any]:
    """Fit a case into its map with voxels that are larger by a factor; return what is doubted, and the figures."""
    case = CASES[name]
    start, density_map = case.read(data, factor)
    protocol = find_protocol("quick", case.resolution).with_steps(STEPS)
    fit = FlexibleFit(start, density_map, case.resolution, protocol, search="off", place="off", threads=1)
    result = fit.run()
    later = examine_fitted(fit.fit_map, fit.solute, result).result()
    findings = fit.map_checks.with_later(later)
    return {
        "case": name,
        "factor": factor,
        "cc": [result.cc_initial, result.cc_final],
        "before": [each.check for each in fit.map_checks.findings if each.check in CHECKS],
        "after": [each.check for each in findings if each.check in CHECKS],
        "figures": [checks.figures for checks in (fit.map_checks, later)],
        "seconds": result.wall_seconds,
    }


def told(row: dict[str, Any], when: str) -> str:
    """Return whether what was doubted before or after a fit is right."""
    if row["factor"] == 1:
        return "in error" if row[when] else "right"
    return "found" if row[when] else "missed"


def tables(rows: list[dict[str, Any]]) -> str:
    """Return the answers as Markdown: for the cases of which thresholds were chosen, and for the others."""
    lines = []
    for title, cases in (("Calibration", CALIBRATION), ("Held out", HELD_OUT)):
        found = {name: [row for row in rows if row["case"] == name] for name in cases}
        lines += [f"{title}: {_counts([row for each in found.values() for row in each])}.\n", *_TABLE_HEAD]
        for name, fits in found.items():
            right, wrong = (
                [row for row in fits if (row["factor"] == 1) == is_right] for is_right in (True, False)
            )
            cells = [
                name,
                *_cells(right),
                "".join(f"{100 * (row['factor'] - 1):+.0f}%" for row in wrong),
                *_cells(wrong),
            ]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


_TABLE_HEAD = (
    "| start | CC in the right map | right map: at the start, fitted | error | CC | at the start, fitted |",
    "| --- | --- | --- | --- | --- | --- |",
)


def _cells(rows: list[dict[str, Any]]) -> list[str]:
    """Return the correlation and the answers of the fit of a case into one map, or nothing where it was not made."""
    for row in rows:
        return ["{:.2f} → {:.2f}".format(*row["cc"]), f"{told(row, 'before')}, {told(row, 'after')}"]
    return ["", ""]


def _counts(rows: list[dict[str, Any]]) -> str:
    """Return how many answers are right at the start and after the fit."""
    said = []
    for words, is_right, good in (
        ("right maps are doubted", True, "in error"),
        ("wrong ones are found", False, "found"),
    ):
        chosen = [row for row in rows if (row["factor"] == 1) == is_right]
        before, after = (sum(told(row, when) == good for row in chosen) for when in ("before", "after"))
        said.append(f"of {len(chosen)} {words} {before} at the start and {after} after the fit")
    return ", ".join(said)


def main() -> None:
    """Fit what is not fitted yet, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="*", metavar="CASES", help=f"which of {', '.join(CASES)} (all)")
    folder = Path(os.environ.get("OPENMM_DENSITY_DATA", PROJECT.parent / "shared" / "data"))
    parser.add_argument("--data", type=Path, default=folder, help="folder of maps and models")
    parser.add_argument("--json", type=Path, default=Path("voxel_sizes.json"), help="figures of each fit")
    arguments = parser.parse_args()
    rows = json.loads(arguments.json.read_text()) if arguments.json.exists() else []
    done = {(row["case"], row["factor"]) for row in rows}
    for name, case in CASES.items():
        for factor in (1.0, case.wrong):
            if (name, factor) in done or (arguments.cases and name not in arguments.cases):
                continue
            rows.append(fit_case(name, factor, arguments.data))
            write_text(arguments.json, json.dumps(rows, indent=1))
            print(name, factor, told(rows[-1], "before"), told(rows[-1], "after"), flush=True)
    print(tables(rows))


if __name__ == "__main__":
    main()
