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
    remedy = "give a model in PDB or mmCIF format"
    found = told_format(path, MAPS, "a map or its structure factors", "a model", remedy) or format_of_name(
        path
    )
    if not found:
        raise InputError(
            "its name does not end in .pdb, .ent, .cif, .mmcif (or one of these and .gz)",
            source=path,
            remedy=remedy,
        )
    return found


def format_of_name(path: str | os.PathLike[str]) -> str:
    """Return "PDB" or "mmCIF" by the name of a model's file; empty for a name of neither."""
    suffix = structure_suffix(path)
    return "PDB" if suffix in PDB_SUFFIXES else "mmCIF" if suffix in CIF_SUFFIXES else ""
