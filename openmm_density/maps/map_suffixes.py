"""The formats of map files, by the suffixes of their names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..base.errors import InputError
from ..base.file_kinds import MODELS, kind_of
from ..base.given_files import check_output_folder

MRC_SUFFIXES = (".mrc", ".map", ".ccp4")
SITUS_SUFFIXES = (".situs", ".sit")
MTZ_SUFFIX = ".mtz"


_SUFFIXES = (*MRC_SUFFIXES, *SITUS_SUFFIXES, MTZ_SUFFIX)


def is_map_name(path: Path) -> bool:
    """Return whether a file is named as a density map is."""
    return path.name.lower().removesuffix(".gz").endswith(_SUFFIXES)


def map_suffix(path: Path) -> str:
    """Return the suffix of a map's format, without .gz: by the content of the file where that tells, else by its name."""
    named = suffix_of_name(path)
    kind = kind_of(path)
    if kind in MODELS:
        raise InputError(
            f"it is a model ({kind}), named as a density map",
            source=path,
            remedy="give a density map, or structure factors as .mtz",
        )
    if kind == "MTZ":
        return MTZ_SUFFIX
    return MRC_SUFFIXES[0] if kind == "MRC" and named not in MRC_SUFFIXES else named


def suffix_of_name(path: Path) -> str:
    """Return the suffix that a map's name has, without .gz."""
    name = path.name.lower().removesuffix(".gz")
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            return suffix
    raise InputError(
        "its suffix is not a density map's",
        source=path,
        remedy=f"use one of {', '.join(_SUFFIXES)}, each also with .gz",
    )


def check_columns(path: Path, columns: Sequence[str] | None) -> None:
    """Refuse columns of a map that has none."""
    if columns is not None and map_suffix(path) != MTZ_SUFFIX:
        raise InputError(
            "can only be chosen in an .mtz file",
            source=path,
            argument="columns",
            found=repr(columns),
            remedy="leave it out",
        )


def check_can_be_written(path: Path) -> str:
    """Return the suffix that tells the format of a map that is to be written."""
    suffix = suffix_of_name(path)
    if suffix == MTZ_SUFFIX:
        raise InputError(
            "maps are not written as .mtz",
            source=path,
            remedy="use .mrc, .map, .ccp4 or .situs",
        )
    check_output_folder(path)
    return suffix
