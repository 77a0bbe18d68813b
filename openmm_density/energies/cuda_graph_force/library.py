"""The compiled force: built for the OpenMM that is installed, loaded, and told what to call in Python."""

from __future__ import annotations

import atexit
import base64
import ctypes
import functools
import io
import itertools
import os
import re
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
_PARTICLES, _PERIODIC = "particles", "periodic"

_computations: dict[int, Computation] = {}
_recordings: dict[int, tuple[Recording, Any]] = {}
_numbers = itertools.count(1)
# The text that C++ was given last: it takes its copy before it asks for another.
_given: list[bytes] = []


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


_Text = ctypes.POINTER(ctypes.c_char_p)
_Numbers = ctypes.POINTER(ctypes.c_double)
_CALLBACKS = {
    "record": ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_longlong, ctypes.POINTER(_Arrays), ctypes.POINTER(_Recording), _Text
    ),
    "evaluate": ctypes.CFUNCTYPE(
        *(ctypes.c_int, ctypes.c_longlong, ctypes.c_int, _Numbers, _Numbers, _Numbers, _Numbers, _Text)
    ),
    "pack": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_longlong, _Text, _Text),
    "unpack": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_longlong), _Text),
    "forget_computation": ctypes.CFUNCTYPE(None, ctypes.c_longlong),
    "forget_recording": ctypes.CFUNCTYPE(None, ctypes.c_longlong),
}


class _Callbacks(ctypes.Structure):
    _fields_ = tuple(_CALLBACKS.items())


@functools.cache
def load() -> ctypes.CDLL:
    """Load the force, after compiling it if this machine has not done so yet.

    A System that holds the force can be read from XML from then on.

    Raises
    ------
    ImportError
        If Triton is not installed, whose copy of CUDA's headers is used.
    BuildError
        If the force cannot be compiled.
    OSError
        If it cannot be loaded.
    """
    source = _source()
    # Where there is a GPU they are in the process already, but not where the library would look.
    for name in ("libcuda.so.1", _libraries() / "plugins" / "libOpenMMCUDA.so"):
        with suppress(OSError):
            ctypes.CDLL(str(name), mode=ctypes.RTLD_GLOBAL)
    loaded: list[ctypes.CDLL] = []
    build.library(source, lambda path: loaded.append(_opened(path)))
    library = loaded[-1]
    library.openmm_density_add_force.argtypes = (
        *(ctypes.c_void_p, ctypes.c_longlong, ctypes.c_char_p, ctypes.c_double, ctypes.c_int),
    )
    library.openmm_density_add_force.restype = None
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
        return bool(load.cache_info().currsize) and _parameter_of(force) is not None

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
    import triton

    cuda = Path(triton.__file__).parent / "backends" / "nvidia" / "include"
    include = _libraries().parent / "include"
    if not (include / _HEADER).is_file():
        raise build.BuildError(f"this OpenMM was installed without its C++ headers ({include / _HEADER})")
    flags = ("-std=c++17", "-fvisibility=default", "-isystem", str(include), "-isystem", str(cuda))
    header = (cuda / "cuda.h").read_text()
    cuda_version = re.search(r"#define CUDA_VERSION (\d+)", header)
    versions = openmm.Platform.getOpenMMVersion(), cuda_version[1] if cuda_version else ""
    libraries = (f"-L{_libraries()}", "-lOpenMM", f"-Wl,-rpath,{_libraries()}", "-Wl,-z,lazy")
    return build.Source("CUDA graph force", _SOURCE, (), flags, libraries, versions)


def _opened(path: Path) -> ctypes.CDLL:
    """Load a library without looking for all that it needs: where there is no CUDA, a force can be made, read and written."""
    linker = ctypes.CDLL(None)
    linker.dlopen.restype, linker.dlerror.restype = ctypes.c_void_p, ctypes.c_char_p
    handle = linker.dlopen(str(path).encode(), os.RTLD_LAZY)
    if not handle:
        raise OSError((linker.dlerror() or b"it cannot be loaded").decode())
    return ctypes.CDLL(str(path), handle=handle)


def _libraries() -> Path:
    return Path(openmm.version.openmm_library_path)


def _keep(computation: Computation) -> int:
    number = next(_numbers)
    _computations[number] = computation
    return number


def _reported(called: Callable[..., None]) -> Callable[..., int]:
    """Turn an exception into a sentence for C++, the last argument, and give what C++ expects: 0 for success."""

    @functools.wraps(called)
    def call(*arguments: Any) -> int:
        try:
            called(*arguments[:-1])
        except Exception as error:
            arguments[-1][0] = _held(str(error) or type(error).__name__)
            return 1
        return 0

    return call


def _held(text: str) -> bytes:
    _given[:] = [text.encode()]
    return _given[0]


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
        "minimiser makes one when forces are too large for a GPU): for other platforms TorchForce is faster",
        stacklevel=2,
    )


@_reported
def _pack(number: int, text: Any) -> None:
    text[0] = _held(packed(_computations[number]))


@_reported
def _unpack(text: bytes, number: Any) -> None:
    number[0] = _keep(unpacked(text.decode()))


def packed(computation: Computation) -> str:
    """Write a computation as text."""
    particles = "" if computation.particles is None else " ".join(map(str, computation.particles))
    extra = {_PARTICLES: particles, _PERIODIC: str(int(computation.periodic))}
    if computation.particles is None:
        del extra[_PARTICLES]
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(computation.module), file, _extra_files=extra)
    return base64.b64encode(file.getvalue()).decode()


def unpacked(text: str) -> Computation:
    """Read a computation from text."""
    found = {_PARTICLES: "", _PERIODIC: ""}
    file = io.BytesIO(base64.b64decode(text))
    module = torch.jit.load(file, map_location="cpu", _extra_files=found)
    particles = found[_PARTICLES].decode() if isinstance(found[_PARTICLES], bytes) else found[_PARTICLES]
    return Computation(
        module,
        np.array(particles.split(), dtype=np.int64) if particles else None,
        bool(int(found[_PERIODIC])),
    )


_CALLED = _Callbacks(
    _CALLBACKS["record"](_record),
    _CALLBACKS["evaluate"](_evaluate),
    _CALLBACKS["pack"](_pack),
    _CALLBACKS["unpack"](_unpack),
    _CALLBACKS["forget_computation"](lambda number: _computations.pop(number, None) and None),
    _CALLBACKS["forget_recording"](lambda number: _recordings.pop(number, None) and None),
)
