"""The Triton planarity against the float64 reference: in Triton's interpreter, or on a GPU when there is one, then with more."""

import math

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from openmm_density.kernels.planarity import gpu, pack_planes, reference

from .test_planarity import (
    BROKEN,
    SIGMA,
    groups,
    largest,
    mixed,
    packed,
)

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
# Triton's interpreter is NumPy, which speaks of every NaN.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
needs_gpu = pytest.mark.skipif(not ON_GPU, reason="no GPU")
both_types = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def on_device(planes):
    return type(planes)(*(table.to(DEVICE) for table in planes))


def planarity(positions, *tables, **settings):
    tables = [table.to(DEVICE) for table in tables]
    energy, gradient = gpu.planarity(positions.to(DEVICE), *tables, **settings)
    assert energy.dtype == torch.float64 and energy.shape == ()
    assert gradient.dtype == positions.dtype and gradient.shape == positions.shape
    assert gradient.is_contiguous() and gradient.device.type == DEVICE.type
    return energy.cpu(), gradient.cpu()


def assert_right(positions, planes):
    energy, gradient = planarity(positions, *planes)
    expected_energy, expected_gradient = reference.planarity(positions, *planes)
    assert energy.item() == pytest.approx(expected_energy.item(), rel=1e-5)
    assert largest(gradient - expected_gradient) <= 1e-4 * largest(expected_gradient)


@both_types
def test_a_scale_multiplies_the_gradient(dtype, poisoned):
    positions, planes = mixed(1, dtype=dtype)
    energy, gradient = planarity(positions, *planes)
    scale = torch.tensor(-2.5, dtype=torch.float64, device=DEVICE)
    same, scaled = planarity(positions, *planes, scale=scale)
    assert torch.equal(same, energy) and torch.equal(scaled, -2.5 * gradient)


@both_types
@pytest.mark.parametrize("per_atom", [False, True], ids=["one sigma", "sigma per atom"])
def test_agrees_with_the_reference(dtype, per_atom, poisoned):
    positions, planes = mixed(500 if ON_GPU else 2, centre=500.0, per_atom=per_atom, dtype=dtype)
    assert_right(positions, planes)


@pytest.mark.parametrize("n_planes", [1, 31, 33] + [1000, 2051] * ON_GPU)
def test_any_number_of_planes(n_planes, poisoned):
    assert_right(groups(n_planes, 5, seed=n_planes).reshape(-1, 3), packed(n_planes, 5))


def test_planes_of_very_different_sizes_in_one_program(poisoned):
    random = np.random.default_rng(2)
    positions = groups(1, 200, centre=50.0)[0].float()
    sizes = [4, 5, 40, 4, 70]
    assert_right(
        positions, pack_planes([(random.permutation(200)[:size][None], SIGMA) for size in sizes], 200)
    )


@both_types
def test_nothing_gives_nothing(dtype, poisoned):
    planes = pack_planes([])
    for n_atoms in (0, 1, 200):
        energy, gradient = planarity(torch.ones(n_atoms, 3, dtype=dtype), *planes)
        assert energy.item() == 0.0
        assert not gradient.any()


def test_atoms_beside_the_planes_have_no_force(poisoned):
    positions, planes = mixed(1, dtype=torch.float32)
    _, gradient = planarity(torch.cat([positions, torch.full((300, 3), math.nan)]), *planes)
    _, expected = planarity(positions, *planes)
    assert torch.equal(gradient[: len(positions)], expected)
    assert not gradient[len(positions) :].any()


@both_types
def test_degenerate_planes_have_no_force_and_leave_the_others_alone(dtype, poisoned):
    n_planes = 3 + len(BROKEN)
    positions = torch.cat([groups(3, 5).reshape(-1, 3), *BROKEN.values()]).to(dtype)
    energy, gradient = planarity(positions, *packed(n_planes, 5))
    expected_energy, expected = planarity(positions[:15], *packed(3, 5))
    assert energy.item() == expected_energy.item() > 0
    assert torch.equal(gradient[:15], expected)
    for kind, broken in zip(BROKEN, gradient[15:].reshape(-1, 5, 3)):
        assert not broken.any(), kind


@pytest.mark.parametrize("far", [1e15, 1e25, 1e37])
def test_an_atom_gone_astray_stays_finite(far):
    positions = groups(1, 6, centre=0.0)[0].float()
    positions[3, 1] = far
    energy, gradient = planarity(positions, *packed(1, 6))
    assert energy.isfinite() and gradient.isfinite().all()


def test_the_same_bits_every_time():
    positions, planes = mixed(2000 if ON_GPU else 2, dtype=torch.float32)
    energy, gradient = planarity(positions, *planes)
    for _ in range(20 if ON_GPU else 1):
        again, gradient_again = planarity(positions, *planes)
        assert torch.equal(again, energy) and torch.equal(gradient_again, gradient)


def test_strided_positions(poisoned):
    positions, planes = mixed(1)
    wide = torch.stack([positions, torch.full_like(positions, math.nan)], 1).to(DEVICE)[:, 0]
    assert not wide.is_contiguous()
    _, gradient = planarity(positions, *planes)
    assert torch.equal(gpu.planarity(wide, *on_device(planes))[1].cpu(), gradient)


def test_tables_are_read_once_and_again_when_they_change(monkeypatch):
    reads = []
    check = reference.check_entries
    monkeypatch.setattr(reference, "check_entries", lambda *given: (reads.append(given), check(*given)))
    positions = groups(2, 4).reshape(-1, 3).to(DEVICE)
    planes = on_device(packed(2, 4))
    for _ in range(3):
        gpu.planarity(positions, *planes)
    assert len(reads) == 1
    with pytest.raises(ValueError, match="members holds index 7"):
        gpu.planarity(positions[:7], *planes)
    planes.members[0] = 8
    with pytest.raises(ValueError, match="members holds index 8"):
        gpu.planarity(positions, *planes)


@needs_gpu
def test_a_graph_is_not_captured_with_tables_that_were_never_read():
    positions, planes = mixed(2, dtype=torch.float32)
    positions, planes = positions.to(DEVICE), on_device(planes)
    gpu.planarity(positions, *(table.clone() for table in planes))
    with pytest.raises(RuntimeError, match="evaluate once"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        gpu.planarity(positions, *planes)
