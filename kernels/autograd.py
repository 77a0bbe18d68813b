"""Autograd for operators that return a value together with its gradient."""

from collections.abc import Callable
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from .table_checks import check_scale


def with_derivative(value: Tensor, gradient: Tensor, positions: Tensor) -> Tensor:
    """Return a value whose derivative in autograd is the given gradient; callable from TorchScript.

    An autograd formula registered with the operator would do, but it is Python and runs at every call: within a
    simulation it would wait for the interpreter's lock in every step, and let Ctrl-C interrupt one. `value` ():
    computed from the positions without autograd; `gradient`: its derivative with respect to them. Returns (), the same value.
    It can be differentiated once, with respect to the positions only.
    """
    if torch.is_grad_enabled() and positions.requires_grad:
        with torch.no_grad():  # not detach(), which freezing a module removes
            fixed = positions.clone()
        # Zero also where a coordinate is not finite; its derivative is one elsewhere.
        moved = torch.nan_to_num(positions - fixed, 0.0, 0.0, 0.0)
        value = value + (gradient * moved).sum(dtype=value.dtype)
    return value


def with_scale(reference: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return a function of positions and more that takes, behind its own arguments, a factor for its gradient by them."""
    n_own = len(signature(reference).parameters)

    def call(*arguments: Any) -> tuple[Tensor, Tensor]:
        value, gradient = reference(*arguments[:n_own])
        return value, scaled(gradient.to(arguments[0].dtype), *arguments[n_own:])

    return call


def scaled(gradient: Tensor, scale: Tensor | None = None) -> Tensor:
    """Return the gradient times the factor that an operator was given, in place; without one, as it is."""
    check_scale(scale)
    return gradient if scale is None else gradient.mul_(scale.reshape(()))
