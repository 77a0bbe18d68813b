"""The protocols of a series: a whole one for the first volume, a shorter one from a neighbour's model."""

from __future__ import annotations

from dataclasses import replace

from ...fitting.protocols import Protocol, find_protocol

FIRST, NEXT = "standard", "gentle"
"""From a neighbour 1.1 Å away (Cα RMSD), at 5 Å, ``gentle`` ended 0.28 Å from the truth, ``quick`` and ``standard`` 0.31 Å; from
6.0 Å away 0.39 Å, 0.64 and 0.63 Å: it keeps cool what the neighbour has right."""


def protocol_of(named: Protocol | str, resolution: float, search: str | None) -> Protocol:
    """Return a protocol by its name, with the searches that are asked for. `resolution` in Å."""
    protocol = named if isinstance(named, Protocol) else find_protocol(named, resolution)
    return protocol if search is None else replace(protocol, search=search)
