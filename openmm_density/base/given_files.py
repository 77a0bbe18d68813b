"""Whether files can be read and written at the paths that a user gave, and what they are by their beginning."""

from __future__ import annotations

import os
import re
from pathlib import Path

from .errors import InputError
from .unpacking import opened


def check_given_file(path: str | os.PathLike[str], remedy: str) -> None:
    """Refuse a path at which there is no file."""
    if Path(path).is_dir():
        raise InputError("it is a folder, not a file", source=path, remedy=remedy)
    if os.path.islink(path) and not os.path.exists(path):
        raise InputError(
            f"it is a symbolic link to {os.readlink(path)}, which leads nowhere", source=path, remedy=remedy
        )
    if not os.path.exists(path):
        raise InputError("there is no such file", source=path, remedy=remedy)


def check_output_folder(path: str | os.PathLike[str]) -> None:
    """Refuse a path to write to whose folder does not exist."""
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise InputError(
            f"the folder {Path(path).parent} does not exist", source=path, remedy="create it first"
        )


MAPS, MODELS = ("MRC", "MTZ"), ("PDB", "mmCIF")

# A long comment may stand before the first block of an mmCIF file.
_BEGINNING = 1 << 16
_CIF = re.compile(rb"(?:\xef\xbb\xbf)?(?:\s|#[^\n]*\n)*data_", re.IGNORECASE)
_PDB = re.compile(
    rb"(?:HEADER|OBSLTE|TITLE |SPLIT |CAVEAT|COMPND|SOURCE|KEYWDS|EXPDTA|AUTHOR|REVDAT|JRNL  |REMARK|SEQRES|CRYST1|ORIGX1|SCALE1"
    rb"|MODEL |ATOM  |HETATM)"
)


def kind_of(path: str | os.PathLike[str]) -> str:
    """Return "MRC" (of CCP4, too), "MTZ", "PDB" or "mmCIF" of a file, compressed or not; empty for any other."""
    try:
        with opened(path) as file:
            start = file.read(_BEGINNING)
    except OSError:
        return ""
    if start[208:211] == b"MAP":
        return "MRC"
    if start[:4] == b"MTZ ":
        return "MTZ"
    if _CIF.match(start):
        return "mmCIF"
    return "PDB" if any(map(_PDB.match, start.splitlines()[:100])) else ""


def told_format(
    path: str | os.PathLike[str], others: tuple[str, ...], what: str, wanted: str, remedy: str
) -> str:
    """Return what `kind_of` tells of a file, and refuse one that is of others than is wanted."""
    kind = kind_of(path)
    if kind in others:
        raise InputError(f"it is {what} ({kind}), not {wanted}", source=path, remedy=remedy)
    return kind
