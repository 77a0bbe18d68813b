"""The Triton energies of pairs against the reference: in Triton's interpreter, or on a GPU when there is one."""

import math

import pytest
import torch

pytest.importorskip("triton")

from openmm_density.kernels.neighbors import neighbors
from openmm_density.kernels.pairs import LENNARD_JONES, NONBONDED, gpu, pack_exclusions, reference

from . import operators
from .operators import assert_captured
from .test_pairs import BOXES, all_forms, assert_close, scene

ON_GPU = torch.cuda.is_available()
in_triton = operators.in_triton("pairs", "pairs")

both_kinds_of_lists = pytest.mark.parametrize("both_ways", [False, True], ids=["once", "twice"])


@pytest.fixture(autouse=True)
def small_programs(monkeypatch):
    """Let the interpreter have programs of several rows, and rows of several turns."""
    if not ON_GPU:
        monkeypatch.setattr(gpu, "_shape_of_programs", lambda n_atoms: (3, 8, 1))


@all_forms
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_is_the_reference(form, dtype):
    for box in BOXES.values() if ON_GPU else (BOXES["none"], BOXES["skewed"]):
        for both_ways in (False, True):
            arguments = scene(form, box, dtype, per_side=4 if ON_GPU else 2, both_ways=both_ways)
            found = in_triton(*arguments, both_ways=both_ways)
            expected = reference.pairs(*arguments, both_ways=both_ways)
            assert_close(found, expected, 3e-5)


@both_kinds_of_lists
def test_excluded_pairs_add_nothing(both_ways):
    arguments = scene(NONBONDED, BOXES["small"], per_side=2, both_ways=both_ways)
    exclusions = pack_exclusions([(0, 1), (1, 4), (6, 2)], 8)
    found = in_triton(*arguments, *exclusions, both_ways)
    assert_close(found, reference.pairs(*arguments, *exclusions, both_ways), 3e-5)


def test_two_negative_constants_have_the_root_of_their_product():
    arguments = scene(NONBONDED, BOXES["cube"], torch.float32, per_side=2, both_ways=True)
    arguments[5][:, 1] *= -1
    found = in_triton(*arguments, both_ways=True)
    assert_close(found, reference.pairs(*arguments, both_ways=True), 3e-5)


@both_kinds_of_lists
@pytest.mark.parametrize("nowhere", [math.nan, math.inf, -1e30])
def test_atoms_that_have_gone_add_nothing(both_ways, nowhere):
    arguments = scene(NONBONDED, BOXES["cube"], torch.float32, per_side=2, both_ways=both_ways)
    arguments[0][2, 1] = arguments[0][5, 0] = nowhere
    found = in_triton(*arguments, both_ways=both_ways)
    gone = pack_exclusions([(a, b) for a in (2, 5) for b in range(8)], 8)
    arguments[0][2, 1] = arguments[0][5, 0] = 0.0
    assert_close(found, reference.pairs(*arguments, *gone, both_ways), 3e-5)


@pytest.mark.parametrize(("apart", "most"), [(0.0, 0.0), (1e-5, 0.0), (2e-4, 1e9), (1e-2, 1e9)])
def test_atoms_pressed_onto_each_other_are_driven_apart_along_what_is_between_them(apart, most):
    positions = torch.tensor([[0.0, 0.0, 0.0], [apart, 0.0, 0.0]])
    listed = neighbors(positions, None, 0.9)[:3]
    parameters = torch.tensor([[0.3, 0.5, 0.3], [0.3, 0.5, -0.3]])
    arguments = positions, None, *listed, parameters, NONBONDED, 0.9, [0.7, 138.9, 78.3]
    gradient = in_triton(*arguments)[1]
    assert gradient.flatten().tolist() == pytest.approx([most, 0.0, 0.0, -most, 0.0, 0.0], rel=1e-6)


@pytest.mark.parametrize("row_of_all", [True, False], ids=["row", "column"])
def test_no_number_of_atoms_pressed_onto_one_wraps_its_force(row_of_all, monkeypatch):
    """More than 549 times the largest force of a pair is no int64 in units of 2⁻²⁴."""
    if not ON_GPU:
        monkeypatch.setattr(gpu, "_shape_of_programs", lambda n_atoms: (64, 64, 1))
    n, crowd = 571, torch.arange(1, 571, dtype=torch.int32)
    positions = torch.full((n, 3), 1.0)
    positions[0, 0] += 1e-2  # the others are in one place, and not listed with each other
    offsets = torch.tensor([0, *([570] * 571 if row_of_all else range(571))], dtype=torch.int32)
    listed = [offsets, crowd if row_of_all else 0 * crowd, 0 * crowd]
    parameters = torch.tensor([[0.3, 0.5, 0.0]]).repeat(n, 1)
    arguments = [positions, None, *listed, parameters, LENNARD_JONES, 0.9, [0.9]]
    gradient = in_triton(*arguments)[1]
    expected = reference.pairs(*arguments)[1]
    assert expected[0, 0] == pytest.approx(-5.7e11)
    assert (gradient - expected).abs().max() < 1e-5 * 5.7e11


@pytest.mark.parametrize("shape", [(1, 64, 2), (2, 64, 1), (8, 32, 1)])
def test_any_shape_of_programs_gives_the_same(monkeypatch, shape):
    monkeypatch.setattr(gpu, "_shape_of_programs", lambda n_atoms: shape)
    per_side = 12 if ON_GPU else 2
    box = 3 * BOXES["cube"] if ON_GPU else BOXES["cube"]
    for both_ways in (False, True):
        arguments = scene(NONBONDED, box, torch.float32, per_side=per_side, both_ways=both_ways)
        found = in_triton(*arguments, both_ways=both_ways)
        expected = reference.pairs(*arguments, both_ways=both_ways)
        assert_close(found, expected, 3e-5)


@pytest.mark.skipif(not ON_GPU, reason="no GPU")
class TestOnGpu:
    @both_kinds_of_lists
    def test_many_atoms_have_the_same_bits_each_time(self, both_ways):
        arguments = scene(NONBONDED, 6 * BOXES["cube"], torch.float32, per_side=24, both_ways=both_ways)
        found = [in_triton(*arguments, both_ways=both_ways) for _ in range(4)]
        assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other))
        expected = torch.ops.openmm_density.pairs(*arguments, None, None, both_ways)
        assert_close(found[0], expected, 3e-5)

    @both_kinds_of_lists
    def test_in_a_cuda_graph(self, both_ways):
        arguments = scene(NONBONDED, BOXES["cube"], torch.float32, both_ways=both_ways)
        assert_captured(torch.ops.openmm_density.pairs.default, [*arguments, None, None, both_ways])
