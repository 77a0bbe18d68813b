"""The density forces of models side by side are those of each alone."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from openmm_density import DensityFit, DensityMap
from openmm_density.base.errors import DeveloperWarning, InputError
from openmm_density.energies.copies import copy_parameter_names, density_forces_of_copies
from openmm_density.models import prepare
from openmm_density.models.merging import displacements_apart, merge_systems
from openmm_density.restraints import PlanarityRestraint

from ..contexts import context_of, energy_of, forces_of, system_of
from ..fragments import RESOLUTION, fragment

STRENGTHS = [300.0, 0.0, 900.0]


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Two molecules, each with a density of another measure or resolution, one of them twice."""
    folder = tmp_path_factory.mktemp("copies")
    models = [prepare(fragment(folder / f"{n}.pdb", residues=n)) for n in (6, 4)]
    fits, systems, positions = [], [], []
    for model, resolution, similarity in (
        (models[0], RESOLUTION, "cross-correlation"),
        (models[1], 6.0, "map-potential"),
        (models[0], RESOLUTION, "cross-correlation"),
    ):
        density_map = DensityMap.simulate(model.topology, model.positions + 0.4, RESOLUTION, 1.5)
        fits.append(
            DensityFit(
                density_map, model.topology, resolution, similarity=similarity, positions=model.positions
            )
        )
        systems.append(system_of(model.topology.getNumAtoms()))
        positions.append(model.positions / 10 + 0.01 * len(systems))
    return models, fits, systems, positions


def expected(fits, positions):
    found = []
    for fit, own, k in zip(fits, positions, STRENGTHS):
        energy, forces = fit.create_module()(torch.from_numpy(own), torch.tensor(k, dtype=torch.float64))
        found.append((float(energy), forces.numpy()))
    return found


@pytest.mark.parametrize("backend", ["auto", "CudaGraphForce"])
def test_each_is_pulled_into_its_own_map_by_its_own_strength(parts, backend):
    """``CudaGraphForce`` is evaluated through Python here."""
    if backend == "CudaGraphForce":
        pytest.importorskip("triton")
    _, fits, systems, positions = parts
    merged = merge_systems(systems, displacements_apart(positions, 3.0))
    forces = density_forces_of_copies(fits, merged, backend)
    assert len(forces) == (1 if backend == "CudaGraphForce" else 3)
    for force in forces:
        merged.system.addForce(force)
    context = context_of(merged.system)
    context.setPositions(merged.merged_positions(positions))
    names = copy_parameter_names(fits)
    assert names == ["density_strength_0", "density_strength_1", "density_strength_2"]
    assert context.getParameter(names[0]) == fits[0].default_strength
    for name, k in zip(names, STRENGTHS):
        context.setParameter(name, k)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeveloperWarning)
        state = context.getState(energy=True, forces=True)
    alone = expected(fits, positions)
    energy = state.getPotentialEnergy()._value
    assert energy == pytest.approx(sum(each[0] for each in alone), rel=1e-5)
    largest = max(np.abs(each[1]).max() for each in alone)
    assert largest > 10
    for here, (_, there) in zip(merged.split(state.getForces(asNumpy=True)._value), alone):
        assert np.abs(here - there).max() < 1e-4 * largest


def test_fits_that_are_not_those_of_the_systems_are_refused(parts):
    _, fits, systems, positions = parts
    merged = merge_systems(systems, displacements_apart(positions, 3.0))
    with pytest.raises(InputError, match="one fit for each merged System"):
        density_forces_of_copies(fits[:2], merged)


def test_the_flat_groups_of_copies_are_held_flat_by_one_force(parts):
    models, _, _, _ = parts
    model = models[0]
    restraint = PlanarityRestraint(model.topology, model.positions)
    n = model.topology.getNumAtoms()
    shaken = np.random.default_rng(0).normal(scale=0.01, size=(2, n, 3)) + model.positions / 10
    shaken[1] += 5.0
    context = context_of(system_of(2 * n, restraint.create_force_of_copies([0, n], 2 * n)))
    context.setPositions(shaken.reshape(-1, 3))
    module, one = restraint.create_module(), torch.ones((), dtype=torch.float64)
    alone = [module(torch.from_numpy(each), one) for each in shaken]
    assert energy_of(context) == pytest.approx(sum(float(e) for e, _ in alone), rel=1e-5)
    wanted = torch.cat([forces for _, forces in alone]).numpy()
    assert np.abs(forces_of(context) - wanted).max() < 1e-3 * np.abs(wanted).max()
