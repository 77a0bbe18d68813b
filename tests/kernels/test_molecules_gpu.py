"""The Triton whole molecules against the reference: in Triton's interpreter, or on a GPU when there is one."""

import pytest
import torch

pytest.importorskip("triton")

from openmm_density.kernels.molecules import gpu, reference

from .test_molecules import WRONG, Scene, both_types, boxes

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
pytestmark = pytest.mark.usefixtures("poisoned")


def on_device(arguments):
    return [argument.to(DEVICE) for argument in arguments]


def assert_right(arguments):
    tight = 1e-12 if arguments[0].dtype == torch.float64 else 4e-6
    found = gpu.whole_molecules(*on_device(arguments)).cpu()
    torch.testing.assert_close(found, reference.whole_molecules(*arguments), rtol=tight, atol=tight)


@boxes
@both_types
def test_is_the_reference(box, dtype):
    for seed in range(20 if ON_GPU else 2):
        assert_right(Scene(dtype=dtype, seed=seed).arguments(box.to(dtype)))


@pytest.mark.parametrize("sizes", [(1,), (2500,), ()] + [(3,) * 33_000, (3341, *(3,) * 20_000)] * ON_GPU)
def test_molecules_of_any_size_and_number(sizes):
    assert_right(Scene(sizes=sizes, dtype=torch.float32).arguments(torch.eye(3) * 3))


def test_many_molecules_share_the_smaller_programs(monkeypatch):
    monkeypatch.setattr(gpu, "_FEW_MOLECULES", 2)
    assert_right(Scene(sizes=(1, 3, 200, 2)).arguments(torch.eye(3) * 3))


@pytest.mark.parametrize(("message", "change"), WRONG.items(), ids=WRONG.keys())
def test_bad_arguments_are_refused(message, change):
    arguments = Scene().arguments(torch.eye(3))
    arguments[change[0]] = change[1]
    with pytest.raises(ValueError, match=f"whole_molecules: {message}"):
        gpu.whole_molecules(*on_device(arguments))
