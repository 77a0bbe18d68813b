"""The gradient that students learn by, against one that is differentiated twice."""

import numpy as np
import pytest
import torch
from torch.nn.functional import smooth_l1_loss

from openmm_density.extensions.distillation import students
from openmm_density.extensions.distillation.students import Student, TrainingData


@pytest.fixture
def learning(potential):
    """Return a student of methanol, and geometries far from the origin with energies and forces of no meaning."""
    generator = np.random.default_rng(1)
    positions = generator.uniform(20.0, 20.4, (5, 6, 3))
    data = TrainingData(positions, generator.normal(-4e5, 50, 5), generator.normal(0, 900, (5, 6, 3)))
    network = {"features": 32, "layers": 2, "n_radial": 6, "cutoff": 0.5}
    return Student(potential.ligand, data, network, 1), data


def by_second_derivatives(student, data):
    """Return the loss and its gradient by the weights, in float64 and with nothing but autograd."""
    network, spread = student.network.double(), data.forces.std()
    positions = torch.tensor(data.positions, requires_grad=True)
    energies = network(positions)
    (gradient,) = torch.autograd.grad(energies.sum(), positions, create_graph=True)
    off = (-gradient - torch.tensor(data.forces)) / spread
    loss = smooth_l1_loss(off, torch.zeros_like(off), beta=students._HUBER)
    errors = (energies - torch.tensor(data.energies)) / (students._ENERGY_UNIT * spread * 6**0.5)
    weight = students._ENERGY_WEIGHT
    loss = loss + weight * smooth_l1_loss(errors, torch.zeros_like(errors), beta=students._HUBER)
    return loss, torch.autograd.grad(loss, list(network.parameters()), materialize_grads=True)


@pytest.mark.parametrize("compiled", [True, False])
def test_the_gradient_by_finite_differences_is_that_of_second_derivatives(learning, compiled, monkeypatch):
    student, data = learning
    if not compiled:
        monkeypatch.setattr(students.compilation, "load", lambda name: False)
    centred = torch.tensor(data.positions - data.positions.mean(1, keepdims=True))
    loss, differentiable = student._loss(centred, torch.tensor(data.energies), torch.tensor(data.forces))
    differentiable.backward()
    found = [torch.zeros_like(w) if w.grad is None else w.grad for w in student.network.parameters()]
    expected_loss, expected = by_second_derivatives(student, data)
    torch.testing.assert_close(loss, expected_loss.detach(), rtol=1e-5, atol=0)
    flat, oracle = (torch.cat([each.double().flatten() for each in some]) for some in (found, expected))
    assert oracle.norm() > 0
    assert (flat - oracle).norm() < 5e-3 * oracle.norm()
