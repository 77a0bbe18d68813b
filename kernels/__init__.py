"""Operators for density and geometry, in one unit of length and free of files, topologies and OpenMM.

Each folder holds one operator: ``reference.py`` (plain PyTorch, float64, the oracle), ``cpu.cpp`` (C++),
``gpu.py`` (Triton, with larger kernels in files of their own) and ``__init__.py`` (schema, dispatch and documentation).
They live in the torch namespace ``openmm_density::`` and can be called from Python and TorchScript.
"""

import torch  # noqa: F401  (it registers all operators when it comes, and so must come before any of them)

__all__ = ["density", "interpolation", "molecules", "planarity", "scatter"]


def __dir__() -> list[str]:
    return __all__
