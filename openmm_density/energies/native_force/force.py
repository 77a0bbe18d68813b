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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import openmm
import torch

from openmm_density.kernels import compilation

from ...base.errors import DeveloperWarning
from ...base.units import takes_units
from . import forms
from .compiled import compiled_cuda_part, compiled_force
from .computation import (
    Computation,
    as_text,
    check_evaluates,
    check_forward,
    evaluate,
    from_text,
    indices_of,
)
from .recording import RecordedGraph, record
from .slots import Binary, Callbacks

_computations: dict[int, Computation] = {}
_recordings: dict[int, tuple[RecordedGraph, Any]] = {}
_beginnings: dict[int, Callable[[bool, list[str]], None]] = {}
_numbers = itertools.count(1)
_loading = threading.Lock()

_Text, _Pointer, _Integer = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int
_Long, _Number = ctypes.c_longlong, ctypes.c_double
# What the functions of force.cpp return and take.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "add_force": (
        *(None, _Pointer, _Text, _Long, _Pointer, ctypes.POINTER(_Text), ctypes.POINTER(_Number)),
        *(ctypes.POINTER(_Integer), _Integer, _Integer),
    ),
    "set_callbacks": (None, _Pointer),
    "set_text": (None, _Pointer, _Integer, _Text),
    "succeed": (None, _Pointer),
    "new_form": (_Pointer, _Text, _Pointer),
    "set_number": (None, _Pointer, _Text, _Number),
    "set_array": (None, _Pointer, _Text, _Text, _Pointer, _Long, ctypes.POINTER(_Long), _Integer),
    "set_part": (None, _Pointer, _Text, _Pointer),
    "delete_form": (None, _Pointer),
    "new_energy": (_Pointer, _Pointer, _Integer, _Text, _Integer),
    "delete_energy": (None, _Pointer),
    "exchange_kernels": (None, ctypes.POINTER(_Pointer)),
    "release_constraints": (_Pointer, _Pointer),
    "restore_constraints": (None, _Pointer, _Pointer),
    "kind_of": (_Text, _Pointer),
    "computation_of": (_Long, _Pointer),
    "has_energy": (_Integer, _Pointer),
    "n_parameters": (_Integer, _Pointer),
    "parameter_of": (_Text, _Pointer, _Integer),
    "default_of": (_Number, _Pointer, _Integer),
    "is_differentiated": (_Integer, _Pointer, _Integer),
}


def load_force() -> ctypes.CDLL:
    """Load the force, after compiling it if this machine has not done so yet.

    A System that holds the force can be read from XML from then on.

    Raises
    ------
    BuildError
        If the force cannot be compiled or loaded.
    OSError
        If it cannot be stored.
    """
    with _loading:
        return _load()


def load_force_ahead() -> None:
    """Begin to load the force, in a thread of its own: who calls `load_force` later waits less, and is told what went wrong."""

    def load_quietly() -> None:
        # RuntimeError: of threads and processes that cannot begin any more, as the program ends.
        with suppress(compilation.BuildError, OSError, RuntimeError):
            load_force()

    threading.Thread(target=load_quietly, name="load the force", daemon=True).start()


def _renew_lock() -> None:
    global _loading
    _loading = threading.Lock()


# A child forked while another thread loads would otherwise wait for a thread that it does not have.
os.register_at_fork(after_in_child=_renew_lock)


@functools.cache
def _load() -> ctypes.CDLL:
    library = compiled_force()
    for name, (returned, *arguments) in _FUNCTIONS.items():
        function = getattr(library, f"openmm_density_{name}")
        function.argtypes, function.restype = arguments, returned
    library.openmm_density_set_callbacks(ctypes.byref(_CALLED))
    # Contexts and forces that outlive Python's own objects must not call them.
    atexit.register(library.openmm_density_set_callbacks, ctypes.byref(Callbacks()))
    return library


class NativeForce(openmm.Force):
    """What Python sees of a force that `make_force` makes."""

    _kinds = ("NativeForce", "CudaGraphForce")

    @classmethod
    def isinstance(cls, force: openmm.Force) -> bool:
        """Return whether a force that a System hands out is of this kind."""
        if not _load.cache_info().currsize:
            return False
        return load_force().openmm_density_kind_of(int(force.this)).decode() in cls._kinds

    @staticmethod
    def cast(force: openmm.Force) -> NativeForce:
        """Return a force that a System hands out, with the methods of its own class.

        Raises
        ------
        TypeError
            If it is another kind of force.
        """
        kind = load_force().openmm_density_kind_of(int(force.this)).decode()
        if kind not in NativeForce._kinds:
            raise TypeError(
                f"{force.getName()} is a force of OpenMM's or another plugin's, not a NativeForce"
            )
        force.__class__ = CudaGraphForce if kind == "CudaGraphForce" else NativeForce
        return force  # type: ignore[return-value]

    def isEvaluatedNatively(self) -> bool:
        """Return whether kernels in C++ evaluate it on platforms other than CUDA, and not Python."""
        return bool(load_force().openmm_density_has_energy(int(self.this)))

    def whenContextBegins(self, call: Callable[[bool, list[str]], None]) -> None:
        """Have a function called by each new Context with whether its System is periodic, and the names of its forces."""
        _beginnings[load_force().openmm_density_computation_of(int(self.this))] = call

    def getNumGlobalParameters(self) -> int:
        """Return how many Context parameters it has."""
        return load_force().openmm_density_n_parameters(int(self.this))

    def getGlobalParameterName(self, index: int) -> str:
        """Return the name of a parameter."""
        return load_force().openmm_density_parameter_of(int(self.this), self._checked(index)).decode()

    def getGlobalParameterDefaultValue(self, index: int) -> float:
        """Return what that parameter is in a new Context."""
        return load_force().openmm_density_default_of(int(self.this), self._checked(index))

    def getNumEnergyParameterDerivatives(self) -> int:
        """Return with respect to how many parameters a State can give the energy's derivative."""
        return len(self._differentiated())

    def getEnergyParameterDerivativeName(self, index: int) -> str:
        """Return the name of one of these parameters."""
        return self._differentiated()[index]

    def _differentiated(self) -> list[str]:
        library = load_force()
        return [
            self.getGlobalParameterName(i)
            for i in range(self.getNumGlobalParameters())
            if library.openmm_density_is_differentiated(int(self.this), i)
        ]

    def _checked(self, index: int) -> int:
        if not 0 <= index < self.getNumGlobalParameters():
            raise IndexError(
                f"the force has {self.getNumGlobalParameters()} parameters, and none of number {index}"
            )
        return index


class CudaGraphForce(NativeForce):
    """Any torch module as a force, recorded as a CUDA graph and launched in OpenMM's own stream.

    On the CUDA platform an evaluation runs no Python, copies nothing to the CPU and waits for nothing. On other platforms the
    module is evaluated on the CPU, through Python.

    Parameters
    ----------
    module : torch.nn.Module
        ``module(positions, [box,] *parameters)`` returns the energy in kJ/mol, a tensor of one number, from which autograd finds
        the forces; or the energy and the forces in kJ/mol/nm, shape (n, 3). ``positions`` are float32 of shape (n, 3) in nm,
        ``box`` float32 of shape (3, 3) with the box vectors in rows, and each parameter is a float32 tensor of one number.
        A copy of the module is moved to OpenMM's GPU and set to ``eval()``. What it does there is recorded once, after three
        evaluations: every later one repeats it, with other positions, box and parameters.
    parameters : mapping of str to float, optional
        Context parameters that the module takes, in this order, with their defaults.
    particles : array_like of int, optional
        The particles whose positions the module takes, and on which its forces act; all by default.
    periodic : bool
        Whether the module takes box vectors.
    parameter_derivatives : sequence of str
        Those of the parameters of which a State can give the energy's derivative; autograd finds it.

    Raises
    ------
    ValueError, TypeError
        If an argument cannot be used, saying why.
    BuildError, OSError
        As `load_force`.
    """

    _kinds = ("CudaGraphForce",)

    def __init__(
        self,
        module: torch.nn.Module,
        parameters: Mapping[str, float] | None = None,
        *,
        particles: Sequence[int] | np.ndarray | None = None,
        periodic: bool = False,
        parameter_derivatives: Sequence[str] = (),
    ) -> None:
        parameters = dict(parameters or {})
        if not isinstance(module, torch.nn.Module):
            raise TypeError(
                f"module must be a torch.nn.Module, not {type(module).__name__}: wrap a function in one"
            )
        unknown = set(parameter_derivatives) - parameters.keys()
        if unknown:
            raise ValueError(
                f"parameter_derivatives names {', '.join(sorted(unknown))}, not among the parameters"
            )
        computation = Computation(module, indices_of(particles), periodic, len(parameters), foreign=True)
        check_forward(computation)
        made = make_force(
            computation,
            list(parameters),
            list(parameters.values()),
            [name in parameter_derivatives for name in parameters],
        )
        self.this = made.this


@takes_units(strength="kJ/mol")
def make_force(
    computation: Computation,
    parameter_name: str | Sequence[str],
    strength: float | Sequence[float],
    derivatives: bool | Sequence[bool] = False,
    *,
    kind: str = "CudaGraphForce",
) -> NativeForce:
    """Make the force of an energy module of any kind.

    Where C++ knows the module (`openmm_density.energies.native_force.forms`), its kernels evaluate it on CPUs.

    Parameters
    ----------
    computation : Computation
        The module, and the particles that it takes.
    parameter_name : str, or sequence of str
        The parameter of the Context that is passed to the module as its strength; several where it takes several.
    strength : float, or sequence of float
        Its default, in kJ/mol.
    derivatives : bool, or sequence of bool
        Whether a State can give the energy's derivative with respect to each.
    kind : {"NativeForce", "CudaGraphForce"}
        What the force is called, here and in files. Without the kernels of C++ only a ``CudaGraphForce`` can be made.

    Raises
    ------
    ValueError
        If the parameters are not as many as the strengths, or one of them is named twice.
    BuildError, OSError
        As `load_force`; for a ``NativeForce`` also if a kernel of its energy cannot be compiled or loaded.
    """
    library = load_force()
    names = [parameter_name] if isinstance(parameter_name, str) else list(parameter_name)
    strengths = list(np.atleast_1d(np.asarray(strength, dtype=np.float64)))
    asked = [derivatives] * len(names) if isinstance(derivatives, bool) else list(derivatives)
    if not len(names) == len(strengths) == len(asked) == computation.n_strengths:
        raise ValueError(
            f"the module takes {computation.n_strengths} strengths, not {len(names)} with {len(strengths)} values"
        )
    if len(set(names)) != len(names):
        raise ValueError(f"a parameter is named twice among {', '.join(names)}")
    arguments = (
        (_Text * len(names))(*(name.encode() for name in names)),
        (_Number * len(names))(*strengths),
        (_Integer * len(names))(*asked),
        len(names),
        computation.periodic,
    )
    energy = _native_energy(computation, kind)
    # OpenMM hands Python a force only from a System. This one passes the force's ownership on, and is never destroyed.
    system = openmm.System()
    library.openmm_density_add_force(int(system.this), kind.encode(), _keep(computation), energy, *arguments)
    library.openmm_density_delete_energy(energy)
    force = NativeForce.cast(system.getForce(0))
    system.thisown, force.thisown = False, True
    return force


def _native_energy(computation: Computation, kind: str) -> int | None:
    """Return the address of a computation's energy in C++; None where only the module can evaluate it."""
    form = None if computation.foreign else forms.form_of(computation.module)
    if form is None:
        return None
    if computation.particles is not None:
        form = forms.of_particles(form, computation.particles)
    library = _load()
    try:
        made = forms.native_form(library, form)
    except compilation.BuildError:
        if kind == "NativeForce":
            raise
        return None
    problem = ctypes.create_string_buffer(500)
    energy = library.openmm_density_new_energy(made, computation.n_strengths, problem, len(problem))
    if not energy:
        raise ValueError(problem.value.decode(errors="replace"))
    return energy


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
    derivatives: Any,
) -> None:
    _warn_of_another_platform()
    shape = n_particles, 3
    computation = _computations[number]
    energy[0] = evaluate(
        computation,
        np.ctypeslib.as_array(positions, shape),
        np.array(parameters[:n_parameters]),
        np.ctypeslib.as_array(forces, shape),
        np.ctypeslib.as_array(derivatives, (computation.n_strengths,)) if derivatives else None,
    )


@functools.cache
def _warn_of_another_platform() -> None:
    warnings.warn(
        "a module that is none of this package's is evaluated on the CPU, through Python, in a Context that is not on the CUDA "
        "platform (OpenMM's minimiser makes one when forces are too large for a GPU): for other platforms TorchForce is faster, "
        "and on OpenCL the minimiser hangs with a reporter",
        DeveloperWarning,
        stacklevel=2,
    )


@_reported
def _pack(number: int) -> str:
    return as_text(_computations[number])


@_reported
def _unpack(kind: bytes, text: bytes, n_parameters: int, number: Any, energy: Any) -> None:
    computation = from_text(text.decode())
    if computation.n_strengths != n_parameters:
        raise ValueError(
            f"the energy in the file is damaged (it takes {computation.n_strengths} strengths, but the force has {n_parameters})"
        )
    if forms.form_of(computation.module) is not None:
        check_evaluates(computation)
    energy[0] = _native_energy(computation, kind.decode())
    number[0] = _keep(computation)


@_reported
def _begin(number: int, periodic: int, forces: bytes) -> None:
    if number in _beginnings:
        _beginnings[number](bool(periodic), forces.decode().splitlines())


def _forget(number: int) -> None:
    _computations.pop(number, None)
    _beginnings.pop(number, None)


@_reported
def _on_cuda(function: Any) -> None:
    function[0] = ctypes.cast(compiled_cuda_part().openmm_density_on_cuda, _Pointer).value


_TYPES = dict(Callbacks._fields_)
_CALLED = Callbacks(
    record=_TYPES["record"](_record),
    evaluate=_TYPES["evaluate"](_evaluate),
    pack=_TYPES["pack"](_pack),
    unpack=_TYPES["unpack"](_unpack),
    on_cuda=_TYPES["on_cuda"](_on_cuda),
    begin=_TYPES["begin"](_begin),
    forget_computation=_TYPES["forget_computation"](_forget),
    forget_recording=_TYPES["forget_recording"](lambda number: _recordings.pop(number, None) and None),
)
