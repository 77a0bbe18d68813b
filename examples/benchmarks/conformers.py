"""Known conformers of side chains of adenylate kinase, found again by a short fit from where they are off by 25 degrees.

For example ``python examples/benchmarks/conformers.py places 1.6 2.0`` (resolutions in Å; four minutes each): ten side chains
whose two conformers are both in the map. ``... shown 1.6 2.0 2.5``: sixteen, of which half have a second conformer that is not in
the map, in two draws. Both conformers are minimised in the force field, each alone among the other atoms; the map is gemmi's
density of them with B factors of 20 to 44 Å², cut at the resolution, with noise.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import gemmi
import numpy as np
import openmm
from scipy.spatial.transform import Rotation

from openmm_density import DensityMap
from openmm_density.extensions.conformers import FittedConformers
from openmm_density.extensions.conformers.copies import ConformerGroup
from openmm_density.fitting import FlexibleFit
from openmm_density.fitting.protocols import find_protocol
from openmm_density.models import prepare, read_model

MODEL = Path(__file__).resolve().parents[1] / "data" / "adk_closed.pdb"
COUNT, APART, NEARER = 10, 8.0, 7.0
"""Side chains, and Å between the CA of ten and of more of them."""
PRESENT_AND_ABSENT = (0.0, 0.2, 0.0, 0.3, 0.0, 0.5, 0.0, 0.3) * 2
FEW_STEPS, DRAWS = 300, (1, 2)
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


def second_places(
    structure: gemmi.Structure, rng: np.random.Generator, count: int, apart: float
) -> dict[int, dict[str, np.ndarray]]:
    """Return a second rotamer of some residues, by their numbers, that touches nothing."""
    model = structure[0]
    search = gemmi.NeighborSearch(model, gemmi.UnitCell(), 6).populate(include_h=False)
    residues = [residue for residue in model[0] if residue.name in TURNING and "CB" in residue]
    rng.shuffle(residues)
    found: dict[int, dict[str, np.ndarray]] = {}
    taken: list[gemmi.Position] = []
    for residue in residues:
        alpha = residue["CA"][0].pos
        if len(found) == count or any(alpha.dist(other) < apart for other in taken):
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


def fitted(resolution: float, seed: int, shares: Sequence[float], steps: int, folder: Path) -> Fitted:
    """Return a fit of conformers that are known, some of which may have no part of the map."""
    rng = np.random.default_rng(seed)
    structure = gemmi.read_structure(str(MODEL))
    structure.remove_hydrogens()
    second = second_places(structure, rng, len(shares), APART if len(shares) == COUNT else NEARER)
    other = structure.clone()
    for residue in other[0][0]:
        for name, place in second.get(residue.seqid.num, {}).items():
            residue[name][0].pos = gemmi.Position(*place)
    conformers = [relaxed(each, set(second), folder) for each in (structure, other)]
    known = dict(zip(second, shares))
    truth = with_both(structure, conformers, known)
    path = folder / "start.pdb"
    start_of(truth, rng).write_pdb(str(path))
    protocol = replace(find_protocol("quick", resolution).with_steps(steps), conformers="both")
    begun = time.process_time()
    density_map = map_of(truth, resolution, rng)
    fit = FlexibleFit(read_model(path), density_map, resolution, protocol, threads=1, seed=1)
    found = fit.run().conformers
    seconds = time.process_time() - begun
    return Fitted(found, conformers, known, seconds, fit.stopwatch.seconds_by_part["conformers"])


class Fitted(NamedTuple):
    """What a fit found, and what is known."""

    found: FittedConformers
    places: list[dict[tuple[int, str], np.ndarray]]
    shares: dict[int, float]
    seconds: float
    of_conformers: float


def number_of(group: ConformerGroup) -> int:
    """Return the number of the residue of a group."""
    return int(group.name.split()[-1])


def print_places(resolution: float, folder: Path) -> None:
    """Print how far each conformer is from the truth after a fit, and its occupancy."""
    shares = [SHARES[k % len(SHARES)] for k in range(COUNT)]
    found, places, known, seconds, of_conformers = fitted(resolution, 0, shares, STEPS, folder)
    atoms = list(found.copies.others.joined.atoms())
    errors = []
    for number, group in enumerate(found.copies.groups):
        key = number_of(group)
        for label, of_label in zip("AB", places):
            members = [k for k in found.copies.members(number, label) if atoms[k].element.symbol != "H"]
            away = [found.positions[k] - of_label[key, atoms[k].name] for k in members]
            errors.append(float(np.sqrt(np.mean(np.sum(np.square(away), axis=1)))))
            true = known[key] if label == "B" else 1 - known[key]
            share = found.copies.shares[number][label]
            print(f"{group.name} {label}: {errors[-1]:.2f} Å, occupancy {share:.2f} ({true:.2f})")
    print(
        f"{resolution:g} Å: {sum(error < 0.3 for error in errors)} of {2 * len(known)} conformers within .3 Å, "
        f"{len(errors)} fitted, largest {max(errors):.2f} Å; {seconds:.0f} s of processor time, "
        f"{of_conformers:.0f} s by the clock for the conformers"
    )


def print_shown(resolution: float, seed: int, folder: Path) -> None:
    """Print which second conformers are shown by a map, of those that it has with some occupancy and of those that it has not."""
    found, _, known, seconds, _ = fitted(resolution, seed, PRESENT_AND_ABSENT, FEW_STEPS, folder)
    missing = {(each.group, each.label) for each in found.not_shown}
    counts: dict[float, list[int]] = {share: [0, 0] for share in sorted(set(known.values()))}
    for number, group in enumerate(found.copies.groups):
        share, is_shown = known[number_of(group)], not missing & {(number, "A"), (number, "B")}
        counts[share][0] += is_shown
        counts[share][1] += 1
        values = found.copies.shares[number]["B"], found.deviations[number]["B"]
        print(
            f"  {group.name} B: {values[0]:.2f} ± {values[1]:.2f} ({share:.1f}), {'shown' if is_shown else 'not shown'}"
        )
    said = ", ".join(f"of occupancy {share:g} {shown} of {every}" for share, (shown, every) in counts.items())
    print(f"{resolution:g} Å, draw {seed}: shown {said}; {seconds:.0f} s of processor time", flush=True)


if __name__ == "__main__":
    part, *values = sys.argv[1:] or ["places", "2.0"]
    with tempfile.TemporaryDirectory() as temporary:
        for argument in values:
            if part == "places":
                print_places(float(argument), Path(temporary))
            else:
                for draw in DRAWS:
                    print_shown(float(argument), draw, Path(temporary))
