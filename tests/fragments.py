"""A fragment of adenylate kinase that is quick to simulate, and its map."""

from __future__ import annotations

import shutil
from functools import lru_cache
from pathlib import Path

import gemmi
import numpy as np

from openmm_density import DensityMap
from openmm_density.models import Model, read_model

from .conftest import PROJECT

RESOLUTION = 5.0


def write_fragment(
    path: Path,
    shift: tuple[float, float, float] = (0, 0, 0),
    residues: int = 40,
    model: str = "adk_closed.pdb",
    terminus: bool = False,
) -> Path:
    structure = gemmi.read_structure(str(PROJECT / "examples" / "data" / model))
    structure.setup_entities()
    chain = structure[0][0]
    if terminus:
        oxygen = chain[residues - 1]["O"][0].clone()
        oxygen.name, oxygen.pos = "OXT", chain[residues]["N"][0].pos
        chain[residues - 1].add_atom(oxygen)
    del chain[residues:]
    for residue in chain:
        for atom in residue:
            atom.pos += gemmi.Position(*shift)
    structure.write_pdb(str(path))
    return path


def write_with_alternates(path: Path, residues: int = 24) -> Path:
    """Write a fragment of which the first lysine has two places for CE and NZ, of occupancy 0.6 (A) and 0.4 (B)."""
    lines: list[str] = []
    number = None
    for line in write_fragment(path, residues=residues).read_text().splitlines():
        atom, residue = line[12:16].strip(), line[17:26]
        if (
            line.startswith("ATOM")
            and residue[:3] == "LYS"
            and number in (None, residue)
            and atom in ("CE", "NZ")
        ):
            number = residue
            lines.append(f"{line[:16]}A{line[17:54]}  0.60{line[60:]}")
            moved = f"{float(line[30:38]) + 0.9:8.3f}{line[38:54]}"
            lines.append(f"{line[:16]}B{line[17:30]}{moved}  0.40{line[60:]}")
        else:
            lines.append(line)
    path.write_text("\n".join([*lines, ""]))
    return path


def copy_examples(folder: Path, residues: int) -> Path:
    """Copy the example scripts, which read their models beside themselves, with short models that force fields know."""
    examples = folder / "examples"
    (examples / "data").mkdir(parents=True)
    for script in (PROJECT / "examples").glob("*.py"):
        shutil.copy(script, examples)
    for model in (PROJECT / "examples" / "data").glob("*.pdb"):
        write_fragment(examples / "data" / model.name, residues=residues, model=model.name, terminus=True)
    return examples


def fragment(path: Path, shift: tuple[float, float, float] = (0, 0, 0), residues: int = 40) -> Model:
    return read_model(write_fragment(path, shift, residues))


@lru_cache
def map_of(residues: int, noise: float, seed: int, folder: Path, margin: float = 10.0) -> DensityMap:
    """Return the map of the fragment where it was read; `folder` is for its file."""
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
