import math
import os

import numpy as np
import pytest
import torch

from openmm_density.kernels.interpolation import map_potential, reference

from . import operators
from .grids import CELLS, finite_or_periodic

TIGHT = 2e-6

implementations = operators.implementations("interpolation", map_potential)

grids = pytest.mark.parametrize("matrix", CELLS.values(), ids=CELLS.keys())


class Scene:
    """A random map, and atoms in and around it."""

    def __init__(
        self,
        matrix=CELLS["orthogonal"],
        shape=(7, 9, 8),
        periodic=False,
        n_atoms=40,
        dtype=torch.float64,
        margin=3.0,
    ):
        generator = torch.Generator().manual_seed(1)
        self.matrix, self.periodic = matrix, periodic
        self.origin = torch.tensor([-3.3, 17.1, 0.4], dtype=torch.float64)
        size = torch.tensor(shape[::-1], dtype=torch.float64)
        index = (
            torch.rand(n_atoms, 3, generator=generator, dtype=torch.float64) * (size + 2 * margin) - margin
        )
        if n_atoms >= 10:
            index[0] = torch.tensor([3.0, 4.0, 5.0])  # on a voxel
            index[1] = torch.tensor([0.0, 4.3, 5.2])  # on a face
            index[2] = size - 1  # on the far corner
            index[3] = index[4]  # two in one place
            index[5] = torch.tensor([-0.7, 3.3, 2.2])  # outside, within reach
            index[6] = torch.tensor([400.3, -0.5, 3.0])  # far outside
        self.positions = (self.origin + index @ matrix.T).to(dtype)
        self.atoms = torch.randperm(n_atoms, generator=generator)[: n_atoms - 3]
        self.weights = torch.rand(len(self.atoms), generator=generator) + 0.5
        self.potential = torch.rand(shape, generator=generator)

    @property
    def rest(self):
        return self.atoms, self.weights, self.potential, self.matrix, self.origin, self.periodic

    def kernel(self, positions=None, function=map_potential):
        return function(self.positions if positions is None else positions, *self.rest)

    def reference(self, positions=None):
        return reference.map_potential(self.positions if positions is None else positions, *self.rest)


def catmull_rom(values, t):
    """The cubic through the two middle values whose slopes there are half the differences of their neighbours."""
    p0, p1, p2, p3 = values
    m1, m2 = (p2 - p0) / 2, (p3 - p1) / 2
    return (
        (2 * t**3 - 3 * t**2 + 1) * p1
        + (t**3 - 2 * t**2 + t) * m1
        + (-2 * t**3 + 3 * t**2) * p2
        + (t**3 - t**2) * m2
    )


def written_out(scene):
    """Hermite cubics along z, then y, then x, in NumPy; zeros outside a finite map."""
    data = scene.potential.double().numpy()
    size = np.array(data.shape)

    def voxel(z, y, x):
        index = np.array([z, y, x])
        if scene.periodic:
            return data[tuple(index % size)]
        return data[tuple(index)] if np.all((index >= 0) & (index < size)) else 0.0

    total = 0.0
    inverse = np.linalg.inv(scene.matrix.numpy())
    for atom, weight in zip(scene.atoms.tolist(), scene.weights.tolist()):
        u = inverse @ (scene.positions[atom].double().numpy() - scene.origin.numpy())
        below = np.floor(u).astype(int)
        t = u - below
        plane = [
            [
                catmull_rom(
                    [voxel(below[2] + k, below[1] + j, below[0] + i) for k in range(-1, 3)],
                    t[2],
                )
                for j in range(-1, 3)
            ]
            for i in range(-1, 3)
        ]
        total += weight * catmull_rom([catmull_rom(column, t[1]) for column in plane], t[0])
    return total / scene.weights.double().sum().item()


def deviation(found, exact):
    """Largest deviation over the largest exact value."""
    scale = float(exact.abs().max())
    assert scale > 0
    return float((found.double() - exact.double()).abs().max()) / scale


@grids
@finite_or_periodic
def test_the_value_is_that_of_hermite_cubics_along_each_axis(matrix, periodic):
    scene = Scene(matrix, periodic=periodic)
    exact = written_out(scene)
    assert float(scene.reference()[0]) == pytest.approx(exact, rel=1e-12)
    assert float(scene.kernel()[0]) == pytest.approx(exact, rel=TIGHT)


@grids
@finite_or_periodic
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@implementations
def test_matches_the_reference(function, matrix, periodic, dtype):
    scene = Scene(matrix, periodic=periodic, dtype=dtype)
    similarity, gradient = scene.kernel(function=function)
    exact, exact_gradient = scene.reference()
    assert similarity.dtype == torch.float64
    assert similarity.shape == ()
    assert gradient.dtype == dtype
    assert gradient.is_contiguous()
    assert float(similarity) == pytest.approx(float(exact), rel=TIGHT)
    assert deviation(gradient, exact_gradient) < TIGHT
    others = sorted(set(range(40)) - set(scene.atoms.tolist()))
    assert not gradient[others].any()


@grids
@finite_or_periodic
def test_the_gradient_is_the_derivative(matrix, periodic):
    scene = Scene(matrix, periodic=periodic, n_atoms=12)
    # On a voxel the second derivative jumps, and central differences are of first order only.
    scene.positions += 0.01
    h = 1e-5
    # Of all coordinates at once; test_matches_the_reference compares each.
    directions = torch.randn(6, *scene.positions.shape, dtype=torch.float64)
    exact = torch.stack(
        [
            scene.reference(scene.positions + h * direction)[0]
            - scene.reference(scene.positions - h * direction)[0]
            for direction in directions
        ]
    ) / (2 * h)
    assert deviation((scene.reference()[1] * directions).sum((1, 2)), exact) < 1e-7
    assert deviation((scene.kernel()[1] * directions).sum((1, 2)), exact) < TIGHT


def test_voxels_are_reproduced_and_slopes_are_continuous_across_them():
    scene = Scene(CELLS["triclinic"], n_atoms=1)
    scene.atoms, scene.weights = torch.zeros(1, dtype=torch.int64), torch.ones(1)
    for index in ([2, 3, 4], [0, 0, 0], [7, 8, 6]):
        at = scene.origin + scene.matrix @ torch.tensor(index, dtype=torch.float64)
        value, gradient = scene.kernel(at[None, :])
        x, y, z = index
        assert float(value) == pytest.approx(float(scene.potential[z, y, x]), abs=1e-6)
        for step in torch.eye(3, dtype=torch.float64) * 1e-6:
            for side in (-1, 1):
                _, beside = scene.kernel((at + side * scene.matrix @ step)[None, :])
                torch.testing.assert_close(beside, gradient, rtol=0, atol=1e-4)


def test_a_layer_of_zeros_makes_the_end_of_a_finite_map_smooth():
    scene = Scene(n_atoms=1)
    padded = torch.zeros(11, 13, 12)
    padded[2:-2, 2:-2, 2:-2] = scene.potential
    scene.potential, scene.atoms, scene.weights = padded, torch.zeros(1, dtype=torch.int64), torch.ones(1)
    # Where the outermost voxel that is not zero ceases to be among the 64.
    edge = scene.origin + scene.matrix @ torch.tensor([0.0, 5.3, 6.4], dtype=torch.float64)
    for side in (-1e-5, 1e-5):
        value, gradient = scene.kernel((edge + torch.tensor([side, 0, 0]))[None, :])
        assert abs(float(value)) < 1e-8
        assert float(gradient.norm()) < 1e-3
    value, gradient = scene.kernel((edge - 1.5)[None, :])
    assert float(value) == 0
    assert not gradient.any()


@grids
@implementations
def test_a_thousand_cells_away_is_the_same_as_here(function, matrix):
    scene = Scene(matrix, periodic=True)
    similarity, gradient = scene.kernel(function=function)
    cell = matrix * torch.tensor(scene.potential.shape[::-1])
    away = cell @ torch.tensor([1000.0, -1000.0, 1000.0], dtype=torch.float64)
    found, found_gradient = scene.kernel(scene.positions + away, function)
    assert float(found) == pytest.approx(float(similarity), rel=TIGHT)
    assert deviation(found_gradient, gradient) < TIGHT


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 1, 3), (3, 3, 2)])
@finite_or_periodic
@implementations
def test_maps_smaller_than_the_stencil(function, shape, periodic):
    scene = Scene(shape=shape, periodic=periodic, margin=1.5, n_atoms=9)
    similarity, gradient = scene.kernel(function=function)
    assert float(similarity) == pytest.approx(written_out(scene), rel=TIGHT, abs=1e-7)
    if shape != (1, 1, 1) or not periodic:
        exact = scene.reference()[1]
        # At the edge of the stencil forces are differences of far larger numbers.
        torch.testing.assert_close(
            gradient.double(), exact, rtol=0, atol=TIGHT * max(1e-3, exact.abs().max())
        )


@finite_or_periodic
@implementations
def test_nan_and_infinite_coordinates_leave_the_others_alone(function, periodic):
    scene = Scene(periodic=periodic)
    _, exact_gradient = scene.kernel(function=function)
    broken = scene.positions.clone()
    lost = scene.atoms[[0, 7, 20]]
    broken[lost[0], 1], broken[lost[1], 0], broken[lost[2]] = math.nan, math.inf, -math.inf
    found = scene.kernel(broken, function)
    for similarity, gradient in (found, scene.reference(broken)):
        assert math.isfinite(similarity)
        assert not gradient[lost].any()
        kept = [i for i in range(40) if i not in lost.tolist()]
        torch.testing.assert_close(gradient[kept], exact_gradient[kept], rtol=0, atol=1e-6)
    assert torch.equal(found[1][kept], exact_gradient[kept])


@pytest.mark.parametrize("n_atoms", [4, 68] + [1000, 65_539] * torch.cuda.is_available())
@implementations
def test_any_number_of_atoms(function, n_atoms):
    scene = Scene(CELLS["triclinic"], n_atoms=n_atoms, margin=0.0)
    similarity, gradient = scene.kernel(function=function)
    exact, exact_gradient = scene.reference()
    assert float(similarity) == pytest.approx(float(exact), rel=TIGHT, abs=1e-7)
    assert deviation(gradient, exact_gradient) < TIGHT


@implementations
def test_without_a_finite_map_around_there_is_no_force(function):
    scene = Scene()
    for positions in (scene.positions + 90.0, scene.positions + 1e30, scene.positions * math.nan):
        similarity, gradient = scene.kernel(positions, function)
        assert float(similarity) == 0
        assert not gradient.any()


@operators.implementations("interpolation", map_potential, reference.map_potential)
def test_no_atoms(function):
    scene = Scene()
    scene.atoms, scene.weights = torch.zeros(0, dtype=torch.int64), torch.zeros(0)
    similarity, gradient = scene.kernel(function=function)
    assert float(similarity) == 0
    assert torch.equal(gradient, torch.zeros(40, 3, dtype=torch.float64))


@pytest.mark.parametrize("matrix", [CELLS["orthogonal"], CELLS["triclinic"]], ids=["orthogonal", "triclinic"])
@implementations
def test_the_same_bits_for_every_number_of_threads_and_every_time(function, matrix):
    n_atoms = 5000 if function is map_potential else 100_003 if torch.cuda.is_available() else 40
    scene = Scene(matrix, n_atoms=n_atoms, periodic=True)
    exact = scene.kernel(function=function)
    for threads in (1, 2, 3, 8, 2):
        torch.set_num_threads(threads)
        found = scene.kernel(function=function)
        assert torch.equal(found[0], exact[0])
        assert torch.equal(found[1], exact[1])


WRONG = {
    "positions of integers": dict(positions=torch.zeros(40, 3, dtype=torch.int64)),
    "positions in two dimensions": dict(positions=torch.zeros(40, 2)),
    "weights in double": dict(weights=torch.ones(37, dtype=torch.float64)),
    "weights of another number of atoms": dict(weights=torch.ones(36)),
    "atoms in int32": dict(atoms=torch.arange(37, dtype=torch.int32)),
    "an atom that does not exist": dict(atoms=torch.arange(4, 41)),
    "a negative atom": dict(atoms=torch.arange(-1, 36)),
    "a map in double": dict(potential=torch.ones(4, 4, 4, dtype=torch.float64)),
    "a map that is not contiguous": dict(potential=torch.ones(4, 5, 6).permute(2, 1, 0)),
    "a map of two dimensions": dict(potential=torch.ones(4, 4)),
    "an empty map": dict(potential=torch.ones(4, 0, 4)),
    "a matrix in single precision": dict(matrix=torch.eye(3)),
    "steps in one plane": dict(matrix=torch.ones(3, 3, dtype=torch.float64)),
    "an origin of another shape": dict(origin=torch.zeros(2, dtype=torch.float64)),
}


@pytest.mark.skipif(
    os.environ.get("CXX") == "/nonexistent", reason="the reference leaves checks to the kernel"
)
@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG.keys())
@implementations
def test_wrong_arguments_are_refused(function, change):
    scene = Scene()
    names = ("atoms", "weights", "potential", "matrix", "origin", "periodic")
    arguments = {"positions": scene.positions} | dict(zip(names, scene.rest))
    function(**arguments)
    with pytest.raises((RuntimeError, IndexError)):
        function(**arguments | change)
