"""The force as Python sees it, and what its C++ calls in Python."""

from __future__ import annotations

import atexit
import ctypes
import functools
import itertools
import os
import signal
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import openmm

from ..errors import DeveloperWarning
from .compiled import compiled_force
from .computation import Computation, evaluate, packed, unpacked
from .recording import RecordedGraph, record
from .slots import Binary, Callbacks

_computations: dict[int, Computation] = {}
_recordings: dict[int, tuple[RecordedGraph, Any]] = {}
_numbers = itertools.count(1)
_loading = threading.Lock()


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
    library = compiled_force()
    for name, *arguments in (
        (
            "add_force",
            ctypes.c_void_p,
            ctypes.c_longlong,
            ctypes.POINTER(ctypes.c_char_p),
            ctypes.POINTER(ctypes.c_double),
            ctypes.c_int,
            ctypes.c_int,
        ),
        ("set_callbacks", ctypes.c_void_p),
        ("set_text", ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p),
        ("succeed", ctypes.c_void_p),
    ):
        function = getattr(library, f"openmm_density_{name}")
        function.argtypes, function.restype = arguments, None
    for name, returned, *arguments in (
        ("n_parameters", ctypes.c_int, ctypes.c_void_p),
        ("parameter_of", ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int),
        ("default_of", ctypes.c_double, ctypes.c_void_p, ctypes.c_int),
    ):
        function = getattr(library, f"openmm_density_{name}")
        function.argtypes, function.restype = arguments, returned
    library.openmm_density_set_callbacks(ctypes.byref(_CALLED))
    # Contexts and forces that outlive Python's own objects must not call them.
    atexit.register(library.openmm_density_set_callbacks, ctypes.byref(Callbacks()))
    return library


class CudaGraphForce(openmm.Force):
    """What Python sees of the force that `make_force` makes."""

    @staticmethod
    def isinstance(force: openmm.Force) -> bool:
        """Return whether a force that a System hands out is of this kind."""
        return bool(_load.cache_info().currsize) and _n_parameters(force) > 0

    @staticmethod
    def cast(force: openmm.Force) -> CudaGraphForce:
        """Return a force that a System hands out, with the methods of its own class."""
        force.__class__ = CudaGraphForce
        return force  # type: ignore[return-value]

    def getNumGlobalParameters(self) -> int:
        """Return how many strengths it has: one for each of its copies."""
        return _n_parameters(self)

    def getGlobalParameterName(self, index: int) -> str:
        """Return the name of a parameter that is a strength."""
        return load().openmm_density_parameter_of(int(self.this), index).decode()

    def getGlobalParameterDefaultValue(self, index: int) -> float:
        """Return what that parameter is in a new Context."""
        return load().openmm_density_default_of(int(self.this), index)


def _n_parameters(force: openmm.Force) -> int:
    return load().openmm_density_n_parameters(int(force.this))


def make_force(
    computation: Computation, parameter_name: str | Sequence[str], strength: float | Sequence[float]
) -> CudaGraphForce:
    """Make the force of an energy module of any kind.

    Parameters
    ----------
    computation : Computation
        The module, and the particles that it takes.
    parameter_name : str, or sequence of str
        The parameter of the Context that is passed to the module as its strength; several where it takes several.
    strength : float, or sequence of float
        Its default, in kJ/mol.

    Raises
    ------
    ImportError, BuildError, OSError
        As `load`.
    """
    library = load()
    names = [parameter_name] if isinstance(parameter_name, str) else list(parameter_name)
    strengths = list(np.atleast_1d(np.asarray(strength, dtype=np.float64)))
    if not len(names) == len(strengths) == computation.n_strengths:
        raise ValueError(
            f"the module takes {computation.n_strengths} strengths, not {len(names)} with {len(strengths)} values"
        )
    number = _keep(computation)
    # OpenMM hands Python a force only from a System. This one passes the force's ownership on, and is never destroyed.
    system = openmm.System()
    library.openmm_density_add_force(
        int(system.this),
        number,
        (ctypes.c_char_p * len(names))(*(name.encode() for name in names)),
        (ctypes.c_double * len(names))(*strengths),
        len(names),
        computation.periodic,
    )
    force = CudaGraphForce.cast(system.getForce(0))
    system.thisown, force.thisown = False, True
    return force


def _keep(computation: Computation) -> int:
    number = next(_numbers)
    _computations[number] = computation
    return number


def _reported(called: Callable[..., str | None]) -> Callable[..., None]:
    """Return a function that writes into C++'s Outcome, its last argument, what the wrapped one returns or why it fails."""

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
                threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
            sentence = str(error) or type(error).__name__
            library.openmm_density_set_text(outcome, 1, sentence.encode(errors="replace"))

    return call


@_reported
def _record(number: int, arrays: Any, recording: Any) -> None:
    recorded, answer = record(_computations[number], arrays[0]), recording[0]
    binaries = (Binary * len(recorded.kernels))(*(Binary(f, i, n.encode()) for f, i, n in recorded.kernels))
    answer.number = next(_numbers)
    answer.graph = recorded.graph.raw_cuda_graph()
    answer.parameters = recorded.parameters.data_ptr()
    answer.binaries = ctypes.cast(binaries, ctypes.POINTER(Binary))
    answer.n_binaries = len(binaries)
    _recordings[answer.number] = recorded, binaries


@_reported
def _evaluate(
    number: int,
    n_particles: int,
    positions: Any,
    parameters: Any,
    n_parameters: int,
    forces: Any,
    energy: Any,
) -> None:
    _warn_of_another_platform()
    shape = n_particles, 3
    energy[0] = evaluate(
        _computations[number],
        np.ctypeslib.as_array(positions, shape),
        np.array(parameters[:n_parameters]),
        np.ctypeslib.as_array(forces, shape),
    )


@functools.cache
def _warn_of_another_platform() -> None:
    warnings.warn(
        "CudaGraphForce is evaluated on the CPU, through Python, in a Context that is not on the CUDA platform (OpenMM's "
        "minimiser makes one when forces are too large for a GPU): for other platforms TorchForce is faster, and on OpenCL the "
        "minimiser hangs with a reporter",
        DeveloperWarning,
        stacklevel=2,
    )


@_reported
def _pack(number: int) -> str:
    return packed(_computations[number])


@_reported
def _unpack(text: bytes, number: Any) -> None:
    number[0] = _keep(unpacked(text.decode()))


_TYPES = dict(Callbacks._fields_)
_CALLED = Callbacks(
    record=_TYPES["record"](_record),
    evaluate=_TYPES["evaluate"](_evaluate),
    pack=_TYPES["pack"](_pack),
    unpack=_TYPES["unpack"](_unpack),
    forget_computation=_TYPES["forget_computation"](lambda number: _computations.pop(number, None) and None),
    forget_recording=_TYPES["forget_recording"](lambda number: _recordings.pop(number, None) and None),
)
