"""Pull a few atoms into the density of others: the compiled kernels, a density force, and OpenMM work together."""

import numpy as np
import openmm
import torch
from openmm import app, unit

from openmm_density import DensityFit, DensityMap
from openmm_density.kernels import compilation
from openmm_density.kernels.density import density_splat

VOXEL = 1.0  # Å
CELLS = 30

assert compilation.load("density"), compilation.error_text("density")
atoms = np.random.default_rng(0).uniform(10, 20, (20, 3))
ones = torch.ones(20, 1)
where = torch.eye(3, dtype=torch.float64) * VOXEL, torch.zeros(3, dtype=torch.float64)
density = density_splat(torch.from_numpy(atoms), ones, ones * 0.4, 5.0, *where, [CELLS] * 3, False)

topology = app.Topology()
chain = topology.addChain()
for _ in atoms:
    topology.addAtom("C", app.element.carbon, topology.addResidue("UNK", chain))
system = openmm.System()
for _ in atoms:
    system.addParticle(12.0)
positions = (atoms + 0.8) * unit.angstrom
fit = DensityFit(
    DensityMap(density.numpy(), np.eye(3) * VOXEL, np.zeros(3)), topology, resolution=5.0, positions=positions
)
system.addForce(fit.create_force())
platform = openmm.Platform.getPlatformByName("CPU")
context = openmm.Context(system, openmm.LangevinMiddleIntegrator(300, 1, 0.002), platform)
context.setPositions(positions)
before = fit.similarity(positions)
openmm.LocalEnergyMinimizer.minimize(context, maxIterations=50)
after = fit.similarity(context.getState(positions=True).getPositions(asNumpy=True))
print(f"similarity {before:.3f} before, {after:.3f} after")
assert after > before
