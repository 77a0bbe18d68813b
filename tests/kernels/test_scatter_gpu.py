"""What serves scatter-add and gather on a GPU: the same functions on a CPU, where there is none."""

import warnings

import numpy as np
import pytest
import torch

from openmm_density.kernels.scatter import gpu

from .test_scatter import TABLE_ERRORS, index_types, numpy_sum, replaced, shuffled_cubes, wrapped_cubes

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
pytestmark = pytest.mark.usefixtures("poisoned")
needs_gpu = pytest.mark.skipif(not ON_GPU, reason="no GPU")

MAKERS = {
    "wrapped": lambda dtype: wrapped_cubes(11, (3, 5, 7), (9, 8, 7), dtype),
    "cube larger than the grid": lambda dtype: wrapped_cubes(3, (6, 5, 9), (5, 4, 3), dtype),
    "shuffled": lambda dtype: tuple(
        part[:6] if isinstance(part, torch.Tensor) else part for part in shuffled_cubes(dtype)
    ),
    "single voxels": lambda dtype: wrapped_cubes(30, (1, 1, 1), (4, 3, 2), dtype),
    "one voxel": lambda dtype: wrapped_cubes(1, (1, 1, 1), (1, 1, 1), dtype),
    "planes of more than one program": lambda dtype: wrapped_cubes(2, (1, 17, 16), (3, 20, 18), dtype),
} | ({"many": lambda dtype: wrapped_cubes(2000, (12, 12, 12), (110, 100, 90), dtype)} if ON_GPU else {})
makers = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


def on_device(*given):
    return [value.to(DEVICE) if isinstance(value, torch.Tensor) else value for value in given]


@makers
@index_types
def test_sums_are_those_of_numpy_and_the_same_each_time(make, dtype):
    values, wa, wbwc, map_size = make(dtype)
    result = gpu.structured_scatter_add(*on_device(values, wa, wbwc, map_size)).cpu()
    assert result.dtype == torch.float32
    expected = torch.from_numpy(numpy_sum(values, wa, wbwc, map_size, np.float32))
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-5 * ON_GPU)
    assert torch.equal(result, gpu.structured_scatter_add(*on_device(values, wa, wbwc, map_size)).cpu())


@makers
@index_types
def test_gather_reads_what_scatter_writes_to(make, dtype):
    _, wa, wbwc, map_size = make(dtype)
    result = gpu.structured_gather(*on_device(torch.arange(map_size, dtype=torch.float32), wa, wbwc)).cpu()
    assert result.dtype == torch.float32
    assert torch.equal(result, (wa.long()[:, :, None, None] + wbwc.long()[:, None]).float())


@pytest.mark.parametrize("shape", [(0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 0, 5), (2, 3, 4, 0), (0, 0, 0, 0)])
def test_empty_inputs_give_an_empty_map(shape):
    wa = torch.zeros(shape[:2], dtype=torch.int32)
    wbwc = torch.zeros((shape[0], *shape[2:]), dtype=torch.int32)
    values, wa, wbwc = on_device(torch.zeros(shape), wa, wbwc)
    assert torch.equal(gpu.structured_scatter_add(values, wa, wbwc, 7).cpu(), torch.zeros(7))
    assert gpu.structured_scatter_add(values, wa, wbwc, 0).shape == (0,)
    assert gpu.structured_gather(torch.ones(7, device=DEVICE), wa, wbwc).shape == shape


def test_strided_tables_and_other_floats():
    values, wa, wbwc, map_size = wrapped_cubes(3, (3, 4, 5), (7, 8, 9))
    expected = torch.from_numpy(numpy_sum(values, wa, wbwc, map_size, np.float32))
    strided = [part.transpose(0, 1).contiguous().transpose(0, 1) for part in (values.double(), wa, wbwc)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = gpu.structured_scatter_add(*on_device(*strided), map_size)
    torch.testing.assert_close(result.cpu(), expected, rtol=0, atol=1e-5 * ON_GPU)


@pytest.mark.parametrize(("arguments", "message"), TABLE_ERRORS.values(), ids=TABLE_ERRORS.keys())
def test_bad_tables_are_refused_by_both_operators(arguments, message):
    cubes, wa, wbwc, map_size = on_device(*arguments.values())
    with pytest.raises(ValueError, match=message):
        gpu.structured_scatter_add(cubes, wa, wbwc, map_size)
    with pytest.raises(ValueError, match=message):
        gpu.structured_gather(torch.ones(map_size, device=DEVICE), wa, wbwc)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"density_cube": torch.ones(2, 3, 5, 4)}, r"density_cube must have the shape \(C, nx, ny, nz\)"),
        ({"density_cube": torch.ones(2, 3, 4, 5, dtype=torch.int32)}, "real floating-point"),
        ({"map_size": -1}, "map_size must not be negative, got -1"),
        ({"map_size": 19}, "map_size 19 allows 0 to 18"),
        ({"map_size": 2**31}, "pass wa and wbwc as int64"),
    ],
)
def test_bad_cubes_and_sizes_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        gpu.structured_scatter_add(*on_device(*replaced(**changes).values()))


def test_gather_refuses_a_map_that_is_not_flat():
    _, wa, wbwc, _ = on_device(*replaced().values())
    with pytest.raises(ValueError, match=r"shape \(map_size,\)"):
        gpu.structured_gather(torch.ones(4, 5, device=DEVICE), wa, wbwc)


@needs_gpu
def test_the_operators_run_them_and_differentiate():
    values, wa, wbwc, map_size = on_device(*wrapped_cubes(40, (4, 5, 6), (12, 11, 10)))
    x = values.clone().requires_grad_()
    operators = torch.ops.openmm_density
    density = operators.structured_scatter_add(x, wa, wbwc, map_size)
    (density * torch.arange(map_size, device=DEVICE)).sum().backward()
    assert torch.equal(x.grad, (wa.long()[:, :, None, None] + wbwc.long()[:, None]).float())
    assert torch.equal(
        operators.structured_gather(density.detach(), wa, wbwc),
        gpu.structured_gather(density.detach(), wa, wbwc),
    )


@needs_gpu
def test_in_a_cuda_graph():
    values, wa, wbwc, map_size = on_device(*wrapped_cubes(40, (4, 5, 6), (12, 11, 10)))
    gpu.structured_scatter_add(values, wa, wbwc, map_size)
    still = values.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        density = gpu.structured_scatter_add(still, wa, wbwc, map_size)
    still.copy_(2 * values)
    graph.replay()
    assert torch.equal(density, gpu.structured_scatter_add(2 * values, wa, wbwc, map_size))
