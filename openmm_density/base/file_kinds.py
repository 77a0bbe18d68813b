"""What a file is by its beginning, whatever its name says."""

from __future__ import annotations

import os
import re

from .errors import InputError
from .unpacking import opened

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
    path: str | os.PathLike[str], others: tuple[str, ...], what: str, named: str, remedy: str
) -> str:
    """Return what `kind_of` tells of a file that is named as one kind, and refuse one that is of others."""
    kind = kind_of(path)
    if kind in others:
        raise InputError(f"it is {what} ({kind}), named as {named}", source=path, remedy=remedy)
    return kind
