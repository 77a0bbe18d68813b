"""Calls of operators: of their implementations, in TorchScript and in CUDA graphs."""

import io
import warnings
from importlib import import_module

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .conftest import poisoned_memory

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def moved(value, device):
    """Return a tensor, or what there is of tensors in a list or tuple, on a device."""
    if isinstance(value, (list, tuple)):
        return [moved(each, device) for each in value]
    return value.to(device) if isinstance(value, torch.Tensor) else value


def in_triton(folder, name):
    """Return an operator's kernel in Triton: in its interpreter, or on a GPU when there is one, with NaN in new memory."""

    def call(*arguments, **options):
        pytest.importorskip("triton")
        function = getattr(import_module(f"openmm_density.kernels.{folder}.gpu"), name)
        options = {key: moved(value, DEVICE) for key, value in options.items()}
        with poisoned_memory(), warnings.catch_warnings():
            # The interpreter is NumPy, which speaks of every NaN.
            warnings.simplefilter("ignore", RuntimeWarning)
            return moved(function(*moved(arguments, DEVICE), **options), "cpu")

    return call


def implementations(folder, operator, reference=None):
    """Run a test with an operator's kernels in C++ and Triton, and with its reference if that is given."""
    of = {"C++": operator, "Triton": in_triton(folder, operator.__name__.split("::")[-1])}
    of |= {"reference": reference} if reference else {}
    return pytest.mark.parametrize("function", of.values(), ids=of)


class Calls(TorchDispatchMode):
    """The calls of this library's operators, each with all its arguments."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "openmm_density":
            others = function._schema.arguments[len(args) :]
            self.found.append((function, [*args, *(each.default_value for each in others)]))
        return function(*args, **(kwargs or {}))


def scripted(operator):
    """Return a function in TorchScript, written and read again, that calls an operator."""
    arguments = operator._schema.arguments
    typed = ", ".join(f"{each.name}: {each.type}" for each in arguments)
    names = ", ".join(each.name for each in arguments)
    called = operator._schema.name.replace("::", ".")
    unit = torch.jit.CompilationUnit(f"def call({typed}):\n    return torch.ops.{called}({names})\n")
    file = io.BytesIO()
    torch.jit.save(unit.call, file)
    file.seek(0)
    return torch.jit.load(file)


def tensors_of(result):
    return [result] if isinstance(result, torch.Tensor) else list(result)


def assert_captured(operator, arguments):
    """Capture an operator in a CUDA graph, called from TorchScript, and compare what that finds of other positions."""
    arguments, call = moved(list(arguments), DEVICE), scripted(operator)
    with torch.no_grad():
        # TorchScript compares its constants when it optimises, which a capture does not bear.
        for _ in range(3):
            before = tensors_of(call(*arguments))[-1].clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = tensors_of(call(*arguments))
        moving = next(
            each for each in arguments if isinstance(each, torch.Tensor) and each.is_floating_point()
        )
        moving *= 1.01
        graph.replay()
        for found, expected in zip(captured, tensors_of(operator(*arguments)), strict=True):
            assert torch.equal(found, expected)
    assert not torch.equal(captured[-1], before)
