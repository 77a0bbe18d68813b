"""Operators' libraries, loaded into this process."""

from __future__ import annotations

import ctypes
import os
import threading
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch

from . import cache_folder
from .libraries import library
from .problems import BuildError, warn_once
from .sources import operator_folders, operator_source


class Outcome(NamedTuple):
    """How loading the library of a folder ended: ``error`` is a sentence, ``output`` what the compiler or loader printed."""

    loaded: bool
    cache: Path
    library: Path | None
    error: str | None
    output: str


_outcomes: dict[str, Outcome] = {}
_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


# A child forked while another thread builds would otherwise wait for a thread that it does not have.
os.register_at_fork(after_in_child=_locks.clear)


def load(folder: str) -> bool:
    """Load the C++ of a folder, after compiling it if this machine has not done so yet.

    The library is kept in a cache folder (``OPENMM_DENSITY_CACHE``, else ``$XDG_CACHE_HOME/openmm-density``, else
    ``~/.cache/openmm-density``) under a name made of the source, the flags, the versions of torch and of the compiler, and the
    processor. A folder in which others can write is not used, nor is a library that others can
    (see `openmm_density.kernels.compilation.cache_folder`). Any number of processes and threads may call at once: one compiles,
    the others wait for it. ``CXX`` names the compiler (else g++, c++, clang++); ``OPENMM_DENSITY_CXXFLAGS`` replaces
    ``-march=native``.

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
        with _locks[folder]:
            outcome = _outcomes.get(folder)
            if outcome is None:
                outcome = _outcomes[folder] = _load(folder)
        if not outcome.loaded:
            warn_once(
                "no compiled kernel",
                f"openmm-density runs without its C++ kernels: {outcome.error}. Plain PyTorch serves, "
                "with the same results but hundreds of times slower. For the fast kernels install a C++ "
                "compiler (Debian and Ubuntu: apt-get install g++; conda: conda install gxx), or name one in "
                "CXX, and start again. `openmm-density doctor` shows what is amiss, and "
                f"openmm_density.kernels.compilation.error_text({folder!r}) the compiler's own words.",
            )
    return outcome.loaded


def load_all(folders: Sequence[str] | None = None) -> bool:
    """Load the C++ of several folders, of all by default; what has to be compiled is, side by side.

    Parameters
    ----------
    folders : sequence of str, optional
        Folders below ``kernels/``.

    Returns
    -------
    bool
        True if all of it serves, see `load`.
    """
    wanted = operator_folders() if folders is None else tuple(folders)
    with ThreadPoolExecutor(max(len(wanted), 1)) as pool:
        return all(list(pool.map(load, wanted)))


def load_ahead(folders: Sequence[str]) -> None:
    """Begin to load the C++ of several folders, in threads of their own: who calls `load` later waits less, or not at all.

    Parameters
    ----------
    folders : sequence of str
        Folders below ``kernels/``, the one that is needed first, or takes longest, before others.
    """

    def load_quietly(folder: str) -> None:
        with suppress(
            RuntimeError
        ):  # of threads and processes that cannot begin any more, as the program ends
            load(folder)

    for folder in folders:
        threading.Thread(target=load_quietly, args=(folder,), name=f"load {folder}", daemon=True).start()


def entry_points(folder: str) -> ctypes.CDLL:
    """Return the library of a folder, whose functions in ``interface.h`` other C++ calls.

    Raises
    ------
    BuildError
        If the C++ does not serve.
    """
    loaded, outcome = load(folder), _outcomes[folder]
    if not loaded:
        raise BuildError(outcome.error or f"the {folder} kernel does not serve", outcome.output)
    return ctypes.CDLL(str(outcome.library))


def outcome_of(folder: str) -> Outcome | None:
    """Return how loading a folder's library ended; None where this process has not tried."""
    return _outcomes.get(folder)


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


def _load(folder: str) -> Outcome:
    cache = cache_folder.usable_folder()[0]
    try:
        found = library(operator_source(folder), lambda path: torch.ops.load_library(str(path)))
    except BuildError as error:
        return Outcome(False, cache, None, str(error), error.output)
    except OSError as error:
        sentence = f"the compiled {folder} kernel cannot be stored or loaded ({error})"
        return Outcome(False, cache, None, sentence, f"{error}\n")
    return Outcome(True, found.parent, found, None, "")
