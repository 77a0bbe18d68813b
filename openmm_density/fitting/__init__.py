"""Flexible fitting: the stages of a protocol run one after the other, and their results."""

from typing import TYPE_CHECKING

from ..base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .checkpoints import RunFolder
    from .doubt import Doubt
    from .extension import FitExtension, Option, Told
    from .fit_result import FitResult
    from .flexible_fit import FlexibleFit
    from .protocols import Protocol, Stage, find_protocol, read_protocol

__all__ = [
    "Doubt",
    "FitExtension",
    "FitResult",
    "FlexibleFit",
    "Option",
    "Protocol",
    "RunFolder",
    "Stage",
    "Told",
    "find_protocol",
    "read_protocol",
]

__getattr__, __dir__ = lazy_names(__name__)
