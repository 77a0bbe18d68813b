"""Fit one unit of a symmetric assembly, its copies following, and compare with the fit of all copies.

Of closed adenylate kinase (PDB 1AKE) a ring of four (C4) or a piece of a helix is made, with a noisy map of it at 4 Å; the fit
starts from a unit that is bent and displaced. Run

    python examples/symmetric_assembly.py --output ring
    python examples/symmetric_assembly.py --kind helix --output helix
    python examples/symmetric_assembly.py --full --output ring_full      # all copies, for the time that it takes

It prints the correlation, how far Cα atoms are from the truth, and the processor time.
"""

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path

import gemmi
import numpy as np

from openmm_density import DensityMap
from openmm_density.extensions.symmetry import helix, point_group
from openmm_density.extensions.symmetry.groups import about
from openmm_density.models import read_model

RESOLUTION, VOXEL, NOISE = 4.0, 1.3, 0.3
UNIT = Path(__file__).parent / "data" / "adk_closed.pdb"
RISE, TWIST = 30.0, 75.0
# Å from the axis to the middle of the unit, which leaves copies in contact without clashes.
RADIUS = {"ring": 34.0, "helix": 36.0}


def main() -> None:
    """Make what is fitted, fit it, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=("ring", "helix"), default="ring")
    parser.add_argument("--full", action="store_true", help="fit all copies as one model, without symmetry")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("options", nargs="*", help="more options of the fit, after --")
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    word, rotations, translations = operators_of(asked.kind)
    unit = gemmi.read_structure(str(UNIT))
    unit.remove_hydrogens()
    place(unit, RADIUS[asked.kind])
    truth = asked.output / "truth.cif"
    write_copies(unit, rotations, translations, truth)
    density_map = noisy_map(truth)
    density_map.write(asked.output / "map.mrc")
    bend(unit)
    start = asked.output / "start.cif"
    if asked.full:
        write_copies(unit, rotations, translations, start)
    else:
        write_copies(unit, rotations[:1], translations[:1], start)
    symmetry = [] if asked.full else ["--symmetry", word]
    fit = asked.output / "fit"
    command = [sys.executable, "-m", "openmm_density", "fit", str(start), str(asked.output / "map.mrc")]
    command += ["--resolution", f"{RESOLUTION:g}", "--output", str(fit), "--overwrite", "--place", "off"]
    subprocess.run([*command, *symmetry, *asked.options], check=True)
    report(fit, truth, start)


def operators_of(kind: str) -> tuple[str, np.ndarray, np.ndarray]:
    """Return how the symmetry is named and its operators, about an axis that is not that of the box."""
    centre = np.array([3.0, -5.0, 8.0])
    tilt = gemmi_rotation(2.0)
    if kind == "ring":
        rotations = point_group("C4")
        return "C4", *about(rotations, np.zeros((len(rotations), 3)), tilt, centre)
    return f"helical:{RISE:g},{TWIST:g}", *about(*helix(RISE, TWIST, -2, 2), tilt, centre)


def gemmi_rotation(degrees: float) -> np.ndarray:
    """Return a rotation by so much about x."""
    cosine, sine = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    return np.array([[1, 0, 0], [0, cosine, -sine], [0, sine, cosine]])


def atoms_of(structure: gemmi.Structure) -> list[gemmi.Atom]:
    """Return all atoms of a structure's first model."""
    return [atom for chain in structure[0] for residue in chain for atom in residue]


def place(unit: gemmi.Structure, radius: float) -> None:
    """Put the middle of a unit so far from the axis."""
    middle = unit[0].calculate_center_of_mass()
    for atom in atoms_of(unit):
        atom.pos = gemmi.Position(atom.pos - middle + gemmi.Position(radius, 0, 0))


def bend(unit: gemmi.Structure) -> None:
    """Displace a unit by waves of 1.5 Å, longer than its helices, and by 1 Å as a whole."""
    for atom in atoms_of(unit):
        x, y, z = atom.pos.tolist()
        wave = 1.5 * np.sin(np.array([z / 14 + 1, x / 13, y / 12 + 2])) + np.array([0.6, -0.6, 0.5])
        atom.pos = gemmi.Position(*(np.array([x, y, z]) + wave))


def write_copies(unit: gemmi.Structure, rotations: np.ndarray, translations: np.ndarray, path: Path) -> None:
    """Write a unit's copies as chains A, B and so on."""
    structure, model = gemmi.Structure(), gemmi.Model("1")
    for k, (rotation, shift) in enumerate(zip(rotations, translations, strict=True)):
        for chain in unit[0]:
            copy = chain.clone()
            copy.name = "ABCDEFGH"[k]
            for residue in copy:
                for atom in residue:
                    atom.pos = gemmi.Position(*(rotation @ np.array(atom.pos.tolist()) + shift))
            model.add_chain(copy)
    structure.add_model(model)
    structure.setup_entities()
    structure.make_mmcif_document().write_file(str(path))


def noisy_map(truth: Path) -> DensityMap:
    """Return the map of a model with noise in every voxel."""
    model = read_model(truth)
    density_map = DensityMap.simulate(model.topology, model.positions, RESOLUTION, VOXEL)
    noise = np.random.default_rng(0).normal(0, NOISE * density_map.data.std(), density_map.shape)
    return DensityMap(density_map.data + noise, density_map.matrix, density_map.origin)


def report(fit: Path, truth: Path, start: Path) -> None:
    """Print what came of it."""
    summary = json.loads((fit / "summary.json").read_text())
    assembly = fit / "assembly_expanded.cif"
    fitted = assembly if assembly.exists() else fit / "fitted.cif"
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"CC of the unit {summary['cc_initial']:.3f} -> {summary['cc_final']:.3f}")
    if summary["assembly"] is not None:
        found = summary["assembly"]
        print(
            f"CC of the assembly {found['cc_initial']:.3f} -> {found['cc_final']:.3f}, {found['clashes']} clashes with copies"
        )
    print(f"Cα {off(truth, start):.2f} Å off the truth before, {off(truth, fitted):.2f} Å after")
    print(
        f"{spent.ru_utime + spent.ru_stime:.0f} s of processor time, {summary['wall_seconds']:.0f} s of wall time"
    )
    print(
        f"{summary['ms_per_step']:.1f} ms a step, {summary['density_ms_per_step']:.2f} ms of it the density"
    )


def off(truth: Path, model: Path) -> float:
    """Return Å from each Cα of a model to that of its residue in the truth which is nearest, whatever its chain is called."""
    wanted, given = by_residue(truth), by_residue(model)
    away = [
        np.linalg.norm(wanted[number][:, None] - points[None], axis=2).min(axis=0)
        for number, points in given.items()
    ]
    return float(np.sqrt(np.mean(np.concatenate(away) ** 2)))


def by_residue(path: Path) -> dict[int, np.ndarray]:
    """Return the Cα atoms of all chains by the number of their residue."""
    found: dict[int, list[list[float]]] = {}
    for chain in gemmi.read_structure(str(path))[0]:
        for residue in chain:
            for atom in residue:
                if atom.name == "CA":
                    found.setdefault(residue.seqid.num, []).append(atom.pos.tolist())
    return {number: np.array(points) for number, points in found.items()}


if __name__ == "__main__":
    main()
