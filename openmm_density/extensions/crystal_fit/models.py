"""The model that a cycle's folder holds, and what it makes of the data."""

from __future__ import annotations

from pathlib import Path

from ...report.results import model_with_input_atoms
from ..crystals import Phased, Reflections, crystal_structure, phased


def model_of(folder: Path) -> Path:
    """Return what the fit of a folder made of its model, with the atoms of the input, whether it was kept or not."""
    return model_with_input_atoms(folder, "after") or kept_model_of(folder)


def kept_model_of(folder: Path) -> Path:
    """Return the model that is the result of a folder, with the atoms of the input."""
    found = model_with_input_atoms(folder)
    if found is None:
        raise FileNotFoundError(folder)
    return found


def phased_model(path: Path, reflections: Reflections) -> Phased:
    """Return what the model of a file makes of the data, as the target of a fit."""
    return phased(crystal_structure(path, reflections), reflections)
