"""Grids of every kind of cell."""

from __future__ import annotations

import gemmi
import numpy as np
import pytest
import torch


def cell_steps(
    a: float, b: float, c: float, alpha: float = 90.0, beta: float = 90.0, gamma: float = 90.0
) -> torch.Tensor:
    """Steps along x, y, z of these lengths and angles, in columns."""
    return torch.from_numpy(np.array(gemmi.UnitCell(a, b, c, alpha, beta, gamma).orth.mat.tolist()))


CELLS = {
    "orthogonal": cell_steps(1.0, 0.9, 1.1),
    "mirrored": torch.diag(torch.tensor([-1.0, 0.9, -1.1], dtype=torch.float64)),
    "monoclinic130": cell_steps(1.0, 0.9, 1.1, beta=130.0),
    "rhombohedral60": cell_steps(1.0, 1.0, 1.0, 60.0, 60.0, 60.0),
    "triclinic": cell_steps(1.0, 0.9, 1.1, 75.0, 100.0, 110.0),
}
finite_or_periodic = pytest.mark.parametrize("periodic", [False, True], ids=["finite", "periodic"])
