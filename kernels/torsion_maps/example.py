"""A small evaluation of the operator, by which `openmm-density doctor` tries a GPU."""

from __future__ import annotations

import numpy as np
import torch

from ..library import Example
from . import pack_torsions, spline_nodes, torsion_maps


def examples() -> dict[str, Example]:
    """Return the operator with arguments on the CPU, by its name."""
    positions = torch.rand(200, 3, generator=torch.Generator().manual_seed(0)) * 1.5
    atoms = np.arange(200).reshape(40, 5)
    torsions = pack_torsions(atoms, np.arange(40) % 2, np.where(np.arange(40) % 3, 1.0, -1.0))
    angles = np.linspace(-np.pi, np.pi, 24, endpoint=False)
    waves = np.cos(angles[:, None]) + np.sin(2 * angles)
    return {"torsion_maps": (torsion_maps, (positions, *torsions, spline_nodes([waves, -waves])))}
