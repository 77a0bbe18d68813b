"""The formats of map files, by the suffixes of their names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..base.errors import InputError
from ..base.given_files import MODELS, check_output_folder, told_format

FORMATS = {"MRC": (".mrc", ".map", ".ccp4"), "SITUS": (".situs", ".sit"), "MTZ": (".mtz",)}
"""The suffixes of each format; a file may have .gz behind them."""
SUFFIXES = tuple(suffix for suffixes in FORMATS.values() for suffix in suffixes)


def is_map_name(path: Path) -> bool:
    """Return whether a file is named as a density map is."""
    return path.name.lower().removesuffix(".gz").endswith(SUFFIXES)


def map_format(path: Path) -> str:
    """Return "MRC", "SITUS" or "MTZ": what a map's file is by its content, and where that does not tell, by its name."""
    remedy = "give a density map, or structure factors as .mtz"
    return told_format(path, MODELS, "a model", "a density map", remedy) or format_of_map_name(path)


def format_of_map_name(path: Path) -> str:
    """Return "MRC", "SITUS" or "MTZ", as a map's file is named."""
    name = path.name.lower().removesuffix(".gz")
    for each, suffixes in FORMATS.items():
        if name.endswith(suffixes):
            return each
    raise InputError(
        "its suffix is not a density map's",
        source=path,
        remedy=f"use one of {', '.join(SUFFIXES)}, each also with .gz",
    )


def check_columns(path: Path, columns: Sequence[str] | None) -> None:
    """Refuse columns of a map that has none."""
    if columns is not None and map_format(path) != "MTZ":
        raise InputError(
            "can only be chosen in an .mtz file",
            source=path,
            argument="columns",
            found=repr(columns),
            remedy="leave it out",
        )


def check_can_be_written(path: Path) -> str:
    """Return the format of a map that is to be written, by its name."""
    format_ = format_of_map_name(path)
    if format_ == "MTZ":
        raise InputError(
            "maps are not written as .mtz",
            source=path,
            remedy="use .mrc, .map, .ccp4 or .situs",
        )
    check_output_folder(path)
    return format_
