"""``--replicas`` with a protocol whose stages let replicas exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...fitting.extension import FitExtension, Option

if TYPE_CHECKING:
    from ...fitting.protocols import Protocol


class Exchange(FitExtension):
    """Copies of the model that exchange."""

    options = (
        Option(
            "replicas",
            "with --protocol exchange, copies that exchange (8)",
            int,
            "N",
            not_with=("symmetry", "amplitudes"),
        ),
    )

    def protocol(self, protocol: Protocol, asked: Mapping[str, Any]) -> Protocol:
        """Return the protocol with so many replicas, where some exchange."""
        if asked.get("replicas") is None or not any(stage.exchange for stage in protocol.stages):
            return protocol
        return replace(protocol, replicas=asked["replicas"])
