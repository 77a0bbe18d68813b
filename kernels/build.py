"""Compile C++ for this processor, once per machine: an operator's, which is loaded as well, or other code of the package."""

from __future__ import annotations

import errno
import fcntl
import functools
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from . import cache as cache_folder
from .cache import KERNELS

# IEEE semantics stay (no -ffast-math): the kernels recognise NaN and infinite coordinates.
_FLAGS = (
    *("-O3", "-DNDEBUG", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"),
    *("-fPIC", "-shared", "-fvisibility=hidden", "-pipe"),
)
_COMPILE_SECONDS = 900.0
_LOCK_SECONDS = 900.0
# Where locks tell nothing, as on file systems without: no build takes that long.
_ABANDONED_SECONDS = 24 * 3600.0
# What a library is called, see `_stem`, and what `tempfile` adds.
_WORKSPACE = re.compile(r"[\w-]+-[0-9a-f]+-[0-9a-f]+\.build-\w+")


@dataclass(frozen=True)
class Status:
    """How the C++ of one kernel folder stands on this machine and in this process.

    Attributes
    ----------
    folder : str
        The folder below ``kernels/``.
    compiler, compiler_version : str or None
        The compiler's command and the first line that it says of itself; None where there is none.
    cache : pathlib.Path
        The folder of compiled libraries.
    cache_problem : str or None
        Why that is not the folder which the environment asks for: others could put libraries there.
    library : pathlib.Path or None
        The library compiled from the present source for this processor; None where there is none yet.
    build_seconds : float or None
        What compiling that library took.
    flags : tuple of str
        The flags that decide speed (processor, OpenMP) of that library; empty where there is none.
    tried, loaded : bool
        Whether this process has called `load`, and whether the C++ serves.
    error : str or None
        Why it does not; `error_text` has the compiler's own words.
    """

    folder: str
    compiler: str | None
    compiler_version: str | None
    cache: Path
    library: Path | None
    build_seconds: float | None
    flags: tuple[str, ...]
    tried: bool
    loaded: bool
    error: str | None
    cache_problem: str | None = None


class BuildError(Exception):
    """C++ cannot serve: a sentence, and in ``output`` what the compiler or the loader printed."""

    def __init__(self, sentence: str, output: str = "") -> None:
        super().__init__(sentence)
        self.output = output

    @property
    def first_error(self) -> str | None:
        """The first line in which the compiler speaks of an error."""
        return next((line.strip() for line in self.output.splitlines() if "error:" in line), None)


class Source(NamedTuple):
    """A C++ file, and what it is compiled with.

    Attributes
    ----------
    name, title : str
        What its library is called in the cache, and what it is called in messages.
    file : pathlib.Path
    headers : tuple of pathlib.Path
        Files of ours that it includes.
    compile_flags, link_flags : tuple of str
    versions : tuple of str
        Of the packages whose headers it includes: a library serves these alone.
    native : bool
        Whether it is fast by this processor's vector instructions and threads; else it serves other processors too.
    """

    name: str
    title: str
    file: Path
    headers: tuple[Path, ...] = ()
    compile_flags: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    native: bool = True


class _Compiler(NamedTuple):
    command: tuple[str, ...]
    version: str


class _Outcome(NamedTuple):
    loaded: bool
    cache: Path
    library: Path | None
    error: str | None
    output: str


_outcomes: dict[str, _Outcome] = {}
_lock = threading.Lock()
# Locks on files do not keep the threads of a process apart.
_building = threading.Lock()
_warned: set[str] = set()
_swept: set[Path] = set()


def _fresh_locks() -> None:
    global _lock, _building
    _lock, _building = threading.Lock(), threading.Lock()


# A child forked while another thread builds would otherwise wait for a thread that it does not have.
os.register_at_fork(after_in_child=_fresh_locks)


def folders() -> tuple[str, ...]:
    """Name the folders below ``kernels/`` that have C++."""
    return tuple(sorted(source.parent.name for source in KERNELS.glob("*/cpu.cpp")))


def load(folder: str) -> bool:
    """Load the C++ of a folder, after compiling it if this machine has not done so yet.

    The library is kept in a cache folder (``OPENMM_DENSITY_CACHE``, else
    ``$XDG_CACHE_HOME/openmm-density``, else ``~/.cache/openmm-density``) under a name made of the source,
    the flags, the versions of torch and of the compiler, and the processor. A folder in which others can write
    is not used, nor is a library that others can (see `openmm_density.kernels.cache`). Any number of processes and
    threads may call at once: one compiles, the others wait for it. ``CXX`` names the compiler (else g++,
    c++, clang++); ``OPENMM_DENSITY_CXXFLAGS`` replaces ``-march=native``.

    Parameters
    ----------
    folder : str
        The folder below ``kernels/`` that holds ``cpu.cpp``.

    Returns
    -------
    bool
        True if the C++ serves; False if it cannot be compiled or loaded, after one warning per process.
    """
    outcome = _outcomes.get(folder)
    if outcome is None:
        with _lock:
            outcome = _outcomes.get(folder)
            if outcome is None:
                outcome = _outcomes[folder] = _load(folder)
        if not outcome.loaded:
            _warn_once(
                "no compiled kernel",
                f"openmm-density runs without its C++ kernels: {outcome.error}. Plain PyTorch serves, "
                "with the same results but hundreds of times slower. For the fast kernels install a C++ "
                "compiler (Debian and Ubuntu: apt-get install g++; conda: conda install gxx), or name one in "
                "CXX, and start again. `openmm-density doctor` shows what is amiss, and "
                f"openmm_density.kernels.build.error_text({folder!r}) the compiler's own words.",
            )
    return outcome.loaded


def status() -> dict[str, Status]:
    """Tell how the C++ of every folder stands, without compiling or loading anything.

    Returns
    -------
    dict of str to Status
        By folder. Call `load` first to learn whether the C++ compiles and loads.
    """
    compiler: _Compiler | None = None
    with suppress(BuildError):
        compiler = _find_compiler()
    report = {}
    usable, problem = cache_folder.usable_folder()
    for folder in folders():
        outcome = _outcomes.get(folder)
        if outcome is None:
            cache, library = usable, None
            with suppress(BuildError):
                library = _find_library(cache, _operator_source(folder), compiler)
        else:
            cache, library = outcome.cache, outcome.library
        record = _read_record(library) if library else None
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


def error_text(folder: str) -> str:
    """Return the commands that failed and what the compiler or loader printed; empty if the C++ serves.

    Parameters
    ----------
    folder : str
        The folder below ``kernels/`` that holds ``cpu.cpp``; it is compiled now if it has not been yet.

    Returns
    -------
    str
        Text of any number of lines.
    """
    load(folder)
    outcome = _outcomes[folder]
    return "" if outcome.loaded else outcome.output or f"{outcome.error}\n"


def library(source: Source, check: Callable[[Path], object]) -> Path:
    """Return the library of a C++ file: from the cache folder, or compiled now.

    Parameters
    ----------
    source : Source
    check : callable
        What loads the library. Where that raises `OSError` (another C library than the one it was linked against, or a damaged
        disk) it is compiled anew.

    Raises
    ------
    BuildError
        If it cannot be compiled.
    OSError
        If it cannot be stored or loaded.
    """
    with _building:
        return _library(source, check)


def _library(source: Source, check: Callable[[Path], object]) -> Path:
    cache, problem = cache_folder.usable_folder()
    if problem is not None:
        cache = _temporary_cache(
            f"does not use its cache folder {cache_folder.wanted_folder()}, as {problem}, so that others could have their code "
            "run here",
            "in which nobody else can write",
        )
    if cache not in _swept:
        _swept.add(cache)
        _sweep(cache)
    try:
        compiler: _Compiler | None = _find_compiler()
    except BuildError:
        # Compute nodes often lack the compiler that the login node has: what was compiled there serves.
        if os.environ.get("CXX") or not _find_library(cache, source, None):
            raise
        compiler = None
    found = _find_library(cache, source, compiler)
    if found is None and not cache_folder.make(cache):
        cache = _temporary_cache(f"cannot write to its cache folder {cache}", "that can be written")
        found = _find_library(cache, source, compiler)
    if found is None:
        found = _build(cache, source, compiler)
    try:
        check(found)
    except OSError:
        if compiler is None:
            raise
        _record_path(found).unlink(missing_ok=True)
        found = _build(cache, source, compiler)
        check(found)
    return found


def _operator_source(folder: str) -> Source:
    file = KERNELS / folder / "cpu.cpp"
    if not file.is_file():
        raise BuildError(f"the installation has no file {folder}/cpu.cpp")
    headers = (*sorted(KERNELS.glob("*.h")), *sorted((KERNELS / folder).glob("*.h")))
    compile_flags, link_flags = _torch_flags()
    return Source(folder, f"{folder} kernel", file, headers, compile_flags, link_flags, (torch.__version__,))


def _load(folder: str) -> _Outcome:
    cache = cache_folder.usable_folder()[0]
    try:
        found = library(_operator_source(folder), lambda path: torch.ops.load_library(str(path)))
    except BuildError as error:
        return _Outcome(False, cache, None, str(error), error.output)
    except OSError as error:
        sentence = f"the compiled {folder} kernel cannot be stored or loaded ({error})"
        return _Outcome(False, cache, None, sentence, f"{error}\n")
    return _Outcome(True, found.parent, found, None, "")


def _warn_once(kind: str, message: str) -> None:
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(message, RuntimeWarning, stacklevel=3)


def _temporary_cache(reason: str, remedy: str) -> Path:
    """Make a folder for this user below the system's temporary one, and say so."""
    folder = cache_folder.make_temporary()
    _warn_once(
        "temporary cache",
        f"openmm-density {reason}: compiled kernels go to {folder}, which may be emptied at any time. "
        f"Set OPENMM_DENSITY_CACHE to a folder {remedy}.",
    )
    return folder


def _words_of(variable: str) -> list[str]:
    """Split what an environment variable holds as a shell would."""
    try:
        return shlex.split(os.environ.get(variable, ""))
    except ValueError as error:
        raise BuildError(
            f"{variable}={os.environ[variable]} cannot be split into words ({str(error).rstrip('.').lower()})"
        ) from None


def _find_compiler() -> _Compiler:
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
                return _Compiler((path, *command[1:]), said.stdout)
    if named:
        raise BuildError(f"CXX names {shlex.join(named)}, which is no compiler that runs")
    raise BuildError("there is no C++ compiler (none of g++, c++ and clang++ is on PATH)")


def _attempts(source: Source, compiler: _Compiler) -> list[tuple[str, ...]]:
    """List the flags to try, best first: for this processor and with OpenMP, then without what is refused."""
    if not source.native:
        return [()]
    given = "OPENMM_DENSITY_CXXFLAGS"
    processor = [tuple(_words_of(given))] if given in os.environ else [("-march=native",), ()]
    # Clang's OpenMP is another runtime than torch's libgomp: two in one process compete for the processor.
    threads = [()] if "clang" in compiler.version else [("-fopenmp",), ()]
    return [(*openmp, *chosen) for chosen in processor for openmp in threads]


@functools.cache
def _torch_flags() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the flags for torch's headers and for its libraries."""
    root = Path(torch.__file__).resolve().parent
    include = root / "include"
    try:
        # It names the standard that it needs: C++17 to torch 2.13, C++20 from 2.14.
        header = (include / "ATen" / "ATen.h").read_text()
    except OSError as error:
        raise BuildError(f"this torch was installed without its C++ headers ({error})") from error
    standard = "c++20" if "202002L" in header else "c++17"
    compile_flags = (
        f"-std={standard}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *("-isystem", str(include)),
        *("-isystem", str(include / "torch" / "csrc" / "api" / "include")),
    )
    # Named before the compiler's own OpenMP library, torch's copy satisfies every symbol: one thread pool.
    openmp = sorted([*root.glob("lib/libgomp*.so*"), *root.parent.glob("torch.libs/libgomp*.so*")])[:1]
    return compile_flags, (
        "-Wl,--as-needed",
        *map(str, openmp),
        f"-L{root / 'lib'}",
        "-lc10",
        "-ltorch_cpu",
    )


@functools.cache
def _processor() -> str:
    """Describe the processor: its model and instruction sets."""
    wanted = ("vendor_id", "model name", "flags", "Features", "CPU implementer", "CPU part", "cpu")
    lines = {}
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() in wanted:
                lines.setdefault(name.strip(), value.strip())
    return f"{platform.machine()} {lines or platform.processor()}"


def _digest(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _stem(source: Source, compiler: _Compiler | None) -> str:
    """Name a library by what decides its contents; without a compiler, a pattern for any compiler's."""
    inputs = _digest(
        [(file.name, file.read_bytes()) for file in (*source.headers, source.file)],
        _FLAGS,
        os.environ.get("OPENMM_DENSITY_CXXFLAGS"),
        source.versions,
        source.compile_flags,
        source.link_flags,
        platform.libc_ver(),
        _processor() if source.native else platform.machine(),
    )
    if compiler is None:
        return f"{source.name}-{inputs}-*"
    return f"{source.name}-{inputs}-{_digest(os.path.realpath(compiler.command[0]), compiler)}"


def _find_library(cache: Path, source: Source, compiler: _Compiler | None) -> Path | None:
    for found in sorted(cache.glob(f"{_stem(source, compiler)}.so")):
        if _read_record(found):
            return found
    return None


def _record_path(library: Path) -> Path:
    return library.with_suffix(".json")


def _read_record(library: Path) -> dict[str, Any] | None:
    """Read what is known of a library, or None unless it is there, whole, as it was compiled, and nobody else's."""
    try:
        record: dict[str, Any] = json.loads(cache_folder.read_own(_record_path(library)))
        if hashlib.sha256(cache_folder.read_own(library)).hexdigest() == record["sha256"]:
            return record
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _build(cache: Path, source: Source, compiler: _Compiler) -> Path:
    library = cache / f"{_stem(source, compiler)}.so"
    with _record_lock(library.with_suffix(".lock")) as held:
        if _read_record(library):
            return library
        if held:
            _sweep(cache, library.stem)
        if sys.stderr.isatty():
            print(
                f"openmm-density: compiling the {source.title} for this processor, once (up to 20 s) ...",
                file=sys.stderr,
                flush=True,
            )
        workspace = Path(tempfile.mkdtemp(prefix=f"{library.stem}.build-", dir=cache))
        try:
            record = _compile(workspace / library.name, source, compiler)
            if _stem(source, compiler) != library.stem:
                raise BuildError(
                    f"the source of the {source.title} was edited while it was compiled: start again"
                )
            (workspace / "record").write_text(json.dumps(record, indent=1))
            for name in (library.name, "record"):
                cache_folder.keep_from_others(workspace / name)
            os.replace(workspace / library.name, library)
            os.replace(workspace / "record", _record_path(library))
        finally:
            shutil.rmtree(workspace, ignore_errors=True)
    plain = os.environ.get("OPENMM_DENSITY_CXXFLAGS") is None and "-march=native" not in record["flags"]
    if source.native and plain:
        _warn_once(
            "plain processor",
            f"openmm-density: {shlex.join(compiler.command)} does not compile the {source.title} with "
            "-march=native: it runs without this processor's vector instructions, several times slower. "
            "A newer g++ (named in CXX) cures it.",
        )
    return library


def _compile(target: Path, source: Source, compiler: _Compiler) -> dict[str, Any]:
    failures = []
    started = time.monotonic()
    for flags in _attempts(source, compiler):
        command = [
            *compiler.command,
            *_FLAGS,
            *flags,
            *source.compile_flags,
            f"-I{KERNELS}",
            str(source.file),
            *source.link_flags,
            *("-o", str(target)),
        ]
        try:
            run = subprocess.run(
                command,
                cwd=target.parent,
                # The compiler's own temporaries go where they are swept up if it is killed.
                env=os.environ | {"LC_ALL": "C", "TMPDIR": str(target.parent)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=_COMPILE_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise BuildError(
                f"{shlex.join(compiler.command)} has not compiled the {source.title} "
                f"after {_COMPILE_SECONDS:.0f} s",
                f"$ {shlex.join(command)}\n{error.output or ''}",
            ) from error
        if run.returncode == 0 and target.is_file():
            return {
                "sha256": hashlib.sha256(target.read_bytes()).hexdigest(),
                "build_seconds": round(time.monotonic() - started, 2),
                "flags": flags,
                "command": command,
                "compiler_version": compiler.version,
            }
        failures.append(f"$ {shlex.join(command)}\n{run.stdout}\n(exit status {run.returncode})\n")
        if _source_is_wrong(run.stdout, source):
            break
    raise BuildError(
        f"{shlex.join(compiler.command)} does not compile the {source.title}", "\n".join(failures)
    )


def _source_is_wrong(output: str, source: Source) -> bool:
    """Tell whether a compiler complains of our source, which no other flags cure, and not of its own parts."""
    ours = tuple(str(file.parent) for file in (source.file, *source.headers))
    return any(
        line.startswith(ours) and " error: " in line and "omp.h" not in line for line in output.splitlines()
    )


@contextmanager
def _record_lock(path: Path) -> Iterator[bool]:
    """Hold a POSIX record lock, and say whether it is held.

    Such a lock is seen from every node of a cluster and ends with its process, however that ends. Not
    holding it (a file system without locks, a builder that is stopped for good) costs a second compilation
    and nothing else: every build has a folder of its own and its results are moved into place whole.
    """
    with path.open("a") as handle:
        held = False
        deadline = time.monotonic() + _LOCK_SECONDS
        while not held and time.monotonic() < deadline:
            try:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = True
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    break
                time.sleep(0.05)
        yield held


def _sweep(cache: Path, own_stem: str | None = None) -> None:
    """Remove what killed processes have left: folders of builds, and files half written; what has other names is the user's."""
    with suppress(OSError):
        for part in cache.glob("tuned-*.part"):
            if _is_abandoned(part):
                part.unlink(missing_ok=True)
    for workspace in cache.glob("*.build-*"):
        if not _WORKSPACE.fullmatch(workspace.name):
            continue
        stem = workspace.name.partition(".build-")[0]
        if stem == own_stem:  # its lock is held here
            shutil.rmtree(workspace, ignore_errors=True)
            continue
        with suppress(OSError), (cache / f"{stem}.lock").open("a") as handle:
            try:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                # Whoever is compiling another library at this moment holds its lock, if the file system has any.
                if error.errno in (errno.EACCES, errno.EAGAIN) or not _is_abandoned(workspace):
                    continue
            shutil.rmtree(workspace, ignore_errors=True)


def _is_abandoned(path: Path) -> bool:
    return time.time() - path.lstat().st_mtime > _ABANDONED_SECONDS
