"""What is compiled, with which flags."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

import torch

from .problems import BuildError

KERNELS = Path(__file__).resolve().parents[1]


class Source(NamedTuple):
    """The C++ of one library, and what it is compiled with.

    Attributes
    ----------
    name, title : str
        What its library is called in the cache, and what it is called in messages.
    file : pathlib.Path
    headers : tuple of pathlib.Path
        Files of ours that it includes.
    parts : tuple of pathlib.Path
        Files that are compiled beside it, each on its own, and linked with it.
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
    parts: tuple[Path, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that are compiled."""
        return (self.file, *self.parts)


def operator_folders() -> tuple[str, ...]:
    """Return the folders below ``kernels/`` that hold operators, in alphabetical order: those with a ``cpu.cpp``."""
    return tuple(sorted(source.parent.name for source in KERNELS.glob("*/cpu.cpp")))


def operator_source(folder: str) -> Source:
    """Return the C++ of an operator's folder: ``cpu.cpp``, and beside it whatever else ends in ``.cpp``.

    Raises
    ------
    BuildError
        If the file or torch's headers are missing.
    """
    file = KERNELS / folder / "cpu.cpp"
    if not file.is_file():
        raise BuildError(f"the installation has no file {folder}/cpu.cpp")
    headers = (*sorted(KERNELS.glob("*.h")), *sorted((KERNELS / folder).glob("*.h")))
    parts = tuple(sorted(path for path in (KERNELS / folder).glob("*.cpp") if path != file))
    compile_flags, link_flags = _torch_flags()
    versions = (torch.__version__,)
    return Source(folder, f"{folder} kernel", file, headers, compile_flags, link_flags, versions, parts=parts)


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
