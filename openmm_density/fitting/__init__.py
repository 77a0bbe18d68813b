"""Flexible fitting: the stages of a protocol run one after the other, and their results."""

from .checkpoints import RunFolder
from .fit_result import FitResult
from .flexible_fit import FlexibleFit
from .protocols import Protocol, Stage, find_protocol, read_protocol

__all__ = ["FitResult", "FlexibleFit", "Protocol", "RunFolder", "Stage", "find_protocol", "read_protocol"]


def __dir__() -> list[str]:
    return __all__
