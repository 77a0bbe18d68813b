"""What only the Triton planarity has: in Triton's interpreter, or on a GPU when there is one."""

import math

import pytest
import torch

pytest.importorskip("triton")

from openmm_density.kernels.planarity import gpu, reference

from .operators import DEVICE
from .test_planarity import groups, mixed, packed


def on_device(planes):
    return type(planes)(*(table.to(DEVICE) for table in planes))


def test_strided_positions(poisoned):
    positions, planes = mixed(1)
    positions, planes = positions.to(DEVICE), on_device(planes)
    wide = torch.stack([positions, torch.full_like(positions, math.nan)], 1)[:, 0]
    assert not wide.is_contiguous()
    assert torch.equal(gpu.planarity(wide, *planes)[1], gpu.planarity(positions, *planes)[1])


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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_graph_is_not_captured_with_tables_that_were_never_read():
    positions, planes = mixed(2, dtype=torch.float32)
    positions, planes = positions.to(DEVICE), on_device(planes)
    gpu.planarity(positions, *(table.clone() for table in planes))
    with pytest.raises(RuntimeError, match="evaluate once"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        gpu.planarity(positions, *planes)
