"""A force of our own on every platform of OpenMM: `make_force` makes it.

On CPUs (Reference, CPU, OpenCL) C++ calls the kernels, without Python and without torch; on CUDA the energy is a CUDA graph in
OpenMM's own stream.

In C++, ``force.cpp`` is the force, ``energies.h`` and ``painn.h`` the energies that it knows, ``openmm_force.h`` what
it shares with ``cuda.cpp``, its part for CUDA, which says how that works, ``rebuilt_graph.h`` a graph in another
context, ``joint_launch.h`` the launch of all graphs of a Context, and ``unlike_chains.h`` what makes large Contexts sooner.
In Python, ``forms`` are energies as data, ``computation`` is an energy by torch, ``recording`` says what is launched,
``exchange`` how positions and forces pass on a GPU, ``slots`` what Python and C++ pass each other, ``compiled`` how the
C++ is built, ``force`` what Python sees and what the C++ calls, and ``process`` what no library tells. ``cpu_platform``
has parts of OpenMM's CPU platform replaced: forces by ``own_kernels.h``, which has ``nonbonded.h`` and ``bonded.h``,
and constraints by ``constraints.h``.
"""

from openmm_density.kernels.compilation import BuildError

from .computation import Computation
from .cpu_platform import OWN_KERNELS, context_with_own_constraints, own_kernels
from .force import (
    CudaGraphForce,
    NativeForce,
    load_force,
    load_force_ahead,
    make_force,
)

__all__ = [
    "OWN_KERNELS",
    "BuildError",
    "Computation",
    "CudaGraphForce",
    "NativeForce",
    "context_with_own_constraints",
    "load_force",
    "load_force_ahead",
    "make_force",
    "own_kernels",
]
