"""What the pictures of a fit share: colours, fonts, and how a figure becomes a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib import patheffects
from matplotlib.figure import Figure

from ...base.atomic_files import atomic_write

BEFORE, AFTER, REFERENCE = "#8b95a5", "#1f6feb", "#d1495b"
BETTER, WORSE, DOUBTFUL = "#1f6feb", "#e8590c", "#f08c00"
TEMPERATURE, REBUILT = "#e8590c", "#2b8a3e"
GRID, BACKGROUND = "#e9ecef", "#f1f3f5"

STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "axes.edgecolor": "#868e96",
    "xtick.color": "#495057",
    "ytick.color": "#495057",
}
"""Of matplotlib, for all pictures."""


def white_outline() -> list[patheffects.AbstractPathEffect]:
    """Return what keeps text legible on a map or a curve."""
    return [patheffects.withStroke(linewidth=2.5, foreground="white")]


def save(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG, atomically."""
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=150, format="png")
