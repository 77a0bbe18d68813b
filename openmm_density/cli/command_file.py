"""The options of a fit on disk beside its states, so that it can be resumed without them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.atomic_files import read_file, write_text
from ..base.errors import InputError
from ..fitting.output.results import COMMAND


def write_command(
    folder: Path, options: Mapping[str, Any], files: Sequence[str], others: Sequence[Path] = ()
) -> None:
    """Write the options of a command, with a digest of each file that it reads."""
    options = dict(options)
    for name in files:
        paths = options[name] if isinstance(options[name], list) else [options[name]]
        absolute = [None if path is None else str(Path(path).resolve()) for path in paths]
        options[name] = absolute if isinstance(options[name], list) else absolute[0]
    digests = {path: _digest(path) for path in [*_paths(options, files), *map(str, others)]}
    write_text(folder / COMMAND, json.dumps({"options": options, "sha256": digests}, indent=2) + "\n")


def read_command(
    folder: Path, files: Sequence[str], others: Callable[[Mapping[str, Any]], Sequence[Path]]
) -> dict[str, Any]:
    """Return the options that `write_command` wrote."""
    try:
        written = json.loads((folder / COMMAND).read_text(encoding="utf-8"))
        options, digests = written["options"], written["sha256"]
        if not (isinstance(options, dict) and isinstance(digests, dict)):
            raise TypeError
        paths = _paths(options, files)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise InputError(
            "it cannot be read, so that the fit cannot be resumed",
            source=folder / COMMAND,
            remedy="start the fit again",
        ) from None
    for path, digest in digests.items():
        if _digest(path) != digest:
            raise InputError(
                "it has changed since the fit began, so that it cannot be resumed",
                source=path,
                remedy="start the fit again",
            )
    for path in [*paths, *map(str, others(options))]:
        if path not in digests:
            raise InputError(
                f"it is not one of the files with which the fit began, by {folder / COMMAND}, so that it cannot be resumed",
                source=path,
                remedy="start the fit again",
            )
    return options


def _paths(options: Mapping[str, Any], files: Sequence[str]) -> list[str]:
    held = [options.get(name) for name in files]
    paths = [path for value in held for path in (value if isinstance(value, list) else [value])]
    if not all(path is None or isinstance(path, str) for path in paths):
        raise TypeError("a path is text")
    return [path for path in paths if path is not None]


def _digest(path: str) -> str:
    try:
        return hashlib.sha256(read_file(path)).hexdigest()
    except (OSError, ValueError) as error:  # a ValueError where the path holds a zero
        raise InputError(
            f"the fit needs it, and it cannot be read ({getattr(error, 'strerror', None) or error})",
            source=path,
            remedy="put it back",
        ) from None
