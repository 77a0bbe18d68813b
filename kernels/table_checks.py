"""Checks of what tables hold, made once for each table: on a GPU, reading them waits for the device."""

from __future__ import annotations

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
    """Check tables that no call has checked since they were last written to.

    Tables live as long as a simulation, and are then read at its first step alone. While a CUDA graph is captured nothing can
    be read.

    Parameters
    ----------
    name : str
        The operator's name, so that operators may share tables.
    check : callable
        Reads the tables, and raises where they are not valid.
    tables : tuple of Tensor
    *limits : int
        What else decides whether they are valid.

    Returns
    -------
    bool
        Whether the tables are known to be valid; False only while a graph is captured.
    """
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
