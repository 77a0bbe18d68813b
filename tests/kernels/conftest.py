"""What the tests of several kernels need."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _interpreter() -> Iterator[None]:
    """Have Triton's interpreter make its language anew once a function, not at each call, and look cheaply for overflows.

    Let it count, too, to a number that a kernel works out, which NumPy 2.4 no longer takes for an integer.
    """
    if os.environ.get("TRITON_INTERPRET") != "1" or find_spec("triton") is None:
        yield
        return
    from triton.language.semantic import TritonSemantic
    from triton.runtime import interpreter

    made = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(interpreter, "_get_np_dtype", _by_name(interpreter._get_np_dtype))
        patched.setattr(TritonSemantic, "binary_op_sanitize_overflow_impl", _assert_no_overflow)
        # Triton 3.7 takes its language back after each call, and counts.
        if hasattr(interpreter, "_LangPatchScope"):
            make = interpreter._patch_lang

            @cache
            def make_once(function: Callable[..., Any]) -> Any:
                made.append(make(function))
                return interpreter._LangPatchScope()

            patched.setattr(interpreter, "_patch_lang", make_once)
            patched.setattr(TritonSemantic, "to_tensor", _unwrapped(TritonSemantic.to_tensor))
        else:
            of_tensor = interpreter._patch_lang_tensor

            def with_index(tensor: type) -> None:
                of_tensor(tensor)
                tensor.__index__ = lambda self: int(self.handle.data.item())

            patched.setattr(interpreter, "_patch_lang_tensor", with_index)
            patched.setattr(interpreter, "_patch_lang", cache(interpreter._patch_lang))
        yield
        for scope in reversed(made):
            scope.restore()


def _by_name(np_dtype: Callable[[Any], np.dtype]) -> Callable[[Any], np.dtype]:
    """Return a function of the interpreter that looks up the type of NumPy in place of making a table of all."""
    found: dict[str, np.dtype] = {}

    def of_type(kind: Any) -> np.dtype:
        scalar = kind.scalar
        if scalar.name not in found:
            found[scalar.name] = np_dtype(scalar)
        return found[scalar.name]

    return of_type


def _assert_no_overflow(self: Any, left: Any, right: Any, operation: Callable[..., Any]) -> None:
    """Assert it as the interpreter does, which takes longer by operations of its language than the kernels' own."""
    kind = left.type.scalar
    if kind.int_bitwidth < 64:
        function = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[operation.__name__]
        exact = function(left.handle.data.astype(np.int64), right.handle.data.astype(np.int64))
        fits = (kind.get_int_min_value() <= exact) & (exact <= kind.get_int_max_value())
        assert fits.all(), f"{kind} overflow detected for operation {operation.__name__}"


def _unwrapped(to_tensor: Callable[..., Any]) -> Callable[..., Any]:
    """Let the interpreter of Triton 3.7 take what a constant on the left makes of a tensor, as its compiler does."""
    from triton.language import constexpr, tensor

    def of_product(self: Any, value: Any, check_type: bool = True) -> Any:
        is_product = isinstance(value, constexpr) and isinstance(value.value, tensor)
        return to_tensor(self, value.value if is_product else value, check_type)

    return of_product


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Fill every new tensor with NaN, or the largest integer."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3).isnan().all(), "torch no longer fills new memory with NaN"
        yield
    finally:
        torch.use_deterministic_algorithms(before)


poisoned = pytest.fixture(poisoned_memory.__wrapped__, name="poisoned")


@pytest.fixture(scope="session")
def kernels_of_other_flags(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache folder that outlives the session, so that kernels are compiled with unusual flags once per source."""
    cache = getattr(pytestconfig, "cache", None)  # None where its plugin is turned off
    return cache.mkdir("openmm-density-kernels") if cache else tmp_path_factory.mktemp("kernels")
