"""Checks of operators' arguments; of what tables hold once for each table: on a GPU, reading them waits for the device."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary


class _Record(NamedTuple):
    """Tables that were validated together: their versions, and the numbers that they were checked against."""

    versions: tuple[int, ...]
    limits: tuple[int, ...]


_validated: defaultdict[str, WeakTensorKeyDictionary] = defaultdict(WeakTensorKeyDictionary)


def check_once(name: str, check: Callable[[], None], tables: tuple[Tensor, ...], *limits: int) -> bool:
    """Check tables once after they were written to; nothing can be read while a CUDA graph is captured."""
    records = _validated[name]
    versions = tuple(0 if table.is_inference() else table._version for table in tables)
    record = records.get(tables[0])
    # The same record for all of them: each is then the very table of that check.
    if record == (versions, limits) and all(records.get(table) is record for table in tables[1:]):
        return True
    if tables[0].is_cuda and torch.cuda.is_current_stream_capturing():
        return False
    check()
    record = _Record(versions, limits)
    for table in tables:
        records[table] = record
    return True


def check_positions(operator: str, positions: Tensor) -> None:
    """Check shape and type of an operator's positions."""
    if (
        positions.dim() != 2
        or positions.shape[1] != 3
        or positions.dtype not in (torch.float32, torch.float64)
    ):
        raise ValueError(
            f"{operator}: positions must be a float32 or float64 tensor of shape (atoms, 3), but have shape "
            f"{list(positions.shape)} and type {positions.dtype}"
        )


def check_tables(operator: str, tables: dict[str, tuple[Tensor, torch.dtype, tuple[int, ...]]]) -> None:
    """Check that tensors, by their names, have their types and shapes, and are contiguous."""
    for name, (tensor, dtype, shape) in tables.items():
        if tensor.dtype != dtype or tuple(tensor.shape) != shape or not tensor.is_contiguous():
            raise ValueError(
                f"{operator}: {name} must be a contiguous tensor of {dtype} of shape {list(shape)}, "
                f"not {tensor.dtype} of shape {list(tensor.shape)}"
            )


def check_reach(operator: str, box: Tensor | None, cutoff: float) -> None:
    """Check an operator's lattice vectors, but not what they are, and its cut-off."""
    if not (math.isfinite(cutoff) and cutoff > 0):
        raise ValueError(f"{operator}: cutoff must be a positive length, not {cutoff:g}")
    if box is not None and (tuple(box.shape) != (3, 3) or box.dtype not in (torch.float32, torch.float64)):
        raise ValueError(
            f"{operator}: box must be a float32 or float64 tensor of shape (3, 3), not {box.dtype} of shape {list(box.shape)}"
        )


def check_scale(scale: Tensor | None) -> None:
    """Check the factor that an operator's gradient is multiplied with."""
    if scale is not None and (scale.numel() != 1 or scale.dtype != torch.float64):
        raise ValueError(f"scale must be one number in float64, not {scale.numel()} in {scale.dtype}")


def rises(offsets: Tensor, total: int, smallest_step: int = 0) -> bool:
    """Return whether offsets go from 0 to a total, in steps of so much or more."""
    begins_and_ends = offsets.numel() > 0 and offsets[0] == 0 and offsets[-1] == total
    return bool(begins_and_ends) and not bool((offsets.diff() < smallest_step).any())


def check_indices(operator: str, name: str, entries: Tensor, limit: int, of: str, remedy: str) -> None:
    """Check that a table's entries are from 0 up to a limit."""
    wrong = entries[(entries < 0) | (entries >= limit)]
    if wrong.numel():
        raise ValueError(f"{operator}: {name} holds index {wrong[0]}, but there are {limit} {of}: {remedy}")
