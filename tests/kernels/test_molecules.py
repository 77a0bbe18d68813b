"""Whole molecules against a search over lattice vectors, in every kind of box, with bad tables."""

import itertools
import math

import pytest
import torch

from openmm_density.kernels import compilation
from openmm_density.kernels.molecules import among_all, reference, whole_molecules

from . import operators

BOXES = {
    "cube": torch.eye(3) * 3.0,
    "orthorhombic": torch.diag(torch.tensor([2.0, 3.0, 4.5])),
    # OpenMM's reduced form, as skewed as it gets: rounding alone is off by a step there.
    "skewed": torch.tensor([[3.0, 0.0, 0.0], [1.5, 2.7, 0.0], [-1.5, 1.35, 2.6]]),
    "dodecahedron": torch.tensor([[3.0, 0.0, 0.0], [0.0, 3.0, 0.0], [1.5, 1.5, 3 / math.sqrt(2)]]),
}
boxes = pytest.mark.parametrize("box", BOXES.values(), ids=BOXES.keys())
kernels = operators.implementations("molecules", whole_molecules)
implementations = operators.implementations("molecules", whole_molecules, reference.whole_molecules)
both_types = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


@pytest.fixture(scope="module", autouse=True)
def compiled():
    if not compilation.load("molecules"):
        pytest.skip("no C++ compiler")


class Scene:
    """Molecules of very different sizes, far from where they belong, some particles of none."""

    def __init__(self, sizes=(1, 3, 40, 2, 3, 1), dtype=torch.float64, seed=0):
        generator = torch.Generator().manual_seed(seed)
        n = sum(sizes)
        self.sizes = sizes
        self.positions = (torch.randn(n + 7, 3, generator=generator, dtype=torch.float64) * 12).to(dtype)
        self.particles = torch.randperm(n + 7, generator=generator)[:n]
        molecules = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes, dtype=torch.int64))
        self.molecules = molecules[torch.randperm(n, generator=generator)]
        self.order = self.molecules.argsort(stable=True)
        self.offsets = torch.tensor([0, *itertools.accumulate(sizes)])
        self.references = torch.randn(len(sizes), 3, generator=generator, dtype=torch.float64)

    def arguments(self, box):
        return [self.positions, self.particles, self.order, self.offsets, self.references, box]


@implementations
@boxes
@both_types
def test_every_molecule_comes_to_its_nearest_image(function, box, dtype):
    scene = Scene(dtype=dtype)
    whole = function(*scene.arguments(box.double()))
    assert whole.dtype == dtype and whole.shape == (50, 3) and whole.is_contiguous()
    moved = (whole - scene.positions[scene.particles]).double()
    steps = moved @ torch.linalg.inv(box.double())
    torch.testing.assert_close(steps, steps.round(), rtol=0, atol=1e-4 if dtype == torch.float32 else 1e-12)
    for molecule in range(len(scene.sizes)):
        mine = scene.molecules == molecule
        assert (steps[mine].round() == steps[mine][0].round()).all()
        centroid = whole[mine].double().mean(0)
        away = scene.references[molecule] - centroid
        around = torch.cartesian_prod(*[torch.arange(-3.0, 4.0, dtype=torch.float64)] * 3) @ box.double()
        assert away.norm() <= (away - around).norm(dim=1).min() + 1e-5


def assert_right(function, arguments):
    tight = 1e-12 if arguments[0].dtype == torch.float64 else 4e-6
    expected = reference.whole_molecules(*arguments)
    torch.testing.assert_close(function(*arguments), expected, rtol=tight, atol=tight)


@kernels
@boxes
@both_types
def test_the_kernel_is_the_reference(function, box, dtype):
    for seed in range(5):
        assert_right(function, Scene(dtype=dtype, seed=seed).arguments(box.to(dtype)))


@kernels
@pytest.mark.parametrize(
    "sizes", [(1,), (2500,), ()] + [(3,) * 33_000, (3341, *(3,) * 20_000)] * torch.cuda.is_available()
)
def test_molecules_of_any_size_and_number(function, sizes):
    assert_right(function, Scene(sizes=sizes, dtype=torch.float32).arguments(torch.eye(3) * 3))


def test_many_molecules_share_the_smaller_programs_of_a_gpu(monkeypatch):
    monkeypatch.setattr(pytest.importorskip("openmm_density.kernels.molecules.gpu"), "_FEW_MOLECULES", 2)
    arguments = Scene(sizes=(1, 3, 200, 2)).arguments(torch.eye(3) * 3)
    assert_right(operators.in_triton("molecules", "whole_molecules"), arguments)


@boxes
def test_what_wraps_molecules_changes_nothing(box):
    scene = Scene()
    arguments = scene.arguments(box.double())
    expected = whole_molecules(*arguments)
    steps = torch.randint(-4, 5, (len(scene.sizes), 3), generator=torch.Generator().manual_seed(5)).double()
    scene.positions[scene.particles] += (steps @ box.double())[scene.molecules]
    torch.testing.assert_close(whole_molecules(*scene.arguments(box.double())), expected, rtol=0, atol=1e-11)


def test_the_same_bits_for_every_number_of_threads():
    scene = Scene(sizes=(3,) * 5000)
    found = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        found.append(whole_molecules(*scene.arguments(BOXES["skewed"])))
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def test_a_molecule_that_is_lost_leaves_the_others_alone():
    scene = Scene()
    expected = whole_molecules(*scene.arguments(BOXES["skewed"]))
    lost = scene.molecules == 1
    scene.positions[scene.particles[lost][0], 1] = math.nan
    found = whole_molecules(*scene.arguments(BOXES["skewed"]))
    assert torch.equal(found[~lost], expected[~lost])
    assert found[lost].isnan().any(dim=1).all()


WRONG = {
    "positions must be": (0, torch.zeros(57, 3, dtype=torch.int64)),
    "particles must be int64": (1, torch.zeros(50, dtype=torch.int32)),
    "particle 57 is not among the 57 positions": (1, torch.arange(8, 58)),
    "particle -1": (1, torch.arange(-1, 49)),
    "order must be int64 of the shape": (2, torch.arange(49)),
    "order must name each row of particles, 0 to 49, once": (2, torch.zeros(50, dtype=torch.int64)),
    "offsets must be int64": (3, torch.tensor([], dtype=torch.int64)),
    "offsets must rise from 0 to 50": (3, torch.tensor([0, 1, 4, 44, 44, 49, 50])),
    "references must be float64": (4, torch.zeros(5, 3, dtype=torch.float64)),
    "box must be": (5, torch.eye(2)),
}


@implementations
@pytest.mark.parametrize(("message", "change"), WRONG.items(), ids=WRONG.keys())
def test_bad_arguments_are_refused(function, message, change):
    arguments = Scene().arguments(torch.eye(3))
    arguments[change[0]] = change[1]
    with pytest.raises(ValueError, match=f"whole_molecules: {message}"):
        function(*arguments)


@pytest.mark.parametrize("function", [among_all, reference.among_all], ids=["C++", "reference"])
@both_types
def test_rows_come_among_zeros(function, dtype):
    values = torch.arange(1, 10, dtype=dtype).reshape(3, 3)
    everything = function(values, torch.tensor([4, 0, 2]), 6)
    expected = torch.zeros(6, 3, dtype=dtype)
    expected[4], expected[0], expected[2] = values
    assert everything.dtype == dtype
    assert torch.equal(everything, expected)
    assert torch.equal(
        function(values[:0], torch.tensor([], dtype=torch.int64), 2), torch.zeros(2, 3, dtype=dtype)
    )


@pytest.mark.parametrize("function", [among_all, reference.among_all], ids=["C++", "reference"])
@pytest.mark.parametrize(
    ("values", "particles", "problem"),
    [
        (torch.zeros(2, 3), torch.tensor([0, 5]), "particle 5 is not among the 5"),
        (torch.zeros(2, 3), torch.tensor([-1, 0]), "particle -1 is not among the 5"),
        (torch.zeros(2, 3), torch.tensor([0]), "particles must be int64"),
        (torch.zeros(2, 3), torch.tensor([0, 1], dtype=torch.int32), "particles must be int64"),
        (torch.zeros(2, 2), torch.tensor([0, 1]), "values must be"),
        (torch.zeros(2, 3, dtype=torch.int64), torch.tensor([0, 1]), "values must be"),
    ],
)
def test_rows_that_do_not_fit_are_refused(function, values, particles, problem):
    with pytest.raises(ValueError, match=problem):
        function(values, particles, 5)
