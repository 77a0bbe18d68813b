"""The compiled force: built for the OpenMM that is installed, loaded, and told what to call in Python."""

from __future__ import annotations

import _thread
import atexit
import base64
import ctypes
import functools
import io
import itertools
import json
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import openmm
import torch

from ...kernels import build
from .recording import N_PARAMETERS, Computation, OpenMMArrays, Recording, evaluate, record

_SOURCE = Path(__file__).parent / "force.cpp"
_HEADER = "openmm/cuda/CudaContext.h"
_EXTRA = "computation.json"

_computations: dict[int, Computation] = {}
_recordings: dict[int, tuple[Recording, Any]] = {}
_numbers = itertools.count(1)
_loading = threading.Lock()


class _Arrays(ctypes.Structure):
    _fields_ = (
        ("device", ctypes.c_int),
        ("n_particles", ctypes.c_int),
        ("n_padded", ctypes.c_int),
        ("position_word", ctypes.c_int),
        ("energy_word", ctypes.c_int),
        ("positions", ctypes.c_ulonglong),
        ("particle_of_slot", ctypes.c_ulonglong),
        ("forces", ctypes.c_ulonglong),
        ("energy", ctypes.c_ulonglong),
        ("parameters", ctypes.POINTER(ctypes.c_double)),
    )


class _Binary(ctypes.Structure):
    _fields_ = (("function", ctypes.c_void_p), ("image", ctypes.c_char_p), ("name", ctypes.c_char_p))


class _Recording(ctypes.Structure):
    _fields_ = (
        ("number", ctypes.c_longlong),
        ("graph", ctypes.c_void_p),
        ("parameters", ctypes.c_ulonglong),
        ("binaries", ctypes.POINTER(_Binary)),
        ("n_binaries", ctypes.c_int),
    )


_Numbers = ctypes.POINTER(ctypes.c_double)
_Integer = ctypes.c_longlong
# The last argument of those that can fail is C++'s Outcome.
_CALLBACKS = {
    "record": ctypes.CFUNCTYPE(
        None, _Integer, ctypes.POINTER(_Arrays), ctypes.POINTER(_Recording), ctypes.c_void_p
    ),
    "evaluate": ctypes.CFUNCTYPE(
        None, _Integer, ctypes.c_int, _Numbers, _Numbers, _Numbers, _Numbers, ctypes.c_void_p
    ),
    "pack": ctypes.CFUNCTYPE(None, _Integer, ctypes.c_void_p),
    "unpack": ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.POINTER(_Integer), ctypes.c_void_p),
    "forget_computation": ctypes.CFUNCTYPE(None, _Integer),
    "forget_recording": ctypes.CFUNCTYPE(None, _Integer),
}


class _Callbacks(ctypes.Structure):
    _fields_ = tuple(_CALLBACKS.items())


def load() -> ctypes.CDLL:
    """Load the force, after compiling it if this machine has not done so yet.

    A System that holds the force can be read from XML from then on.

    Raises
    ------
    ImportError
        If Triton is not installed.
    BuildError
        If the force cannot be compiled or loaded.
    OSError
        If it cannot be stored.
    """
    with _loading:
        return _load()


@functools.cache
def _load() -> ctypes.CDLL:
    loaded: list[ctypes.CDLL] = []
    build.library(_source(), lambda path: loaded.append(_opened(path)))
    library = loaded[-1]
    for name, *arguments in (
        ("add_force", ctypes.c_void_p, _Integer, ctypes.c_char_p, ctypes.c_double, ctypes.c_int),
        ("set_callbacks", ctypes.c_void_p),
        ("set_text", ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p),
        ("succeed", ctypes.c_void_p),
    ):
        function = getattr(library, f"openmm_density_{name}")
        function.argtypes, function.restype = arguments, None
    library.openmm_density_parameter_of.argtypes = (ctypes.c_void_p,)
    library.openmm_density_parameter_of.restype = ctypes.c_char_p
    library.openmm_density_set_callbacks(ctypes.byref(_CALLED))
    # Contexts and forces that outlive Python's own objects must not call them.
    atexit.register(library.openmm_density_set_callbacks, ctypes.byref(_Callbacks()))
    return library


class CudaGraphForce(openmm.Force):
    """What Python sees of the force that `make_force` makes."""

    @staticmethod
    def isinstance(force: openmm.Force) -> bool:
        """Tell whether a force that a System hands out is of this kind."""
        return bool(_load.cache_info().currsize) and _parameter_of(force) is not None

    @staticmethod
    def cast(force: openmm.Force) -> CudaGraphForce:
        """Give a force that a System hands out the methods of its own class."""
        force.__class__ = CudaGraphForce
        return force  # type: ignore[return-value]

    def getNumGlobalParameters(self) -> int:
        """Give 1: the strength."""
        return 1

    def getGlobalParameterName(self, index: int) -> str:
        """Give the name of the parameter that is the strength."""
        return _parameter_of(self).decode()


def _parameter_of(force: openmm.Force) -> bytes | None:
    return load().openmm_density_parameter_of(int(force.this))


def make_force(computation: Computation, parameter_name: str, strength: float) -> CudaGraphForce:
    """Make the force of a computation, with its strength's parameter and default in kJ/mol."""
    library = load()
    number = _keep(computation)
    # Python knows OpenMM's forces only as what a System holds. This one gives its force away, and is never taken down.
    system = openmm.System()
    library.openmm_density_add_force(
        int(system.this), number, parameter_name.encode(), strength, computation.periodic
    )
    force = CudaGraphForce.cast(system.getForce(0))
    system.thisown, force.thisown = False, True
    return force


def _source() -> build.Source:
    include, cuda = _libraries().parent / "include", _cuda_headers()
    if not (include / _HEADER).is_file():
        raise build.BuildError(f"this OpenMM was installed without its C++ headers ({include / _HEADER})")
    openmm_library = _libraries() / "libOpenMM.so"
    # The wheels of OpenMM 8.2 and 8.3 are of the older of the two C++ libraries of GCC.
    old = hasattr(ctypes.CDLL(str(openmm_library)), "_ZN6OpenMM8Platform17getPlatformByNameERKSs")
    flags = (
        *("-std=c++17", "-fvisibility=default", f"-D_GLIBCXX_USE_CXX11_ABI={int(not old)}"),
        *("-isystem", str(include), "-isystem", str(cuda)),
    )
    cuda_version = re.search(r"#define CUDA_VERSION (\d+)", (cuda / "cuda.h").read_text())
    versions = (
        openmm.version.full_version,
        openmm.version.git_revision,
        cuda_version[1] if cuda_version else "",
    )
    libraries = (f"-L{_libraries()}", "-lOpenMM", f"-Wl,-rpath,{_libraries()}")
    return build.Source(
        "cuda-graph-force", "CUDA graph force", _SOURCE, (), flags, libraries, versions, native=False
    )


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
    raise build.BuildError(
        "CUDA's header cuda.h is neither in this Triton nor in this environment: install it (conda: cuda-cudart-dev), or name "
        "CUDA's folder in CUDA_HOME"
    )


def _opened(path: Path) -> ctypes.CDLL:
    """Load the library, which finds what it needs of CUDA in the process.

    Where OpenMM has no CUDA platform this is not looked for: a force can be made, read and written there.
    """
    names = [openmm.Platform.getPlatform(i).getName() for i in range(openmm.Platform.getNumPlatforms())]
    resolve = os.RTLD_NOW if "CUDA" in names else os.RTLD_LAZY
    for name in ("libcuda.so.1", _cuda_platform()):
        with suppress(OSError):
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    linker = ctypes.CDLL(None)
    linker.dlopen.argtypes = ctypes.c_char_p, ctypes.c_int
    linker.dlopen.restype, linker.dlerror.restype = ctypes.c_void_p, ctypes.c_char_p
    handle = linker.dlopen(os.fsencode(path), resolve)
    if not handle:
        reason = (linker.dlerror() or b"the loader does not say why").decode(errors="replace")
        raise build.BuildError(f"the compiled force cannot be loaded ({reason})")
    return ctypes.CDLL(str(path), handle=handle)


def _cuda_platform() -> str:
    """Give the library of OpenMM's CUDA platform: the one in the process, wherever that came from."""
    with suppress(OSError):
        for line in Path("/proc/self/maps").read_text().splitlines():
            if line.endswith("/libOpenMMCUDA.so"):
                return line.split(maxsplit=5)[-1]
    return str(_libraries() / "plugins" / "libOpenMMCUDA.so")


def _libraries() -> Path:
    return Path(openmm.version.openmm_library_path)


def _keep(computation: Computation) -> int:
    number = next(_numbers)
    _computations[number] = computation
    return number


def _reported(called: Callable[..., str | None]) -> Callable[..., None]:
    """Tell C++ in its Outcome, the last argument, what a function gives, or why it fails."""

    @functools.wraps(called)
    def call(*arguments: Any) -> None:
        *arguments, outcome = arguments
        library = _load()
        try:
            text = called(*arguments)
            if text is not None:
                library.openmm_density_set_text(outcome, 0, text.encode())
            library.openmm_density_succeed(outcome)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                # Raised here it would be lost; a moment later OpenMM has returned.
                threading.Timer(0.05, _thread.interrupt_main).start()
            sentence = str(error) or type(error).__name__
            library.openmm_density_set_text(outcome, 1, sentence.encode(errors="replace"))

    return call


@_reported
def _record(number: int, arrays: Any, recording: Any) -> None:
    given, answer = arrays[0], recording[0]
    names = OpenMMArrays._fields
    parameters = np.array(given.parameters[:N_PARAMETERS])
    recorded = record(
        _computations[number], OpenMMArrays(*(getattr(given, name) for name in names)), parameters
    )
    binaries = (_Binary * len(recorded.binaries))(
        *(_Binary(f, i, n.encode()) for f, i, n in recorded.binaries)
    )
    answer.number = next(_numbers)
    answer.graph = recorded.graph.raw_cuda_graph()
    answer.parameters = recorded.parameters.data_ptr()
    answer.binaries = ctypes.cast(binaries, ctypes.POINTER(_Binary))
    answer.n_binaries = len(binaries)
    _recordings[answer.number] = recorded, binaries


@_reported
def _evaluate(
    number: int, n_particles: int, positions: Any, parameters: Any, forces: Any, energy: Any
) -> None:
    _warn_of_another_platform()
    shape = n_particles, 3
    energy[0] = evaluate(
        _computations[number],
        np.ctypeslib.as_array(positions, shape),
        np.array(parameters[:N_PARAMETERS]),
        np.ctypeslib.as_array(forces, shape),
    )


@functools.cache
def _warn_of_another_platform() -> None:
    warnings.warn(
        "CudaGraphForce is evaluated on the CPU, through Python, in a Context that is not on the CUDA platform (OpenMM's "
        "minimiser makes one when forces are too large for a GPU): for other platforms TorchForce is faster, and on OpenCL the "
        "minimiser hangs with a reporter",
        stacklevel=2,
    )


@_reported
def _pack(number: int) -> str:
    return packed(_computations[number])


@_reported
def _unpack(text: bytes, number: Any) -> None:
    number[0] = _keep(unpacked(text.decode()))


def packed(computation: Computation) -> str:
    """Write a computation as text."""
    particles = None if computation.particles is None else [int(i) for i in computation.particles]
    extra = {_EXTRA: json.dumps({"particles": particles, "periodic": computation.periodic})}
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(computation.module), file, _extra_files=extra)
    return base64.b64encode(file.getvalue()).decode()


def unpacked(text: str) -> Computation:
    """Read a computation from text."""
    found = {_EXTRA: ""}
    module = torch.jit.load(
        io.BytesIO(base64.b64decode(text, validate=True)), map_location="cpu", _extra_files=found
    )
    extra = json.loads(found[_EXTRA])
    particles = None if extra["particles"] is None else np.array(extra["particles"], dtype=np.int64)
    return Computation(module, particles, extra["periodic"])


_CALLED = _Callbacks(
    _CALLBACKS["record"](_record),
    _CALLBACKS["evaluate"](_evaluate),
    _CALLBACKS["pack"](_pack),
    _CALLBACKS["unpack"](_unpack),
    _CALLBACKS["forget_computation"](lambda number: _computations.pop(number, None) and None),
    _CALLBACKS["forget_recording"](lambda number: _recordings.pop(number, None) and None),
)
