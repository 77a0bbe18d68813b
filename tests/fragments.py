"""A fragment of adenylate kinase that is quick to simulate, and its map."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import gemmi
import numpy as np

from openmm_density import DensityMap
from openmm_density.models import Model, read_model

from .conftest import PROJECT

RESOLUTION = 5.0


def write_fragment(path: Path, shift: tuple[float, float, float] = (0, 0, 0), residues: int = 40) -> Path:
    structure = gemmi.read_structure(str(PROJECT / "examples" / "data" / "adk_closed.pdb"))
    structure.setup_entities()
    chain = structure[0][0]
    del chain[residues:]
    for residue in chain:
        for atom in residue:
            atom.pos += gemmi.Position(*shift)
    structure.write_pdb(str(path))
    return path


def fragment(path: Path, shift: tuple[float, float, float] = (0, 0, 0), residues: int = 40) -> Model:
    return read_model(write_fragment(path, shift, residues))


@lru_cache
def map_of(residues: int, noise: float, seed: int, folder: Path, margin: float = 10.0) -> DensityMap:
    """Give the map of the fragment where it was read; `folder` is for its file."""
    model = fragment(folder / f"target_{residues}.pdb", residues=residues)
    return DensityMap.simulate(
        model.topology, model.positions, RESOLUTION, 1.2, noise=noise, seed=seed, margin=margin
    )


def rotated(model: Model, seed: int, shift: np.ndarray) -> Model:
    from dataclasses import replace

    from scipy.spatial.transform import Rotation

    turn = Rotation.random(random_state=seed)
    centre = model.positions.mean(axis=0)
    return replace(model, positions=turn.apply(model.positions - centre) + centre + shift)
