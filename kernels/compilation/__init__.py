"""Compile C++ for this processor, once per machine: operators, which are also loaded, or other code of the package.

``loading`` loads an operator's library, ``probe`` reports its state without loading it, ``libraries`` finds a library in the
cache or has one process compile it while others wait, ``sources`` defines files and flags, ``compiler`` and
``commands`` run the compiler, and ``cache_folder`` keeps the libraries where nobody else can replace them.
"""

from .commands import BuildError, warn_once
from .libraries import library
from .loading import (
    entry_points,
    error_text,
    kernel_serves,
    kernels_serve,
    load,
    load_ahead,
    load_all,
    load_kernels_ahead,
)
from .probe import Status, status
from .sources import KERNELS, Source, operator_folders

__all__ = [
    "KERNELS",
    "BuildError",
    "Source",
    "Status",
    "entry_points",
    "error_text",
    "kernel_serves",
    "kernels_serve",
    "library",
    "load",
    "load_ahead",
    "load_all",
    "load_kernels_ahead",
    "operator_folders",
    "status",
    "warn_once",
]
