"""Any torch module as a force on OpenMM's CUDA platform: `CudaGraphForce`, one of the names of `openmm_density.native_force`."""

from .native_force import BuildError, Computation, CudaGraphForce, load, make_force

__all__ = ["BuildError", "Computation", "CudaGraphForce", "load", "make_force"]
