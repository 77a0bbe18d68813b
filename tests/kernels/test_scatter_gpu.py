"""Scatter-add and gather on a GPU, where PyTorch's sums are over sorted indices."""

import numpy as np
import pytest
import torch

from openmm_density.kernels.scatter import structured_gather, structured_scatter_add

from .operators import DEVICE, moved
from .test_scatter import CASES, index_types, numpy_sum, wrapped_cubes

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

MAKERS = CASES | {"many": lambda dtype: wrapped_cubes(2000, (12, 12, 12), (110, 100, 90), dtype)}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
@index_types
def test_sums_are_those_of_numpy_and_the_same_each_time(make, dtype):
    values, wa, wbwc, map_size = make(dtype)
    result = structured_scatter_add(*moved([values, wa, wbwc, map_size], DEVICE)).cpu()
    expected = torch.from_numpy(numpy_sum(values, wa, wbwc, map_size, np.float32))
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-5)
    assert torch.equal(result, structured_scatter_add(*moved([values, wa, wbwc, map_size], DEVICE)).cpu())
    read = structured_gather(*moved([torch.arange(map_size, dtype=torch.float32), wa, wbwc], DEVICE)).cpu()
    assert torch.equal(read, (wa.long()[:, :, None, None] + wbwc.long()[:, None]).float())
