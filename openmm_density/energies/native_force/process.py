"""What the process knows and no library tells: found by means that are not documented, and so all of them here.

- Triton keeps the kernels that it has loaded in caches that change with its version, and has no list of them. The graph is
  rebuilt in OpenMM's CUDA context, where their code has to be loaded once more: the garbage collector knows them all.
- OpenMM does not say from which file its CUDA platform was loaded, which may be another than that of its installation (a user's
  plugin folder). Our library links with it at run time, and a second copy would have other contexts: the kernel's list of the
  process's memory maps names the file.
- OpenMM does not say which of GCC's two C++ libraries it was compiled for, which decides how strings are passed to it: the
  decorated name of a function that takes one shows it.
"""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class LoadedKernel(NamedTuple):
    """A kernel that Triton has loaded: the CUDA driver's handle, the code, and the name of the kernel therein."""

    function: int
    image: bytes
    name: str


def kernels_of_triton() -> list[LoadedKernel]:
    """Return the kernels that Triton has loaded."""
    from triton.compiler import CompiledKernel

    # An object refers to its class: this looks at all objects in a fraction of the time that a list of them takes. By type():
    # isinstance would wake up lazy objects of others.
    kernels = [found for found in gc.get_referrers(CompiledKernel) if type(found) is CompiledKernel]
    return [
        LoadedKernel(int(kernel.function), kernel.asm["cubin"], kernel.name)
        for kernel in kernels
        if getattr(kernel, "function", None)
    ]


def loaded_file(name: str) -> Path | None:
    """Return the file of a library that the process has loaded, by its name without folders; None where it has not."""
    with suppress(OSError):
        for line in Path("/proc/self/maps").read_text().splitlines():
            if line.endswith(f"/{name}"):
                return Path(line.split(maxsplit=5)[-1])
    return None


def has_old_strings(openmm_library: Path) -> bool:
    """Return whether OpenMM was compiled for the older of GCC's C++ libraries, as the wheels of OpenMM 8.2 and 8.3 are."""
    return hasattr(ctypes.CDLL(str(openmm_library)), "_ZN6OpenMM8Platform17getPlatformByNameERKSs")
