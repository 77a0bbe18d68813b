"""Compiled libraries in the cache folder: found by everything that determines their contents, or compiled into it."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from openmm_density.base.progress import console_for_progress
from openmm_density.base.stopwatch import counted_as

from . import cache_folder
from .commands import BuildError, warn_once
from .compiler import EXPORTED_NAMES, FLAGS, FLAGS_VARIABLE, Compiler, compile_library, find_compiler
from .sources import Source

# A library's name, see `_stem`, and `tempfile`'s suffix. Not .build-*, which versions with another kind of lock remove.
_WORKSPACE = re.compile(r"[\w-]+-[0-9a-f]+-[0-9a-f]+\.compiling-\w+")
# Without locks, as on some file systems: no build takes that long.
_ABANDONED_SECONDS = 24 * 3600.0

_swept: set[Path] = set()


def library(source: Source, check: Callable[[Path], object]) -> Path:
    """Return the library of a C++ file, from the cache folder or compiled now.

    `check`: what loads the library. Where that raises `OSError` (another C library than the one it was linked against,
    or a damaged disk) it is compiled anew. Raises BuildError if it cannot be compiled; OSError if it cannot be stored
    or loaded.
    """
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
        compiler: Compiler | None = find_compiler()
    except BuildError:
        # Compute nodes often lack the login node's compiler: a library compiled there can be used.
        if os.environ.get("CXX") or not find_library(cache, source, None):
            raise
        compiler = None
    found = find_library(cache, source, compiler)
    if found is None and not cache_folder.make(cache):
        cache = _temporary_cache(f"cannot write to its cache folder {cache}", "that can be written")
        found = find_library(cache, source, compiler)
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


def find_library(cache: Path, source: Source, compiler: Compiler | None) -> Path | None:
    """Return the library of a source in a cache folder, of a compiler or, where there is none, of any; None if there is none."""
    for found in sorted(cache.glob(f"{_stem(source, compiler)}.so")):
        if read_record(found):
            return found
    return None


def read_record(library: Path) -> dict[str, Any] | None:
    """Return `compile_library`'s record of a library; None unless the library is unchanged and our own."""
    try:
        record: dict[str, Any] = json.loads(cache_folder.read_own(_record_path(library)))
        if hashlib.sha256(cache_folder.read_own(library)).hexdigest() == record["sha256"]:
            return record
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _record_path(library: Path) -> Path:
    return library.with_suffix(".json")


def _build(cache: Path, source: Source, compiler: Compiler) -> Path:
    """Return the library of a source, compiled now unless another process has done so while this one waited."""
    library = cache / f"{_stem(source, compiler)}.so"
    with counted_as("compilation"), build_lock(library.with_suffix(".lock")) as held:
        if read_record(library):
            return library
        if held:
            _sweep(cache, library.stem)
        workspace = Path(tempfile.mkdtemp(prefix=f"{library.stem}.compiling-", dir=cache))
        try:
            with shown(source.title):
                record = compile_library(workspace / library.name, source, compiler)
            if _stem(source, compiler) != library.stem:
                raise BuildError(
                    f"the source of the {source.title} was edited while it was compiled: start again"
                )
            _store(workspace, record, library)
        finally:
            shutil.rmtree(workspace, ignore_errors=True)
    plain = os.environ.get(FLAGS_VARIABLE) is None and "-march=native" not in record["flags"]
    if source.native and plain:
        warn_once(
            "plain processor",
            f"openmm-density: {shlex.join(compiler.command)} does not compile the {source.title} with "
            "-march=native: it runs without this processor's vector instructions, several times slower. "
            "A newer g++ (named in CXX) cures it.",
        )
    return library


def _store(workspace: Path, record: dict[str, Any], library: Path) -> None:
    """Move a compiled library into the cache, then its record, without which it does not count."""
    (workspace / "record").write_text(json.dumps(record, indent=1))
    for name, target in ((library.name, library), ("record", _record_path(library))):
        # Out of a folder in which only this user can write, where `atomic_files.replacing` would write beside the target.
        cache_folder.keep_from_others(workspace / name)
        os.replace(workspace / name, target)


def _temporary_cache(reason: str, remedy: str) -> Path:
    """Create and report a folder for this user below the system's temporary one."""
    folder = cache_folder.make_temporary()
    warn_once(
        "temporary cache",
        f"openmm-density {reason}: compiled kernels go to {folder}, which may be emptied at any time. "
        f"Set OPENMM_DENSITY_CACHE to a folder {remedy}.",
    )
    return folder


def _stem(source: Source, compiler: Compiler | None) -> str:
    """Return the name of a library, derived from everything that determines its contents; a pattern if no compiler is given."""
    inputs = _digest(
        [(file.name, file.read_bytes()) for file in (*source.headers, *source.files)],
        FLAGS,
        EXPORTED_NAMES.read_bytes(),
        os.environ.get(FLAGS_VARIABLE),
        source.versions,
        source.compile_flags,
        source.link_flags,
        platform.libc_ver(),
        _processor() if source.native else platform.machine(),
    )
    if compiler is None:
        return f"{source.name}-{inputs}-*"
    return f"{source.name}-{inputs}-{_digest(os.path.realpath(compiler.command[0]), compiler)}"


def _digest(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


@functools.cache
def _processor() -> str:
    """Return a description of the processor: its model and instruction sets."""
    wanted = ("vendor_id", "model name", "flags", "Features", "CPU implementer", "CPU part", "cpu")
    lines = {}
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() in wanted:
                lines.setdefault(name.strip(), value.strip())
    return f"{platform.machine()} {lines or platform.processor()}"


def _sweep(cache: Path, own_stem: str | None = None) -> None:
    """Remove the folders of builds that were killed; files with other names are the user's."""
    for workspace in cache.glob("*.compiling-*"):
        if not _WORKSPACE.fullmatch(workspace.name):
            continue
        stem = workspace.name.partition(".compiling-")[0]
        if stem == own_stem:
            shutil.rmtree(workspace, ignore_errors=True)
            continue
        with suppress(OSError), build_lock(cache / f"{stem}.lock", seconds=0) as held:
            # A process that is compiling another library now holds its lock, if the file system has locks.
            if held or (held is None and time.time() - workspace.lstat().st_mtime > _ABANDONED_SECONDS):
                shutil.rmtree(workspace, ignore_errors=True)


_SECONDS = 900.0


@contextmanager
def build_lock(path: Path, seconds: float = _SECONDS) -> Iterator[bool | None]:
    """Hold the lock of a build, and yield whether it is held.

    The operating system keeps such a lock for one holder, also among threads, and ends it with its process, however that ends.
    Without it (a file system without locks, a builder that is stopped for good) a second compilation is all that is lost:
    every build has a folder of its own, from which its results are moved into place. Yields True if it is held, False if
    somebody else holds it, None if the file system has no locks.
    """
    lock = FileLock(path, timeout=seconds, thread_local=False, fallback_to_soft=False)
    held: bool | None = False
    try:
        lock.acquire()
        held = True
    except Timeout:
        pass
    except OSError:
        held = None
    try:
        yield held
    finally:
        lock.release()


class _Builds:
    """The progress bars of all compiling threads, from the first build to the end of the last concurrent one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_running = 0
        self._bars: Any = None

    @contextmanager
    def shown(self, title: str) -> Iterator[None]:
        with self._lock:
            if not self._n_running:
                self._bars = _bars()
            self._n_running += 1
            bars, said = self._bars, "openmm-density: compiling the {} for this processor, once"
            task = bars.add_task(said.format(title), total=None)
        try:
            yield
            bars.update(task, description=f"openmm-density: compiled the {title}", total=1, completed=1)
        except BaseException:
            bars.remove_task(task)
            raise
        finally:
            with self._lock:
                self._n_running -= 1
                if not self._n_running:
                    with suppress(OSError, ValueError):  # a terminal that was closed
                        bars.stop()


def _bars() -> Any:
    """Return the display of builds: none where lines cannot be redrawn, in a notebook or beside one of rich's progress bars."""
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    is_drawn = is_terminal and not hasattr(sys.stderr, "rich_proxied_file")
    columns = TextColumn("{task.description}"), TimeElapsedColumn()
    bars = Progress(*columns, console=console_for_progress(), disable=not is_drawn)
    with suppress(OSError, ValueError):  # a terminal that was closed
        bars.start()
        if not is_drawn and (is_terminal or "ipykernel" in sys.modules):
            print("openmm-density: compiling kernels for this processor, once (10 to 30 s)", file=sys.stderr)
    return bars


_builds = _Builds()


def _begin_anew() -> None:
    global _builds
    _builds = _Builds()


os.register_at_fork(after_in_child=_begin_anew)


def shown(title: str) -> Any:
    """Show meanwhile, in a terminal or a notebook, that something is being compiled."""
    return _builds.shown(title)
