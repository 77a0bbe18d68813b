"""The files to compile, and their flags."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

import torch

from .commands import BuildError

KERNELS = Path(__file__).resolve().parents[1]


class Source(NamedTuple):
    """The C++ of one library, and its flags."""

    name: str  # `name`, `title`: its library's name in the cache, and its name in messages.
    title: str
    file: Path
    headers: tuple[Path, ...] = ()  # Files of ours that it includes
    compile_flags: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()  # Of packages whose headers it includes: it works with these only
    # Whether it uses this processor's vector instructions and threads; else it works on other processors too
    native: bool = True
    parts: tuple[Path, ...] = ()  # Files that are compiled beside it, each on its own, and linked with it

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that are compiled."""
        return (self.file, *self.parts)


def operator_folders() -> tuple[str, ...]:
    """Return the folders below ``kernels/`` that hold operators, in alphabetical order: those with a ``cpu.cpp``."""
    return tuple(sorted(source.parent.name for source in KERNELS.glob("*/cpu.cpp")))


def kernel_folders() -> tuple[str, ...]:
    """Return the folders below ``kernels/`` with a kernel on plain memory, ``interface.cpp``, in alphabetical order."""
    return tuple(sorted(source.parent.name for source in KERNELS.glob("*/interface.cpp")))


def operator_source(folder: str) -> Source:
    """Return the C++ that registers a folder's operators with torch, ``cpu.cpp``."""
    title = f"{folder} {'operators' if has_kernel(folder) else 'kernel'}"
    file, versions = _file(folder, "cpu.cpp"), (torch.__version__,)
    return Source(folder, title, file, _headers(folder), _torch_headers(), _torch_libraries(), versions)


def kernel_source(folder: str) -> Source:
    """Return a folder's C++ without ``cpu.cpp``: a force of OpenMM need not wait for torch's headers, slower than any kernel."""
    file = _file(folder, "interface.cpp")
    parts = tuple(path for path in _plain_files(folder) if path != file)
    versions, flags = (torch.__version__,), ("-std=c++17",)
    headers, libraries = _headers(folder), _torch_libraries()
    title = f"{folder} kernel"
    return Source(f"{folder}-kernel", title, file, headers, flags, libraries, versions, parts=parts)


def calls_kernel(folder: str) -> bool:
    """Return whether a folder's operators call its kernel's library, as they need more than ``cpu.cpp``."""
    return len(_plain_files(folder)) > 1


def _file(folder: str, name: str) -> Path:
    file = KERNELS / folder / name
    if not file.is_file():
        raise BuildError(f"the installation has no file {folder}/{name}")
    return file


def _headers(folder: str) -> tuple[Path, ...]:
    return (*sorted(KERNELS.glob("*.h")), *sorted((KERNELS / folder).glob("*.h")))


def has_kernel(folder: str) -> bool:
    """Return whether a folder has a kernel that other C++ can call."""
    return (KERNELS / folder / "interface.cpp").is_file()


def _plain_files(folder: str) -> tuple[Path, ...]:
    return tuple(sorted(path for path in (KERNELS / folder).glob("*.cpp") if path.name != "cpu.cpp"))


@functools.cache
def _torch_headers() -> tuple[str, ...]:
    """Return the flags for torch's headers."""
    include = _torch_root() / "include"
    try:
        # It names the standard that it needs: C++17 up to torch 2.13, C++20 from 2.14.
        header = (include / "ATen" / "ATen.h").read_text()
    except OSError as error:
        raise BuildError(f"this torch was installed without its C++ headers ({error})") from error
    standard = "c++20" if "202002L" in header else "c++17"
    return (
        f"-std={standard}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *("-isystem", str(include)),
        *("-isystem", str(include / "torch" / "csrc" / "api" / "include")),
    )


@functools.cache
def _torch_libraries() -> tuple[str, ...]:
    """Return the flags for torch's libraries, which say how many threads there are."""
    root = _torch_root()
    # Named before the compiler's own OpenMP library, torch's copy resolves every symbol: one thread pool.
    openmp = sorted([*root.glob("lib/libgomp*.so*"), *root.parent.glob("torch.libs/libgomp*.so*")])[:1]
    return ("-Wl,--as-needed", *map(str, openmp), f"-L{root / 'lib'}", "-lc10", "-ltorch_cpu")


def _torch_root() -> Path:
    return Path(torch.__file__).resolve().parent
