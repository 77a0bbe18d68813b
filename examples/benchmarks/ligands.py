"""A ligand with a learned potential beside one that springs keep rigid: both are fitted into a map from twisted starts.

    python examples/benchmarks/ligands.py [NAME=SMILES | FILE.safetensors] … [--resolutions 2.5,3.5] [--starts N] [--threads N]

The ligand is alone in the map that is simulated of it as the teacher relaxed it, with noise. Of each start the torsions
about single bonds are turned by 60 to 180°, and the whole is then superposed on the truth, as one would put it into
density by hand. Minimised, simulated at 400 K and cooled, with the same steps and pull, once with springs, as fits hold
ligands by default, and once with its potential. The table has for both the distance of the heavy atoms from the truth
(Å, atoms that its bonds do not tell apart taken as the same), the strain by the teacher itself (kJ/mol above the
truth), and how often the committee did not know the ligand.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import networkx
import numpy as np
import openmm
from openmm import app, unit
from scipy.spatial.distance import pdist, squareform
from scipy.spatial.transform import Rotation

from openmm_density import DensityFit, DensityMap
from openmm_density.extensions.distillation import LigandEnergy, distill, write_potential
from openmm_density.extensions.distillation.labels import Labeller
from openmm_density.fitting.ligand_watch import LOOK_INTERVAL, LigandWatch
from openmm_density.models import Prepared, prepare
from openmm_density.models.ligand_hydrogens import graph_of, same_atoms
from openmm_density.models.structures import read_model
from openmm_density.models.superposition import superposition

LIGANDS = ("GOL=OCC(O)CO", "LDP=NCCc1ccc(O)c(O)c1", "SIN=OC(=O)CCC(=O)O")
NOISE, VOXEL = 0.1, 0.8
# K and steps of the stages, of 1 fs, and kJ/mol per heavy atom.
STAGES, TIMESTEP, STRENGTH = ((400.0, 3000), (300.0, 1000), (100.0, 1000)), 0.001, 40.0
# Å: heavy atoms of a start that are not bonded are no nearer.
APART = 2.2


def rotatable(graph: networkx.Graph) -> Iterator[tuple[int, int, list[int]]]:
    """Yield the bonds that a torsion can be turned about, and the atoms beyond the second end."""
    heavy = {k for k, data in graph.nodes(data=True) if data["element"] != "H"}
    for a, b in networkx.bridges(graph):
        if {a, b} <= heavy and min(sum(n in heavy for n in graph[k]) for k in (a, b)) > 1:
            cut = graph.copy()
            cut.remove_edge(a, b)
            yield a, b, sorted(networkx.node_connected_component(cut, b) - {b})


def twisted(energy: LigandEnergy, rng: np.random.Generator) -> np.ndarray:
    """Return positions (Å) whose torsions are turned, without clashes, superposed on the truth."""
    truth, graph = energy.positions, graph_of(energy.elements, energy.bonds)
    heavy = np.array([symbol != "H" for symbol in energy.elements])
    near = np.array(
        [
            [networkx.has_path(graph, a, b) and networkx.shortest_path_length(graph, a, b) < 3 for b in graph]
            for a in graph
        ]
    )
    for _ in range(1000):
        positions = truth.copy()
        for a, b, beyond in rotatable(graph):
            axis = positions[b] - positions[a]
            angle = np.radians(rng.uniform(60, 180)) * rng.choice([-1, 1])
            turn = Rotation.from_rotvec(angle * axis / np.linalg.norm(axis))
            positions[beyond] = turn.apply(positions[beyond] - positions[b]) + positions[b]
        apart = np.where(near, np.inf, squareform(pdist(positions)))
        if apart[np.ix_(heavy, heavy)].min() > APART and apart.min() > 1.6:
            rotation, shift = superposition(positions[heavy], truth[heavy])
            return positions @ rotation.T + shift
    raise SystemExit(f"{energy.smiles} cannot be twisted without clashes")


def rmsd(energy: LigandEnergy, positions: np.ndarray) -> float:
    """Return the distance of the heavy atoms from the truth in Å, the least over atoms that are alike."""
    heavy = [k for k, symbol in enumerate(energy.elements) if symbol != "H"]
    graph = graph_of(energy.elements, energy.bonds).subgraph(heavy)
    ways = islice(same_atoms(graph, graph), 2000)
    return min(
        float(np.sqrt(np.square(positions[[way[k] for k in heavy]] - energy.positions[heavy]).sum(1).mean()))
        for way in ways
    )


class Teacher:
    """The strain of geometries, by the teacher."""

    def __init__(self, energy: LigandEnergy, threads: int) -> None:
        self._label = Labeller(energy.known.ligand, energy.known.teacher.solvent, None, threads)
        self._rest = self._of(energy.positions)

    def strain(self, positions: np.ndarray) -> float:
        """Return the energy above the truth in kJ/mol, of positions in Å."""
        return self._of(positions) - self._rest

    def _of(self, positions: np.ndarray) -> float:
        return float(self._label(positions[None] / 10.0).energies[0])


def model_of(energy: LigandEnergy, positions: np.ndarray, folder: Path) -> Path:
    """Return the file of the ligand alone, with its hydrogens, at positions in Å."""
    topology = app.Topology()
    residue = topology.addResidue("LIG", topology.addChain("A"), "1")
    atoms = [
        topology.addAtom(f"{symbol}{k + 1}", app.Element.getBySymbol(symbol), residue)
        for k, symbol in enumerate(energy.elements)
    ]
    for a, b in energy.bonds:
        topology.addBond(atoms[a], atoms[b])
    path = folder / "ligand.cif"
    with path.open("w") as file:
        app.PDBxFile.writeFile(topology, positions * unit.angstrom, file, keepIds=True)
    return path


def fitted(
    prepared: Prepared, density_map: DensityMap, resolution: float, seed: int, threads: int
) -> tuple[np.ndarray, int, int]:
    """Return positions (Å) of the fitted ligand, in the topology's order, how often it was looked at, and unknown."""
    system = prepared.system(constraints=None)
    density = DensityFit(
        density_map, prepared.topology, resolution, positions=prepared.positions, system=system
    )
    system.addForce(density.create_force(parameter_derivative=False))
    masses = np.array([system.getParticleMass(k)._value for k in range(system.getNumParticles())])
    watch = LigandWatch(prepared, masses)
    integrator = openmm.LangevinMiddleIntegrator(STAGES[0][0], 5.0, TIMESTEP)
    integrator.setRandomNumberSeed(seed + 1)
    platform = openmm.Platform.getPlatformByName("CPU")
    context = openmm.Context(system, integrator, platform, {"Threads": str(threads)})
    states = watch.begun(prepared.positions / 10.0)
    watch.apply(context, states)
    context.setPositions(prepared.positions / 10.0)
    context.setParameter(density.parameter_name, STRENGTH * density.n_fitted_atoms)
    openmm.LocalEnergyMinimizer.minimize(context, maxIterations=200)
    states = watch.looked_at(context, states, 0)
    context.setVelocitiesToTemperature(STAGES[0][0], seed + 1)
    step = 0
    for kelvin, steps in STAGES:
        integrator.setTemperature(kelvin)
        for _ in range(steps // LOOK_INTERVAL):
            integrator.step(LOOK_INTERVAL)
            step += LOOK_INTERVAL
            states = watch.looked_at(context, states, step)
    openmm.LocalEnergyMinimizer.minimize(context, maxIterations=500)
    positions = context.getState(positions=True).getPositions(asNumpy=True).value_in_unit(unit.angstrom)
    looks, unknown = (sum(state[name] for state in states) for name in ("looks", "unknown"))
    return np.array(positions), looks, unknown


def compared(name: str, energy: LigandEnergy, options: argparse.Namespace, folder: Path) -> None:
    """Print the rows of a ligand."""
    teacher = Teacher(energy, options.threads)
    truth = prepare(read_model(model_of(energy, energy.positions, folder)))
    for resolution in options.resolutions:
        target = DensityMap.simulate(
            truth.topology, truth.positions, resolution, VOXEL, noise=NOISE, seed=1, margin=8.0
        )
        for start in range(options.starts):
            positions = twisted(energy, np.random.default_rng(start))
            model = read_model(model_of(energy, positions, folder))
            row = f"{name:<6} {resolution:>4.1f} {start:>3}  {rmsd(energy, positions):6.2f} {teacher.strain(positions):8.0f}"
            for potentials in ({}, {"LIG": energy}):
                chosen = "xtb" if potentials else "rigid"
                prepared = prepare(model, ligand_forcefield=chosen, ligand_potentials=potentials)
                begun = time.process_time()
                final, looks, unknown = fitted(prepared, target, resolution, start, options.threads)
                spent = time.process_time() - begun
                row += f"  {rmsd(energy, final):6.2f} {teacher.strain(final):8.0f} {spent:5.1f}"
            print(f"{row}  {unknown}/{looks}", flush=True)


def potential_of(given: str, threads: int, folder: Path) -> tuple[str, LigandEnergy]:
    """Return the name and the potential of a ligand: of a file, or distilled now."""
    if given.endswith(".safetensors"):
        return Path(given).stem, LigandEnergy.read(given)
    name, smiles = given.split("=", 1)
    made = distill(name, smiles=smiles, threads=threads)
    write_potential(folder / f"{name}.safetensors", made.potential)
    return name, LigandEnergy.read(folder / f"{name}.safetensors")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("ligands", nargs="*", default=LIGANDS)
    parser.add_argument(
        "--resolutions", type=lambda text: [float(each) for each in text.split(",")], default=[2.5, 3.5]
    )
    parser.add_argument("--starts", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    print("                      start            rigid springs          learned potential      not known/")
    print("ligand    Å   n    RMSD   strain    RMSD   strain   CPU s   RMSD   strain CPU s   looks")
    with tempfile.TemporaryDirectory() as temporary:
        for given in options.ligands:
            name, energy = potential_of(given, options.threads, Path(temporary))
            compared(name, energy, options, Path(temporary))


if __name__ == "__main__":
    main()
