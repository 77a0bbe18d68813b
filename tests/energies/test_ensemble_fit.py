"""The force of an ensemble: the exact gradient of the mean density's similarity, and that of one model for one replica."""

from __future__ import annotations

import numpy as np
import openmm
import pytest
import torch

from openmm_density import DensityFit, DensityMap, EnsembleFit
from openmm_density.base.errors import InputError
from openmm_density.energies.replica_weights import refined_weights
from openmm_density.kernels.density import measures, reference
from openmm_density.models import prepare
from openmm_density.models.merging import displacements_apart, merge_systems

from ..contexts import context_of, energy_of, system_of
from ..fragments import RESOLUTION, fragment

WEIGHTS = [0.5, 0.2, 0.3]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return prepare(fragment(tmp_path_factory.mktemp("ensemble") / "6.pdb", residues=6))


@pytest.fixture(scope="module")
def density_map(model):
    return DensityMap.simulate(model.topology, model.positions + 0.4, RESOLUTION, 1.5)


@pytest.fixture(scope="module")
def fit(model, density_map):
    return DensityFit(density_map, model.topology, RESOLUTION, positions=model.positions)


@pytest.fixture(scope="module")
def shaken(model):
    noise = np.random.default_rng(1).normal(scale=0.5, size=(3, *model.positions.shape))
    return [model.positions + each for each in noise]


def free_particles(model):
    return system_of(model.topology.getNumAtoms())


def merged_context(ensemble, model, positions):
    in_nm = [each / 10 for each in positions]
    merged = merge_systems([free_particles(model)] * len(positions), displacements_apart(in_nm, 3.0))
    merged.system.addForce(ensemble.create_force(merged))
    context = context_of(merged.system)
    context.setPositions(merged.merged_positions(in_nm))
    return merged, context


def reference_similarity(ensemble, positions, weights, measure):
    """Return S in float64 by plain torch, and its derivatives with respect to positions (nm) and weights."""
    energy = ensemble.fit.create_module()
    x = torch.from_numpy(
        np.concatenate([each[ensemble.fit.atoms] for each in positions]) / 10
    ).requires_grad_()
    w = torch.tensor(weights, dtype=torch.float64, requires_grad=True)
    count = len(ensemble.fit.atoms)
    amplitudes = energy.amplitudes.double().repeat(len(weights), 1) * w.repeat_interleave(count)[:, None]
    exponents = energy.exponents.double().repeat(len(weights), 1)
    density = reference.density_splat(
        x,
        amplitudes,
        exponents,
        energy.cutoff,
        energy.matrix,
        energy.origin,
        list(energy.target.shape),
        False,
    )
    found = measures.similarity(density.ravel(), energy.target.double().ravel(), measure, energy.total_weight)
    found.backward()
    return float(found.detach()), x.grad.numpy(), w.grad.numpy()


def test_forces_and_weights_gradients_are_those_of_the_reference(fit, model, shaken):
    ensemble = EnsembleFit(fit, 3, WEIGHTS)
    merged, context = merged_context(ensemble, model, shaken)
    state = context.getState(energy=True, forces=True)
    similarity, by_position, by_weight = reference_similarity(ensemble, shaken, WEIGHTS, fit.measure.number)
    k = ensemble.default_strength
    assert k == pytest.approx(3 * fit.default_strength)
    assert state.getPotentialEnergy()._value == pytest.approx(k * (1 - similarity), rel=1e-5)
    forces = np.concatenate([each[fit.atoms] for each in merged.split(state.getForces(asNumpy=True)._value)])
    assert np.abs(forces - k * by_position).max() < 1e-4 * np.abs(k * by_position).max()
    found, gradient = ensemble.weight_gradient(shaken)
    assert found == pytest.approx(similarity, abs=1e-6) == ensemble.similarity(shaken)
    assert np.abs(gradient - by_weight).max() < 1e-4 * np.abs(by_weight).max()
    found, gradient = ensemble.position_gradient(shaken)
    assert found == pytest.approx(similarity, abs=1e-6) and gradient.shape == np.shape(shaken)
    expected = by_position.reshape(3, -1, 3) / 10  # of Å
    assert np.abs(gradient[:, fit.atoms] - expected).max() < 1e-4 * np.abs(expected).max()
    assert not np.delete(gradient, fit.atoms, axis=1).any()


def test_forces_are_those_of_finite_differences(fit, shaken):
    module = EnsembleFit(fit, 3, WEIGHTS).create_module()
    positions = torch.from_numpy(np.concatenate(shaken) / 10)
    weights, step = torch.tensor(WEIGHTS, dtype=torch.float64), 1e-3
    _, gradient = module.similarity(positions, weights)
    largest = int(gradient.abs().argmax())
    values = []
    for sign in (1, -1):
        moved = positions.clone()
        moved.view(-1)[largest] += sign * step
        values.append(float(module.similarity(moved, weights)[0]))
    assert (values[0] - values[1]) / (2 * step) == pytest.approx(float(gradient.view(-1)[largest]), rel=1e-3)


def test_one_replica_has_the_bits_of_one_model(fit, model, shaken):
    ensemble = EnsembleFit(fit, 1)
    alone, one = fit.create_module(), ensemble.create_module()
    positions, k = torch.from_numpy(shaken[0] / 10), torch.tensor(3e4, dtype=torch.float64)
    energy, forces = alone(positions, k)
    its_energy, its_forces = one(positions, torch.tensor([3e4, 1.0], dtype=torch.float64))
    assert torch.equal(energy, its_energy) and torch.equal(forces, its_forces)
    assert ensemble.similarity(shaken[:1]) == fit.similarity(shaken[0])
    system = free_particles(model)
    system.addForce(fit.create_force("NativeForce"))
    context = context_of(system, shaken[0])
    merged = merge_systems([free_particles(model)], np.zeros((1, 3)))
    merged.system.addForce(ensemble.create_force(merged))
    here = context_of(merged.system, shaken[0])
    states = [each.getState(energy=True, forces=True) for each in (context, here)]
    assert states[0].getPotentialEnergy() == states[1].getPotentialEnergy()
    assert np.array_equal(*(each.getForces(asNumpy=True)._value for each in states))


def test_the_module_is_the_same_by_torch_and_in_xml(fit, model, shaken):
    ensemble = EnsembleFit(fit, 3, WEIGHTS)
    merged, context = merged_context(ensemble, model, shaken)
    energy = energy_of(context)
    module = ensemble.create_module(merged.displacements)
    strengths = torch.tensor([ensemble.default_strength, *WEIGHTS], dtype=torch.float64)
    positions = merged.merged_positions([each / 10 for each in shaken])
    assert float(module(torch.from_numpy(positions), strengths)[0]) == pytest.approx(energy, rel=1e-6)
    system = openmm.XmlSerializer.deserialize(openmm.XmlSerializer.serialize(merged.system))
    again = context_of(system)
    again.setPositions(positions)
    assert energy_of(again) == energy


def test_weights_of_a_mixture_are_found(model):
    """Two states 3 Å apart in a map of 70 and 30%: found from equal weights, and set in a Context."""
    states = [model.positions, model.positions + np.array([3.0, 0.0, 0.0])]
    maps = [DensityMap.simulate(model.topology, model.positions, RESOLUTION, 1.5, margin=14.0)]
    maps.append(DensityMap.simulate(model.topology, states[1], RESOLUTION, like=maps[0]))
    maps[0].data[:] = 0.7 * maps[0].data + 0.3 * maps[1].data
    fit = DensityFit(maps[0], model.topology, RESOLUTION, positions=model.positions)
    ensemble = EnsembleFit(fit, 2)
    weights = ensemble.refine_weights(states)
    assert weights == pytest.approx([0.7, 0.3], abs=0.03)
    assert ensemble.similarity(states, weights) > ensemble.similarity(states)
    _, context = merged_context(ensemble, model, states)
    before = context.getState(energy=True).getPotentialEnergy()._value
    ensemble.set_weights(context, weights)
    assert context.getState(energy=True).getPotentialEnergy()._value < before
    assert context.getParameter("density_strength_weight_1") == pytest.approx(weights[1])
    # Three replicas of which two are in one place share its weight evenly.
    weights = EnsembleFit(fit, 3).refine_weights([states[0], states[1], states[0]], [0.1, 0.5, 0.4])
    assert weights == pytest.approx([0.35, 0.3, 0.35], abs=0.03)


def test_weights_stay_on_the_simplex():
    weights = refined_weights(lambda w: (float(w[0]), np.array([1.0, 0.0])), np.array([0.5, 0.5]), prior=0.0)
    assert weights.sum() == pytest.approx(1) and weights[0] > 0.999 and weights[1] > 0


def test_what_cannot_be_is_refused(fit, model, density_map, shaken):
    for replicas in (0, -1, 2.5, True):
        with pytest.raises(InputError, match="must be a whole number, 1 or more"):
            EnsembleFit(fit, replicas)
    with pytest.raises(InputError, match="at most 64"):
        EnsembleFit(fit, 65)
    for weights, problem in (
        ([1.0], "one for each"),
        ([0.7, 0.7], "add up to 1"),
        ([1.5, -0.5], "0 or more"),
    ):
        with pytest.raises(InputError, match=problem):
            EnsembleFit(fit, 2, weights)
    potential = DensityFit(
        density_map, model.topology, RESOLUTION, positions=model.positions, similarity="map-potential"
    )
    with pytest.raises(InputError, match="must compare densities"):
        EnsembleFit(potential, 2)
    linear = DensityFit(
        density_map, model.topology, RESOLUTION, positions=model.positions, similarity="inner-product"
    )
    with pytest.raises(InputError, match="must tell a mean density from its parts"):
        EnsembleFit(linear, 2)
    periodic = DensityFit(density_map, model.topology, RESOLUTION, positions=model.positions, periodic=True)
    with pytest.raises(InputError, match="must not be periodic"):
        EnsembleFit(periodic, 2)
    ensemble = EnsembleFit(fit, 2)
    merged = merge_systems([free_particles(model)] * 3, displacements_apart([shaken[0] / 10] * 3, 3.0))
    with pytest.raises(InputError, match="must be of 2 replicas"):
        ensemble.create_force(merged)
    with pytest.raises(InputError, match="must be those of each replica"):
        ensemble.similarity(shaken)
    with pytest.raises(InputError, match="must be NativeForce or CudaGraphForce"):
        ensemble.create_force(merge_systems([free_particles(model)] * 2, np.eye(3)[:2] * 9), "TorchForce")
