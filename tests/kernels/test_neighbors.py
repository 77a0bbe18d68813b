"""Neighbour lists against brute force in random boxes of every kind, and what is kept of them while atoms move."""

import math
import os

import gemmi
import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree

from openmm_density.kernels import compilation
from openmm_density.kernels.neighbors import (
    NeighborList,
    listed_pairs,
    neighbors,
    reference,
    update_neighbors,
)

from ..conftest import SMALL_DATA
from . import operators

KINDS = ("none", "cube", "orthorhombic", "triclinic", "thin", "small", "skewed", "turned")

# Ten thousand take some minutes.
RANDOM_BOXES = int(os.environ.get("OPENMM_DENSITY_RANDOM_BOXES", "240"))

MODEL = next((SMALL_DATA / "qr_6i5a").glob("*.pdb"))

both_functions = pytest.mark.parametrize(
    "function", [neighbors, reference.neighbors], ids=["C++", "reference"]
)


@pytest.fixture(scope="module", autouse=True)
def compiled():
    if not compilation.load("neighbors"):
        pytest.skip("no C++ compiler")


def random_box(kind, generator, cutoff):
    """Return lattice vectors of a kind; None for no box."""
    if kind == "none":
        return None
    sides = cutoff * (2.1 + 2 * torch.rand(3, generator=generator, dtype=torch.float64))
    if kind == "cube":
        sides[:] = sides[0]
    if kind == "thin":
        sides[int(torch.randint(3, (1,), generator=generator))] *= 0.12
    if kind == "small":
        sides *= 0.35
    box = torch.diag(sides)
    if kind in ("triclinic", "small", "skewed", "turned"):
        most = 1.5 if kind == "skewed" else 0.5
        tilt = most * (2 * torch.rand(3, generator=generator, dtype=torch.float64) - 1)
        box[1, 0], box[2, 0], box[2, 1] = tilt * torch.stack([sides[0], sides[0], sides[1]])
    if kind == "turned":
        turn = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64))[0]
        box = box @ turn
    return box


def random_case(seed, most_atoms=24):
    """Return positions, inside the box and far out, a box, a cut-off and whether pairs are listed twice."""
    generator = torch.Generator().manual_seed(seed)
    kind = KINDS[seed % len(KINDS)]
    n_atoms = int(torch.randint(1, most_atoms + 1, (1,), generator=generator))
    cutoff = 0.5 + float(torch.rand(1, generator=generator))
    box = random_box(kind, generator, cutoff)
    places = torch.rand(n_atoms, 3, generator=generator, dtype=torch.float64)
    if seed % 3 == 0:
        places += torch.randint(-3, 4, (n_atoms, 3), generator=generator)
    if seed % 5 == 0:  # on faces, and in one place
        places = (4 * places).round() / 4
    positions = places @ (box if box is not None else 4 * cutoff * torch.eye(3, dtype=torch.float64))
    dtype = torch.float32 if seed // len(KINDS) % 2 else torch.float64
    return positions.to(dtype), box, cutoff, seed % 7 < 3


def pair_set(found, both_ways):
    """Return a list's pairs as a sorted array: of a pair listed once, the direction in which the reference has it."""
    first, second, steps = listed_pairs(*(tensor.cpu() for tensor in found[:3]))
    code = reference.packed(steps).long()
    if not both_ways:
        turn = (first > second) | ((first == second) & (code < 0))
        first, second = torch.where(turn, second, first), torch.where(turn, first, second)
        code = torch.where(turn, -code, code)
    pairs = np.stack([first, second, code], axis=1)
    return pairs[np.lexsort(pairs.T[::-1])]


def assert_same(found, expected, both_ways):
    assert found[3].tolist() == expected[3].tolist()
    np.testing.assert_array_equal(pair_set(found, both_ways), pair_set(expected, both_ways))


def test_the_same_pairs_as_brute_force_in_random_boxes():
    for seed in range(RANDOM_BOXES):
        *arguments, both_ways = random_case(seed)
        expected = reference.neighbors(*arguments, both_ways)
        assert_same(neighbors(*arguments, both_ways), expected, both_ways)
        pairs = pair_set(expected, both_ways)
        assert len(np.unique(pairs, axis=0)) == len(pairs)


def test_many_atoms_in_a_skewed_box():
    generator = torch.Generator().manual_seed(1)
    box = torch.tensor([[9.0, 0, 0], [2.5, 8.0, 0], [-3.0, 3.0, 7.0]])
    positions = torch.rand(250, 3, generator=generator) @ box
    for both_ways in (False, True):
        assert_same(
            neighbors(positions, box, 1.2, both_ways),
            reference.neighbors(positions, box, 1.2, both_ways),
            both_ways,
        )


def leaning_case(n_pairs):
    """Return pairs just below a cut-off across a face of a box whose second vector goes along the first 300 times."""
    generator = torch.Generator().manual_seed(8)
    box, cutoff = torch.eye(3, dtype=torch.float64), 0.2997
    box[1, 0] = 300.3
    first = torch.rand(n_pairs, 3, generator=generator, dtype=torch.float64)
    vectors = torch.randn(n_pairs, 3, generator=generator, dtype=torch.float64)
    first[:, 1], vectors[:, 1] = 1 - 0.1 * cutoff, 0.5
    vectors *= cutoff * (1 - 1e-7) / vectors.norm(dim=1, keepdim=True)
    positions = torch.cat([first, first + vectors])
    return positions - (positions @ torch.linalg.inv(box)).floor() @ box, box, cutoff


def test_in_a_box_that_leans_far_no_pair_is_lost():
    for both_ways in (False, True):
        found, expected = (
            function(*leaning_case(20), both_ways) for function in (neighbors, reference.neighbors)
        )
        assert_same(found, expected, both_ways)
        assert int(expected[3][0]) >= 20


def test_the_pairs_of_a_protein_are_those_of_a_tree():
    atoms = gemmi.read_structure(str(MODEL))[0].all()
    positions = np.array([each.atom.pos.tolist() for each in atoms])
    first, second, steps = listed_pairs(*neighbors(torch.from_numpy(positions), None, 6.0)[:3])
    found = {(min(i, j), max(i, j)) for i, j in zip(first.tolist(), second.tolist())}
    assert found == cKDTree(positions).query_pairs(6.0) and len(found) == len(first)
    assert not steps.any()


@pytest.mark.parametrize("scale", [1.0, 7.0, 1e-3])
def test_at_the_cut_off_float64_decides(scale):
    """A grid has many distances equal to the cut-off, which are not below it, and the next number above has them all."""
    side = torch.arange(6.0, dtype=torch.float64)
    positions = torch.cartesian_prod(side, side, side) * scale
    box = 6.0 * scale * torch.eye(3, dtype=torch.float64)
    for both_ways, pairs in ((True, 216), (False, 108)):
        below = neighbors(positions, box, 2.0 * scale, both_ways)
        above = neighbors(positions, box, math.nextafter(2.0 * scale, math.inf), both_ways)
        assert int(below[3][0]) == 26 * pairs and int(above[3][0]) == 32 * pairs


def test_the_same_order_at_every_run_and_for_every_number_of_threads():
    positions = torch.rand(4000, 3, generator=torch.Generator().manual_seed(0)) * 8
    found = []
    for threads in (1, 2, 5, 1):
        torch.set_num_threads(threads)
        found.append(neighbors(positions, 8 * torch.eye(3), 1.0))
    for other in found[1:]:
        assert all(torch.equal(one, another) for one, another in zip(found[0], other))


@both_functions
def test_what_does_not_fit_is_told(function):
    positions, box, cutoff, _ = random_case(9)
    whole = function(positions, box, cutoff)
    n_pairs = int(whole[3][0])
    for capacity in (n_pairs + 9, n_pairs, max(n_pairs - 1, 0), 3, 0):
        offsets, second, shifts, status = function(positions, box, cutoff, False, capacity)
        kept = min(n_pairs, capacity)
        assert status.tolist() == [n_pairs, 0, 1] and len(second) == len(shifts) == capacity
        assert torch.equal(offsets, whole[0].clamp(max=capacity))
        assert torch.equal(second[:kept], whole[1][:kept]) and torch.equal(shifts[:kept], whole[2][:kept])


@both_functions
@pytest.mark.parametrize("box", [None, torch.eye(3) * 3])
def test_atoms_without_a_place_have_no_neighbours(function, box):
    positions = torch.rand(30, 3, generator=torch.Generator().manual_seed(0)) * 3
    positions[4, 1], positions[7, 0] = math.nan, math.inf
    lost = [4, 7]
    if box is not None:
        positions[9, 2] = 1e6
        lost.append(9)
    found = function(positions, box, 1.0, True)
    usable = [i for i in range(30) if i not in lost]
    others = function(positions[usable], box, 1.0, True)
    assert found[3].tolist() == [int(others[3][0]), len(lost), 1]
    first, second, _ = listed_pairs(*found[:3])
    assert not {*first.tolist(), *second.tolist()} & {*lost}


@pytest.mark.parametrize("capacity", [5000, None])
def test_its_shapes_are_known_without_evaluating(capacity):
    arguments = (torch.rand(20, 3), torch.eye(3), 0.4, True, capacity)
    torch.library.opcheck(torch.ops.openmm_density.neighbors.default, arguments, test_utils="test_faketensor")


@both_functions
def test_few_atoms(function):
    for n_atoms in (0, 1):
        found = function(torch.zeros(n_atoms, 3), None, 1.0)
        assert found[0].tolist() == [0] * (n_atoms + 1) and found[3].tolist() == [0, 0, 1]
    # An atom alone in a box has itself for neighbours: six in a cube.
    assert int(function(torch.zeros(1, 3), torch.eye(3), 1.1, True)[3][0]) == 6
    assert int(function(torch.zeros(1, 3), torch.eye(3), 1.1, False)[3][0]) == 3


@both_functions
def test_atoms_beyond_what_float32_squares_take_no_pairs_from_others(function):
    positions = torch.rand(30, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    expected = reference.neighbors(positions[2:], None, 1.0, True)
    positions[0, 0], positions[1, 2] = 1e100, -1e308
    found = function(positions, None, 1.0, True)
    assert found[3].tolist() == [int(expected[3][0]), 2, 1]


def test_one_atom_far_from_all_others_costs_no_pairs():
    positions = torch.rand(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    positions[17] = 1e7
    assert_same(neighbors(positions, None, 0.4), reference.neighbors(positions, None, 0.4), False)


def state_of(kept):
    """Return a list that is kept, as `neighbors` returns one."""
    return kept.offsets, kept.neighbors, kept.shifts, kept.status


class TestKept:
    """A list that is made anew when an atom has moved by half the skin."""

    def test_it_is_made_when_it_has_to_be(self):
        positions = torch.rand(50, 3, generator=torch.Generator().manual_seed(0)) * 3
        box = 3 * torch.eye(3)
        kept = NeighborList(50, 0.8, 5000, skin=0.2)
        builds = []
        for move, side in (
            (0, 3),
            (0, 3),
            (0.05, 3),
            (0.099, 3),
            (0.101, 3),
            (0.101, 3),
            (0.101, 3.1),
            (0.2, 3.1),
        ):
            positions_now = positions.clone()
            positions_now[13, 1] += move
            kept(positions_now, box * (side / 3))
            builds.append(int(kept.status[2]))
            if len(builds) in (1, 5, 7):
                expected = neighbors(positions_now, box * (side / 3), 1.0)
                assert np.array_equal(pair_set(state_of(kept), False), pair_set(expected, False))
        assert builds == [1, 1, 1, 1, 2, 2, 3, 3]

    def test_it_has_every_pair_within_the_cut_off(self):
        generator = torch.Generator().manual_seed(0)
        positions = torch.rand(60, 3, generator=generator, dtype=torch.float64) * 3
        box = torch.tensor([[3.0, 0, 0], [1.0, 2.9, 0], [-1.2, 0.7, 2.5]])
        kept = NeighborList(60, 0.7, 5000, skin=0.3, both_ways=True, dtype=torch.float64)
        for _ in range(12):
            positions += 0.02 * torch.randn(60, 3, generator=generator, dtype=torch.float64)
            kept(positions, box)
            first, second, steps = listed_pairs(*state_of(kept)[:3])
            near = (positions[second] - positions[first] + steps.double() @ box.double()).norm(dim=1) < 0.7
            found = np.stack([first, second, reference.packed(steps)], axis=1)[near]
            expected = pair_set(reference.neighbors(positions, box, 0.7, True), True)
            assert np.array_equal(np.unique(found, axis=0), expected)
        assert 1 < int(kept.status[2]) < 12

    def test_lost_atoms_and_no_skin_make_it_at_every_call(self):
        positions = torch.rand(20, 3, generator=torch.Generator().manual_seed(0))
        for skin, lost in ((0.0, False), (0.1, True)):
            kept = NeighborList(20, 0.5, 500, skin=skin)
            positions[3, 0] = math.nan if lost else 0.5
            for _ in range(3):
                kept(positions)
            assert kept.status[1:].tolist() == [int(lost), 3]

    def test_a_box_that_comes_or_goes_makes_it_anew(self):
        positions = torch.rand(20, 3, generator=torch.Generator().manual_seed(0))
        for update in (update_neighbors, reference.update_neighbors):
            kept = NeighborList(20, 0.5, 2000, skin=0.1)
            for n, box in enumerate((torch.eye(3), None, None, torch.eye(3))):
                update(positions, box, 0.5, 0.1, False, *kept.buffers())
                expected = neighbors(positions, box, 0.6)
                assert np.array_equal(pair_set(state_of(kept), False), pair_set(expected, False))
                assert int(kept.status[2]) == (1, 2, 2, 3)[n]

    def test_overflow_is_told(self):
        positions = torch.rand(20, 3, generator=torch.Generator().manual_seed(0))
        kept = NeighborList(20, 0.5, 10)
        kept(positions)
        assert kept.overflowed() and int(kept.offsets[-1]) == 10
        kept(positions * 10)
        assert not kept.overflowed()

    def test_it_can_be_scripted_and_saved(self, tmp_path):
        positions, box = torch.rand(20, 3, generator=torch.Generator().manual_seed(0)), torch.eye(3)
        kept = NeighborList(20, 0.5, 2000, skin=0.1)
        expected = kept(positions, box)
        torch.jit.script(kept).save(str(tmp_path / "list.pt"))
        again = torch.jit.load(str(tmp_path / "list.pt"))
        assert all(torch.equal(one, another) for one, another in zip(again(positions, box), expected))
        assert int(again.status[2]) == 1
        again(positions + 0.1, box)
        assert int(again.status[2]) == 2


def call(**changes):
    arguments = {"positions": torch.zeros(5, 3), "box": torch.eye(3), "cutoff": 0.4} | changes
    return tuple(arguments.values())


WRONG = {
    "positions must be": call(positions=torch.zeros(5, 2)),
    "positions must be a float32": call(positions=torch.zeros(5, 3, dtype=torch.int64)),
    "cutoff must be a positive length, not 0": call(cutoff=0.0),
    "cutoff must be a positive length, not nan": call(cutoff=math.nan),
    "box must be a float32 or float64 tensor": call(box=torch.zeros(3)),
    "capacity must be from 0": call(both_ways=False, capacity=-1),
}

WRONG_BOXES = {
    "box must be three vectors": torch.ones(3, 3),
    "box must be three vectors that": torch.full((3, 3), math.nan),
    "the cut-off may be 100 times the smallest height of the box, not 400": torch.diag(
        torch.tensor([1.0, 1, 1e-3])
    ),
}


@operators.implementations("neighbors", neighbors, reference.neighbors)
@pytest.mark.parametrize(("message", "arguments"), WRONG.items(), ids=WRONG.keys())
def test_bad_arguments_are_refused(function, message, arguments):
    with pytest.raises(ValueError, match=f"neighbors: {message}"):
        function(*arguments)


@both_functions
@pytest.mark.parametrize(("message", "box"), WRONG_BOXES.items(), ids=WRONG_BOXES.keys())
def test_bad_boxes_are_refused(function, message, box):
    with pytest.raises(ValueError, match=f"neighbors: {message}"):
        function(*call(box=box))


WRONG_TABLES = {
    "offsets": torch.zeros(5, dtype=torch.int32),
    "neighbors": torch.zeros(99, dtype=torch.int64),
    "shifts": torch.zeros(98, dtype=torch.int32),
    "status": torch.zeros(2, dtype=torch.int64),
    "built_positions": torch.zeros(5, 3, dtype=torch.float64),
    "built_box": torch.zeros(3, 3),
}


@pytest.mark.parametrize("function", [update_neighbors, reference.update_neighbors], ids=["C++", "reference"])
@pytest.mark.parametrize(("name", "table"), WRONG_TABLES.items(), ids=WRONG_TABLES.keys())
def test_tables_that_do_not_fit_are_refused(function, name, table):
    kept = NeighborList(5, 0.4, 99)
    state = {each: getattr(kept, each) for each in WRONG_TABLES} | {name: table}
    with pytest.raises(ValueError, match=f"neighbors: {name} must be a contiguous tensor"):
        function(torch.zeros(5, 3), None, 0.4, 0.0, False, *state.values())
    with pytest.raises(ValueError, match="skin must be 0"):
        function(torch.zeros(5, 3), None, 0.4, -1.0, False, *state.values())
