"""Models as predictors write them: pLDDT in the B column, higher where residues have more neighbours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.ndimage import uniform_filter1d
from scipy.spatial import cKDTree

from openmm_density.models import read_model

from .small_models import ADK_OPEN


def plddt_of(path: Path) -> np.ndarray:
    """Return a confidence for each residue of a chain, from 40 to 95."""
    model = read_model(path)
    traces = model.positions[[atom.index for atom in model.topology.atoms() if atom.name == "CA"]]
    near = cKDTree(traces).query_ball_point(traces, 10.0, return_length=True)
    smooth = uniform_filter1d(near.astype(float), 3)
    return np.round(40 + 55 * (smooth - smooth.min()) / np.ptp(smooth), 2)


def write_prediction(
    path: Path,
    header: str = "",
    scale: float = 1.0,
    values: np.ndarray | None = None,
    source: Path = ADK_OPEN,
) -> Path:
    """Write the atoms of a chain with such values (R,) in their B column, below a header."""
    values = plddt_of(source) if values is None else values
    lines = [line for line in source.read_text().splitlines() if line.startswith("ATOM")]
    numbers = {number: row for row, number in enumerate(dict.fromkeys(line[22:27] for line in lines))}
    atoms = [f"{line[:60]}{scale * values[numbers[line[22:27]]]:6.2f}{line[66:]}" for line in lines]
    path.write_text("\n".join([*header.splitlines(), *atoms, "END", ""]))
    return path
