"""The energies of this package as numbers and tensors: what C++ evaluates, and what files hold, in place of torch modules.

A `Form` is a module's class with its buffers and parameters, its plain attributes and the forms of its children. Classes that
C++ knows (``energies.h``, ``painn.h``) are those that are `evaluated_natively`.
"""

from __future__ import annotations

import ctypes
import json
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from openmm_density.kernels import compilation

_Module = TypeVar("_Module", bound=type[torch.nn.Module])
_LIST, _WEIGHTS = "ModuleList", "ParameterList"
# Around an energy, only in C++.
_OF_PARTICLES = "OfParticles"

_kernels: dict[str, tuple[str, str] | None] = {_LIST: None, _WEIGHTS: None, _OF_PARTICLES: None}
_classes: dict[str, type[torch.nn.Module]] = {
    _LIST: torch.nn.ModuleList,
    _WEIGHTS: torch.nn.ParameterList,
}


class Form(NamedTuple):
    """A module as data."""

    kind: str  # The name of its class
    numbers: dict[str, Any]  # Its plain attributes
    arrays: dict[str, np.ndarray]  # Its buffers and parameters
    parts: dict[str, Form]  # Its children


def evaluated_natively(folder: str | None = None, function: str | None = None) -> Any:
    """Return a decorator that notes a class of modules which ``energies.h`` has under the same name."""

    def note(module_class: _Module) -> _Module:
        _classes[module_class.__name__] = module_class
        _kernels[module_class.__name__] = (folder, function) if folder and function else None
        return module_class

    return note


def form_of(module: torch.nn.Module) -> Form | None:
    """Return the form of a module; None unless C++ knows it with all that is in it."""
    kind = type(module).__name__
    if _classes.get(kind) is not type(module):
        return None
    parts = {name: form_of(child) for name, child in module.named_children()}
    if any(part is None for part in parts.values()):
        return None
    numbers = {
        name: value for name, value in vars(module).items() if not name.startswith("_") and name != "training"
    }
    tensors = [*module.named_buffers(recurse=False), *module.named_parameters(recurse=False)]
    arrays = {name: np.ascontiguousarray(tensor.detach().cpu().numpy()) for name, tensor in tensors}
    return Form(kind, numbers, arrays, parts)  # type: ignore[arg-type]


def of_particles(form: Form, particles: np.ndarray) -> Form:
    """Return the form, for C++, of an energy of some of all particles: their numbers, shape (M,), int64."""
    return Form(_OF_PARTICLES, {}, {"particles": np.ascontiguousarray(particles)}, {"energy": form})


def module_of(form: Form) -> torch.nn.Module:
    """Return the module of a form."""
    if form.kind not in _classes:
        raise ValueError(f"{form.kind} is no energy of this openmm-density")
    if form.kind == _LIST:
        return torch.nn.ModuleList(module_of(part) for part in form.parts.values())
    if form.kind == _WEIGHTS:
        tensors = (torch.from_numpy(form.arrays[str(i)]) for i in range(len(form.arrays)))
        return torch.nn.ParameterList(torch.nn.Parameter(each, requires_grad=False) for each in tensors)
    module = _classes[form.kind].__new__(_classes[form.kind])
    torch.nn.Module.__init__(module)
    for name, value in form.numbers.items():
        setattr(module, name, value)
    for name, array in form.arrays.items():
        module.register_buffer(name, torch.from_numpy(array))
    for name, part in form.parts.items():
        module.add_module(name, module_of(part))
    return module


def written(form: Form) -> bytes:
    """Write a form: a line of JSON, and behind it the bytes of all arrays one after the other."""
    arrays: list[np.ndarray] = []
    header = json.dumps(_header(form, arrays))
    return b"\n".join([header.encode(), b"".join(array.tobytes() for array in arrays)])


def read(data: bytes) -> Form:
    """Read what `written` wrote."""
    header, newline, rest = data.partition(b"\n")
    try:
        form, at = _read(json.loads(header), rest, 0)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"the energy in the file is damaged ({error})") from error
    if not newline or at != len(rest):
        raise ValueError(f"the energy in the file is damaged: it has {len(rest)} bytes of arrays, not {at}")
    return form


def _header(form: Form, arrays: list[np.ndarray]) -> dict[str, Any]:
    arrays.extend(form.arrays.values())
    return {
        "kind": form.kind,
        "numbers": form.numbers,
        "arrays": {name: (array.dtype.str, array.shape) for name, array in form.arrays.items()},
        "parts": {name: _header(part, arrays) for name, part in form.parts.items()},
    }


def _read(header: dict[str, Any], data: bytes, at: int) -> tuple[Form, int]:
    arrays, parts = {}, {}
    for name, (kind, shape) in header["arrays"].items():
        dtype, count = np.dtype(kind), int(np.prod(shape, dtype=np.int64))
        if dtype.hasobject or not 0 <= count * dtype.itemsize <= len(data) - at:
            raise ValueError(f"{name} has the shape {shape} and the type {kind}")
        array = np.zeros(shape, dtype)
        if count:
            array[...] = np.frombuffer(data, dtype, count, at).reshape(shape)
        arrays[name] = array
        at += array.nbytes
    for name, part in header["parts"].items():
        parts[name], at = _read(part, data, at)
    return Form(str(header["kind"]), dict(header["numbers"]), arrays, parts), at


def kernel_problem(module: torch.nn.Module) -> str | None:
    """Return why a kernel that C++ needs for a module cannot be had; None for a module that C++ does not know."""
    if form_of(module) is None:
        return None
    for kernel in (_kernels[type(part).__name__] for part in module.modules()):
        try:
            if kernel is not None:
                compilation.entry_points(kernel[0])
        except compilation.BuildError as error:
            return f"{error} ({error.first_error})" if error.first_error else str(error)
    return None


def native_form(library: ctypes.CDLL, form: Form) -> int:
    """Return the address of a form in C++, to be made an energy there."""
    kernel = 0
    if _kernels.get(form.kind) is not None:
        folder, function = _kernels[form.kind]  # type: ignore[misc]
        entry_points = compilation.entry_points(folder)
        kernel = ctypes.cast(getattr(entry_points, function), ctypes.c_void_p).value or 0
    made = library.openmm_density_new_form(form.kind.encode(), kernel)
    try:
        for name, value in form.numbers.items():
            if isinstance(value, (int, float)):
                library.openmm_density_set_number(made, name.encode(), float(value))
        for name, array in form.arrays.items():
            shape = (ctypes.c_longlong * array.ndim)(*array.shape)
            library.openmm_density_set_array(
                *(made, name.encode(), array.dtype.name.encode()),
                *(array.ctypes.data, array.nbytes, shape, array.ndim),
            )
        for name, part in form.parts.items():
            library.openmm_density_set_part(made, name.encode(), native_form(library, part))
    except BaseException:
        library.openmm_density_delete_form(made)
        raise
    return made
