"""How a fit runs: a sequence of stages, built in or from a TOML file."""

from .built_in import ALIKE, COARSE, PROTOCOLS, REGISTERED, find_protocol
from .protocol import NEAR_CC, UPDATE_INTERVAL, Protocol
from .protocol_file import read_protocol
from .stage import Stage

__all__ = [
    "ALIKE",
    "COARSE",
    "NEAR_CC",
    "PROTOCOLS",
    "REGISTERED",
    "UPDATE_INTERVAL",
    "Protocol",
    "Stage",
    "find_protocol",
    "read_protocol",
]
