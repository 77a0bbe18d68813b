"""The formats of model files, by the suffixes of their names."""

from __future__ import annotations

import os
from pathlib import Path

from ..base.errors import InputError
from ..base.given_files import MAPS, told_format

PDB_SUFFIXES = (".pdb", ".ent")
CIF_SUFFIXES = (".cif", ".mmcif")


def structure_suffix(path: str | os.PathLike[str]) -> str:
    """Return the suffix that identifies a file's format, in lower case and without .gz; empty where it has none."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes[-1:] == [".gz"]:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def is_structure_name(path: str | os.PathLike[str]) -> bool:
    """Return whether a file has a model's suffix."""
    return structure_suffix(path) in PDB_SUFFIXES + CIF_SUFFIXES


def structure_format(path: str | os.PathLike[str]) -> str:
    """Return "PDB" or "mmCIF": a model file's format by content or, where that is unclear, by name."""
    if not is_structure_name(path):
        raise InputError(
            "its name does not end in .pdb, .ent, .cif, .mmcif (or one of these and .gz)",
            source=path,
            remedy="give a model in PDB or mmCIF format",
        )
    remedy = "give a model in PDB or mmCIF format"
    told = told_format(path, MAPS, "a map or its structure factors", "a model", remedy)
    return told or format_of_name(path)


def format_of_name(path: str | os.PathLike[str]) -> str:
    """Return "PDB" or "mmCIF" by the name of a model's file."""
    return "PDB" if structure_suffix(path) in PDB_SUFFIXES else "mmCIF"
