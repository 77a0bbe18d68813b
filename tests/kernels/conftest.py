"""What the tests of several kernels need."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _interpreter() -> Iterator[None]:
    """Have Triton's interpreter make its language anew once a function, not at each call, which is a quarter of its time.

    Let it count, too, to a number that a kernel works out, which NumPy 2.4 no longer takes for an integer.
    """
    if os.environ.get("TRITON_INTERPRET") != "1" or find_spec("triton") is None:
        yield
        return
    from triton.runtime import interpreter

    of_tensor = interpreter._patch_lang_tensor

    def with_index(tensor: type) -> None:
        of_tensor(tensor)
        tensor.__index__ = lambda self: int(self.handle.data.item())

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(interpreter, "_patch_lang_tensor", with_index)
        patched.setattr(interpreter, "_patch_lang", cache(interpreter._patch_lang))
        yield


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
