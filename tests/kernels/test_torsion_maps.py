"""Maps of two torsions: against finite differences, SciPy's splines and closed forms, and bad input."""

import numpy as np
import pytest
import torch
from scipy.interpolate import RectBivariateSpline

from openmm_density.kernels import compilation
from openmm_density.kernels.torsion_maps import pack_torsions, reference, spline_nodes, torsion_maps

from . import operators

TERMS, ATOMS = 60, 90

kernels = operators.implementations("torsion_maps", torsion_maps)
implementations = operators.implementations("torsion_maps", torsion_maps, reference.torsion_maps)


@pytest.fixture(scope="module", autouse=True)
def compiled():
    if not compilation.load("torsion_maps"):
        pytest.skip("no C++ compiler")


def smooth_maps(n=36, count=2, seed=0):
    """Return maps of a few waves, their values and the functions."""
    random = np.random.default_rng(seed)
    waves = random.normal(size=(count, 3, 3, 2))

    def value(number, phi, psi):
        phases = [np.multiply.outer(i, phi) + np.multiply.outer(j, psi) for i in range(3) for j in range(3)]
        a = waves[number].reshape(9, 2)
        return sum(
            a[k, 0] * np.cos(phase) + a[k, 1] * np.sin(phase)
            for k, phase in enumerate(np.asarray(each) for each in phases)
        )

    angles = -np.pi + 2 * np.pi * np.arange(n) / n
    grid = np.meshgrid(angles, angles, indexing="ij")
    return np.stack([value(k, *grid) for k in range(count)]), value


def case(dtype=torch.float64, seed=1, n=36):
    random = np.random.default_rng(seed)
    positions = torch.from_numpy(random.uniform(0, 2, size=(ATOMS, 3))).to(dtype)
    atoms = np.array([random.choice(ATOMS - 5, 5, replace=False) for _ in range(TERMS)])
    torsions = pack_torsions(atoms, random.integers(0, 2, TERMS), random.choice([-1.0, 1.0], TERMS), ATOMS)
    return positions, torsions, spline_nodes(smooth_maps(n)[0])


def angle(points):
    """A torsion by its definition: between the projections of the outer bonds onto the plane normal to the middle one."""
    axis = points[2] - points[1]
    axis = axis / np.linalg.norm(axis)
    first, last = points[0] - points[1], points[3] - points[2]
    first, last = first - (first @ axis) * axis, last - (last @ axis) * axis
    return np.arctan2(np.cross(first, last) @ axis, first @ last)


def test_energy_is_that_of_the_function_behind_the_map():
    positions, torsions, _ = case()
    values, function = smooth_maps(144)
    energy, _ = torsion_maps(positions, *torsions, spline_nodes(values))
    x = positions.numpy()
    expected = 0.0
    for members, number, sign in zip(
        torsions.members.numpy(), torsions.map_of_term.numpy(), torsions.handedness.numpy()
    ):
        phi, psi = sign * angle(x[members[:4]]), sign * angle(x[members[1:]])
        expected += function(number, np.array(phi), np.array(psi))
    assert float(energy) == pytest.approx(expected, rel=2e-6, abs=1e-5)  # of terms that may cancel


def test_between_the_nodes_is_the_periodic_bicubic_spline():
    values = np.random.default_rng(2).normal(size=(1, 24, 24))
    nodes = spline_nodes(values)
    # SciPy's is not periodic: three periods are, in the middle one.
    steps = 2 * np.pi / 24 * np.arange(-24, 48) - np.pi
    spline = RectBivariateSpline(steps, steps, np.tile(values[0], (3, 3)))
    phi, psi = np.random.default_rng(3).uniform(-np.pi, np.pi, size=(2, 500))
    found = reference.interpolated(
        nodes, torch.zeros(500, dtype=torch.long), torch.from_numpy(phi), torch.from_numpy(psi)
    )
    np.testing.assert_allclose(found.numpy(), spline(phi, psi, grid=False), atol=2e-6)


def assert_right(function, positions, torsions, nodes):
    energy, gradient = function(positions, *torsions, nodes)
    expected, exact = reference.torsion_maps(positions.double(), *torsions, nodes)
    assert energy.dtype == torch.float64 and gradient.dtype == positions.dtype and gradient.is_contiguous()
    # Angles in Triton are float32.
    rel, tight = (1e-12, 1e-6) if function is torsion_maps else (1e-5, 1e-4)
    assert float(energy) == pytest.approx(float(expected), rel=rel, abs=tight)
    np.testing.assert_allclose(gradient.double(), exact, atol=tight * float(exact.abs().max()))


@kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_kernel_is_the_reference(function, dtype):
    assert_right(function, *case(dtype))


@kernels
def test_angles_are_right_all_around(function):
    # A torsion of every degree, its sign and the edges of the map among them.
    turns = torch.deg2rad(torch.arange(-180.0, 181.0, 3.0, dtype=torch.float64))
    points = torch.zeros(len(turns), 5, 3, dtype=torch.float64)
    points[:, :4] = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0], [0, 1, 0]], dtype=torch.float64)
    points[:, 4] = torch.stack([turns.cos(), torch.ones_like(turns), turns.sin()], dim=1)
    atoms = np.arange(5 * len(turns)).reshape(-1, 5)
    signs = np.where(np.arange(len(turns)) % 2, 1.0, -1.0)
    torsions = pack_torsions(atoms, np.zeros(len(turns)), signs)
    assert_right(function, points.reshape(-1, 3), torsions, spline_nodes(smooth_maps()[0]))


def test_gradient_is_that_of_finite_differences():
    positions, torsions, nodes = case()
    _, gradient = torsion_maps(positions, *torsions, nodes)
    largest = float(gradient.abs().max())
    step = 1e-6
    for atom in torsions.members[:4].ravel().tolist():
        for axis in range(3):
            ends = []
            for sign in (1, -1):
                moved = positions.clone()
                moved[atom, axis] += sign * step
                ends.append(float(torsion_maps(moved, *torsions, nodes)[0]))
            slope = (ends[0] - ends[1]) / (2 * step)
            assert float(gradient[atom, axis]) == pytest.approx(slope, abs=2e-6 * largest)


def test_the_map_goes_on_across_its_edges():
    nodes = spline_nodes(smooth_maps()[0])
    torsions = pack_torsions([range(5)], [0], [1.0])
    points = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 0]], dtype=torch.float64)
    values = []
    for psi in (np.pi - 1e-6, np.pi + 1e-6):
        points[4] = torch.tensor([np.cos(psi), 1.0, np.sin(psi)])
        values.append(torsion_maps(points, *torsions, nodes))
    assert float(values[0][0]) == pytest.approx(float(values[1][0]), abs=1e-4)
    np.testing.assert_allclose(values[0][1], values[1][1], atol=1e-3)


@kernels
@pytest.mark.parametrize("spoiled", ["line", "point", "nan", "infinite"])
def test_a_torsion_without_a_value_adds_nothing(function, spoiled):
    positions, torsions, nodes = case()
    members = torsions.members[0].tolist()
    if spoiled == "line":
        positions[members[2]] = 0.5 * (positions[members[1]] + positions[members[3]])
    elif spoiled == "point":
        positions[members[2]] = positions[members[1]]
    else:
        positions[members[0], 1] = float("nan" if spoiled == "nan" else "inf")
    assert_right(function, positions, torsions, nodes)


@kernels
def test_every_number_of_threads_gives_the_same_bits(function):
    random = np.random.default_rng(4)
    n_terms = 3000 if function is torsion_maps or torch.cuda.is_available() else 60
    positions = torch.from_numpy(random.uniform(0, 5, (5000, 3)))
    atoms = np.array([random.choice(5000, 5, replace=False) for _ in range(n_terms)])
    torsions = pack_torsions(atoms, np.zeros(n_terms), np.ones(n_terms))
    nodes = spline_nodes(smooth_maps()[0])
    found = []
    for threads in (1, 2, 3, 5):
        torch.set_num_threads(threads)
        found.append(function(positions, *torsions, nodes))
    for other in found[1:]:
        assert all(torch.equal(one, another) for one, another in zip(found[0], other))


@operators.implementations("torsion_maps", torch.ops.openmm_density.torsion_maps)
def test_no_terms_and_a_scale(function):
    positions, torsions, nodes = case()
    energy, gradient = function(positions, *pack_torsions(np.zeros((0, 5)), [], []), nodes)
    assert float(energy) == 0 and gradient.shape == positions.shape and not gradient.any()
    _, plain = function(positions, *torsions, nodes)
    _, scaled = function(positions, *torsions, nodes, scale=torch.tensor(-2.5, dtype=torch.float64))
    np.testing.assert_allclose(scaled, -2.5 * plain, rtol=1e-6)


@implementations
def test_tables_that_do_not_fit_are_refused(function):
    positions, torsions, nodes = case()
    wrong = {
        "float32 or float64": (positions.int(), torsions, nodes),
        "among|positions": (positions[:20], torsions, nodes),
        "maps": (positions, torsions._replace(map_of_term=torsions.map_of_term + 5), nodes),
        "members": (positions, torsions._replace(members=torsions.members[:, :4].contiguous()), nodes),
        "atom_offsets": (positions, torsions._replace(atom_offsets=torsions.atom_offsets + 1), nodes),
        "nodes": (positions, torsions, nodes[..., 0].contiguous()),
    }
    for words, (x, tables, grid) in wrong.items():
        with pytest.raises(ValueError, match=words):
            function(x, *tables, grid)


def test_terms_and_maps_that_are_none_are_refused():
    with pytest.raises(ValueError, match="atom index 5, but indices run from 0 to 4"):
        pack_torsions([[0, 1, 2, 3, 5]], [0], [1.0], 5)
    with pytest.raises(ValueError, match="one map and one handedness"):
        pack_torsions([[0, 1, 2, 3, 4]], [0, 1], [1.0])
    with pytest.raises(ValueError, match="1 or -1"):
        pack_torsions([[0, 1, 2, 3, 4]], [0], [0.5])
    with pytest.raises(ValueError, match="shape"):
        spline_nodes(np.zeros((4, 5)))
    with pytest.raises(ValueError, match="finite"):
        spline_nodes(np.full((1, 4, 4), np.nan))
