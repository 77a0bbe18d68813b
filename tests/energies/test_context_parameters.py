"""Two densities that would share one strength are told of, when the second is made and when they are evaluated."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import openmm
import pytest
from openmm import app

from openmm_density import DensityFit, DensityMap, DensityReporter
from openmm_density.models import Model

from ..contexts import system_of
from ..fragments import fragment

RESOLUTION = 5.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return fragment(tmp_path_factory.mktemp("model") / "model.pdb", residues=8)


@pytest.fixture(scope="module")
def maps(model: Model) -> tuple[DensityMap, DensityMap]:
    return tuple(
        DensityMap.simulate(model.topology, model.positions + shift, RESOLUTION, 1.5) for shift in (0.0, 2.0)
    )


def topology_of(model: Model) -> app.Topology:
    """Return a topology of its own: what was made for another test is of no matter."""
    return copy.deepcopy(model.topology)


def fit_of(model: Model, density_map: DensityMap, topology: app.Topology, **options: object) -> DensityFit:
    return DensityFit(density_map, topology, RESOLUTION, positions=model.positions, **options)


@contextmanager
def silence() -> Iterator[None]:
    """Fail where a shared parameter is warned of."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*parameter_name")
        yield


def test_the_second_force_of_a_topology_is_told_of(model: Model, maps: tuple[DensityMap, ...]) -> None:
    topology = topology_of(model)
    one, two = (fit_of(model, each, topology) for each in maps)
    with silence():
        one.create_force()
        # The same made anew is for another System.
        one.create_force()
        fit_of(model, maps[0], topology).create_force()
        fit_of(model, maps[1], topology_of(model)).create_force()
        fit_of(model, maps[1], topology, parameter_name="other").create_force()
    with pytest.warns(
        UserWarning, match='"density_strength".*would share one strength.*parameter_name'
    ) as told:
        two.create_force()
    # Torch warns of TorchScript, too, from 2.11 on.
    assert [each.filename for each in told if issubclass(each.category, UserWarning)] == [__file__]


@pytest.mark.parametrize("shared", [True, False])
def test_forces_that_share_a_strength_are_told_of_where_they_are_evaluated(
    model: Model, maps: tuple[DensityMap, ...], shared: bool
) -> None:
    topology, system = topology_of(model), system_of(len(model.positions))
    names = ("k", "k") if shared else ("k", "l")
    fits = [
        fit_of(model, each, topology, parameter_name=name, force_group=group)
        for group, (each, name) in enumerate(zip(maps, names), start=1)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for fit in fits:
            system.addForce(fit.create_force())
    springs = openmm.CustomExternalForce("10*x")
    for index in range(len(model.positions)):
        springs.addParticle(index, [])
    system.addForce(springs)
    integrator = openmm.VerletIntegrator(0.001)
    simulation = app.Simulation(topology, system, integrator, openmm.Platform.getPlatformByName("Reference"))
    simulation.context.setPositions(model.positions / 10)
    simulation.reporters.append(DensityReporter(io.StringIO(), 1, fits[0]))
    if not shared:
        with silence():
            fits[0].calibrate(simulation.context)
            simulation.step(1)
        return
    said = r'2 forces \(DensityFit\) with the parameter "k": whatever sets it sets all of them'
    with pytest.warns(UserWarning, match=said):
        fits[0].calibrate(simulation.context)
    with pytest.warns(UserWarning, match=said):
        simulation.step(1)
