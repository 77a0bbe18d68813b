"""The torch operator library ``openmm_density::``: schemas, and how a call finds its implementation."""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from .compilation import load, sources

LIBRARY = torch.library.Library("openmm_density", "FRAGMENT")

Example = tuple[Callable[..., Any], tuple[Any, ...]]
"""A small evaluation of an operator: its Python function, and arguments on the CPU."""


def operator_folders() -> tuple[str, ...]:
    """Return the folders below ``kernels/`` that define operators, in alphabetical order: those with an ``example.py``."""
    return tuple(sorted(example.parent.name for example in sources.KERNELS.glob("*/example.py")))


def register_operators() -> None:
    """Define every operator in torch's namespace ``openmm_density``, by importing the folders that hold them."""
    for folder in operator_folders():
        importlib.import_module(f"{__package__}.{folder}")


def define_in_pytorch(schema: str, function: Callable[..., Any]) -> Any:
    """Define an operator that a Python function serves on every device, and return it."""
    LIBRARY.define(schema)
    name = schema[: schema.index("(")]
    LIBRARY.impl(name, function, "CompositeExplicitAutograd")
    return getattr(torch.ops.openmm_density, name).default


def define(schema: str, folder: str, reference: Callable[..., Any]) -> Any:
    """Define an operator whose C++ or Triton is loaded at its first call.

    ``folder``'s ``cpu.cpp`` registers the operator for the dispatch key CPU, and the function of the operator's name in its
    ``gpu.py``, if there is one, serves the key CUDA. Until either is loaded, calls reach a Python function at the key
    CompositeExplicitAutograd, which any specific key outranks: it loads what the tensors' device needs and calls again.
    Importing therefore costs nothing, and a module read back in a fresh process finds its operators.

    `schema`: ``name(Tensor x, ...) -> ...`` in torch's schema language; `folder`: the folder below ``kernels/`` that
    holds ``cpu.cpp``; `reference`: the PyTorch implementation with the same arguments, which serves CPU tensors where
    nothing can be compiled. Returns the operator.
    """
    LIBRARY.define(schema)
    name = schema[: schema.index("(")]
    operator = getattr(torch.ops.openmm_density, name).default

    def load_then_call(*arguments: Any) -> Any:
        tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
        devices = {tensor.device.type for tensor in tensors}
        if devices == {"cuda"} and _serve_gpu(folder):
            return operator(*arguments)
        if devices != {"cpu"} or any(tensor.layout != torch.strided for tensor in tensors):
            raise NotImplementedError(
                f"openmm_density::{name} has no implementation for such tensors on {', '.join(sorted(devices))}: "
                "use dense tensors, all of them on one supported device"
            )
        if not load(folder):
            _serve_reference(folder)
        return operator(*arguments)

    LIBRARY.impl(name, load_then_call, "CompositeExplicitAutograd")
    _references.setdefault(folder, {})[name] = reference
    _names.setdefault(folder, []).append(name)
    return operator


_references: dict[str, dict[str, Callable[..., Any]]] = {}
_names: dict[str, list[str]] = {}
_on_gpu: set[str] = set()
_lock = threading.RLock()


def _serve_gpu(folder: str) -> bool:
    """Register a folder's Triton implementations for CUDA tensors, once; False if it has none."""
    module = f"{__package__}.{folder}.gpu"
    with _lock:
        if folder in _on_gpu:
            return True
        if importlib.util.find_spec(module) is None:
            return False
        if importlib.util.find_spec("triton") is None:
            raise RuntimeError(
                "openmm-density's kernels for the GPU are written in Triton, which is not installed here: "
                "install it (pip install triton), or keep the tensors on the CPU"
            )
        implementations = importlib.import_module(module)
        for name in _names[folder]:
            LIBRARY.impl(name, getattr(implementations, name), "CUDA")
        _on_gpu.add(folder)
        return True


def _serve_reference(folder: str) -> None:
    """Register the PyTorch implementations of a folder's operators for CPU tensors, once."""
    with _lock:
        for name, reference in _references.pop(folder, {}).items():
            LIBRARY.impl(name, in_own_thread(reference), "CPU")


def in_own_thread(reference: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reference that can differentiate: below the dispatcher, this thread records nothing for autograd."""

    def run(stream: torch.cuda.Stream | None, *arguments: Any) -> Any:
        with torch.no_grad(), torch.cuda.stream(stream):  # but for what it enables gradients for
            return reference(*arguments)

    def call(*arguments: Any) -> Any:
        on_gpu = any(isinstance(each, torch.Tensor) and each.is_cuda for each in arguments)
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(run, torch.cuda.current_stream() if on_gpu else None, *arguments).result()

    return call
