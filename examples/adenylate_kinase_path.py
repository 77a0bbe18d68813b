"""A path of adenylate kinase from its open (4AKE) to its closed form (1AKE), and maps along it.

    python examples/adenylate_kinase_path.py [--output DIR] [--frames N] [--jump]

Targeted molecular dynamics without any map: the RMSD of the backbone to the closed form is driven down while the force field
moves everything else, so that each frame is a model that a force field accepts. `series_adenylate_kinase.py` fits the maps, and
compares with these models. With ``--jump`` the frames of the middle are left out: the first half is nearly open, the second
nearly closed, and one real jump is between them.
"""

import argparse
from pathlib import Path

import numpy as np
import openmm
from openmm import LangevinMiddleIntegrator, Platform, app, unit

from openmm_density import DensityMap
from openmm_density.models import Prepared, prepare, read_model
from openmm_density.models.matching import match_alpha_carbons
from openmm_density.models.structure_files import write_cif
from openmm_density.models.superposition import superposition
from openmm_density.restraints import ChiralityRestraint, PeptideRestraint

DATA = Path(__file__).parent / "data"
BACKBONE = ("N", "CA", "C", "O")
# kJ/mol/nm²: a difference of 0.1 Å costs 10 kJ/mol.
FORCE_CONSTANT = 2e5
NEAREST = 0.3  # Å to the closed form, where the path ends
RESOLUTION, VOXEL_SIZE, NOISE = 5.0, 1.25, 0.1


def backbone(topology: app.Topology) -> dict[tuple[str, str], int]:
    """Return the backbone atoms by the number of their residue and their name."""
    return {(atom.residue.id, atom.name): atom.index for atom in topology.atoms() if atom.name in BACKBONE}


def targeted(model: Prepared, closed: Prepared) -> app.Simulation:
    """Return a simulation of the open form with a force on its RMSD to the closed one."""
    system = model.system(nonbonded_cutoff=1.0 * unit.nanometer, hydrogen_mass=3.0 * unit.dalton)
    system.addForce(PeptideRestraint(model.topology, model.positions).create_force())
    system.addForce(ChiralityRestraint(model.topology, model.positions).create_force())
    mine, theirs = backbone(model.topology), backbone(closed.topology)
    shared = [key for key in mine if key in theirs]
    target = model.positions.copy()
    target[[mine[key] for key in shared]] = closed.positions[[theirs[key] for key in shared]]
    force = openmm.CustomCVForce("0.5*constant*(rmsd-target)^2")
    force.addCollectiveVariable(
        "rmsd", openmm.RMSDForce(target * unit.angstrom, [mine[key] for key in shared])
    )
    force.addGlobalParameter("constant", FORCE_CONSTANT)
    force.addGlobalParameter("target", 0.0)
    system.addForce(force)
    integrator = LangevinMiddleIntegrator(300 * unit.kelvin, 1 / unit.picosecond, 4 * unit.femtoseconds)
    integrator.setRandomNumberSeed(1)
    simulation = app.Simulation(
        model.topology, system, integrator, Platform.getPlatformByName(arguments.platform)
    )
    simulation.context.setPositions(model.positions * unit.angstrom)
    return simulation


def path_frames(model: Prepared, closed: Prepared, n_frames: int, steps: int) -> list[np.ndarray]:
    """Return the positions (Å) of frames with equal steps of RMSD to the closed form, each minimised where it is."""
    simulation = targeted(model, closed)
    context = simulation.context
    cv = next(force for force in context.getSystem().getForces() if isinstance(force, openmm.CustomCVForce))
    start = cv.getCollectiveVariableValues(context)[0]
    context.setParameter("target", start)
    simulation.minimizeEnergy(maxIterations=500)
    context.setVelocitiesToTemperature(300 * unit.kelvin, 1)
    frames = []
    for number, target in enumerate(np.linspace(start, NEAREST / 10, n_frames)):
        for part in np.linspace(context.getParameter("target"), target, 51)[1:] if number else ():
            context.setParameter("target", part)
            simulation.step(steps // (50 * (n_frames - 1)))
        moving = context.getState(positions=True, velocities=True)
        simulation.minimizeEnergy(maxIterations=1000)
        positions = context.getState(positions=True).getPositions(asNumpy=True).value_in_unit(unit.angstrom)
        print(
            f"frame {number + 1}: {10 * cv.getCollectiveVariableValues(context)[0]:.2f} Å to go", flush=True
        )
        frames.append(np.array(positions))
        context.setState(moving)
    return frames


def superposed(topology: app.Topology, frames: list[np.ndarray]) -> list[np.ndarray]:
    """Return frames with the part that moves least (the CORE domain) where the first one has it."""
    core = [
        atom.index
        for atom in topology.atoms()
        if atom.name == "CA"
        and (int(atom.residue.id) < 30 or 60 <= int(atom.residue.id) < 115 or int(atom.residue.id) > 168)
    ]
    placed = []
    for frame in frames:
        rotation, shift = superposition(frame[core], frames[0][core])
        placed.append(frame @ rotation.T + shift)
    return placed


def write_maps(folder: Path, topology: app.Topology, frames: list[np.ndarray]) -> None:
    """Write truth_01.cif …, and volume_01.mrc …: one grid, and noise of its own in each."""
    everywhere = np.concatenate(frames)
    corners = np.array([everywhere.min(axis=0), everywhere.max(axis=0)])
    around = frames[0].copy()
    around[:2] = corners
    grid = DensityMap.simulate(topology, around, RESOLUTION, voxel_size=VOXEL_SIZE)
    for number, frame in enumerate(frames, start=1):
        write_cif(folder / f"truth_{number:02d}.cif", topology, frame)
        density_map = DensityMap.simulate(topology, frame, RESOLUTION, like=grid, noise=NOISE, seed=number)
        density_map.write(folder / f"volume_{number:02d}.mrc")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("path"), help="folder for models and maps")
    parser.add_argument("--frames", type=int, default=12)
    parser.add_argument("--steps", type=int, default=15000, help="of molecular dynamics, 4 fs each")
    parser.add_argument("--jump", action="store_true", help="leave out the middle of the path")
    parser.add_argument("--platform", default="CPU")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    opened, closed = (prepare(read_model(DATA / f"adk_{state}.pdb")) for state in ("open", "closed"))
    assert len(match_alpha_carbons(opened.topology, closed.topology)[0])
    frames = superposed(opened.topology, path_frames(opened, closed, arguments.frames, arguments.steps))
    write_maps(arguments.output, opened.topology, frames)
