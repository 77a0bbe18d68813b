"""How errors and reports put into words what they name."""

from __future__ import annotations

from collections.abc import Sequence


def one_line(error: Exception) -> str:
    """Return the message of another library's error on one line, to stand inside a sentence of ours; its kind if it has none."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def counted(number: int, noun: str) -> str:
    """Count things as in ``1 residue`` or ``2 residues``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listing(items: Sequence[str], longest: int = 20) -> str:
    """List names as in ``a, b and 3 more``, at most ``longest`` of them in full."""
    shown = ", ".join(items[:longest])
    return shown if len(items) <= longest else f"{shown} and {len(items) - longest} more"
