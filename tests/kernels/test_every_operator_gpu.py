"""Every operator with a kernel for a GPU can be captured in a CUDA graph."""

import pytest
import torch

from .operators import assert_captured
from .test_every_operator import calls_of, operators


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@operators
def test_it_is_captured_in_a_cuda_graph(folder):
    for operator, arguments in calls_of(folder):
        assert_captured(operator, arguments)
