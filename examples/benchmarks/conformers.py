"""Known conformers of ten side chains of adenylate kinase, found again by a short fit from where they are off by 25 degrees.

For example ``python examples/benchmarks/conformers.py 1.6 2.0`` (resolutions in Å; four minutes each). Both are minimised in
the force field, each alone among the other atoms; the map is gemmi's density of them with B factors of 20 to 44 Å², cut at the
resolution, with noise.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import gemmi
import numpy as np
import openmm
from scipy.spatial.transform import Rotation

from openmm_density import DensityMap
from openmm_density.fitting import FlexibleFit
from openmm_density.fitting.protocols import find_protocol
from openmm_density.models import prepare, read_model

MODEL = Path(__file__).resolve().parents[1] / "data" / "adk_closed.pdb"
COUNT, APART = 10, 8.0
"""Side chains, and Å between their CA."""
SHARES = (0.5, 0.4, 0.3, 0.35)
NOISE, TURNED, SHAKEN, STEPS = 0.15, 25.0, 0.2, 1500
BACKBONE = ("N", "CA", "C", "O", "CB")
TURNING = [
    "LEU",
    "ILE",
    "VAL",
    "SER",
    "THR",
    "GLN",
    "GLU",
    "MET",
    "LYS",
    "ARG",
    "PHE",
    "TYR",
    "ASN",
    "ASP",
    "HIS",
    "TRP",
    "CYS",
]


def side_chain(residue: gemmi.Residue, degrees: float) -> dict[str, np.ndarray]:
    """Return the places of a side chain's atoms behind CB, turned about CA-CB."""
    alpha, beta = (np.array(residue[name][0].pos.tolist()) for name in ("CA", "CB"))
    axis = (beta - alpha) / np.linalg.norm(beta - alpha)
    turn = Rotation.from_rotvec(np.radians(degrees) * axis)
    return {
        atom.name: turn.apply(np.array(atom.pos.tolist()) - beta) + beta
        for atom in residue
        if atom.name not in BACKBONE
    }


def is_free(search: gemmi.NeighborSearch, model: gemmi.Model, residue: gemmi.Residue, places: dict) -> bool:
    """Return whether places of atoms are not too near those of other residues."""
    for name, place in places.items():
        for mark in search.find_atoms(gemmi.Position(*place), radius=3.6):
            found = mark.to_cra(model)
            polar = found.atom.element.name in ("N", "O")
            least = 2.8 if polar and name[0] in "NO" else 3.4 if polar else 3.6
            if found.residue.seqid != residue.seqid and mark.pos.dist(gemmi.Position(*place)) < least:
                return False
    return True


def second_places(structure: gemmi.Structure, rng: np.random.Generator) -> dict[int, dict[str, np.ndarray]]:
    """Return a second rotamer of some residues, by their numbers, that touches nothing."""
    model = structure[0]
    search = gemmi.NeighborSearch(model, gemmi.UnitCell(), 6).populate(include_h=False)
    residues = [residue for residue in model[0] if residue.name in TURNING and "CB" in residue]
    rng.shuffle(residues)
    found: dict[int, dict[str, np.ndarray]] = {}
    taken: list[gemmi.Position] = []
    for residue in residues:
        alpha = residue["CA"][0].pos
        if len(found) == COUNT or any(alpha.dist(other) < APART for other in taken):
            continue
        for degrees in (120.0, -120.0):
            places = side_chain(residue, degrees)
            if places and is_free(search, model, residue, places):
                found[residue.seqid.num] = places
                taken.append(alpha)
                break
    return found


def relaxed(structure: gemmi.Structure, numbers: set[int], folder: Path) -> dict[tuple[int, str], np.ndarray]:
    """Return the places of some side chains, minimised in the force field among the other atoms."""
    path = folder / "one.pdb"
    structure.write_pdb(str(path))
    prepared = prepare(read_model(path))
    system = prepared.system(constraints=None, rigidWater=False)
    atoms = list(prepared.topology.atoms())
    backbone = {*BACKBONE, "H", "HA"}
    moving = [a for a in atoms if int(a.residue.id) in numbers and a.name not in backbone]
    for index in {a.index for a in atoms} - {a.index for a in moving}:
        system.setParticleMass(index, 0)
    context = openmm.Context(
        system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("CPU"), {"Threads": "1"}
    )
    context.setPositions(prepared.positions / 10)
    openmm.LocalEnergyMinimizer.minimize(context)
    places = context.getState(positions=True).getPositions(asNumpy=True)._value * 10
    return {(int(a.residue.id), a.name): places[a.index] for a in moving if a.element.symbol != "H"}


def with_both(
    structure: gemmi.Structure, conformers: list[dict], shares: dict[int, float]
) -> gemmi.Structure:
    """Return a structure with two conformers of the residues that have shares of the second."""
    both = structure.clone()
    for residue in both[0][0]:
        share = shares.get(residue.seqid.num)
        if share is None:
            continue
        made = []
        for label, places, occupancy in zip("AB", conformers, (1 - share, share)):
            for atom in residue:
                if atom.name not in BACKBONE:
                    other = atom.clone()
                    other.pos = gemmi.Position(*places[residue.seqid.num, atom.name])
                    other.altloc, other.occ = label, occupancy
                    made.append(other)
        for name in {atom.name for atom in made}:
            residue.remove_atom(name, "\0", residue[name][0].element)
        for atom in made:
            residue.add_atom(atom)
    return both


def map_of(structure: gemmi.Structure, resolution: float, rng: np.random.Generator) -> DensityMap:
    """Return gemmi's density of a structure, cut at a resolution, with noise."""
    structure, spacing = structure.clone(), resolution / 3.2
    places = np.array([each.atom.pos.tolist() for each in structure[0].all()])
    low = places.min(axis=0) - 12
    shape = [int(n) + int(n) % 2 for n in np.ceil((places.max(axis=0) + 12 - low) / spacing)]
    for each in structure[0].all():
        each.atom.pos -= gemmi.Position(*low)
        each.atom.b_iso = 20 + 4 * (each.residue.seqid.num % 7)
    calculator = gemmi.DensityCalculatorE()
    calculator.d_min = resolution
    calculator.grid.set_unit_cell(gemmi.UnitCell(*(n * spacing for n in shape), 90, 90, 90))
    calculator.grid.spacegroup = gemmi.SpaceGroup("P 1")
    calculator.grid.set_size(*shape)
    calculator.add_model_density_to_grid(structure[0])
    density = np.array(calculator.grid)
    squares = [np.fft.fftfreq(n, spacing) ** 2 for n in shape]
    kept = squares[0][:, None, None] + squares[1][:, None] + squares[2] <= resolution**-2
    data, noise = (
        np.fft.ifftn(np.fft.fftn(values) * kept).real for values in (density, rng.normal(size=shape))
    )
    data += NOISE * noise / noise.std() * data[data > data.std()].std()
    return DensityMap(data.T.astype(np.float32), np.eye(3) * spacing, low)


def start_of(truth: gemmi.Structure, rng: np.random.Generator) -> gemmi.Structure:
    """Return the truth with conformers turned, atoms shaken and occupancies of one half."""
    start = truth.clone()
    for residue in start[0][0]:
        for label in "AB":
            mine = [atom for atom in residue if atom.altloc == label]
            if mine:
                alpha, beta = (np.array(residue[name][0].pos.tolist()) for name in ("CA", "CB"))
                axis = (beta - alpha) / np.linalg.norm(beta - alpha)
                turn = Rotation.from_rotvec(np.radians(rng.choice([-TURNED, TURNED])) * axis)
                for atom in mine:
                    atom.pos = gemmi.Position(*(turn.apply(np.array(atom.pos.tolist()) - beta) + beta))
                    atom.occ = 0.5
        for atom in residue:
            atom.pos += gemmi.Position(*rng.normal(scale=SHAKEN / np.sqrt(3), size=3))
    return start


def run(resolution: float, folder: Path) -> None:
    """Print how far each conformer is from the truth, before and after a fit, and its occupancy."""
    rng = np.random.default_rng(0)
    structure = gemmi.read_structure(str(MODEL))
    structure.remove_hydrogens()
    second = second_places(structure, rng)
    other = structure.clone()
    for residue in other[0][0]:
        for name, place in second.get(residue.seqid.num, {}).items():
            residue[name][0].pos = gemmi.Position(*place)
    conformers = [relaxed(each, set(second), folder) for each in (structure, other)]
    shares = {number: SHARES[k % len(SHARES)] for k, number in enumerate(second)}
    truth = with_both(structure, conformers, shares)
    path = folder / "start.pdb"
    start_of(truth, rng).write_pdb(str(path))
    protocol = replace(find_protocol("quick", resolution).with_steps(STEPS), conformers="auto")
    begun = time.process_time()
    fit = FlexibleFit(
        read_model(path), map_of(truth, resolution, rng), resolution, protocol, threads=1, seed=1
    )
    found = fit.run().conformers
    seconds = time.process_time() - begun
    atoms = list(found.copies.others.joined.atoms())
    errors = []
    for number, group in enumerate(found.copies.groups):
        for label, places in zip("AB", conformers):
            members = [k for k in found.copies.members(number, label) if atoms[k].element.symbol != "H"]
            key = int(atoms[members[0]].residue.id)
            away = [found.positions[k] - places[key, atoms[k].name] for k in members]
            errors.append(float(np.sqrt(np.mean(np.sum(np.square(away), axis=1)))))
            true = shares[key] if label == "B" else 1 - shares[key]
            share = found.copies.shares[number][label]
            print(f"{group.name} {label}: {errors[-1]:.2f} Å, occupancy {share:.2f} ({true:.2f})")
    print(
        f"{resolution:g} Å: {sum(error < 0.3 for error in errors)} of {2 * len(shares)} conformers within .3 Å, "
        f"{len(errors)} fitted, largest {max(errors):.2f} Å; {seconds:.0f} s of processor time, "
        f"{fit.stopwatch.seconds_by_part['conformers']:.0f} s by the clock for the conformers"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        for argument in sys.argv[1:] or ["2.0"]:
            run(float(argument), Path(temporary))
