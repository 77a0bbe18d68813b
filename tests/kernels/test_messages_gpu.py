"""PaiNN's messages and network in Triton against the reference: in Triton's interpreter, or on a GPU when there is one."""

import pytest
import torch

pytest.importorskip("triton")

from openmm_density.kernels.messages import gpu_network, reference
from openmm_density.kernels.neighbors import neighbors

from .operators import DEVICE, in_triton, moved
from .test_messages import (
    BOXES,
    CUTOFF,
    assert_close,
    features_of,
    gradients_of,
    network_of,
    scene,
    weighted,
)

ON_GPU = torch.cuda.is_available()
N_ATOMS = 40 if ON_GPU else 5
painn = in_triton("messages", "painn")


@pytest.mark.parametrize(
    ("features", "layers", "box"),
    [(32, 2, "skewed"), (32, 1, "none")] + [(64, 3, "none"), (128, 3, "thin")] * ON_GPU,
)
def test_a_network_is_the_reference(features, layers, box, monkeypatch):
    if layers == 1:  # and rows are longer than the pairs that are read at once
        monkeypatch.setitem(gpu_network.SHAPES, features, (2, 4))
    network = network_of(features, layers, n_atoms=N_ATOMS)
    arguments = [*scene(BOXES[box], n_atoms=N_ATOMS), *network]
    assert_close(painn(*arguments), reference.painn(*arguments), 2e-5)


@pytest.mark.parametrize(
    ("features", "layers", "box"), [(32, 1, "none"), (32, 3, "skewed"), (64, 1, "skewed"), (64, 2, "none")]
)
def test_a_network_by_tiles_is_the_reference(features, layers, box, monkeypatch):
    """Tiles of which the last is not full, and an atom without neighbours."""
    monkeypatch.setattr(gpu_network, "TILED_FROM", 1)
    monkeypatch.setattr(gpu_network, "last_layer_kernel", None)  # it is not launched
    messages, (atoms, warps) = gpu_network.TILED_SHAPES[features]
    if not ON_GPU:  # which needs 16 or more for products of matrices
        atoms = 4
        monkeypatch.setitem(gpu_network.TILED_SHAPES, features, (messages, (atoms, warps)))
    n_atoms = N_ATOMS + 1
    positions, lattice, *_ = scene(None if box == "none" else 2 * BOXES[box], n_atoms=n_atoms)
    positions[-1] += 0.9
    arguments = [positions, lattice, *neighbors(positions, lattice, CUTOFF, True)[:3]]
    degrees = arguments[2].diff()
    assert n_atoms > atoms and n_atoms % atoms and degrees[-1] == 0 and degrees.any()
    arguments += network_of(features, layers, n_atoms=n_atoms)
    found, again = (painn(*arguments) for _ in range(2))
    assert_close(found, reference.painn(*arguments), 2e-5)
    assert all(torch.equal(one, other) for one, other in zip(found, again))


@pytest.mark.parametrize(
    ("features", "n_atoms", "unused"), [(32, 2, "last_layer"), (64, 1, "readout"), (128, 2, "readout")]
)
def test_many_atoms_are_by_tiles_but_with_128_features(features, n_atoms, unused, monkeypatch):
    monkeypatch.setattr(gpu_network, "TILED_FROM", 2)
    monkeypatch.setattr(gpu_network, f"{unused}_kernel", None)
    tables = [torch.zeros(n, dtype=torch.int32) for n in (n_atoms + 1, 0, 0)]
    arguments = [torch.zeros(n_atoms, 3), None, *tables, *network_of(features, 1, n_atoms=n_atoms)]
    assert_close(painn(*arguments), reference.painn(*arguments), 2e-5)


def test_no_atoms():
    tables = [torch.zeros(n, dtype=torch.int32) for n in (1, 0, 0)]
    arguments = [torch.zeros(0, 3), None, *tables, *network_of(n_atoms=0)]
    energy, gradient = painn(*arguments)
    assert energy == 0 and gradient.shape == (0, 3)


@pytest.mark.skipif(not ON_GPU, reason="no GPU")
class TestOnGpu:
    @pytest.mark.parametrize(("n_atoms", "size"), [(600, 3.5), (3000, 6)])
    def test_it_has_the_same_bits_each_time(self, n_atoms, size):
        pairs = scene(size * BOXES["skewed"], n_atoms=n_atoms)
        arguments = [*pairs, *network_of(64, n_atoms=n_atoms)]
        found = [painn(*arguments) for _ in range(4)]
        assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other))
        assert_close(found[0], torch.ops.openmm_density.painn(*arguments), 5e-5)

    def test_messages_are_the_reference_with_the_same_bits_each_time(self):
        arguments = [*scene(BOXES["skewed"], torch.float32), *features_of(64)]
        found, again = (moved(with_derivative(*moved(arguments, DEVICE)), "cpu") for _ in range(2))
        assert all(torch.equal(one, other) for one, other in zip(found, again))
        assert_close(found, with_derivative(*arguments), 1e-6)


def with_derivative(*arguments):
    inputs = [arguments[k].requires_grad_() for k in (0, 5, 6)]
    received = torch.ops.openmm_density.messages(*arguments)
    gradients = [each.to(received[0].device) for each in gradients_of(64)]
    found = torch.autograd.grad(weighted(received, gradients), inputs)
    return [each.detach() for each in (*received, *found)]
