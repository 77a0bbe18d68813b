"""PaiNN's messages and network against the float64 reference, finite differences and the network that is trained."""

import math

import pytest
import torch

from openmm_density.kernels import compilation
from openmm_density.kernels.messages import example, messages, painn, reference
from openmm_density.kernels.neighbors import neighbors

CUTOFF = 0.5
BOXES = {
    "none": None,
    "skewed": torch.tensor([[1.1, 0, 0], [0.3, 1.0, 0], [-0.2, 0.2, 0.9]], dtype=torch.float64),
    "thin": torch.tensor([[0.8, 0, 0], [0.1, 0.7, 0], [0, -0.1, 1.0]], dtype=torch.float64),
}
all_boxes = pytest.mark.parametrize("box", BOXES.values(), ids=BOXES.keys())
all_features = pytest.mark.parametrize("features", reference.FEATURES)


@pytest.fixture(scope="module", autouse=True)
def compiled():
    if not (compilation.load("messages") and compilation.load("neighbors")):
        pytest.skip("no C++ compiler")


def draws(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.rand(shape, generator=generator) - 0.5


def scene(box=None, dtype=torch.float64, n_atoms=40):
    """Return positions, box and a list both ways, with pairs beyond the cut-off; two atoms are very near one another."""
    places = draws(1)(n_atoms, 3).double()
    places[1] = places[0] + 0.05
    positions = (places if box is None else places @ box).to(dtype)
    return [positions, box, *neighbors(positions, box, CUTOFF + 0.1, True)[:3]]


def features_of(features, n_radial=8, n_atoms=40):
    draw = draws(2)
    sent, vectors = draw(n_atoms, 3 * features), draw(n_atoms, 3, features)
    return [sent, vectors, draw(n_radial + 1, 3 * features), CUTOFF]


def gradients_of(features, n_atoms=40):
    draw = draws(3)
    return [draw(n_atoms, features), draw(n_atoms, 3, features)]


def network_of(features=32, layers=3, n_radial=8, n_atoms=40):
    kinds = torch.arange(n_atoms, dtype=torch.int32) % 3
    return [kinds, example.weights(draws(4), 3, features, layers, n_radial), CUTOFF]


def assert_close(found, expected, tight):
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape and one.is_contiguous()
        if one.numel():
            assert (one.double() - other.double()).abs().max() <= tight * max(1, other.abs().max())


@all_features
@all_boxes
def test_messages_and_their_derivative_are_those_that_autograd_finds(features, box):
    """Of the definition, pair by pair."""
    n_atoms = 6
    positions, lattice, *listed = scene(box, n_atoms=n_atoms)
    sent, vectors, filter, cutoff = features_of(features, n_atoms=n_atoms)
    inputs = [each.double().requires_grad_() for each in (positions, sent, vectors)]
    received = by_definition(inputs[0], lattice, *listed, *inputs[1:], filter.double())
    given = [each.requires_grad_() for each in (positions, sent, vectors)]
    found = messages(given[0], lattice, *listed, *given[1:], filter, cutoff)
    assert_close(found, [each.detach().float() for each in received], 2e-6)
    gradients = gradients_of(features, n_atoms)
    wanted = torch.autograd.grad(weighted(received, gradients), inputs)
    found = torch.autograd.grad(weighted(found, gradients), given)
    assert_close([each.double() for each in found], wanted, 5e-6)


def weighted(received, gradients):
    return sum((one * other).sum() for one, other in zip(received, gradients))


def by_definition(positions, box, offsets, neighbors, shifts, sent, vectors, filter):
    """Return what every atom receives."""
    scalars, moved = [], []
    for i in range(len(positions)):
        s, v = torch.zeros(sent.shape[1] // 3).double(), torch.zeros(vectors.shape[1:]).double()
        for entry in range(int(offsets[i]), int(offsets[i + 1])):
            j, code = int(neighbors[entry]), int(shifts[entry])
            x = (code + 512) % 1024 - 512
            y = ((code - x) // 1024 + 512) % 1024 - 512
            steps = torch.tensor([x, y, ((code - x) // 1024 - y) // 1024]).double()
            d = positions[j] - positions[i] + (0 if box is None else steps @ box)
            r = d.norm()
            if r < CUTOFF:
                waves = [(n * math.pi * r / CUTOFF).sin() / r for n in range(1, len(filter))]
                basis = (
                    torch.stack([*waves, torch.ones(()).double()]) * ((math.pi * r / CUTOFF).cos() + 1) / 2
                )
                w, along, carried = (basis @ filter * sent[j]).chunk(3)
                s, v = s + w, v + along * (d / r)[:, None] + carried * vectors[j]
        scalars.append(s)
        moved.append(v)
    return torch.stack(scalars), torch.stack(moved)


@all_features
@all_boxes
def test_a_network_is_the_reference(features, box, poisoned):
    arguments = [*scene(box), *network_of(features)]
    assert_close(painn(*arguments), reference.painn(*arguments), 2e-5)


def test_forces_are_finite_differences():
    """Of the reference, which is all float64, to a part in 10⁴ of the largest."""
    arguments = [*scene(), *network_of()]
    gradient = painn(*arguments)[1]
    step = 1e-6
    for atom, axis in ((0, 0), (5, 1), (13, 2), (39, 0)):
        energies = []
        for sign in (-1, 1):
            moved = arguments[0].clone()
            moved[atom, axis] += sign * step
            energies.append(reference.painn(moved, *arguments[1:])[0])
        slope = (energies[1] - energies[0]) / (2 * step)
        assert abs(slope - gradient[atom, axis]) < 1e-4 * gradient.abs().max()


def test_filters_that_are_too_many_to_be_kept_are_worked_out_where_they_are_needed():
    n_atoms = 600
    arguments = [*scene(2 * BOXES["skewed"], n_atoms=n_atoms), *network_of(32, 2, n_atoms=n_atoms)]
    assert arguments[2][-1] // 2 * 3 * 32 * 2 * 4 > 8 << 20
    assert_close(painn(*arguments), reference.painn(*arguments), 2e-5)


@all_boxes
def test_any_number_of_threads_gives_the_same_bits(box):
    found = []
    for n_threads in (1, 2, 3, 2):
        torch.set_num_threads(n_threads)
        arguments = [*scene(box), *features_of(64)]
        inputs = [arguments[k].requires_grad_() for k in (0, 5, 6)]
        received = messages(*arguments)
        by_inputs = torch.autograd.grad(weighted(received, gradients_of(64)), inputs)
        found.append([*received, *by_inputs, *painn(*scene(box), *network_of(64))])
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other))


def test_atoms_in_one_place_and_atoms_that_are_nowhere_have_finite_gradients():
    positions = torch.tensor([[0.0, 0, 0], [0.0, 0, 0], [0.2, 0, 0], [float("nan"), 0, 0]])
    listed = [torch.arange(5, dtype=torch.int32) * 3]
    listed += [
        torch.tensor([1, 2, 3, 0, 2, 3, 0, 1, 3, 0, 1, 2], dtype=torch.int32),
        torch.zeros(12, dtype=torch.int32),
    ]
    energy, gradient = painn(positions, None, *listed, *network_of(n_atoms=4))
    assert energy.isfinite() and gradient.isfinite().all() and not gradient[3].any()


@pytest.mark.parametrize("n_atoms", [0, 1])
def test_no_pairs(n_atoms):
    tables = [torch.zeros(n, dtype=torch.int32) for n in (n_atoms + 1, 0, 0)]
    arguments = [torch.zeros(n_atoms, 3), None, *tables, *network_of(n_atoms=n_atoms)]
    assert_close(painn(*arguments), reference.painn(*arguments), 2e-6)
    arguments[5:] = features_of(32, n_atoms=n_atoms)
    assert not any(tensor.any() for tensor in messages(*arguments))


WRONG = {
    "positions must be a float32 or float64 tensor": (0, torch.zeros(40, 2)),
    "box must be a float32 or float64 tensor": (1, torch.zeros(3)),
    "offsets must be a contiguous tensor": (2, torch.zeros(40, dtype=torch.int32)),
    "shifts must be a contiguous tensor": (4, torch.zeros(2, dtype=torch.int32)),
    "there may be 32, 64 or 128 features, not 16": (5, torch.zeros(40, 48)),
    "vectors must be a contiguous tensor": (6, torch.zeros(40, 32, 3)),
    "there may be 1 to 128 radial functions, not 0": (7, torch.zeros(1, 96)),
    "there may be 1 to 128 radial functions, not 200": (7, torch.zeros(201, 96)),
    "cutoff must be a positive length": (8, -1.0),
}
all_wrong = pytest.mark.parametrize(("message", "change"), WRONG.items(), ids=WRONG.keys())


@all_wrong
def test_bad_arguments_are_refused(message, change):
    arguments = [*scene(), *features_of(32)]
    arguments[change[0]] = change[1]
    with pytest.raises(ValueError, match=f"messages: {message}"):
        messages(*arguments)


def test_lists_that_are_wrong_are_refused():
    arguments = [*scene(), *network_of()]
    once = neighbors(arguments[0], None, CUTOFF)[:3]
    with pytest.raises(ValueError, match="must have every pair both ways"):
        painn(arguments[0], None, *once, *arguments[5:])
    arguments[3] = arguments[3].clone()
    arguments[3][0] = 99
    with pytest.raises(ValueError, match="an index that is none of the 40 atoms'"):
        painn(*arguments)
    with pytest.raises(ValueError, match="offsets must rise from 0"):
        painn(*arguments[:2], arguments[2] + 1, *arguments[3:])


def test_weights_that_make_no_network_are_refused():
    scene_, (kinds, weights, cutoff) = scene(), network_of()
    for function in (painn, reference.painn):
        with pytest.raises(ValueError, match="there must be 6 weights and 15 for each layer, not 50"):
            function(*scene_, kinds, weights[:-1], cutoff)
        with pytest.raises(ValueError, match="weight 12 must be a contiguous tensor"):
            function(*scene_, kinds, [*weights[:12], weights[12][:, :3], *weights[13:]], cutoff)
    with pytest.raises(ValueError, match="kinds holds 2, but there are 2 kinds"):
        painn(*scene_, kinds, [weights[0][:2].contiguous(), *weights[1:]], cutoff)
