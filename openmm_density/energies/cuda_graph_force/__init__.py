"""An energy on OpenMM's CUDA platform at the cost of its kernels: `make_force` makes the force.

``force.cpp`` is the force and says how it works, ``recording`` what it launches, ``exchange`` how positions and forces pass,
``library`` compiles and loads it.
"""

from ...kernels.build import BuildError
from .library import CudaGraphForce, load, make_force
from .recording import Computation

__all__ = ["BuildError", "Computation", "CudaGraphForce", "load", "make_force"]
