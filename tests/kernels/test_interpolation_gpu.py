"""The Triton interpolation against the float64 reference: in Triton's interpreter, or on a GPU when there is one."""

import math

import pytest
import torch

pytest.importorskip("triton")

from openmm_density.kernels.interpolation import gpu

from .grids import CELLS, finite_or_periodic
from .test_interpolation import TIGHT, WRONG, Scene, deviation, grids

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
# Triton's interpreter is NumPy, which speaks of every NaN.
pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.usefixtures("poisoned"),
]
N_ATOMS = 100_003 if ON_GPU else 40


def arguments_of(scene, positions=None):
    given = (scene.positions if positions is None else positions, *scene.rest)
    return [value.to(DEVICE) if isinstance(value, torch.Tensor) else value for value in given]


def map_potential(scene, positions=None):
    similarity, gradient = gpu.map_potential(*arguments_of(scene, positions))
    assert similarity.dtype == torch.float64 and similarity.shape == ()
    assert gradient.dtype == scene.positions.dtype and gradient.is_contiguous()
    return similarity.cpu(), gradient.cpu()


def assert_right(scene, positions=None):
    similarity, gradient = map_potential(scene, positions)
    exact, exact_gradient = scene.reference(positions)
    assert float(similarity) == pytest.approx(float(exact), rel=TIGHT, abs=1e-7)
    assert deviation(gradient, exact_gradient) < TIGHT
    others = torch.ones(len(gradient), dtype=torch.bool).index_fill(0, scene.atoms, False)
    assert not gradient[others].any()


@grids
@finite_or_periodic
def test_matches_the_reference(matrix, periodic):
    assert_right(Scene(matrix, periodic=periodic, dtype=torch.float32, n_atoms=N_ATOMS))


@finite_or_periodic
def test_matches_the_reference_in_double(periodic):
    assert_right(Scene(CELLS["triclinic"], periodic=periodic, n_atoms=N_ATOMS))


@pytest.mark.parametrize("n_atoms", [4, 68] + [1000, 65_539] * ON_GPU)
def test_any_number_of_atoms(n_atoms):
    assert_right(Scene(CELLS["triclinic"], n_atoms=n_atoms, margin=0.0))


def test_no_atoms():
    scene = Scene()
    scene.atoms, scene.weights = torch.zeros(0, dtype=torch.int64), torch.zeros(0)
    similarity, gradient = map_potential(scene)
    assert float(similarity) == 0
    assert torch.equal(gradient, torch.zeros(40, 3, dtype=torch.float64))


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 1, 3), (3, 3, 2)])
@finite_or_periodic
def test_maps_smaller_than_the_stencil(shape, periodic):
    scene = Scene(shape=shape, periodic=periodic, margin=1.5, n_atoms=9)
    if shape != (1, 1, 1) or not periodic:
        assert_right(scene)
    else:
        assert float(map_potential(scene)[0]) == pytest.approx(float(scene.reference()[0]), rel=TIGHT)


@pytest.mark.parametrize("matrix", [CELLS["orthogonal"], CELLS["triclinic"]], ids=["orthogonal", "triclinic"])
def test_a_thousand_cells_away_is_the_same_as_here(matrix):
    scene = Scene(matrix, periodic=True, n_atoms=20)
    exact, exact_gradient = map_potential(scene)
    cell = matrix * torch.tensor(scene.potential.shape[::-1])
    similarity, gradient = map_potential(
        scene, scene.positions + cell @ torch.tensor([1000.0, -1000.0, 1000.0]).double()
    )
    assert float(similarity) == pytest.approx(float(exact), rel=TIGHT)
    assert deviation(gradient, exact_gradient) < TIGHT


@finite_or_periodic
def test_nan_and_infinite_coordinates_leave_the_others_alone(periodic):
    scene = Scene(periodic=periodic)
    _, exact_gradient = map_potential(scene)
    broken = scene.positions.clone()
    lost = scene.atoms[[0, 7, 20]]
    broken[lost[0], 1], broken[lost[1], 0], broken[lost[2]] = math.nan, math.inf, -math.inf
    similarity, gradient = map_potential(scene, broken)
    assert math.isfinite(similarity)
    assert not gradient[lost].any()
    kept = [i for i in range(40) if i not in lost.tolist()]
    assert torch.equal(gradient[kept], exact_gradient[kept])


def test_without_a_finite_map_around_there_is_no_force():
    scene = Scene()
    for positions in (scene.positions + 90.0, scene.positions + 1e30, scene.positions * math.nan):
        similarity, gradient = map_potential(scene, positions)
        assert float(similarity) == 0
        assert not gradient.any()


def test_the_same_bits_every_time():
    scene = Scene(CELLS["triclinic"], n_atoms=N_ATOMS, periodic=True)
    exact = map_potential(scene)
    for _ in range(10 if ON_GPU else 1):
        for found, right in zip(map_potential(scene), exact):
            assert torch.equal(found, right)


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG.keys())
def test_wrong_arguments_are_refused(change):
    scene = Scene()
    names = ("positions", "atoms", "weights", "potential", "matrix", "origin", "periodic")
    arguments = dict(zip(names, arguments_of(scene)))
    with pytest.raises((RuntimeError, IndexError)):
        gpu.map_potential(**arguments | {name: value.to(DEVICE) for name, value in change.items()})
