"""A short peptide in its map, with the forces that fits have."""

from __future__ import annotations

from types import SimpleNamespace

import openmm
import pytest

from openmm_density import DensityFit, DensityMap
from openmm_density.extensions.replica_exchange import ReplicaExchange
from openmm_density.models import prepare
from openmm_density.restraints import make_restraints

from ...fragments import RESOLUTION, fragment


@pytest.fixture(scope="session")
def peptide(tmp_path_factory):
    model = prepare(fragment(tmp_path_factory.mktemp("peptide") / "model.pdb", residues=6))
    density_map = DensityMap.simulate(model.topology, model.positions + 0.3, RESOLUTION, 1.5)
    system = model.system(hydrogen_mass=3.0)
    planarity, chirality = make_restraints(
        "planarity,chirality", model.topology, model.positions, options={"planarity": {"system": system}}
    )
    density = DensityFit(density_map, model.topology, RESOLUTION, system=system, positions=model.positions)
    for force in (planarity.create_force(), chirality.create_force(), density.create_force()):
        system.addForce(force)
    context = openmm.Context(
        system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("CPU"), {"Threads": "1"}
    )
    context.setPositions(model.positions / 10)
    openmm.LocalEnergyMinimizer.minimize(context, maxIterations=30)
    positions = 10 * context.getState(positions=True).getPositions(asNumpy=True)._value
    return SimpleNamespace(system=system, density=density, planarity=planarity, positions=positions)


@pytest.fixture(scope="session")
def exchange_of(peptide):
    """Make replicas of the peptide."""

    def make(ladder, **options):
        given = {"planarity": peptide.planarity, "friction": 5.0, "seed": 3, **options}
        positions = given.pop("positions", peptide.positions)
        return ReplicaExchange(peptide.system, peptide.density, ladder, positions, **given)

    return make
