"""Whether files can be read and written at the paths that a user gave, before the modules that do so are imported."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import InputError


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
    """Refuse a path for a file that is to be written where its folder is not there."""
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise InputError(
            f"the folder {Path(path).parent} does not exist", source=path, remedy="create it first"
        )
