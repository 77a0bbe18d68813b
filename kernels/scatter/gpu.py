"""structured_scatter_add and structured_gather on the GPU, in PyTorch: sums over sorted indices, the same bits every time.

Tables are checked when they are first seen, which reads from the device; while a CUDA graph is captured they cannot be.
"""

from __future__ import annotations

from torch import Tensor

from ..table_checks import check_once
from . import _as_float32, _check_cubes, _check_indices, _check_map, _check_range, reference


def structured_scatter_add(density_cube: Tensor, wa: Tensor, wbwc: Tensor, map_size: int) -> Tensor:
    """Return what `openmm_density.kernels.scatter.structured_scatter_add` does, with the same arguments."""
    _check_indices(wa, wbwc, map_size)
    _check_cubes(density_cube, wa, wbwc)
    values = _as_float32(density_cube, "density_cube")
    check_once("scatter", lambda: _check_range(wa, wbwc, map_size), (wa, wbwc), map_size)
    return reference.structured_scatter_add(values, wa, wbwc, map_size)


def structured_gather(density_map: Tensor, wa: Tensor, wbwc: Tensor) -> Tensor:
    """Return what `openmm_density.kernels.scatter.structured_gather` does, with the same arguments."""
    _check_map(density_map)
    _check_indices(wa, wbwc, density_map.numel())
    values = _as_float32(density_map, "density_map")
    check_once("scatter", lambda: _check_range(wa, wbwc, len(values)), (wa, wbwc), len(values))
    return reference.structured_gather(values, wa, wbwc)
