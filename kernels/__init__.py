"""Operators for density and geometry, in one unit of length and free of files, topologies and OpenMM.

A folder that holds a ``cpu.cpp`` is a family of operators, and nothing else lists it:

- ``__init__.py``: schema, dispatch and documentation of its operators
- ``reference.py``: the oracle, in plain PyTorch and float64
- ``cpu.cpp``: C++ that checks tensors and registers the operators, with the kernel in headers
- ``interface.h`` and ``interface.cpp``: what a force of OpenMM calls of the kernel, on plain memory, in a library of its own
  which takes seconds less to compile, as torch's headers are not in it; other files ``.cpp`` are compiled beside it, and
  operators call them there
- ``gpu.py``: Triton, with larger kernels in files of their own
- ``example.py``: a small evaluation, by which ``openmm-density doctor`` tries a GPU

``local_dynamics`` is none: it minimises and moves a few atoms, on plain memory alone.

What they share: ``library`` defines and finds them, ``compilation`` compiles and loads the C++, ``autograd`` differentiates a
value that comes with its gradient, ``table_checks`` validates a table once, ``tuning`` chooses launch configurations; headers.

They live in the torch namespace ``openmm_density::`` and can be called from Python and TorchScript.
"""

import torch  # noqa: F401  (it registers all operators when it comes, and so must come before any of them)
