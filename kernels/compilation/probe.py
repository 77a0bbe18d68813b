"""The state of every operator's C++, without compiling or loading anything."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from . import cache_folder
from .commands import BuildError
from .compiler import Compiler, find_compiler
from .libraries import find_library, read_record
from .loading import outcome_of
from .sources import operator_folders, operator_source


@dataclass(frozen=True)
class Status:
    """The state of a kernel folder's C++ on this machine and in this process."""

    folder: str  # The folder below ``kernels/``
    # `compiler`, `compiler_version`: the compiler's command and the first line of its version; None where
    # there is none.
    compiler: str | None
    compiler_version: str | None
    cache: Path  # The folder of compiled libraries
    # The library compiled from the present source for this processor; None where there is none yet
    library: Path | None
    build_seconds: float | None  # The seconds that compiling that library took
    # The flags that decide speed (processor, OpenMP) of that library; empty where there is none
    flags: tuple[str, ...]
    tried: bool  # `tried`, `loaded`: whether this process has called `load`, and whether the C++ works.
    loaded: bool
    error: str | None  # Why it is not; `error_text` has the compiler's own words
    # Why that is not the folder that the environment asks for: others could put libraries there
    cache_problem: str | None = None


def status() -> dict[str, Status]:
    """Return the state of each folder's C++ without compiling or loading anything; `load` finds out whether it works."""
    compiler: Compiler | None = None
    with suppress(BuildError):
        compiler = find_compiler()
    report = {}
    usable, problem = cache_folder.usable_folder()
    for folder in operator_folders():
        outcome = outcome_of(folder)
        if outcome is None:
            cache, library = usable, None
            with suppress(BuildError):
                library = find_library(cache, operator_source(folder), compiler)
        else:
            cache, library = outcome.cache, outcome.library
        record = read_record(library) if library else None
        report[folder] = Status(
            folder=folder,
            compiler=shlex.join(compiler.command) if compiler else None,
            compiler_version=compiler.version.splitlines()[0] if compiler and compiler.version else None,
            cache=cache,
            library=library,
            build_seconds=record["build_seconds"] if record else None,
            flags=tuple(record["flags"]) if record else (),
            tried=outcome is not None,
            loaded=outcome is not None and outcome.loaded,
            error=outcome.error if outcome else None,
            cache_problem=problem,
        )
    return report
