import json

import pytest
import torch

from openmm_density.base.errors import InputError
from openmm_density.energies.painn_network import PaiNNNetwork

ETHANOL = [6, 6, 8, 1, 1, 1, 1, 1, 1]


def make(features=32, layers=2, elements=ETHANOL, dtype=torch.float64, **options):
    torch.manual_seed(0)
    return PaiNNNetwork(elements, features, layers, n_radial=8, **options).to(dtype)


def draw(n=9, *, batch=(), seed=0):
    generator = torch.Generator().manual_seed(seed)
    return 0.5 * torch.rand((*batch, n, 3), generator=generator, dtype=torch.float64)


def forces_of(network, positions):
    positions = positions.clone().requires_grad_(True)
    return -torch.autograd.grad(network(positions).sum(), positions)[0]


def test_energy_and_forces_turn_and_move_with_the_molecule():
    network, positions = make(), draw()
    turn = torch.linalg.qr(draw(3, seed=1) - 0.25).Q
    turn = turn * torch.linalg.det(turn)
    moved = positions @ turn.T + 3.0
    torch.testing.assert_close(network(moved), network(positions), rtol=1e-12, atol=1e-10)
    torch.testing.assert_close(
        forces_of(network, moved), forces_of(network, positions) @ turn.T, rtol=1e-9, atol=1e-9
    )


def test_it_is_differentiable_twice():
    network, positions = make(elements=[6, 8, 1], layers=1), draw(3)
    assert torch.autograd.gradcheck(network, positions.requires_grad_(True))
    assert torch.autograd.gradgradcheck(network, positions)


def test_geometries_of_a_batch_are_on_their_own():
    network, positions = make(), draw(batch=(2, 3))
    alone = torch.stack([network(geometry) for geometry in positions.flatten(0, 1)]).reshape(2, 3)
    torch.testing.assert_close(network(positions), alone)


def test_atoms_beyond_the_cutoff_do_not_matter_and_come_in_smoothly():
    network = make(elements=[6, 8], cutoff=0.4)
    pair = torch.tensor([[0.0, 0, 0], [0.4, 0, 0]], dtype=torch.float64)
    far = network(pair * 3)
    assert network(pair * 1.0001) == far
    assert abs(network(pair * 0.999) - far) < 1e-4
    assert forces_of(network, pair * 0.9999).abs().max() < 1e-2


def test_differences_of_large_energies_keep_their_digits():
    network, positions = make(dtype=torch.float32), draw().float()
    small = network(positions)
    network.mean_energy.fill_(-4.0e6)
    network.element_offsets.copy_(torch.tensor([1.0e-3, 2.0e-3, 3.0e-3], dtype=torch.float64))
    network = network.double().float()
    assert network.mean_energy.dtype == torch.float64 and network(positions).dtype == torch.float64
    assert network(positions).item() == pytest.approx(
        small.item() - 4.0e6 + 2 * 2e-3 + 3e-3 + 6 * 1e-3, abs=1e-8
    )


def test_tensors_and_settings_make_the_same_network():
    network, positions = make(dtype=torch.float32), draw().float()
    settings = json.loads(json.dumps(network.settings))
    again = PaiNNNetwork.from_tensors(network.tensors(), settings)
    assert torch.equal(again(positions), network(positions))
    with pytest.raises(
        InputError, match=r"tensors must be those that a network .*, found no readout\.0\.bias: "
    ):
        PaiNNNetwork.from_tensors(
            {k: v for k, v in network.tensors().items() if k != "readout.0.bias"}, settings
        )
    with pytest.raises(InputError, match=r'"element_offsets" must have the shape'):
        PaiNNNetwork.from_tensors(network.tensors(), settings | {"elements": [6, 8]})
    with pytest.raises(InputError, match=r"found more too: "):
        PaiNNNetwork.from_tensors(network.tensors() | {"more": torch.zeros(1)}, settings)
    with pytest.raises(InputError, match=r"settings must hold elements, .*, found features: "):
        PaiNNNetwork.from_tensors(network.tensors(), {"features": 32})
    with pytest.raises(InputError, match=r"may hold features, layers, n_radial, cutoff, found depth: "):
        PaiNNNetwork.from_tensors(network.tensors(), settings | {"depth": 3})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"elements": [6, 0]}, "elements must be atomic numbers from 1 to 118, found 0"),
        ({"elements": ["C"]}, "elements must be atomic numbers from 1 to 118, found "),
        ({"elements": []}, "elements must be atomic numbers .*, found none"),
        ({"features": 48}, "features must be 32, 64 or 128, found 48"),
        ({"layers": 0}, "layers must be a whole number of 1 or more"),
        ({"layers": "three"}, "layers must be a whole number of 1 or more, found "),
        ({"n_radial": 129}, "n_radial must be a whole number from 1 to 128, found 129"),
        ({"cutoff": -1.0}, "cutoff must be a positive length"),
        ({"cutoff": "wide"}, "cutoff must be a positive length"),
    ],
)
def test_numbers_that_make_no_network_are_refused(options, sentence):
    with pytest.raises(InputError, match=sentence):
        PaiNNNetwork(**{"elements": [6]} | options)
