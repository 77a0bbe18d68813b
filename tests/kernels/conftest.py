"""What the tests of several kernels need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture
def poisoned() -> Iterator[None]:
    """Fill every new tensor with NaN, or the largest integer."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all(), "torch no longer fills new memory with NaN"
    yield
    torch.use_deterministic_algorithms(before)


@pytest.fixture(scope="session")
def kernels_of_other_flags(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache folder that outlives the session, so that kernels are compiled with unusual flags once per source."""
    cache = getattr(pytestconfig, "cache", None)  # None where its plugin is turned off
    return cache.mkdir("openmm-density-kernels") if cache else tmp_path_factory.mktemp("kernels")
