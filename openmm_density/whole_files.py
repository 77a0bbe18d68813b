"""Files that appear whole or not at all, and reading what is one."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import InputError


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary name beside a file; what was written there takes the file's place at the end.

    If anything fails, the temporary file goes and what was there before stays.

    Raises
    ------
    InputError
        Where the file cannot be written.
    """
    path = Path(path)
    temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(
            f"{path}: it cannot be written ({error.strerror or error}); check the folder."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file whole, in UTF-8."""
    with written_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def check_is_file(path: str | os.PathLike[str]) -> None:
    """Refuse what is there and is no file: a pipe to which nobody writes would be waited for, and a device never ends.

    Raises
    ------
    OSError
        If it is a pipe or a device.
    """
    path = Path(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Give what a file holds.

    Raises
    ------
    OSError
        If it cannot be read, or is none.
    """
    check_is_file(path)
    return Path(path).read_bytes()
