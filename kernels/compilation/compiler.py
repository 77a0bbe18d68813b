"""The C++ compiler: which one, with which flags, and its messages."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from .commands import BuildError, run_commands
from .sources import KERNELS, Source

FLAGS = (
    # IEEE semantics stay (no -ffast-math): the kernels recognise NaN and infinite coordinates.
    *("-O3", "-DNDEBUG", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"),
    *("-fPIC", "-fvisibility=hidden", "-pipe"),
)
EXPORTED_NAMES = KERNELS / "exported_names.map"
# Linkers of systems other than Linux do not accept such a file.
LINK_FLAGS = (f"-Wl,--version-script={EXPORTED_NAMES}",) if sys.platform == "linux" else ()
FLAGS_VARIABLE = "OPENMM_DENSITY_CXXFLAGS"
_SECONDS = 900.0


class Compiler(NamedTuple):
    """A compiler's command, and the version that it reports."""

    command: tuple[str, ...]
    version: str


def find_compiler() -> Compiler:
    """Return the compiler that ``CXX`` names, else the first of g++, c++ and clang++ that runs."""
    named = _words_of("CXX")
    for command in [named] if named else [["g++"], ["c++"], ["clang++"]]:
        path = shutil.which(command[0])
        if path is None:
            continue
        with suppress(OSError, subprocess.SubprocessError):
            said = subprocess.run(
                [path, *command[1:], "--version"],
                env=os.environ | {"LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=60,
            )
            if said.returncode == 0:
                return Compiler((path, *command[1:]), said.stdout)
    if named:
        raise BuildError(f"CXX names {shlex.join(named)}, which is no compiler that runs")
    raise BuildError("there is no C++ compiler (none of g++, c++ and clang++ is on PATH)")


def compile_library(target: Path, source: Source, compiler: Compiler) -> dict[str, Any]:
    """Compile a source with the best flags that the compiler accepts; several files at once, one for each processor."""
    failures: list[str] = []
    started = time.monotonic()
    for flags in _attempts(source, compiler):
        *of_objects, of_library = _commands(target, source, compiler, flags)
        done = _run(of_objects, target.parent, source, compiler)
        if all(each.works for each in done):
            done += _run([of_library], target.parent, source, compiler)
        if all(each.works for each in done) and target.is_file():
            return {
                "sha256": hashlib.sha256(target.read_bytes()).hexdigest(),
                "build_seconds": round(time.monotonic() - started, 2),
                "flags": flags,
                "commands": [each.command for each in done],
                "compiler_version": compiler.version,
            }
        failed = [each for each in done if not each.works] or done[-1:]
        failures += [
            f"$ {shlex.join(each.command)}\n{each.output}\n(exit status {each.status})\n" for each in failed
        ]
        if any(_source_is_wrong(each.output, source) for each in failed):
            break
    raise BuildError(
        f"{shlex.join(compiler.command)} does not compile the {source.title}", "\n".join(failures)
    )


class _Run(NamedTuple):
    """A command that has ended."""

    command: list[str]
    status: int
    output: str

    @property
    def works(self) -> bool:
        return self.status == 0


def _commands(target: Path, source: Source, compiler: Compiler, flags: tuple[str, ...]) -> list[list[str]]:
    """Return the commands that compile a source file by file and then link the library; a single command for one file."""
    compiled = [*compiler.command, *FLAGS, *flags, *source.compile_flags, f"-I{KERNELS}"]
    end = [*LINK_FLAGS, *source.link_flags, "-o", str(target)]
    if not source.parts:
        return [[*compiled, "-shared", str(source.file), *end]]
    objects = [str(target.parent / f"{number}-{file.stem}.o") for number, file in enumerate(source.files)]
    each = [
        [*compiled, "-c", str(file), "-o", made] for file, made in zip(source.files, objects, strict=True)
    ]
    return [*each, [*compiler.command, *flags, "-shared", *objects, *end]]


def _run(commands: list[list[str]], folder: Path, source: Source, compiler: Compiler) -> list[_Run]:
    """Run commands in parallel, as many at once in this process as there are processors."""
    try:
        done = run_commands(commands, folder, _SECONDS)
    except subprocess.TimeoutExpired as error:
        raise BuildError(
            f"{shlex.join(compiler.command)} has not compiled the {source.title} after {_SECONDS:.0f} s",
            f"$ {shlex.join(error.cmd)}\n{error.output or ''}",
        ) from error
    return [_Run(list(each.args), each.returncode, each.stdout) for each in done]


def _words_of(variable: str) -> list[str]:
    """Split the value of an environment variable as a shell would."""
    try:
        return shlex.split(os.environ.get(variable, ""))
    except ValueError as error:
        raise BuildError(
            f"{variable}={os.environ[variable]} cannot be split into words ({str(error).rstrip('.').lower()})"
        ) from None


def _attempts(source: Source, compiler: Compiler) -> list[tuple[str, ...]]:
    """Return the flags to try, best first: for this processor and with OpenMP, then without refused ones."""
    if not source.native:
        return [()]
    given = FLAGS_VARIABLE in os.environ
    processor = [tuple(_words_of(FLAGS_VARIABLE))] if given else [("-march=native",), ()]
    # Clang's OpenMP runtime differs from torch's libgomp: two in one process compete for the processor.
    threads = [()] if "clang" in compiler.version else [("-fopenmp",), ()]
    return [(*openmp, *chosen) for chosen in processor for openmp in threads]


def _source_is_wrong(output: str, source: Source) -> bool:
    """Return whether a compiler rejects our source, which other flags cannot fix, rather than missing parts of its own."""
    ours = tuple(str(file.parent) for file in (*source.files, *source.headers))
    return any(
        line.startswith(ours) and " error: " in line and "omp.h" not in line for line in output.splitlines()
    )
