"""Pull open adenylate kinase (4AKE) into a 5 Å map of the closed form (1AKE), step by step.

    python examples/fit_adenylate_kinase.py [--output DIR] [--steps N]

A simpler version of ``openmm-density fit``, written out: a map, a System, one force, and an integrator, with a strength of your
choice and without the restraints of planarity and secondary structure. It takes minutes on two cores; `make demo` runs the
command.
"""

import argparse
from pathlib import Path

import numpy as np
from openmm import LangevinMiddleIntegrator, Platform, app, unit

from openmm_density import DensityFit, DensityMap
from openmm_density.analysis import ca_rmsd, match_alpha_carbons
from openmm_density.models import prepare, read_model
from openmm_density.models.structure_files import write_cif
from openmm_density.restraints import ChiralityRestraint, PeptideRestraint
from openmm_density.validation.correlation import MapCorrelation

DATA = Path(__file__).parent / "data"
RESOLUTION = 5.0

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--output", type=Path, default=Path("adenylate_kinase"), help="folder for map and models")
parser.add_argument("--steps", type=int, default=20000, help="of molecular dynamics, 4 fs each")
arguments = parser.parse_args()
arguments.output.mkdir(parents=True, exist_ok=True)

# The target: a map of the closed form, with noise of a tenth of the density's standard deviation inside the molecule.
closed = read_model(DATA / "adk_closed.pdb")
density_map = DensityMap.simulate(
    closed.topology, closed.positions, RESOLUTION, voxel_size=1.0, noise=0.1, seed=1
)
density_map.write(arguments.output / "adk_closed.mrc")

# The model: the open form with hydrogens, in a System without solvent. Centre-of-mass motion is left in, or the model could
# not travel into its density; heavy hydrogens allow a step of 4 fs.
model = prepare(read_model(DATA / "adk_open.pdb"))
system = model.system(nonbonded_cutoff=1.0 * unit.nanometer, hydrogen_mass=3.0 * unit.dalton)

# Density pulls hard: these keep peptides and chiral centres from turning over on the way.
system.addForce(PeptideRestraint(model.topology, model.positions).create_force())
system.addForce(ChiralityRestraint(model.topology, model.positions).create_force())

# The one force this is about. Its strength is in kJ/mol per fitted atom; the Context parameter holds the total.
fit = DensityFit(
    density_map,
    model.topology,
    RESOLUTION,
    positions=model.positions,
    system=system,
    strength=100.0,
)
system.addForce(fit.create_force())

integrator = LangevinMiddleIntegrator(300 * unit.kelvin, 1 / unit.picosecond, 4 * unit.femtoseconds)
integrator.setRandomNumberSeed(1)
simulation = app.Simulation(model.topology, system, integrator, Platform.getPlatformByName("CPU"))
simulation.context.setPositions(model.positions * unit.angstrom)

correlation = MapCorrelation(density_map, model.topology, RESOLUTION)
pairs = match_alpha_carbons(model.topology, closed.topology)


def report(stage: str) -> np.ndarray:
    """Print how well the model fits, and return its positions in Å."""
    state = simulation.context.getState(positions=True)
    positions = state.getPositions(asNumpy=True).value_in_unit(unit.angstrom)
    print(
        f"{stage:10s} Cα RMSD to the closed form {ca_rmsd(positions, closed.positions, pairs):5.2f} Å   "
        f"CC {correlation.cc_mask(positions):.3f}   similarity {fit.similarity(positions):.3f}",
        flush=True,
    )
    return positions


# Relax without density; then from weak to strong, hold, cool, and relax again.
report("start")
simulation.context.setParameter("density_strength", 0.0)
simulation.minimizeEnergy(maxIterations=200)
simulation.context.setVelocitiesToTemperature(300 * unit.kelvin, 1)
for part in np.geomspace(0.1, 1.0, 10):
    simulation.context.setParameter("density_strength", part * fit.default_strength)
    simulation.step(arguments.steps * 4 // 100)
report("ramp")
simulation.step(arguments.steps * 30 // 100)
report("hold")
for kelvin in np.linspace(300, 10, 10):
    integrator.setTemperature(kelvin)
    simulation.step(arguments.steps * 3 // 100)
simulation.minimizeEnergy(maxIterations=500)
positions = report("end")

write_cif(arguments.output / "fitted.cif", model.topology, positions)
