"""How errors and reports put into words what they name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence


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


def in_options(sentence: str, spellings: Mapping[str, str]) -> str:
    """Put the options of a command in the place of the Python arguments that an error names.

    Parameters
    ----------
    sentence : str
        As in ``similarity="likeness" is not known`` or ``report_interval must be …``; one on a TOML file names what stands there.
    spellings : mapping of str to str
        What a user types, by argument, as in ``{"report_interval": "--report-interval"}``.
    """
    if ".toml:" in sentence:
        return sentence

    def spelled(match: re.Match[str]) -> str:
        name, equals = match.groups()
        # A plain word in the middle of a sentence is English.
        if name not in spellings or not (equals or "_" in name or match.start() == 0):
            return match[0]
        return spellings[name] + (" " if equals and sentence[match.end() :][:1].strip(" .,;:)") else "")

    return re.sub(r"(?<![^\s(])([a-z]\w*)(?:(=)|(?![\w/]|[.-]\w))", spelled, sentence)
