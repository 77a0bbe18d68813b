"""Load operators' libraries into this process."""

from __future__ import annotations

import ctypes
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch

from . import cache_folder
from .commands import BuildError, warn_once
from .libraries import library
from .sources import (
    calls_kernel,
    kernel_folders,
    kernel_source,
    operator_folders,
    operator_source,
)


class Outcome(NamedTuple):
    """How loading the library of a folder ended: ``error`` is a sentence, ``output`` what the compiler or loader printed."""

    loaded: bool
    cache: Path
    library: Path | None
    error: str | None
    output: str


_outcomes: dict[str, Outcome] = {}
_kernels: dict[str, ctypes.CDLL | BuildError] = {}
_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


# A child forked while another thread builds would otherwise wait for a thread that only its parent has.
os.register_at_fork(after_in_child=_locks.clear)


def load(folder: str) -> bool:
    """Load the C++ of a folder, after compiling it if this machine has not done so yet.

    The library is kept in a cache folder (``OPENMM_DENSITY_CACHE``, else ``$XDG_CACHE_HOME/openmm-density``, else
    ``~/.cache/openmm-density``) under a name made of the source, the flags, the versions of torch and of the compiler, and the
    processor. Neither a folder nor a library that others can write to is used
    (see `openmm_density.kernels.compilation.cache_folder`). Any number of processes and threads may call at once: one compiles,
    the others wait. ``CXX`` names the compiler (else g++, c++, clang++); ``OPENMM_DENSITY_CXXFLAGS`` replaces
    ``-march=native``.

    `folder`: the folder below ``kernels/`` that holds ``cpu.cpp``. Returns True if the C++ is available; False if it cannot
    be compiled or loaded, after one warning per process.
    """
    outcome = _outcomes.get(folder)
    if outcome is None:
        with _locks[folder]:
            outcome = _outcomes.get(folder)
            if outcome is None:
                outcome = _outcomes[folder] = _load(folder)
        if not outcome.loaded:
            warn_once(
                "no compiled kernel",
                f"openmm-density runs without its C++ kernels: {outcome.error}. Plain PyTorch serves, "
                "with the same results but hundreds of times slower. For the fast kernels install a C++ "
                "compiler (Debian and Ubuntu: apt-get install g++; conda: conda install cxx-compiler), or name one in "
                "CXX, and start again. `openmm-density doctor` shows what is amiss, and "
                f"openmm_density.kernels.compilation.error_text({folder!r}) the compiler's own words.",
            )
    return outcome.loaded


def load_all() -> bool:
    """Load the C++ of all folders below ``kernels/``, compiled in parallel; True if all is available, see `load`."""
    wanted = operator_folders()
    with ThreadPoolExecutor(len(wanted) + 1) as pool:
        served = pool.submit(kernels_serve, kernel_folders())
        return all([*pool.map(load, wanted), served.result()])


def load_ahead(folders: Sequence[str]) -> None:
    """Begin to load the C++ of folders below ``kernels/`` in threads, in the order of need: later `load` waits less."""
    _begin(load, folders)


def _begin(loading: Callable[[str], object], folders: Sequence[str]) -> None:
    def load_quietly(folder: str) -> None:
        # RuntimeError: threads and processes cannot start any more, as the program ends.
        with suppress(BuildError, RuntimeError):
            loading(folder)

    for folder in folders:
        threading.Thread(target=load_quietly, args=(folder,), name=f"load {folder}", daemon=True).start()


def entry_points(folder: str) -> ctypes.CDLL:
    """Return the library of a folder's kernel (``interface.h``), compiled if need be; BuildError if that fails."""
    with _locks[f"{folder}-kernel"]:
        found = _kernels.get(folder)
        if found is None:
            found = _kernels[folder] = _load_kernel(folder)
    if isinstance(found, BuildError):
        raise BuildError(str(found), found.output)
    return found


def load_kernels_ahead(folders: Sequence[str]) -> None:
    """Begin to load kernels (folders with an ``interface.h``) without operators, as `load_ahead`: all that a force needs."""
    _begin(entry_points, folders)


def kernels_serve(folders: Sequence[str]) -> bool:
    """Return whether the kernels of folders with an ``interface.h`` are available, compiling them in parallel if need be."""

    def serves(folder: str) -> bool:
        with suppress(BuildError):
            entry_points(folder)
            return True
        return False

    with ThreadPoolExecutor(max(len(folders), 1)) as pool:
        return all(list(pool.map(serves, folders)))


def kernel_serves(folder: str, otherwise: str) -> bool:
    """Return whether the kernel of a folder is available; where it is not, warn once per process of what happens `otherwise`."""
    try:
        entry_points(folder)
    except BuildError as error:
        warn_once(folder, f"{otherwise}: {error}. `openmm-density doctor` shows what is amiss")
        return False
    return True


def outcome_of(folder: str) -> Outcome | None:
    """Return how loading a folder's library ended; None where this process has not tried."""
    return _outcomes.get(folder)


def error_text(folder: str) -> str:
    """Return the failed commands of a folder, which is compiled if it was not yet, and their output; empty if none failed."""
    load(folder)
    outcome = _outcomes[folder]
    return "" if outcome.loaded else outcome.output or f"{outcome.error}\n"


def _load(folder: str) -> Outcome:
    cache = cache_folder.usable_folder()[0]
    if calls_kernel(folder):
        load_kernels_ahead([folder])

    def opened(path: Path) -> None:
        if calls_kernel(folder):
            entry_points(folder)
        torch.ops.load_library(str(path))

    try:
        found = library(operator_source(folder), opened)
    except BuildError as error:
        return Outcome(False, cache, None, str(error), error.output)
    except OSError as error:
        sentence = _not_loaded(folder, error)
        return Outcome(False, cache, None, sentence, f"{error}\n")
    return Outcome(True, found.parent, found, None, "")


def _load_kernel(folder: str) -> ctypes.CDLL | BuildError:
    loaded: list[ctypes.CDLL] = []
    try:
        # Its operators find its functions among those of the process.
        library(kernel_source(folder), lambda path: loaded.append(ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)))
    except BuildError as error:
        return error
    except OSError as error:
        return BuildError(_not_loaded(folder, error), f"{error}\n")
    return loaded[-1]


def _not_loaded(folder: str, error: OSError) -> str:
    return f"the compiled {folder} kernel cannot be stored or loaded ({error})"
