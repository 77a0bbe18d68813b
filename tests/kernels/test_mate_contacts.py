"""Contacts of a unit with its images, C++ and Triton: against the reference, image by image in float64."""

import numpy as np
import pytest
import torch

from openmm_density.kernels import compilation
from openmm_density.kernels.pairs import mate_contacts, reference

from . import operators

SETTINGS = [0.7, 138.935, 78.3]


def case(n=90, dtype=torch.float64, seed=0, images=3):
    random = np.random.default_rng(seed)
    positions = torch.from_numpy(random.uniform(0, 2.0, size=(n, 3))).to(dtype)
    parameters = torch.from_numpy(random.uniform(0.1, 0.35, size=(n, 3))).float()
    parameters[::7] = 0.0
    parameters[:, 2] -= 0.2
    operators = np.empty((images, 3, 4))
    for image in operators:
        image[:, :3] = np.linalg.qr(random.normal(size=(3, 3)))[0]
        image[:, 3] = random.normal(0, 1.2, 3)
    excluded = [(i, g, j) for i in range(n) for g in range(images) for j in (3 * i % n, (i + g) % n)]
    excluded = torch.tensor(sorted(set(excluded[::5])), dtype=torch.int32)
    return positions, parameters, torch.from_numpy(operators), excluded


def assert_right(found, arguments, settings=SETTINGS):
    expected, exact = reference.mate_contacts(arguments[0].double(), *arguments[1:], 0.9, settings)
    energy, gradient = found
    assert energy.dtype == torch.float64 and gradient.dtype == arguments[0].dtype
    assert float(energy) == pytest.approx(float(expected), rel=1e-5, abs=1e-4)
    assert float((gradient.double() - exact).abs().max()) <= 1e-5 * float(exact.abs().max())


@pytest.fixture
def compiled():
    if not compilation.load("pairs"):
        pytest.skip("no C++ compiler")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_kernel_is_the_reference(compiled, dtype):
    arguments = case(300, dtype)
    assert_right(mate_contacts(*arguments, 0.9, SETTINGS), arguments)
    without_charges = [0.9, 0.0, 1.0]
    assert_right(mate_contacts(*arguments, 0.9, without_charges), arguments, without_charges)


def test_positions_that_are_no_numbers_and_no_images(compiled):
    positions, *tables = case(seed=4)
    positions[4, 1], positions[8, 2] = float("nan"), float("inf")
    arguments = (positions, *tables)
    assert_right(mate_contacts(*arguments, 0.9, SETTINGS), arguments)
    energy, gradient = mate_contacts(positions, tables[0], tables[1][:0], *tables[2:], 0.9, SETTINGS)
    assert float(energy) == 0 and not gradient.any()


@pytest.mark.parametrize("far", [-3e38, 1e300])
def test_atoms_beyond_all_reach_have_no_contacts(compiled, far):
    dtype = torch.float32 if abs(far) < 1e300 else torch.float64
    positions, *tables = case(seed=4, dtype=dtype)
    positions[4], positions[8] = far, -far
    arguments = (positions, *tables)
    found = mate_contacts(*arguments, 0.9, SETTINGS)
    assert_right(found, arguments)
    assert found[0] != 0 and not found[1][[4, 8]].any()


def case_with_one_lost_atom(far, n=70):
    positions, *tables = case(n, images=2)
    positions[5] = far * torch.tensor([1.0, -0.7, 0.3], dtype=torch.float64)
    return positions, *tables


@pytest.mark.parametrize("far", [1e3, 1e6, 1e12, 1e18])
def test_one_lost_atom_takes_no_digits_from_the_others(compiled, far):
    arguments = case_with_one_lost_atom(far)
    assert_right(mate_contacts(*arguments, 0.9, SETTINGS), arguments)


def test_every_number_of_threads_gives_the_same_bits(compiled):
    arguments = case(500)
    found = []
    for n in (1, 3):
        torch.set_num_threads(n)
        found.append(mate_contacts(*arguments, 0.9, SETTINGS))
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])


def test_the_gradient_is_that_of_the_energy_where_images_have_their_inverses(compiled):
    positions, parameters, images, excluded = case(60)
    turned = images[:1, :, :3]
    back = torch.cat([turned.mT, -turned.mT @ images[:1, :, 3:]], dim=2)
    both = torch.cat([images[:1], back]).contiguous()
    # A switch, and no charges: what is cut off is cut off smoothly.
    tables = parameters, both, excluded[:0], 0.9, [0.6, 0.0, 1.0]
    _, gradient = reference.mate_contacts(positions, *tables)
    direction = torch.from_numpy(np.random.default_rng(1).normal(size=positions.shape))
    ends = [float(reference.mate_contacts(positions + s * 1e-6 * direction, *tables)[0]) for s in (1, -1)]
    slope = (ends[0] - ends[1]) / 2e-6
    assert slope == pytest.approx(float((gradient * direction).sum()), rel=1e-5)


@pytest.mark.parametrize(
    ("message", "slot", "given"),
    [
        ("parameters must be", 1, torch.zeros(5, 3)),
        ("images must be", 2, torch.zeros(3, 3, 4)),
        ("cutoff must be a positive length, not 0", 4, 0.0),
        ("there must be 3 settings, not 2", 5, [1.0, 2.0]),
    ],
)
def test_bad_arguments_are_refused(compiled, message, slot, given):
    arguments = [*case(), 0.9, SETTINGS]
    arguments[slot] = given
    said = []
    for operator in (mate_contacts, reference.mate_contacts):
        with pytest.raises(ValueError, match=f"mate_contacts: {message}") as refused:
            operator(*arguments)
        said.append(str(refused.value))
    assert said[0] == said[1]


in_triton = operators.in_triton("pairs", "mate_contacts")


def test_triton_is_the_reference():
    arguments = case(70, torch.float32, images=2)
    arguments[0][4, 1] = float("nan")
    arguments = (*arguments[:3], arguments[3][:9].contiguous())
    found = in_triton(*arguments, 0.9, SETTINGS)
    assert_right(found, arguments)
    _, scaled = in_triton(*arguments, 0.9, SETTINGS, torch.tensor(-2.0, dtype=torch.float64))
    np.testing.assert_allclose(scaled, -2 * found[1], rtol=1e-6)


def test_triton_shares_images_among_programs_that_leave_out_pairs_of_all_of_them(monkeypatch):
    gpu_mates = pytest.importorskip("openmm_density.kernels.pairs.gpu_mates")
    # Pieces of two of three blocks, two of four pieces to a program, and pairs left out in each.
    monkeypatch.setattr(gpu_mates, "_shape_of_programs", lambda n_blocks: (2, 4))
    monkeypatch.setattr(gpu_mates, "_PROGRAMS", 6)
    positions, *tables = case(70, torch.float32, seed=2, images=2)
    # Far from the origin, where float32 holds no more than 1e-4.
    positions = (positions + 1000).float()
    turned, moved = tables[1][:, :, :3], tables[1][:, :, 3:]
    tables[1] = torch.cat([turned, moved + 1000 - (turned * 1000).sum(dim=2, keepdim=True)], dim=2)
    arguments = (positions, *tables)
    assert len(tables[2]) > 50
    assert_right(in_triton(*arguments, 0.9, SETTINGS), arguments)


@pytest.mark.parametrize("far", [1e3, 1e6, 1e12])
def test_triton_sees_no_atom_less_exactly_for_one_that_is_lost(far):
    arguments = case_with_one_lost_atom(far, 40)
    assert_right(in_triton(*arguments, 0.9, SETTINGS), arguments)


def test_triton_finds_no_contacts_where_no_atom_has_any():
    positions, parameters, images, excluded = case(40, torch.float32)
    energy, gradient = in_triton(positions, torch.zeros_like(parameters), images, excluded, 0.9, SETTINGS)
    assert float(energy) == 0 and not gradient.any()
