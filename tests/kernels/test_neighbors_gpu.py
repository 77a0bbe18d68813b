"""The Triton neighbour lists against brute force: in Triton's interpreter, or on a GPU when there is one."""

import math

import pytest
import torch

pytest.importorskip("triton")

from openmm_density.kernels.neighbors import gpu, gpu_rows, listed_pairs, reference

from .operators import DEVICE, in_triton, moved
from .test_neighbors import KINDS, assert_same, call, leaning_case, pair_set, random_case

ON_GPU = torch.cuda.is_available()
pytestmark = pytest.mark.usefixtures("poisoned")
neighbors_in_triton = in_triton("neighbors", "neighbors")


@pytest.fixture(autouse=True)
def few_columns(monkeypatch):
    """Let the interpreter go through fewer cells."""
    if not ON_GPU:
        monkeypatch.setattr(gpu, "_ACROSS", 1)
        monkeypatch.setattr(gpu, "_ALONG", 1)


@pytest.mark.parametrize("kind", range(len(KINDS)), ids=KINDS)
def test_the_same_pairs_as_brute_force_in_random_boxes(kind):
    for seed in range(kind, 800 if ON_GPU else 2 * len(KINDS), len(KINDS)):
        *arguments, both_ways = random_case(seed, 24 if ON_GPU else 6)
        expected = reference.neighbors(*arguments, both_ways)
        found = neighbors_in_triton(*arguments, both_ways)
        assert_same(found, expected, both_ways)


def test_rows_that_fill_words_of_bits_are_counted():
    *arguments, both_ways = random_case(13, 30)
    found = neighbors_in_triton(*arguments, both_ways)
    assert_same(found, reference.neighbors(*arguments, both_ways), both_ways)


def test_finer_cells_find_the_same(monkeypatch):
    monkeypatch.setattr(gpu, "_ACROSS", 2)
    monkeypatch.setattr(gpu, "_ALONG", 3)
    positions = torch.rand(300 if ON_GPU else 16, 3, generator=torch.Generator().manual_seed(0)) * 4
    assert_same(
        gpu.neighbors(positions.to(DEVICE), None, 0.9), reference.neighbors(positions, None, 0.9), False
    )


def test_in_a_box_that_leans_far_no_pair_is_lost():
    arguments = leaning_case(20 if ON_GPU else 4)
    found = neighbors_in_triton(*arguments)
    assert_same(found, reference.neighbors(*arguments), False)


@pytest.mark.parametrize("programs", [3, 512 if ON_GPU else 20])
def test_any_number_of_programs_gives_the_same_list(monkeypatch, programs):
    positions = torch.rand(3000 if ON_GPU else 8, 3, generator=torch.Generator().manual_seed(0)) * 4
    found = []
    for tried in (len(positions), programs):
        monkeypatch.setattr(gpu, "_programs_of_rows", lambda *_, tried=tried: tried)
        found.append(gpu.neighbors(positions.to(DEVICE), 4 * torch.eye(3, device=DEVICE), 0.9, True))
    assert all(torch.equal(one, other) for one, other in zip(*found))


def test_rows_longer_than_what_is_kept_of_them_are_the_same(monkeypatch):
    positions = torch.rand(2000 if ON_GPU else 4, 3, generator=torch.Generator().manual_seed(0))
    positions *= 2 if ON_GPU else 0.5
    found = []
    for slots in (0, 2):
        monkeypatch.setattr(gpu, "_slots_of_rows", lambda *_, slots=slots: slots)
        found.append(gpu.neighbors(positions.to(DEVICE), None, 0.9, True, 10**6 if ON_GPU else 40))
    n_pairs = int(found[0][3][0])
    assert n_pairs > 2 * len(positions)
    for other in found[1:]:
        assert torch.equal(other[0], found[0][0]) and torch.equal(other[3], found[0][3])
        assert all(torch.equal(one[:n_pairs], two[:n_pairs]) for one, two in zip(other[1:3], found[0][1:3]))


def test_more_atoms_in_a_column_than_are_looked_at_together(monkeypatch):
    if not ON_GPU:
        monkeypatch.setattr(gpu_rows, "_BITS", gpu_rows.tl.constexpr(1))
    positions = torch.rand(300 if ON_GPU else 5, 3, generator=torch.Generator().manual_seed(0)) * 0.5
    expected = reference.neighbors(positions, None, 0.4, True)
    assert_same(neighbors_in_triton(positions, None, 0.4, True), expected, True)


@pytest.mark.parametrize("both_ways", [False, True])
def test_at_the_cut_off_float64_decides(both_ways):
    position = torch.zeros(1, 3, dtype=torch.float64, device=DEVICE)
    box = torch.eye(3, dtype=torch.float64, device=DEVICE)
    for cutoff, pairs in ((1.0, 0), (math.nextafter(1.0, 2.0), 6)):
        status = gpu.neighbors(position, box, cutoff, both_ways)[3]
        assert int(status[0]) == pairs // (1 if both_ways else 2)


def test_what_does_not_fit_is_told():
    arguments = [torch.rand(6, 3, generator=torch.Generator().manual_seed(0)), None, 1.8]
    whole = neighbors_in_triton(*arguments)
    n_pairs = int(whole[3][0])
    for capacity in (n_pairs + 3, n_pairs - 1):
        offsets, second, shifts, status = neighbors_in_triton(*arguments, False, capacity)
        kept = min(n_pairs, capacity)
        assert status.tolist() == [n_pairs, 0, 1]
        assert torch.equal(offsets, whole[0].clamp(max=capacity))
        assert torch.equal(second[:kept], whole[1][:kept]) and torch.equal(shifts[:kept], whole[2][:kept])


@pytest.mark.parametrize("box", [None, torch.eye(3) * 3])
def test_atoms_without_a_place_have_no_neighbours(box):
    positions = torch.rand(20 if ON_GPU else 11, 3, generator=torch.Generator().manual_seed(0)) * 3
    positions[4, 1], positions[7, 0], positions[9, 2] = math.nan, math.inf, 1e30
    found = neighbors_in_triton(positions, box, 0.8, True)
    assert_same(found, reference.neighbors(positions, box, 0.8, True), True)
    assert int(found[3][1]) == 3


def test_a_flat_box_has_no_usable_atoms():
    found = gpu.neighbors(torch.zeros(5, 3, device=DEVICE), torch.ones(3, 3, device=DEVICE), 0.4, False, 10)
    assert found[3].tolist() == [0, 5, 1] and not found[0].any()
    assert gpu.neighbors(torch.zeros(0, 3, device=DEVICE), None, 0.4)[3].tolist() == [0, 0, 1]


def kept_list(n_atoms, capacity, dtype=torch.float32):
    integers = {"dtype": torch.int32, "device": DEVICE}
    return [
        torch.zeros(n_atoms + 1, **integers),
        torch.zeros(capacity, **integers),
        torch.zeros(capacity, **integers),
        torch.zeros(3, dtype=torch.int64, device=DEVICE),
        torch.zeros(n_atoms, 3, dtype=dtype, device=DEVICE),
        torch.zeros(3, 3, dtype=torch.float64, device=DEVICE),
    ]


def test_a_kept_list_is_made_when_it_has_to_be():
    positions = torch.rand(6, 3, generator=torch.Generator().manual_seed(0)) * 2
    kept = kept_list(6, 500)
    builds = []
    for move, side in (
        (0, 2),
        (0.09, 2),
        (0.11, 2),
        (0.11, 2),
        (0.11, 2.1),
        (math.nan, 2.1),
        (math.nan, 2.1),
    ):
        now = positions.clone()
        now[5, 1] += move
        box = side * torch.eye(3)
        gpu.update_neighbors(*moved([now, box], DEVICE), 0.6, 0.2, False, *kept)
        builds.append(int(kept[3][2]))
        if len(builds) in (1, 3, 5):
            expected = reference.neighbors(now, box, 0.8)
            assert (pair_set(kept, False) == pair_set(expected, False)).all()
    assert builds == [1, 1, 2, 2, 3, 4, 5]


def test_a_box_that_goes_makes_a_kept_list_anew():
    positions, kept = torch.rand(6, 3, generator=torch.Generator().manual_seed(0)) * 2, kept_list(6, 500)
    for n, box in enumerate((2 * torch.eye(3), None, None)):
        gpu.update_neighbors(*moved([positions, box], DEVICE), 0.6, 0.2, False, *kept)
        assert (pair_set(kept, False) == pair_set(reference.neighbors(positions, box, 0.8), False)).all()
        assert int(kept[3][2]) == (1, 2, 2)[n]


def test_bad_tables_are_refused():
    kept = kept_list(5, 9)
    with pytest.raises(ValueError, match="offsets must be"):
        gpu.update_neighbors(*moved(call()[:2], DEVICE), 0.4, 0.1, False, kept[1], *kept[1:])


@pytest.mark.skipif(not ON_GPU, reason="no GPU")
class TestOnGpu:
    @pytest.mark.parametrize("n_atoms", [1000, 30_000])
    def test_the_same_order_at_every_run_and_the_pairs_of_the_cpu(self, n_atoms):
        side = (n_atoms / 0.1) ** (1 / 3)
        positions = torch.rand(n_atoms, 3, generator=torch.Generator().manual_seed(0)) * side
        box = side * torch.tensor([[1.0, 0, 0], [0.3, 0.9, 0], [-0.4, 0.2, 1.1]])
        for both_ways in (False, True):
            found = [gpu.neighbors(positions.cuda(), box.cuda(), 5.0, both_ways) for _ in range(4)]
            assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other))
            expected = torch.ops.openmm_density.neighbors(positions, box, 5.0, both_ways)
            assert_same(found[0], expected, both_ways)

    def test_in_a_cuda_graph(self):
        positions = torch.rand(2000, 3, device="cuda") * 20
        box = 20 * torch.eye(3, device="cuda")
        kept = kept_list(2000, 200_000)
        arguments = (positions, box, 3.0, 0.5, False)
        torch.ops.openmm_density.neighbors(positions, box, 3.0, False, 100_000)
        torch.ops.openmm_density.update_neighbors(*arguments, *kept)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            torch.ops.openmm_density.update_neighbors(*arguments, *kept)
            once = torch.ops.openmm_density.neighbors(positions, box, 3.0, False, 100_000)
        builds = []
        for move in (0.0, 0.1, 0.4, 0.0):
            positions[::3] += move
            graph.replay()
            builds.append(int(kept[3][2]))
            expected = torch.ops.openmm_density.neighbors(positions.cpu(), box.cpu(), 3.0)
            assert_same(once, expected, False)
        assert builds == [1, 1, 2, 2]
        assert len(listed_pairs(*kept[:3])[0]) == int(kept[3][0])

    def test_without_a_capacity_it_cannot_be_captured(self):
        graph = torch.cuda.CUDAGraph()
        with pytest.raises(RuntimeError, match="give a capacity"), torch.cuda.graph(graph):
            gpu.neighbors(torch.zeros(5, 3, device="cuda"), None, 1.0)
