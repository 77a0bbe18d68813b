"""Calls of operators, in TorchScript and in CUDA graphs."""

import io

import torch
from torch.utils._python_dispatch import TorchDispatchMode


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


def on_gpu(value):
    if isinstance(value, list):
        return [on_gpu(each) for each in value]
    return value.cuda() if isinstance(value, torch.Tensor) else value


def assert_captured(operator, arguments):
    """Capture an operator in a CUDA graph, called from TorchScript, and compare what that finds of other positions."""
    arguments, call = on_gpu(list(arguments)), scripted(operator)
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
