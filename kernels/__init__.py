"""Operators for density and geometry, independent of the unit of length, of files, topologies and OpenMM.

Each folder with a ``cpu.cpp`` is a family of operators; no list names it:

- ``__init__.py``: schema, dispatch and documentation of its operators
- ``reference.py``: the oracle, in plain PyTorch and float64
- ``cpu.cpp``: C++ that checks tensors and registers the operators, with the kernel in headers
- ``interface.h`` and ``interface.cpp``: the functions of the kernel that a force of OpenMM calls, on plain memory, in a library
  of their own, which compiles seconds faster without torch's headers; other ``.cpp`` files are compiled with it, and
  operators call them there
- ``gpu.py``: Triton, with larger kernels in files of their own
- ``example.py``: a small evaluation, by which ``openmm-density doctor`` tries a GPU

``local_dynamics`` and ``bonded`` are none: they minimise and move a few atoms, and evaluate angles and torsions of a force field,
on plain memory only.

Shared modules: ``library`` defines and finds them, ``compilation`` compiles and loads the C++, ``autograd`` differentiates a
value that comes with its gradient, ``table_checks`` validates a table once, ``tuning`` chooses launch configurations; headers.

They live in the torch namespace ``openmm_density::`` and can be called from Python and TorchScript.
"""

import torch  # noqa: F401  (it registers all operators when it comes, and so must come before any of them)
