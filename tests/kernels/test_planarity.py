"""The planarity operator against finite differences, float64 `eigh`, conservation laws and bad input."""

import itertools
import math

import numpy as np
import pytest
import torch

from openmm_density.kernels import compilation
from openmm_density.kernels.autograd import with_scale
from openmm_density.kernels.planarity import deviations, pack_planes, planarity, reference

from . import operators
from .conftest import poisoned_memory

SIZES = range(4, 13)
SIGMA = 0.02

kernels = operators.implementations("planarity", planarity)
implementations = operators.implementations("planarity", planarity, reference.planarity)
both_types = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


@pytest.fixture(scope="module", autouse=True)
def compiled():
    if not compilation.load("planarity"):
        pytest.skip("no C++ compiler")


shapes = pytest.mark.parametrize(
    "shape",
    [
        (1.4, 1.2, 0.03),
        (1.4, 1.4, 1e-4),
        (1.0, 1.0, 0.9),
        (2.0, 0.1, 0.01),
        (3.0, 1e-2, 1e-3),
        (3.0, 1e-3, 3e-4),
    ],
    ids=["ring", "nearly flat", "blob", "narrow", "narrower", "needle"],
)


def groups(n_planes, size, shape=(1.5, 1.5, 0.05), centre=100.0, seed=0):
    """Return n_planes randomly turned groups of atoms, of the given standard deviations along their axes."""
    random = np.random.default_rng(seed)
    atoms = random.normal(size=(n_planes, size, 3)) * shape
    turns = np.linalg.qr(random.normal(size=(n_planes, 3, 3)))[0]
    return torch.from_numpy(atoms @ turns + random.uniform(-centre, centre, (n_planes, 1, 3)))


def packed(n_planes, size, sigmas=SIGMA):
    return pack_planes([(np.arange(n_planes * size).reshape(n_planes, size), sigmas)])


def mixed(n_planes=40, centre=30.0, per_atom=False, seed=0, dtype=torch.float64):
    """Return the positions and planes of all sizes, some of whose atoms belong to two planes."""
    random = np.random.default_rng(seed)
    positions, planes, start = [], [], 0
    for size in SIZES:
        positions.append(groups(n_planes, size, centre=centre, seed=seed + size).reshape(-1, 3))
        indices = start + np.arange(n_planes * size).reshape(n_planes, size)
        planes.append((indices, random.uniform(0.01, 0.1, indices.shape if per_atom else n_planes)))
        # The first four atoms of two neighbours, as peptide groups share their Cα.
        planes.append((np.hstack([indices[:-1, :2], indices[1:, 2:4]])[::7], 0.5))
        start += n_planes * size
    return torch.cat(positions).to(dtype), pack_planes(planes, n_atoms=start)


def assert_normals_match_eigh(shape, n_planes, function):
    """Compare the directions of the forces, which are the planes' normals, with float64 of the same coordinates."""
    size = 6
    positions = groups(n_planes, size, shape, centre=1.0).float()
    gradient = function(positions.reshape(-1, 3), *packed(n_planes, size))[1].double()
    gradient = gradient.reshape(n_planes, size, 3)
    strongest = gradient.norm(dim=-1).argmax(1)
    force = gradient[torch.arange(n_planes), strongest]
    normal = force / force.norm(dim=-1, keepdim=True)

    centred = positions.double() - positions.double().mean(1, keepdim=True)
    eigenvalues, eigenvectors = torch.linalg.eigh(centred.transpose(1, 2) @ centred)
    sine = torch.linalg.cross(normal, eigenvectors[..., 0]).norm(dim=-1)
    assert (sine <= 1e-6 * eigenvalues[:, 2] / (eigenvalues[:, 1] - eigenvalues[:, 0])).all()


def assert_no_net_force_and_torque(n_planes, size, function):
    positions = groups(n_planes, size, centre=500.0, seed=size)
    sigmas = np.random.default_rng(size).uniform(0.01, 0.1, (n_planes, size))
    gradient = function(positions.reshape(-1, 3), *packed(n_planes, size, sigmas))[1].reshape(positions.shape)
    scale = gradient.norm(dim=-1).sum(1)
    assert (gradient.sum(1).norm(dim=-1) < 1e-6 * scale).all()
    centred = positions - positions.mean(1, keepdim=True)
    torque = torch.linalg.cross(centred, gradient).sum(1).norm(dim=-1)
    assert (torque < 2e-5 * scale * centred.norm(dim=-1).amax(1)).all()


def central_differences(positions, energy, step=1e-4):
    """Differentiate the energy to fourth order in the step."""
    result = torch.zeros_like(positions)
    for index in np.ndindex(*positions.shape):
        for factor, weight in ((-2, 1 / 12), (-1, -2 / 3), (1, 2 / 3), (2, -1 / 12)):
            moved = positions.clone()
            moved[index] += factor * step
            result[index] += weight * energy(moved) / step
    return result


def largest(tensor):
    return tensor.abs().max().item()


@pytest.mark.parametrize("per_atom", [False, True], ids=["one sigma", "sigma per atom"])
@pytest.mark.parametrize("size", SIZES)
def test_gradient_is_the_derivative_of_the_energy(size, per_atom):
    positions = groups(2, size, centre=3.0, seed=size).reshape(-1, 3)
    sigmas = np.random.default_rng(size).uniform(0.05, 0.5, (2, size)) if per_atom else 0.1
    planes = packed(2, size, sigmas)
    gradient = reference.planarity(positions, *planes)[1]
    expected = central_differences(positions, lambda x: reference.planarity(x, *planes)[0])
    assert largest(expected) > 0.1
    assert largest(gradient - expected) < 1e-6 * largest(expected)
    assert largest(planarity(positions, *planes)[1] - expected) < 1e-3 * largest(expected)


def test_equal_sigmas_give_the_published_energy_and_gradient():
    positions = groups(1, 7, centre=50.0)[0]
    centred = (positions - positions.mean(0)).numpy()
    normal = np.linalg.svd(centred)[2][2]
    distance = centred @ normal
    constants = 7 * (math.log(SIGMA) + 0.5 * math.log(2 * math.pi))
    energy, gradient = planarity(positions, *packed(1, 7), constants=True)
    assert energy.item() == pytest.approx(np.sum(0.5 * (distance / SIGMA) ** 2) + constants, rel=1e-5)
    slope = distance / SIGMA**2
    expected = torch.from_numpy((slope - slope.mean())[:, None] * normal)
    assert largest(gradient - expected) < 1e-4 * largest(expected)


def assert_right(function, positions, planes):
    energy, gradient = function(positions, *planes)
    expected_energy, expected_gradient = reference.planarity(positions, *planes)
    assert energy.dtype == torch.float64 and energy.shape == ()
    assert gradient.dtype == positions.dtype and gradient.is_contiguous()
    assert energy.item() == pytest.approx(expected_energy.item(), rel=1e-5)
    assert largest(gradient - expected_gradient) < 1e-4 * largest(expected_gradient)


def many(function, of_gpu, of_interpreter):
    """Return how many planes of each size a kernel is tried with."""
    return of_gpu if function is planarity or torch.cuda.is_available() else of_interpreter


@kernels
@both_types
@pytest.mark.parametrize("per_atom", [False, True], ids=["one sigma", "sigma per atom"])
def test_kernel_agrees_with_the_reference(function, dtype, per_atom):
    assert_right(function, *mixed(many(function, 40, 2), centre=500.0, per_atom=per_atom, dtype=dtype))


@kernels
@pytest.mark.parametrize("n_planes", [1, 31, 33] + [1000, 2051] * torch.cuda.is_available())
def test_any_number_of_planes(function, n_planes):
    assert_right(function, groups(n_planes, 5, seed=n_planes).reshape(-1, 3), packed(n_planes, 5))


@kernels
def test_planes_of_very_different_sizes_side_by_side(function):
    random = np.random.default_rng(2)
    sizes = [4, 5, 40, 4, 70]
    planes = pack_planes([(random.permutation(200)[:size][None], SIGMA) for size in sizes], 200)
    assert_right(function, groups(1, 200, centre=50.0)[0].float(), planes)


@operators.implementations("planarity", torch.ops.openmm_density.planarity, with_scale(reference.planarity))
@both_types
def test_a_scale_multiplies_the_gradient(function, dtype):
    positions, planes = mixed(1, dtype=dtype)
    energy, gradient = function(positions, *planes)
    same, scaled = function(positions, *planes, False, torch.tensor(-2.5, dtype=torch.float64))
    assert torch.equal(same, energy) and torch.equal(scaled, -2.5 * gradient)


@shapes
def test_normals_match_eigh_of_the_same_coordinates(shape):
    assert_normals_match_eigh(shape, 20_000, planarity)


@pytest.mark.parametrize("width", [1e-1, 1e-2, 1e-3])
def test_nearly_collinear_planes(width):
    positions = groups(500, 6, (2.0, width, 0.1 * width), centre=1.0).reshape(-1, 3)
    planes = packed(500, 6)
    energy, gradient = planarity(positions, *planes)
    expected_energy, expected_gradient = reference.planarity(positions, *planes)
    assert energy.item() == pytest.approx(expected_energy.item(), rel=1e-4)
    # Rounding of the coordinates in the kernel, 1e-7 of the length, is all that may be lost.
    assert largest(gradient - expected_gradient) < 1e-4 * largest(expected_gradient) + 5e-6 / SIGMA**2


def test_energy_goes_to_zero_smoothly_towards_a_line():
    group = groups(1, 6, (2.0, 1.0, 0.3), centre=0.0)[0]
    axis = torch.linalg.svd(group - group.mean(0))[2][0]
    along = group @ axis[:, None] * axis
    energies, forces = [], []
    for width in np.geomspace(1.0, 1e-9, 19):
        energy, gradient = planarity(along + width * (group - along), *packed(1, 6, 1.0))
        energies.append(energy.item())
        forces.append(largest(gradient))
    assert all(later <= earlier for earlier, later in itertools.pairwise(energies))
    assert energies[6] == pytest.approx(energies[4] * 1e-2, rel=0.1)
    assert all(force <= math.sqrt(2 * energy) + 1e-12 for force, energy in zip(forces, energies))
    assert energies[-1] == forces[-1] == 0.0


LINE = torch.linspace(-2, 2, 5, dtype=torch.float64)[:, None] * torch.tensor(
    [1.0, 2.0, -0.5], dtype=torch.float64
)

BROKEN = {
    "collinear": LINE,
    "coincident": torch.full((5, 3), 0.1, dtype=torch.float64),
    "two points": LINE[[0, 0, 1, 1, 1]],
    "nan": torch.where(torch.arange(5)[:, None] == 2, math.nan, LINE),
    "first nan": torch.where(torch.arange(5)[:, None] == 0, math.nan, LINE),
    "infinite": torch.where(torch.arange(5)[:, None] == 4, math.inf, LINE),
    "all infinite": torch.full((5, 3), -math.inf, dtype=torch.float64),
    "beyond float32": LINE * 1e60,
}


@implementations
@both_types
@pytest.mark.parametrize("kind", BROKEN)
def test_degenerate_plane_has_no_force_and_leaves_the_others_alone(function, dtype, kind):
    positions = torch.cat([groups(3, 5).reshape(-1, 3), BROKEN[kind]]).to(dtype)
    energy, gradient = function(positions, *packed(4, 5))
    expected_energy, expected = function(positions[:15], *packed(3, 5))
    assert energy.item() == pytest.approx(expected_energy.item(), rel=1e-12) and energy > 0
    assert torch.equal(gradient[:15], expected) and not gradient[15:].any()


@kernels
@pytest.mark.parametrize("far", [1e15, 1e18, 1e25, 1e37])
def test_an_atom_gone_astray_stays_finite(function, far):
    positions = groups(1, 6, centre=0.0)[0].float()
    positions[3, 1] = far
    energy, gradient = function(positions, *packed(1, 6))
    assert energy.isfinite() and gradient.isfinite().all()


@kernels
def test_atoms_beside_the_planes_have_no_force(function):
    positions, planes = mixed(1, dtype=torch.float32)
    _, gradient = function(torch.cat([positions, torch.full((300, 3), math.nan)]), *planes)
    _, expected = function(positions, *planes)
    assert torch.equal(gradient[: len(positions)], expected)
    assert not gradient[len(positions) :].any()


def test_flat_planes_have_no_energy():
    flat = groups(1000, 6, (1.4, 1.4, 0.0), centre=0.0).reshape(-1, 3)
    energy, gradient = planarity(flat, *packed(1000, 6))
    assert energy.item() / 1000 < 1e-8
    assert largest(gradient) < 1e-6 / SIGMA**2


def test_a_million_planes_of_which_some_are_degenerate():
    n_planes, size = 1_000_000, 4
    positions = torch.rand(n_planes, size, 3, generator=torch.Generator().manual_seed(3)) * 4
    kinds = torch.arange(n_planes) % 500
    positions[kinds == 0, 1, 2] = math.nan
    positions[kinds == 1, 3, 0] = -math.inf
    positions[kinds == 2] = positions[kinds == 2][:, :1]
    positions[kinds == 3] = positions[kinds == 3][:, :1] * torch.tensor([1.0, 2.0, 4.0, 8.0])[:, None]
    positions[kinds == 4, 0] = 3e38
    broken = kinds <= 4
    assert broken.float().mean() == pytest.approx(0.01)
    energy, gradient = planarity(positions.reshape(-1, 3), *packed(n_planes, size))
    gradient = gradient.reshape(n_planes, size, 3)
    assert energy.isfinite() and gradient.isfinite().all()
    assert not gradient[broken].any()
    # Four random points are flat once in a great while, never within rounding.
    assert gradient[~broken].abs().amax((1, 2)).min() > 0

    some = torch.arange(0, n_planes, 97)
    expected = reference.planarity(positions[some].reshape(-1, 3), *packed(len(some), size))[1]
    assert largest(gradient[some].reshape(-1, 3) - expected) < 1e-4 * largest(expected)


def test_each_plane_has_no_net_force_and_no_net_torque():
    for size in SIZES:
        assert_no_net_force_and_torque(300, size, planarity)


@kernels
@both_types
def test_same_bits_for_every_number_of_threads(function, dtype):
    positions, planes = mixed(many(function, 700, 2), centre=300.0, per_atom=True, dtype=dtype)
    energy, gradient = function(positions, *planes, constants=True)
    for count in (1, 2, 3, 8, 8):
        torch.set_num_threads(count)
        again_energy, again_gradient = function(positions, *planes, constants=True)
        assert torch.equal(again_energy, energy) and torch.equal(again_gradient, gradient)


def test_uninitialised_memory_does_not_show():
    positions, planes = mixed(n_planes=37)
    positions = torch.cat([positions, positions[:5000]])
    expected = planarity(positions, *planes)
    with poisoned_memory():
        found = planarity(positions, *planes)
    assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1])


@implementations
@both_types
def test_no_planes(function, dtype):
    planes = pack_planes([])
    assert planes.offsets.tolist() == [0] and planes.members.numel() == 0
    for n_atoms in (0, 1, 200):
        energy, gradient = function(torch.ones(n_atoms, 3, dtype=dtype), *planes, constants=True)
        assert energy.item() == 0.0 and energy.dtype == torch.float64
        assert torch.equal(gradient, torch.zeros(n_atoms, 3, dtype=dtype))
    no_planes_of_six = pack_planes([(np.zeros((0, 6), int), np.zeros(0))])
    assert no_planes_of_six.offsets.tolist() == [0]


def test_deviations_are_signed_distances_from_the_plane():
    square = torch.tensor([[0, 0, 0.1], [1, 0, -0.1], [1, 1, 0.1], [0, 1, -0.1], [math.nan, 0, 0]])
    planes = pack_planes([([[0, 1, 2, 3], [0, 1, 2, 4]], SIGMA)])
    distance = deviations(square, *planes[:3])
    assert distance.dtype == torch.float64
    assert distance[:4].abs().tolist() == pytest.approx([0.1] * 4)
    assert (distance[:4].sign() * distance[0].sign()).tolist() == [1, -1, 1, -1]
    assert not distance[4:].any()


@pytest.mark.parametrize(
    ("planes", "message"),
    [
        ([([[0, 1, 2]], SIGMA)], "at least 4 atoms, but 1 planes of 3"),
        ([([0, 1, 2, 3], SIGMA)], r"have shape \(4,\)"),
        ([([[0.0, 1.0, 2.0, 3.0]], SIGMA)], "must be integers"),
        ([([[0, 1, 2, 3]], 0.0)], "positive number"),
        ([([[0, 1, 2, 3]], [-0.1])], "but one is -0.1"),
        ([([[0, 1, 2, 3]], [[0.1, 0.1, math.nan, 0.1]])], "but one is nan"),
        ([([[0, 1, 2, 3]], math.inf)], "but one is inf"),
        ([([[0, 1, 2, 3]], [0.1, 0.1])], r"but have \(2,\)"),
        ([([[0, 1, 2, 3], [1, 2, 3, 4]], [[0.1] * 5] * 2)], r"or \(2, 4\), but have \(2, 5\)"),
        ([([[0, 1, 2, 8]], SIGMA)], "atom index 8, but indices run from 0 to 7"),
        ([([[0, 1, 2, -1]], SIGMA)], "atom index -1"),
        ([([[0, 1, 2, 1]], SIGMA)], "atom index 1 twice"),
    ],
)
def test_pack_planes_says_what_is_wrong(planes, message):
    with pytest.raises(ValueError, match=message) as caught:
        pack_planes(planes, n_atoms=8)
    assert "\n" not in str(caught.value)


def with_field(**changes):
    return lambda planes: planes._replace(**{name: change(planes) for name, change in changes.items()})


@implementations
@pytest.mark.parametrize(
    ("positions", "change", "message"),
    [
        (torch.zeros(7, 3), None, "members holds index 7, but there are 7 positions"),
        (torch.zeros(8, 2), None, r"shape \(atoms, 3\)"),
        (torch.zeros(8, 3, dtype=torch.int32), None, "float32 or float64"),
        (torch.zeros(8, 3), with_field(members=lambda p: p.members - 1), "members holds index -1"),
        (torch.zeros(8, 3), with_field(members=lambda p: p.members.long()), "members must be a contiguous"),
        (
            torch.zeros(8, 3),
            with_field(inverse_sigmas=lambda p: p.inverse_sigmas[:7]),
            "8 members need as many",
        ),
        (torch.zeros(8, 3), with_field(offsets=lambda p: torch.tensor([0, 3, 8]).int()), "offsets must rise"),
        (torch.zeros(8, 3), with_field(offsets=lambda p: p.offsets[:1]), "offsets must rise from 0 to 8"),
        (torch.zeros(8, 3), with_field(offsets=lambda p: p.offsets[:0]), "offsets must rise from 0 to 8"),
        (
            torch.zeros(8, 3),
            with_field(atom_offsets=lambda p: p.atom_offsets.flip(0)),
            "atom_offsets must rise",
        ),
        (
            torch.zeros(8, 3),
            with_field(atom_members=lambda p: p.atom_members + 1),
            "atom_members holds index 8",
        ),
    ],
)
def test_the_operator_says_what_is_wrong(function, positions, change, message):
    planes = pack_planes([([[0, 1, 2, 3], [4, 5, 6, 7]], SIGMA)])
    with pytest.raises(ValueError, match=message) as caught:
        function(positions, *(change(planes) if change else planes))
    assert "planarity: " in str(caught.value).splitlines()[0]
