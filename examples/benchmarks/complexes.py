"""What a fit of a complex takes, and its searches find, where parts of a predicted start are wrong.

Haemoglobins in a row: the deposited model of EMD-3488 is the target, simulated with noise as `noisy_maps` has it, and another
model of haemoglobin (5ME2), 0.7 Å away, the start, as if it were predicted. In the start stretches of helices are out of register
by one residue, loops turned over, and side chains in other rotamers.

    python examples/benchmarks/complexes.py --copies 2 --resolution 3.2 --json complexes.json -- --platform CUDA
    python examples/benchmarks/complexes.py --stretches 0 5 20 60 -- --search full --steps 300
    python examples/benchmarks/complexes.py --folder case --only-make

What follows ``--`` are options of `fit`. Models are in $OPENMM_DENSITY_DATA, else in ../shared/data beside the project.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import gemmi
import numpy as np
from noisy_maps import noisy_maps, relative_b_factors
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from openmm_density.base.atomic_files import write_text
from openmm_density.extensions.rebuilding.molecule import Molecule
from openmm_density.extensions.rebuilding.register_search import FLANK, RegisterSearch, Stretch
from openmm_density.extensions.rebuilding.side_chains import set_torsion, turning_side_chain
from openmm_density.models import Model, read_model
from openmm_density.models.structure_files import write_cif

DATA = Path(os.environ.get("OPENMM_DENSITY_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
FOLDER, TARGET, START = "emd3488_5ni1", "5ni1_updated.cif", "5me2.pdb"
SPACING = 75.0
"""Å from one copy to the next."""
SHIFTED = "shifted.json"
LENGTH = 8
"""Residues of a stretch out of register, without its flanks."""
PER_STRETCH, PER_LOOP, PER_ROTAMER = 300, 300, 30
"""Residues for each that is wrong, where the number is not given."""


def row_of(path: Path, copies: int, written: Path) -> Model:
    """Write copies of a model in a row, each chain one of its own, without water and hydrogens; return them."""
    structure = gemmi.read_structure(str(path))
    structure.setup_entities()
    structure.remove_waters()
    structure.remove_hydrogens()
    row, model = gemmi.Structure(), gemmi.Model(1)
    for number in range(copies):
        for chain in structure[0]:
            copy = chain.clone()
            copy.name = f"{chain.name}{number}"
            for residue in copy:
                for atom in residue:
                    atom.pos += gemmi.Position(SPACING * number, 0, 0)
            model.add_chain(copy)
    row.add_model(model)
    row.setup_entities()
    row.assign_label_seq_id()
    row.make_mmcif_document().write_file(str(written))
    return read_model(written)


def make_case(folder: Path, copies: int, resolution: float, stretches: int | None, seed: int) -> None:
    """Write target.cif, map.mrc, start.cif, and the rows of the residues of the start that are out of register."""
    target = row_of(DATA / FOLDER / TARGET, copies, folder / "target.cif")
    relative = relative_b_factors(target.topology, target.positions, seed)
    noisy_maps(target.topology, target.positions, resolution, relative, seed).full.write(folder / "map.mrc")
    start = row_of(DATA / FOLDER / START, copies, folder / "start.cif")
    positions, shifted, wrong = damaged(start, stretches, np.random.default_rng(seed))
    residue_of = np.array([atom.residue.index for atom in start.topology.atoms()])
    write_cif(folder / "start.cif", start.topology, positions, plddt(positions, residue_of, wrong))
    text = (folder / "start.cif").read_text(encoding="utf-8")
    write_text(folder / "start.cif", "data_AlphaFold" + text[text.index("\n") :])
    write_text(folder / SHIFTED, json.dumps(shifted))


def damaged(
    model: Model, stretches: int | None, random: np.random.Generator
) -> tuple[np.ndarray, list[int], list[int]]:
    """Return positions in which parts are wrong, the rows of residues out of register, and of all that is wrong."""
    topology, positions = model.topology, model.positions.copy()
    search, molecule = RegisterSearch(topology), Molecule(topology)
    n_residues = sum(map(len, search.chains))
    n_shifted = round(n_residues / PER_STRETCH) if stretches is None else stretches
    room = LENGTH + 2 * FLANK
    places = [
        (chain, first) for chain in search.chains for first in range(FLANK, len(chain) - room + FLANK, room)
    ]
    random.shuffle(places)
    shifted = []
    for number, (chain, first) in enumerate(places[:n_shifted]):
        stretch = Stretch(chain, first, first + LENGTH - 1)
        positions = search.shifted(positions, [stretch], 1 - 2 * (number % 2))
        shifted += chain[first : first + LENGTH].tolist()
    named = [{atom.name: atom.index for atom in residue.atoms()} for residue in topology.residues()]
    loops = []
    for chain, first in places[n_shifted : n_shifted + round(n_residues / PER_LOOP) * (stretches != 0)]:
        before, turned, behind = (named[row] for row in chain[first : first + 3].tolist())
        moving = [*turned.values(), before["C"], before["O"], behind["N"]]
        at, to = positions[before["CA"]], positions[behind["CA"]]
        about = Rotation.from_rotvec(np.pi * (to - at) / np.linalg.norm(to - at))
        positions[moving] = at + about.apply(positions[moving] - at)
        loops.append(int(chain[first + 1]))
    is_fitted = np.ones(len(positions), dtype=bool)
    chains = [turning_side_chain(molecule, residue, is_fitted) for residue in topology.residues()]
    turning = [each for each in chains if each is not None and each.residue not in {*shifted, *loops}]
    random.shuffle(turning)
    wrong = turning[: round(n_residues / PER_ROTAMER) * (stretches != 0)]
    for chain in wrong:
        quadruple, moved = chain.torsions[0]
        (other,) = chain.torsion_angles(positions)[:1] + random.choice([120.0, 240.0])
        conformation = positions[chain.atoms][None]
        set_torsion(conformation, quadruple, moved, np.array([other]))
        positions[chain.atoms] = conformation[0]
    return positions, shifted, [*shifted, *loops, *(chain.residue for chain in wrong)]


def plddt(positions: np.ndarray, residue_of: np.ndarray, wrong: list[int]) -> np.ndarray:
    """Return what a prediction says of each atom: more where it is buried, less where it is wrong."""
    neighbours = cKDTree(positions).query_ball_point(positions, 10.0, return_length=True)
    by_residue = np.bincount(residue_of, neighbours) / np.bincount(residue_of)
    ranks = by_residue.argsort().argsort() / len(by_residue)
    values = 75 + 22 * ranks
    values[wrong] -= 20
    return values[residue_of].round(2)


def in_register(folder: Path, model: Path, rows: list[int]) -> int:
    """Return how many of some residues have their Cα nearest to their own Cα of the target, and nearer than 2 Å."""
    target, found = ({}, {})
    for path, alphas in ((folder / "target.cif", target), (model, found)):
        for chain in gemmi.read_structure(str(path))[0]:
            for residue in chain:
                if (alpha := residue.find_atom("CA", "*")) is not None:
                    alphas[chain.name, residue.seqid.num] = alpha.pos.tolist()
    names, places = list(target), np.array(list(target.values()))
    keys = [
        (chain.name, residue.seqid.num)
        for chain in gemmi.read_structure(str(folder / "start.cif"))[0]
        for residue in chain
    ]
    wanted = [keys[row] for row in rows if keys[row] in target and keys[row] in found]
    if not wanted:
        return 0
    apart, nearest = cKDTree(places).query([found[key] for key in wanted])
    return sum(
        names[at] == key and distance < 2 for at, distance, key in zip(nearest, apart.tolist(), wanted)
    )


def fitted(folder: Path, resolution: float, options: list[str]) -> dict[str, Any]:
    """Fit a case; return what it took and found."""
    shifted = json.loads((folder / SHIFTED).read_text(encoding="utf-8"))
    given = [str(folder / "start.cif"), str(folder / "map.mrc"), "--resolution", f"{resolution:g}"]
    given += ["--reference", str(folder / "target.cif"), "--output", str(folder / "fit"), "--overwrite"]
    with open(folder / "fit.log", "w", encoding="utf-8") as log:
        command = [sys.executable, "-m", "openmm_density", "fit", *given, *options]
        status = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    if status:
        raise SystemExit((folder / "fit.log").read_text(encoding="utf-8")[-2000:])
    summary = json.loads((folder / "fit" / "summary.json").read_text(encoding="utf-8"))
    searches = [each for each in summary["rebuilding"] if not each["undone"]]
    names = ("stretches", "peptides", "side_chains")
    return {
        "residues": sum(map(len, gemmi.read_structure(str(folder / "start.cif"))[0])),
        "atoms": summary["n_atoms"],
        "wrong": len(shifted),
        "in_register": [
            in_register(folder, folder / name, shifted) for name in ("start.cif", "fit/fitted.cif")
        ],
        "cc": [summary["cc_initial"], summary["cc_final"]],
        "seconds": summary["wall_seconds"],
        "parts": summary["seconds_by_part"],
        "within": summary["seconds_within"],
        **{name: sum(len(each[name]) for each in searches) for name in names},
        "searches": [
            {name: each[name] for name in ("stage", "wall_seconds", "work", "places_tried", "left_out")}
            for each in summary["rebuilding"]
        ],
        **{name: value for name, value in summary.items() if "rmsd" in name},
    }


def main() -> None:
    """Make each case and fit it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--copies", type=int, default=2, help="haemoglobins in a row, of 566 residues each")
    parser.add_argument("--resolution", type=float, default=3.2)
    parser.add_argument("--stretches", type=int, nargs="*", help="out of register (one for 300 residues)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--folder", type=Path, help="where one case is kept, or was made")
    parser.add_argument("--only-make", action="store_true", help="make the case, and no more")
    parser.add_argument("options", nargs="*", help="options of fit, behind --")
    asked = parser.parse_args()
    told = []
    for stretches in asked.stretches or [None]:
        with tempfile.TemporaryDirectory() as name:
            folder = asked.folder or Path(name)
            folder.mkdir(exist_ok=True)
            if not (folder / SHIFTED).exists():
                make_case(folder, asked.copies, asked.resolution, stretches, asked.seed)
            if asked.only_make:
                return
            told.append({"made_wrong": stretches} | fitted(folder, asked.resolution, asked.options))
        print(json.dumps(told[-1]), flush=True)
        if asked.json:
            write_text(asked.json, json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
