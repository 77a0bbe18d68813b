"""What Python and C++ (openmm_force.h) pass each other: slots of the parameters, and structures of one layout on both sides."""

from __future__ import annotations

import ctypes

BOX = slice(0, 9)
"""The box vectors in rows, nm."""
WANTS_FORCES = 9
"""1 where forces are wanted, else 0."""
WANTS_ENERGY = 10
"""1 where the energy is wanted, else 0."""
STRENGTHS = 11
"""The first of the strengths, kJ/mol: the last of the float64 numbers that the graph reads at each evaluation."""


class Arrays(ctypes.Structure):
    """OpenMM's memory on a GPU, see `exchange`.

    Attributes: `device`: the number of the GPU. `n_particles`, `n_padded`: number of particles, and of slots that the
    sums have room for. `position_bytes`, `energy_bytes` of one coordinate, and of the sum of the energies. `positions`,
    `particle_of_slot`, `forces`, `energy`: addresses. `derivatives`: address of the sums of the energy's derivatives,
    in numbers of ``energy_bytes``; 0 where nobody asks for one. `derivative_slots`: the sum for each strength; -1 for
    none. `parameters`: those of the evaluation that the graph is recorded for, on the CPU.
    """

    _fields_ = (
        ("device", ctypes.c_int),
        ("n_particles", ctypes.c_int),
        ("n_padded", ctypes.c_int),
        ("position_bytes", ctypes.c_int),
        ("energy_bytes", ctypes.c_int),
        ("positions", ctypes.c_ulonglong),
        ("particle_of_slot", ctypes.c_ulonglong),
        ("forces", ctypes.c_ulonglong),
        ("energy", ctypes.c_ulonglong),
        ("derivatives", ctypes.c_ulonglong),
        ("derivative_slots", ctypes.POINTER(ctypes.c_int)),
        ("parameters", ctypes.POINTER(ctypes.c_double)),
        ("n_parameters", ctypes.c_int),
    )


class Binary(ctypes.Structure):
    """A kernel that Triton has loaded: the CUDA driver's handle, its code, and its name therein."""

    _fields_ = (("function", ctypes.c_void_p), ("image", ctypes.c_char_p), ("name", ctypes.c_char_p))


class Recording(ctypes.Structure):
    """A recorded graph: Python's number of it, torch's handle, the address of the parameters, and Triton's kernels therein."""

    _fields_ = (
        ("number", ctypes.c_longlong),
        ("graph", ctypes.c_void_p),
        ("parameters", ctypes.c_ulonglong),
        ("binaries", ctypes.POINTER(Binary)),
        ("n_binaries", ctypes.c_int),
    )


_Numbers = ctypes.POINTER(ctypes.c_double)
_Integer = ctypes.c_longlong
_Address = ctypes.POINTER(ctypes.c_void_p)


class Callbacks(ctypes.Structure):
    """What C++ calls in Python; the last argument of those that can fail is C++'s Outcome."""

    _fields_ = (
        (
            "record",
            ctypes.CFUNCTYPE(
                None, _Integer, ctypes.POINTER(Arrays), ctypes.POINTER(Recording), ctypes.c_void_p
            ),
        ),
        (
            "evaluate",
            ctypes.CFUNCTYPE(
                None,
                _Integer,
                ctypes.c_int,
                _Numbers,
                _Numbers,
                ctypes.c_int,
                _Numbers,
                _Numbers,
                _Numbers,
                ctypes.c_void_p,
            ),
        ),
        ("pack", ctypes.CFUNCTYPE(None, _Integer, ctypes.c_void_p)),
        (
            "unpack",
            ctypes.CFUNCTYPE(
                None,
                ctypes.c_char_p,
                ctypes.c_char_p,
                ctypes.c_int,
                ctypes.POINTER(_Integer),
                _Address,
                ctypes.c_void_p,
            ),
        ),
        ("on_cuda", ctypes.CFUNCTYPE(None, _Address, ctypes.c_void_p)),
        (
            "begin",
            ctypes.CFUNCTYPE(None, _Integer, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p),
        ),
        ("forget_computation", ctypes.CFUNCTYPE(None, _Integer)),
        ("forget_recording", ctypes.CFUNCTYPE(None, _Integer)),
    )
