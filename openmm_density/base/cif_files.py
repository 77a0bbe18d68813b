"""CIF files of any contents: models, restraint dictionaries, components."""

from __future__ import annotations

import os

import gemmi

from .errors import InputError
from .unpacking import read_unpacked
from .wording import one_line


def read_cif(path: str | os.PathLike[str]) -> gemmi.cif.Document:
    """Read a CIF file with gemmi."""
    return parse_cif(path, read_unpacked(path))


def parse_cif(path: str | os.PathLike[str], contents: bytes | bytearray) -> gemmi.cif.Document:
    """Return what the contents of a CIF file say; ``path`` is what the error calls them."""
    try:
        return gemmi.cif.read_string(contents.decode("utf-8", errors="replace"))
    except (RuntimeError, ValueError) as error:
        said = one_line(error).removeprefix("string:")
        raise InputError(
            f"cannot be read as mmCIF (line {said})", source=path, remedy="check the file"
        ) from None
