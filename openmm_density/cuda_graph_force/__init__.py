"""An energy on OpenMM's CUDA platform at the cost of its kernels: `make_force` makes the force.

``force.cpp`` is the force and says how it works, ``rebuilt_graph.h`` a graph in another context, ``joint_launch.h`` the launch of
all graphs of a Context, ``recording`` what is launched, ``exchange`` how positions and forces pass, ``computation`` the energy,
``slots`` what Python and C++ pass each other, ``compiled`` how the C++ is built, ``force`` what Python sees and what the C++
calls, and ``process`` what no library tells.
"""

from openmm_density.kernels.compilation import BuildError

from .computation import Computation
from .force import CudaGraphForce, load, make_force

__all__ = ["BuildError", "Computation", "CudaGraphForce", "load", "make_force"]


def __dir__() -> list[str]:
    return __all__
