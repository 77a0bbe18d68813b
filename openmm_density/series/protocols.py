"""The protocols of a series: a whole one for the first volume, a shorter one from a neighbour's model."""

from __future__ import annotations

from dataclasses import replace

from ..fitting.protocols import Protocol, find_protocol

FIRST, NEXT = "standard", "quick"


def protocol_of(named: Protocol | str, resolution: float, search: str | None) -> Protocol:
    """Return a protocol by its name, with the searches that are asked for.

    Parameters
    ----------
    named : Protocol or str
        As for `FlexibleFit`.
    resolution : float
        Å.
    search : {"off", "auto", "full"}, optional
        In place of the protocol's.
    """
    protocol = named if isinstance(named, Protocol) else find_protocol(named, resolution)
    return protocol if search is None else replace(protocol, search=search)
