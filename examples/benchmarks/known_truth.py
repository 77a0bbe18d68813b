"""Models whose truth is known: complete proteins, and starts displaced from them as real ones are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gemmi
import numpy as np
import openmm
from scipy.spatial.distance import pdist, squareform

from openmm_density.base.units import ANGSTROM_PER_NANOMETER, positions_in_angstrom
from openmm_density.models import Model, prepare, read_model
from openmm_density.models.preparation import Prepared
from openmm_density.models.structure_files import write_cif, write_pdb
from openmm_density.models.superposition import superposition
from openmm_density.restraints import make_restraints

MODE_CUTOFF = 15.0
"""Å up to which Cα are joined in the elastic network (Atilgan et al., Biophys. J. 80, 505 (2001))."""
N_MODES, FLOPPY = 10, 1.0e-9
HOT, WARM, COLD = 500.0, 300.0, 10.0
TIMESTEP, FRICTION, HYDROGEN_MASS = 0.004, 5.0, 3.0
MOST_HOT_STEPS, PULLING_STEPS, COOLING_STEPS = 25000, 4000, 2000
BLOCK = 250
SETTLING_FORCE_CONSTANT, PULLING_FORCE_CONSTANT = 2000.0, 500.0
"""kJ/mol/nm²: of the springs that hold atoms where they were deposited while strain relaxes, and that pull Cα along modes."""
ALIKE = {"PHE": ("CD", "CE"), "TYR": ("CD", "CE"), "ASP": ("OD",), "GLU": ("OE",), "ARG": ("NH",)}
"""Atoms of which a residue has two that differ by name alone."""
_KEPT = ("cis", "chirality")


@dataclass(frozen=True)
class KnownTruth:
    """A protein, and how its start is made.

    Attributes
    ----------
    file : str
        The deposited model, in the folder of the data; or in that of the examples, where the start is.
    start : str
        "modes", "heat", or the file of another conformation.
    rmsd : float
        Of the Cα of a start that is made, in Å.
    """

    file: str
    start: str
    rmsd: float = 0.0


CASES = {
    "adk": KnownTruth("adk_closed.pdb", "adk_open.pdb"),
    "5925": KnownTruth("emd5925_frag/5925_native.pdb", "heat", 2.5),
    "tmv": KnownTruth("qr_6i5a/6i5a_box_complete.pdb", "modes", 3.0),
    "1g8a": KnownTruth("xray_1g8a_P21/1G8A_refined.pdb", "modes", 3.5),
    "6374": KnownTruth("emd6374_frag/6374_native.pdb", "heat", 2.0),
}


def make_models(
    case: KnownTruth, folders: tuple[Path, ...], output: Path, platform: str = "CPU", seed: int = 0
) -> tuple[Model, Model]:
    """Return the truth and the start of a case, of the same atoms; made once, then read from the output folder.

    Parameters
    ----------
    case : KnownTruth
    folders : tuple of Path
        Where its files are looked for.
    output : Path
    platform : str
        OpenMM's.
    seed : int
        Of modes and heat.
    """
    files = [output / "truth.pdb", output / "start.pdb"]
    if not all(file.exists() for file in files):
        output.mkdir(parents=True, exist_ok=True)
        truth = settled(
            protein_alone(_found(case.file, folders), output / "deposited.pdb"), files[0], platform
        )
        _write_start(case, truth, folders, output, platform, seed)
    truth, start = (read_model(file) for file in files)
    if [str(a) for a in truth.topology.atoms()] != [str(a) for a in start.topology.atoms()]:
        raise ValueError(f"{files[1]}: has other atoms than {files[0]}")
    return truth, start


def _write_start(
    case: KnownTruth, truth: Model, folders: tuple[Path, ...], output: Path, platform: str, seed: int
) -> None:
    goal = output / "start.pdb"
    if case.start == "modes":
        positions = displaced_by_modes(truth, case.rmsd, platform, seed)
    elif case.start == "heat":
        positions = displaced_by_heat(truth, case.rmsd, platform, seed)
    else:
        other = protein_alone(_found(case.start, folders), output / "other.pdb")
        write_pdb(goal, other, superposed(other, truth))
        return
    write_pdb(goal, truth, positions)


def _found(file: str, folders: tuple[Path, ...]) -> Path:
    return next((folder / file for folder in folders if (folder / file).exists()), folders[0] / file)


def protein_alone(path: Path, written: Path) -> Model:
    """Read a model without ligands, waters, hydrogens and all but the first of alternate conformers; keep it in a file."""
    structure = gemmi.read_structure(str(path))
    while len(structure) > 1:
        del structure[1]
    structure.remove_alternative_conformations()
    structure.remove_hydrogens()
    structure.setup_entities()
    structure.remove_ligands_and_waters()
    structure.remove_empty_chains()
    structure.connections.clear()
    structure.cell, structure.spacegroup_hm = gemmi.UnitCell(), ""
    structure.assign_serial_numbers()
    structure.write_pdb(str(written))
    return read_model(written)


def settled(model: Model, written: Path, platform: str = "CPU") -> Model:
    """Complete a protein, and relax what is strained in it in the force field, its atoms held near where they were.

    A truth that the force field finds strained would tell nothing of how the map strains a model.
    """
    prepared = prepare(model, platform=platform)
    system = prepared.system(constraints=None, rigidWater=False)
    heavy = [atom.index for atom in prepared.topology.atoms() if atom.element.symbol != "H"]
    held = prepared.positions[heavy] / ANGSTROM_PER_NANOMETER
    system.addForce(springs(heavy, held, held, SETTLING_FORCE_CONSTANT))
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), _platform(platform))
    context.setPositions(prepared.positions / ANGSTROM_PER_NANOMETER)
    openmm.LocalEnergyMinimizer.minimize(context, maxIterations=2000)
    complete = written.with_suffix(".cif")
    write_cif(complete, prepared.topology, _positions(context))
    return protein_alone(complete, written)


def superposed(moving: Model, fixed: Model) -> np.ndarray:
    """Return the positions of a model (Å) after superposition of its Cα on those of another with the same residues."""
    return _superposed(moving.positions, fixed.positions, alpha_carbons(moving), alpha_carbons(fixed))


def alpha_carbons(model: Model) -> np.ndarray:
    """Return the indices of the Cα, and of C1' of nucleotides."""
    return np.array([atom.index for atom in model.topology.atoms() if atom.name in ("CA", "C1'")])


def root_mean_square_distance(first: np.ndarray, second: np.ndarray) -> float:
    """Return the RMSD of positions (N, 3)."""
    return float(np.sqrt(((first - second) ** 2).sum(axis=1).mean()))


def rmsd_to_truth(truth: Model, positions: np.ndarray) -> float:
    """Return the RMSD of all non-hydrogen atoms in Å, those that differ by name alone paired as they are nearer.

    Parameters
    ----------
    truth : Model
    positions : np.ndarray, shape (N, 3)
        Of the same atoms.
    """
    squares = ((positions - truth.positions) ** 2).sum(axis=1)
    total = squares.sum()
    for residue in truth.topology.residues():
        named = {atom.name: atom.index for atom in residue.atoms()}
        pairs = [
            [named[f"{name}1"], named[f"{name}2"]]
            for name in ALIKE.get(residue.name, ("OP",) if "OP2" in named else ())
        ]
        if pairs:
            pairs = np.array(pairs)
            swapped = ((positions[pairs[:, ::-1]] - truth.positions[pairs]) ** 2).sum()
            total += min(swapped - squares[pairs].sum(), 0.0)
    return float(np.sqrt(total / len(positions)))


def low_modes(positions: np.ndarray, count: int = N_MODES) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest normal modes of an anisotropic network model, without rigid motions, and their eigenvalues.

    Parameters
    ----------
    positions : np.ndarray, shape (N, 3)
        Of Cα, in Å.

    Returns
    -------
    eigenvalues : np.ndarray, shape (count,)
    modes : np.ndarray, shape (count, N, 3)
        Each of norm 1.
    """
    n = len(positions)
    near = squareform(pdist(positions)) < MODE_CUTOFF
    np.fill_diagonal(near, False)
    apart = positions[:, None] - positions[None]
    directions = apart / np.maximum(np.linalg.norm(apart, axis=-1, keepdims=True), 1e-9)
    blocks = -np.einsum("ijk,ijl->ijkl", directions, directions) * near[..., None, None]
    blocks[np.arange(n), np.arange(n)] = -blocks.sum(axis=1)
    values, vectors = np.linalg.eigh(blocks.transpose(0, 2, 1, 3).reshape(3 * n, 3 * n))
    return values[6 : 6 + count], vectors.T[6 : 6 + count].reshape(-1, n, 3)


def displaced_by_modes(truth: Model, rmsd: float, platform: str = "CPU", seed: int = 0) -> np.ndarray:
    """Return positions (Å) displaced along low normal modes by a Cα RMSD in Å.

    Springs pull the Cα to where a random combination of modes has them, each as large as heat would make it, in a simulation at
    300 K that carries all other atoms along; then the model relaxes without them.
    """
    alpha = alpha_carbons(truth)
    values, modes = low_modes(truth.positions[alpha])
    # Of a network that is not stiff everywhere the lowest are zero, give or take a rounding.
    amplitudes = np.random.default_rng(seed).standard_normal(len(values)) / np.sqrt(
        np.maximum(values, FLOPPY)
    )
    moved = np.einsum("m,mij->ij", amplitudes, modes)
    moved *= rmsd / np.sqrt((moved**2).sum(axis=1).mean())
    prepared = prepare(truth, platform=platform)
    carbons = prepared.prepared_index[alpha].tolist()
    begin = truth.positions[alpha] / ANGSTROM_PER_NANOMETER
    pulling = springs(carbons, begin, begin + moved / ANGSTROM_PER_NANOMETER, PULLING_FORCE_CONSTANT)
    simulated = Displacement(prepared, pulling, platform, seed)
    for step in range(0, PULLING_STEPS, BLOCK):
        simulated.context.setParameter("displacement", (step + BLOCK) / PULLING_STEPS)
        simulated.step(BLOCK, WARM)
    return _superposed(simulated.relaxed(), truth.positions, alpha, alpha)


def displaced_by_heat(truth: Model, rmsd: float, platform: str = "CPU", seed: int = 0) -> np.ndarray:
    """Return positions (Å) after molecular dynamics at 500 K without a map up to a Cα RMSD in Å, cooled and relaxed."""
    alpha = alpha_carbons(truth)
    simulated = Displacement(prepare(truth, platform=platform), None, platform, seed)
    for _ in range(0, MOST_HOT_STEPS, BLOCK):
        simulated.step(BLOCK, HOT)
        positions = _superposed(simulated.positions, truth.positions, alpha, alpha)
        if root_mean_square_distance(positions[alpha], truth.positions[alpha]) >= rmsd:
            break
    return _superposed(simulated.relaxed(), truth.positions, alpha, alpha)


class Displacement:
    """A simulation without a map that carries a model away, handedness and peptides kept."""

    def __init__(self, prepared: Prepared, force: openmm.Force | None, platform: str, seed: int) -> None:
        self._prepared, self._seed = prepared, seed
        system = prepared.system(hydrogen_mass=HYDROGEN_MASS)
        for restraint in make_restraints(_KEPT, prepared.topology, prepared.positions):
            system.addForce(restraint.create_force())
        if force is not None:
            system.addForce(force)
        self._integrator = openmm.LangevinMiddleIntegrator(WARM, FRICTION, TIMESTEP)
        self._integrator.setRandomNumberSeed(seed + 1)
        self.context = openmm.Context(system, self._integrator, _platform(platform))
        self.context.setPositions(prepared.positions / ANGSTROM_PER_NANOMETER)
        openmm.LocalEnergyMinimizer.minimize(self.context, maxIterations=500)
        self.context.setVelocitiesToTemperature(WARM, seed + 1)

    def step(self, steps: int, temperature: float) -> None:
        """Go so many steps at a temperature in K."""
        self._integrator.setTemperature(temperature)
        self._integrator.step(steps)

    @property
    def positions(self) -> np.ndarray:
        """Of the input's atoms, in Å."""
        return self._prepared.input_positions(_positions(self.context))

    def relaxed(self, pulled: bool = False) -> np.ndarray:
        """Cool, minimise without the pull, or with it, and return the positions of the input's atoms in Å."""
        for step in range(0, COOLING_STEPS, BLOCK):
            self.step(BLOCK, WARM + (COLD - WARM) * step / COOLING_STEPS)
        if not pulled and "pull" in self.context.getParameters():
            self.context.setParameter("pull", 0.0)
        openmm.LocalEnergyMinimizer.minimize(self.context, maxIterations=1000)
        return self.positions


def springs(
    atoms: list[int], begin: np.ndarray, end: np.ndarray, force_constant: float
) -> openmm.CustomExternalForce:
    """Return springs to places (nm) that go from the one to the other as the parameter "displacement" goes from 0 to 1."""
    where = "+".join(f"({x}-{x}0-displacement*d{x})^2" for x in "xyz")
    force = openmm.CustomExternalForce(f"0.5*pull*({where})")
    force.addGlobalParameter("pull", force_constant)
    force.addGlobalParameter("displacement", 0.0)
    for name in ("x0", "y0", "z0", "dx", "dy", "dz"):
        force.addPerParticleParameter(name)
    for atom, place, change in zip(atoms, begin, end - begin):
        force.addParticle(atom, [*place, *change])
    return force


def _superposed(
    moving: np.ndarray, fixed: np.ndarray, of_moving: np.ndarray, of_fixed: np.ndarray
) -> np.ndarray:
    rotation, shift = superposition(moving[of_moving], fixed[of_fixed])
    return moving @ rotation.T + shift


def _platform(name: str) -> openmm.Platform:
    return openmm.Platform.getPlatformByName(name)


def _positions(context: openmm.Context) -> np.ndarray:
    return positions_in_angstrom(context.getState(positions=True).getPositions(asNumpy=True))
