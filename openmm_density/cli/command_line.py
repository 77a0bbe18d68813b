"""The command line that options come from, as a user would type it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from .arguments import PROGRAM, spelled

# Positional, and those that say where results go, or are said of a resumed run only.
_FIRST = ("model", "parts", "map", "resolution")
_NOT_REPEATED = ("command", "output", "overwrite", "resume", "explain_time")
# Lists whose parts are joined by commas in one option; others are repeated.
_JOINED = ("amplitudes", "columns", "voxel_size")


def command_line(
    options: Mapping[str, Any],
    defaults: Mapping[str, Any],
    output: str,
    *,
    command: str = "fit",
    output_option: str = "output",
) -> str:
    """Return a command with all options that differ from their defaults."""
    models = options.get("parts") or [str(options["model"])]
    words = [PROGRAM, command, *models, str(options["map"])]
    if options["resolution"] is not None:  # amplitudes have one of their own
        words += ["--resolution", f"{options['resolution']:g}"]
    for name, value in options.items():
        if name not in (*_FIRST, *_NOT_REPEATED, output_option) and value != defaults.get(name):
            words += option_words(name, value)
    return shlex.join([*words, spelled(output_option), output])


def option_words(name: str, value: Any) -> Iterator[str]:
    """Yield an option with its value as a user types it, a list's as often as it has entries."""
    option = spelled(name)
    if value is True:
        yield option
    elif isinstance(value, (list, tuple)) and name not in _JOINED:
        for each in value:
            yield from (option, "=".join(each) if isinstance(each, (list, tuple)) else str(each))
    elif value is None:  # in place of a default
        yield from (option, "off")
    else:
        parts = value if isinstance(value, (list, tuple)) else [value]
        yield from (
            option,
            ",".join(f"{part:.10g}" if isinstance(part, float) else str(part) for part in parts),
        )
