"""How a fit runs: a sequence of stages, built in or from a TOML file."""

from .built_in import COARSE, PROTOCOLS, find_protocol
from .protocol import NEAR_CC, UPDATE_INTERVAL, Protocol
from .protocol_file import read_protocol
from .stage import Stage

__all__ = [
    "COARSE",
    "NEAR_CC",
    "PROTOCOLS",
    "UPDATE_INTERVAL",
    "Protocol",
    "Stage",
    "find_protocol",
    "read_protocol",
]


def __dir__() -> list[str]:
    return __all__
