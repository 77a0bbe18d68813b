"""Operators for density and geometry, in one unit of length and free of files, topologies and OpenMM.

Each folder holds one operator: ``reference.py`` (plain PyTorch, float64, the oracle), ``cpu.cpp`` (C++),
``gpu.py`` (Triton) and ``__init__.py`` (schema, dispatch and documentation). They live in the torch namespace
``openmm_density::`` and can be called from Python and TorchScript.
"""
