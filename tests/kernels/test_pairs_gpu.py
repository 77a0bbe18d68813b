"""The Triton energies of pairs against the reference: in Triton's interpreter, or on a GPU when there is one."""

import pytest
import torch

pytest.importorskip("triton")

from openmm_density.kernels.pairs import NONBONDED, gpu, pack_exclusions, reference

from .test_pairs import BOXES, WRONG, all_forms, assert_close, scene

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
pytestmark = pytest.mark.usefixtures("poisoned")


def on_device(arguments):
    return [value.to(DEVICE) if isinstance(value, torch.Tensor) else value for value in arguments]


@all_forms
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_is_the_reference(form, dtype):
    for box in BOXES.values() if ON_GPU else (BOXES["none"], BOXES["skewed"]):
        arguments = scene(form, box, dtype, per_side=4 if ON_GPU else 2)
        found = [tensor.cpu() for tensor in gpu.pairs(*on_device(arguments))]
        assert_close(found, reference.pairs(*arguments), 3e-5)


def test_excluded_pairs_add_nothing():
    arguments = scene(NONBONDED, BOXES["small"], per_side=2)
    exclusions = pack_exclusions([(0, 1), (1, 4), (6, 2)], 8)
    found = gpu.pairs(*on_device([*arguments, *exclusions]))
    assert_close([tensor.cpu() for tensor in found], reference.pairs(*arguments, *exclusions), 3e-5)


def test_no_atoms():
    tables = [torch.zeros(n, dtype=torch.int32, device=DEVICE) for n in (1, 0, 0)]
    empty = torch.zeros(0, 3, device=DEVICE)
    energy, gradient, virial = gpu.pairs(empty, None, *tables, empty, NONBONDED, 1.0, [1.0, 138.9, 78.3])
    assert energy == 0 and gradient.shape == (0, 3) and not virial.any()


@pytest.mark.parametrize(("message", "change"), WRONG.items(), ids=WRONG.keys())
def test_bad_arguments_are_refused(message, change):
    arguments = scene(NONBONDED)
    arguments[change[0]] = change[1]
    with pytest.raises(ValueError, match=f"pairs: {message}"):
        gpu.pairs(*on_device(arguments))


@pytest.mark.skipif(not ON_GPU, reason="no GPU")
class TestOnGpu:
    def test_many_atoms_have_the_same_bits_each_time(self):
        arguments = scene(NONBONDED, 6 * BOXES["cube"], torch.float32, per_side=24)
        found = [gpu.pairs(*on_device(arguments)) for _ in range(4)]
        assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other))
        assert_close([tensor.cpu() for tensor in found[0]], torch.ops.openmm_density.pairs(*arguments), 3e-5)

    def test_in_a_cuda_graph(self):
        arguments = on_device(scene(NONBONDED, BOXES["cube"], torch.float32))
        torch.ops.openmm_density.pairs(*arguments)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = torch.ops.openmm_density.pairs(*arguments)
        arguments[0] *= 1.01
        graph.replay()
        expected = torch.ops.openmm_density.pairs(*arguments)
        assert all(torch.equal(one, other) for one, other in zip(found, expected))
