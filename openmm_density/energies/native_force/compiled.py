"""The compiled force, and its part for CUDA, built for the OpenMM that is installed."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import sys
from pathlib import Path

import openmm

from openmm_density.kernels import compilation

from ...base.plugins import platform_names
from .process import has_old_strings, loaded_file

SOURCE = Path(__file__).parent / "force.cpp"
CUDA_SOURCE = SOURCE.with_name("cuda.cpp")
_SHARED = SOURCE.with_name("openmm_force.h")


def compiled_force() -> ctypes.CDLL:
    """Return the library of the force, compiled now if this machine has not done so yet."""
    if "CUDA" not in platform_names():
        # What it calls next, which takes longest: where it has to be compiled, both are at once.
        compilation.load_kernels_ahead(("density",))
    return _opened(force_source())


@functools.cache
def compiled_cuda_part() -> ctypes.CDLL:
    """Return the library that evaluates the force on OpenMM's CUDA platform, as `compiled_force`."""
    return _opened(cuda_source())


def _opened(source: compilation.Source) -> ctypes.CDLL:
    loaded: list[ctypes.CDLL] = []
    compilation.library(source, lambda path: loaded.append(opened_library(path)))
    return loaded[-1]


def force_source() -> compilation.Source:
    """Return the C++ of the force, with what it is compiled with."""
    interfaces = sorted(compilation.KERNELS.glob("*/interface.h"))
    names = (
        "bonded.h",
        "constraints.h",
        "energies.h",
        "energy.h",
        "form.h",
        "mate_contacts.h",
        "nonbonded.h",
        "own_kernels.h",
        "painn.h",
        "symmetry_mates.h",
    )
    own = (SOURCE.with_name(name) for name in names)
    parts = (*own, _SHARED, *interfaces)
    return _source("native-force", "force for OpenMM", SOURCE, parts, "internal/CustomCPPForceImpl.h")


def cuda_source() -> compilation.Source:
    """Return the C++ of what evaluates the force on the CUDA platform, with what it is compiled with."""
    cuda = _cuda_headers()
    version = re.search(r"#define CUDA_VERSION (\d+)", (cuda / "cuda.h").read_text())
    own = "joint_launch.h", "memory_kernels.h", "rebuilt_graph.h", "unlike_chains.h"
    parts = (*map(SOURCE.with_name, own), _SHARED)
    source = _source("cuda-graph-force", "CUDA graph force", CUDA_SOURCE, parts, "cuda/CudaContext.h")
    # Named, it is searched for symbols without being among those of the whole process, where plugins for other platforms, whose
    # classes have the same names, would take them for their own. The loader knows that it has it by its name, from any folder.
    platform = _cuda_platform()
    return source._replace(
        compile_flags=(*source.compile_flags, "-isystem", str(cuda)),
        link_flags=("-Wl,--no-as-needed", str(platform), *source.link_flags, f"-Wl,-rpath,{platform.parent}"),
        versions=(*source.versions, version[1] if version else ""),
    )


def _source(name: str, title: str, file: Path, parts: tuple[Path, ...], header: str) -> compilation.Source:
    include = _libraries().parent / "include"
    if not (include / "openmm" / header).is_file():
        raise compilation.BuildError(
            f"this OpenMM was installed without its C++ headers ({include / 'openmm' / header})"
        )
    old = has_old_strings(_libraries() / "libOpenMM.so")
    flags = (
        *("-std=c++17", "-fvisibility=default", f"-D_GLIBCXX_USE_CXX11_ABI={int(not old)}"),
        *("-isystem", str(include)),
    )
    versions = openmm.version.full_version, openmm.version.git_revision
    libraries = (f"-L{_libraries()}", "-lOpenMM", f"-Wl,-rpath,{_libraries()}")
    return compilation.Source(name, title, file, parts, flags, libraries, versions, native=False)


def _cuda_headers() -> Path:
    """Find CUDA's headers: Triton's wheels bring them, conda has them in packages of their own."""
    import triton

    targets = Path(sys.prefix) / "targets"
    folders = [
        Path(triton.__file__).parent / "backends" / "nvidia" / "include",
        *(Path(root) / "include" for root in [os.environ.get("CUDA_HOME")] if root),
        *(targets / name / "include" for name in ("x86_64-linux", "sbsa-linux")),
        Path(sys.prefix) / "include",
    ]
    for folder in folders:
        if (folder / "cuda.h").is_file():
            return folder
    raise compilation.BuildError(
        "CUDA's header cuda.h is neither in this Triton nor in this environment: install it (conda: cuda-cudart-dev), or name "
        "CUDA's folder in CUDA_HOME"
    )


def opened_library(path: Path) -> ctypes.CDLL:
    """Load a library with all that it needs of others."""
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise compilation.BuildError(f"the compiled force cannot be loaded ({error})") from error


def _cuda_platform() -> Path:
    """Return the library of OpenMM's CUDA platform: the one in the process, wherever that came from."""
    return loaded_file("libOpenMMCUDA.so") or _libraries() / "plugins" / "libOpenMMCUDA.so"


def _libraries() -> Path:
    return Path(openmm.version.openmm_library_path)
