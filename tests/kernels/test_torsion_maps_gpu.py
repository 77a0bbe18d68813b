"""The Triton torsion maps against the float64 reference: in Triton's interpreter, or on a GPU when there is one."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from openmm_density.kernels.torsion_maps import gpu, pack_torsions, reference, spline_nodes

from .test_torsion_maps import case, smooth_maps

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
# Triton's interpreter is NumPy, which speaks of every NaN.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def torsion_maps(positions, *tables, scale=None):
    tables = [table.to(DEVICE) for table in tables]
    energy, gradient = gpu.torsion_maps(
        positions.to(DEVICE), *tables, None if scale is None else scale.to(DEVICE)
    )
    assert energy.dtype == torch.float64 and energy.shape == ()
    assert gradient.dtype == positions.dtype and gradient.shape == positions.shape
    assert gradient.is_contiguous() and gradient.device.type == DEVICE.type
    return energy.cpu(), gradient.cpu()


def assert_right(positions, torsions, nodes):
    energy, gradient = torsion_maps(positions, *torsions, nodes)
    expected, exact = reference.torsion_maps(positions, *torsions, nodes)
    largest = float(exact.abs().max())
    assert float(energy) == pytest.approx(float(expected), rel=1e-5, abs=1e-4)
    assert float((gradient - exact).abs().max()) <= 1e-4 * largest


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_agrees_with_the_reference(dtype, poisoned):
    assert_right(*case(dtype))


def test_angles_are_right_all_around(poisoned):
    # A torsion of every degree, its sign and the edges of the map among them.
    turns = torch.deg2rad(torch.arange(-180.0, 181.0, 3.0, dtype=torch.float64))
    points = torch.zeros(len(turns), 5, 3, dtype=torch.float64)
    points[:, :4] = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0], [0, 1, 0]], dtype=torch.float64)
    points[:, 4] = torch.stack([turns.cos(), torch.ones_like(turns), turns.sin()], dim=1)
    atoms = np.arange(5 * len(turns)).reshape(-1, 5)
    signs = np.where(np.arange(len(turns)) % 2, 1.0, -1.0)
    torsions = pack_torsions(atoms, np.zeros(len(turns)), signs)
    assert_right(points.reshape(-1, 3), torsions, spline_nodes(smooth_maps()[0]))


def test_a_torsion_without_a_value_adds_nothing(poisoned):
    positions, torsions, nodes = case()
    members = torsions.members.tolist()
    positions[members[0][2]] = 0.5 * (positions[members[0][1]] + positions[members[0][3]])
    positions[members[1][2]] = positions[members[1][1]]
    positions[members[2][0], 1] = float("nan")
    positions[members[3][4], 2] = float("inf")
    assert_right(positions, torsions, nodes)


def test_a_scale_and_no_terms(poisoned):
    positions, torsions, nodes = case()
    scale = torch.tensor(-2.5, dtype=torch.float64)
    _, plain = torsion_maps(positions, *torsions, nodes)
    _, scaled = torsion_maps(positions, *torsions, nodes, scale=scale)
    np.testing.assert_allclose(scaled, -2.5 * plain, rtol=1e-6)
    energy, gradient = torsion_maps(positions, *pack_torsions(np.zeros((0, 5)), [], []), nodes)
    assert float(energy) == 0 and not gradient.any()


def test_the_same_input_gives_the_same_bits():
    arguments = case(torch.float32)
    first, again = (torsion_maps(arguments[0], *arguments[1], arguments[2]) for _ in range(2))
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])


def test_tables_that_do_not_fit_are_refused():
    positions, torsions, nodes = case()
    with pytest.raises(ValueError, match="members holds index"):
        torsion_maps(positions[:20], *torsions, nodes)
    with pytest.raises(ValueError, match="nodes"):
        torsion_maps(positions, *torsions, nodes[..., 0].contiguous())
