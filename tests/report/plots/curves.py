"""What of a drawn panel is a curve."""

from __future__ import annotations


def curves(panel):
    return [line for line in panel.lines if len(line.get_xdata()) > 2]
