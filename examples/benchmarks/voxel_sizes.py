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
    """A start, part of it, and its map: simulated from the start before it was bent where none is named."""

    start: str
    resolution: float
    map_file: str | None = None
    most: int = 100
    chain: str | None = None
    seed: int | None = None
    target: str | None = None

    def read(self, data: Path, factor: float) -> tuple[Model, DensityMap]:
        """Return the start, and its map with voxels that are larger by a factor, around where the start is."""
        start = _part(data / self.start, self.chain, self.most)
        if self.map_file is not None:
            density_map = DensityMap.from_file(data / self.map_file).crop(start.positions, MARGIN)
        else:
            target = start if self.target is None else _part(data / self.target, self.chain, self.most)
            density_map = DensityMap.simulate(
                target.topology,
                target.positions,
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
    for each in list(structure[0]):
        if chain not in (None, each.name) or not left:
            structure[0].remove_chain(each.name)
            continue
        del each[left:]
        left -= len(each)
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


def _starts(entry: str, resolution: float) -> dict[str, Case]:
    folder = f"emd{entry}_frag"
    return {
        f"{entry}-{name}": Case(f"{folder}/{entry}_{name}.pdb", resolution, f"{folder}/emd{entry}.mrc.gz")
        for name in ("native", *(f"original_{k}" for k in range(1, 6)))
    }


CASES = {
    **_starts("5925", 3.64),
    **_starts("6374", 2.9),
    "kinesin": Case("emd6187_kinesin/chain_K_box_complete.pdb", 5.0, "emd6187_kinesin/chain_K_box.ccp4"),
    "kinesin-1bg2": Case("emd6187_kinesin/1bg2_K_fitted.pdb", 5.0, "emd6187_kinesin/chain_K_box.ccp4"),
    "3488": Case("emd3488_5ni1/5ni1_updated.cif", 3.2, "emd3488_5ni1/emd_3488.mrc", chain="A"),
    "3488-5me2": Case("emd3488_5ni1/5me2.pdb", 3.2, "emd3488_5ni1/emd_3488.mrc", chain="A"),
    "21457": Case("emd21457_ntd/6vyb_Ndom.pdb", 3.2, "emd21457_ntd/emd_21457_seg.mrc"),
    "6i5a": Case("qr_6i5a/6i5a_box_complete.pdb", 2.3, "qr_6i5a/6i5a_box.ccp4"),
    "adk-bent": Case("pair_adk/4ake_t.pdb", 4.0, seed=1),
    "5925-bent": Case("emd5925_frag/5925_native.pdb", 5.0, seed=2),
    "6i5a-bent": Case("qr_6i5a/6i5a_box_complete.pdb", 3.5, seed=3),
    "DNA-bent": Case("zoo/1bna_dna.pdb.gz", 6.0, seed=4),
    "DNA-bent-2": Case("zoo/1bna_dna.pdb.gz", 6.0, seed=5),
    "RNA-bent": Case("zoo/4p5j_rna.pdb.gz", 6.0, seed=6, most=60),
    "adk": Case("pair_adk/1ake_s.pdb", 4.0, target="pair_adk/4ake_t.pdb", most=214),
}
FACTORS = (1.03, 0.97, 1.02, 0.98, 1.04, 0.96)
"""Of wrong voxel sizes: one for each case, in turn."""


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
    """Return whether what was doubted before or after a fit is right: "right", "missed" or "in error"."""
    if row["factor"] == 1:
        return "in error" if row[when] else "right"
    return "right" if row[when] else "missed"


def tables(rows: list[dict[str, Any]]) -> str:
    """Return the answers as Markdown: right maps, and maps with a wrong voxel size."""
    lines = []
    for title, chosen in (
        ("right voxel size", [row for row in rows if row["factor"] == 1]),
        ("wrong voxel size", [row for row in rows if row["factor"] != 1]),
    ):
        counts = {when: sum(told(row, when) == "right" for row in chosen) for when in ("before", "after")}
        lines += [
            f"{title}: right before the fit {counts['before']}, after it {counts['after']} of {len(chosen)}\n",
            "| case | voxels | CC | before | after |",
            "| --- | --- | --- | --- | --- |",
        ]
        lines += [
            f"| {row['case']} | {100 * (row['factor'] - 1):+.0f}% | {row['cc'][0]:.2f} → {row['cc'][1]:.2f} | "
            f"{told(row, 'before')} | {told(row, 'after')} |"
            for row in chosen
        ]
        lines.append("")
    return "\n".join(lines)


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
    for k, name in enumerate(CASES):
        for factor in (1.0, FACTORS[k % len(FACTORS)]):
            if (name, factor) in done or (arguments.cases and name not in arguments.cases):
                continue
            rows.append(fit_case(name, factor, arguments.data))
            write_text(arguments.json, json.dumps(rows, indent=1))
            print(name, factor, told(rows[-1], "before"), told(rows[-1], "after"), flush=True)
    print(tables(rows))


if __name__ == "__main__":
    main()
