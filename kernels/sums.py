"""Sums of PyTorch that have the same bits every time."""

from torch import Tensor


def added_in_order(total: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """Return a tensor with values added to its rows of some indices, in an order that depends on the input alone."""
    if values.is_cuda:  # by sorted indices, where index_add has atomics
        return total.index_put((index,), values, accumulate=True)
    return total.index_add(0, index, values)
