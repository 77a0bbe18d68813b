import warnings

import numpy as np
import pytest
import torch

from openmm_density.kernels.scatter import reference, structured_gather, structured_scatter_add

from .children import Child

THREAD_COUNTS = (1, 2, 3, 8)


def wrapped_cubes(n_cubes, cube, grid, dtype=torch.int32, seed=0):
    """Boxes of `cube` voxels anywhere in a periodic `grid`: many wrap around its faces and overlap."""
    generator = torch.Generator().manual_seed(seed)
    a, b, c = (
        (torch.randint(0, n, (n_cubes, 1), generator=generator) + torch.arange(m)) % n
        for m, n in zip(cube, grid, strict=True)
    )
    wa = (a * grid[1] * grid[2]).to(dtype)
    wbwc = (b[:, :, None] * grid[2] + c[:, None, :]).to(dtype)
    values = torch.randn((n_cubes, *cube), generator=generator)
    return values, wa, wbwc, grid[0] * grid[1] * grid[2]


def shuffled_cubes(dtype=torch.int32, seed=1):
    """Tables in no order, with repetitions inside a row: nothing is contiguous."""
    generator = torch.Generator().manual_seed(seed)
    wa = torch.randint(-40, 400, (60, 5), generator=generator, dtype=dtype)
    wbwc = torch.randint(40, 100, (60, 4, 7), generator=generator, dtype=dtype)
    return torch.randn((60, 5, 4, 7), generator=generator), wa, wbwc, 500


CASES = {
    "wrapped": lambda dtype=torch.int32: wrapped_cubes(90, (6, 5, 7), (20, 17, 19), dtype),
    "cube larger than the grid": lambda dtype=torch.int32: wrapped_cubes(8, (6, 5, 9), (5, 4, 3), dtype),
    "shuffled": shuffled_cubes,
    "single voxels": lambda dtype=torch.int32: wrapped_cubes(300, (1, 1, 1), (9, 8, 7), dtype),
}
cases = pytest.mark.parametrize("make", CASES.values(), ids=CASES.keys())
index_types = pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=["int32", "int64"])


def numpy_sum(values, wa, wbwc, map_size, dtype):
    total = np.zeros(map_size, dtype)
    index = wa.numpy().astype(np.int64)[:, :, None, None] + wbwc.numpy().astype(np.int64)[:, None]
    np.add.at(total, index, values.numpy().astype(dtype))
    return total


@cases
@index_types
def test_matches_numpy_and_the_reference(make, dtype):
    values, wa, wbwc, map_size = make(dtype)
    result = structured_scatter_add(values, wa, wbwc, map_size)
    assert result.shape == (map_size,)
    assert result.dtype == torch.float32
    np.testing.assert_allclose(
        result.numpy(), numpy_sum(values, wa, wbwc, map_size, np.float64), rtol=0, atol=2e-5
    )
    exact = reference.structured_scatter_add(values.double(), wa, wbwc, map_size)
    assert exact.dtype == torch.float64
    torch.testing.assert_close(result.double(), exact, rtol=0, atol=2e-5)


@cases
@index_types
def test_additions_come_in_the_order_of_the_input_for_every_thread_count(make, dtype):
    values, wa, wbwc, map_size = make(dtype)
    in_order = torch.from_numpy(numpy_sum(values, wa, wbwc, map_size, np.float32))
    for n_threads in THREAD_COUNTS:
        torch.set_num_threads(n_threads)
        assert torch.equal(structured_scatter_add(values, wa, wbwc, map_size), in_order)


@cases
@index_types
def test_gather_reads_what_scatter_writes_to(make, dtype):
    _, wa, wbwc, map_size = make(dtype)
    density_map = torch.arange(map_size, dtype=torch.float32)
    index = wa.long()[:, :, None, None] + wbwc.long()[:, None]
    for n_threads in THREAD_COUNTS:
        torch.set_num_threads(n_threads)
        result = structured_gather(density_map, wa, wbwc)
        assert result.dtype == torch.float32
        assert torch.equal(result, index.float())


@pytest.mark.filterwarnings("ignore:Input #. requires gradient and is not a double precision")
def test_operators_pass_gradcheck():
    values, wa, wbwc, map_size = wrapped_cubes(3, (2, 3, 2), (4, 3, 5))
    x = (4 * values).round().requires_grad_()
    y = (torch.arange(map_size, dtype=torch.float32) % 7).requires_grad_()
    # Linear in whole numbers, so that differences over a step of 1 are exact in float32.
    settings = {"eps": 1.0, "atol": 1e-6, "rtol": 0}
    for function, argument in (
        (lambda x: structured_scatter_add(x, wa, wbwc, map_size), x),
        (lambda y: structured_gather(y, wa, wbwc), y),
    ):
        assert torch.autograd.gradcheck(function, (argument,), **settings)
        ones = torch.ones_like(function(argument)).requires_grad_()
        assert torch.autograd.gradgradcheck(function, (argument,), (ones,), **settings)


def other_floats_converted():
    wa = torch.tensor([[0, 6], [3, 9]], dtype=torch.int32)
    wbwc = torch.arange(6, dtype=torch.int32).reshape(1, 3, 2).repeat(2, 1, 1)
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        values = torch.linspace(-1, 1, 24).reshape(2, 2, 3, 2).to(dtype).requires_grad_()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            density = structured_scatter_add(values, wa, wbwc, 15)
            again = structured_scatter_add(values, wa, wbwc, 15)
            structured_gather(density.to(dtype), wa, wbwc)
        (message,) = [str(warning.message) for warning in caught]
        assert f"density_cube is {dtype}" in message and "float32" in message, message
        assert caught[0].filename == __file__, "the warning points at the caller"
        assert density.dtype == torch.float32 and torch.equal(density, again)
        assert torch.equal(density, structured_scatter_add(values.float(), wa, wbwc, 15))
        (density * torch.arange(15)).sum().backward()
        assert values.grad.dtype == dtype
        assert torch.equal(values.grad.float(), (wa.long()[:, :, None, None] + wbwc.long()[:, None]).float())


def test_other_floats_are_converted_with_one_warning_a_type_and_process(tmp_path):
    Child(other_floats_converted, cache=tmp_path).result()


@index_types
@pytest.mark.parametrize("shape", [(0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 0, 5), (2, 3, 4, 0), (0, 0, 0, 0)])
def test_empty_inputs_give_an_empty_map(shape, dtype):
    wa = torch.zeros(shape[:2], dtype=dtype)
    wbwc = torch.zeros((shape[0], *shape[2:]), dtype=dtype)
    values = torch.zeros(shape, requires_grad=True)
    density = structured_scatter_add(values, wa, wbwc, 7)
    assert torch.equal(density, torch.zeros(7))
    density.sum().backward()
    assert values.grad.shape == shape
    assert structured_scatter_add(values, wa, wbwc, 0).shape == (0,)
    assert structured_gather(torch.ones(7), wa, wbwc).shape == shape


def replaced(**changes):
    """Valid arguments of both operators with some replaced."""
    arguments = {
        "density_cube": torch.ones(2, 3, 4, 5),
        "wa": torch.zeros(2, 3, dtype=torch.int32),
        "wbwc": torch.arange(20, dtype=torch.int32).reshape(1, 4, 5).repeat(2, 1, 1),
        "map_size": 20,
    }
    return arguments | changes


TABLE_ERRORS = {
    "mixed index types": (
        replaced(wbwc=torch.zeros(2, 4, 5, dtype=torch.int64)),
        "int32 or both int64",
    ),
    "float indices": (
        replaced(wa=torch.zeros(2, 3), wbwc=torch.zeros(2, 4, 5)),
        "int32 or both int64",
    ),
    "int16 indices": (
        replaced(wa=torch.zeros(2, 3).short(), wbwc=torch.zeros(2, 4, 5).short()),
        "int32 or both int64",
    ),
    "wa of one dimension": (replaced(wa=torch.zeros(3, dtype=torch.int32)), r"shape \(C, nx\)"),
    "wbwc of two dimensions": (replaced(wbwc=torch.zeros(2, 4, dtype=torch.int32)), r"shape \(C, nx\)"),
    "number of cubes": (replaced(wa=torch.zeros(3, 3, dtype=torch.int32)), r"shape \(C, nx\)"),
    "beyond the end": (replaced(wa=torch.tensor([[0, 0, 0], [0, 1, 0]]).int()), "cube 1 .*spans 0 to 20"),
    "negative": (replaced(wa=torch.tensor([[0, -1, 0], [0, 0, 0]]).int()), "cube 0 .*spans -1 to 19"),
    "overflow of int32": (
        replaced(wa=torch.full((2, 3), 2**31 - 1).int()),
        "spans 2147483647 to 2147483666",
    ),
    "negative overflow of int32": (
        replaced(wa=torch.full((2, 3), -(2**31)).int(), wbwc=torch.full((2, 4, 5), -1).int()),
        "spans -2147483649 to",
    ),
    "overflow of int64": (
        replaced(wa=torch.full((2, 3), 2**63 - 1), wbwc=torch.ones(2, 4, 5, dtype=torch.int64)),
        "leaves the map",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), TABLE_ERRORS.values(), ids=TABLE_ERRORS.keys())
def test_bad_tables_are_refused_by_both_operators(arguments, message):
    with pytest.raises(ValueError, match=message):
        structured_scatter_add(**arguments)
    with pytest.raises(ValueError, match=message):
        structured_gather(torch.ones(arguments["map_size"]), arguments["wa"], arguments["wbwc"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"density_cube": torch.ones(2, 3, 5, 4)}, r"density_cube must have the shape \(C, nx, ny, nz\)"),
        ({"density_cube": torch.ones(2, 3, 20)}, r"density_cube must have the shape \(C, nx, ny, nz\)"),
        ({"density_cube": torch.ones(1, 3, 4, 5)}, r"density_cube must have the shape \(C, nx, ny, nz\)"),
        ({"density_cube": torch.ones(2, 3, 4, 5, dtype=torch.int32)}, "real floating-point"),
        ({"density_cube": torch.ones(2, 3, 4, 5, dtype=torch.complex64)}, "real floating-point"),
        ({"map_size": -1}, "map_size must not be negative, got -1"),
        ({"map_size": 19}, "map_size 19 allows 0 to 18"),
        ({"map_size": 0}, "leaves the map"),
        ({"map_size": 2**31}, "pass wa and wbwc as int64"),
    ],
)
def test_bad_cubes_and_sizes_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        structured_scatter_add(**replaced(**changes))


def test_tables_that_numpy_changes_are_checked_again():
    wa = np.zeros((1, 1), dtype=np.int32)
    tables = torch.from_numpy(wa), torch.zeros(1, 1, 1, dtype=torch.int32)
    assert structured_gather(torch.ones(3), *tables) == 1
    wa[0, 0] = -2
    with pytest.raises(ValueError, match="spans -2 to -2"):
        structured_gather(torch.ones(3), *tables)


def test_operators_keep_the_rules_of_torch():
    values, wa, wbwc, map_size = wrapped_cubes(4, (2, 3, 2), (4, 3, 5))
    values.requires_grad_()
    operators = torch.ops.openmm_density
    for operator, arguments in (
        (operators.structured_scatter_add.default, (values, wa, wbwc, map_size)),
        (operators.structured_gather.default, (torch.ones(map_size, requires_grad=True), wa, wbwc)),
    ):
        report = torch.library.opcheck(
            operator, arguments, test_utils=("test_schema", "test_autograd_registration", "test_faketensor")
        )
        assert set(report.values()) == {"SUCCESS"}
