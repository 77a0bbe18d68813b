"""Atomic writes: a file appears complete, or what was there before stays; and reading what is a file."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import InputError


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary name: what is written there replaces the file at the end; if anything fails, the old one stays."""
    try:
        with replacing(path) as temporary:
            yield temporary
    except OSError as error:
        raise InputError(
            f"it cannot be written ({error.strerror or error})", source=path, remedy="check the folder"
        ) from error


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary name as `atomic_write`, for a file of ours; it is locked meanwhile, which tells it from leftovers."""
    path = Path(path)
    if path.parent not in _looked_through:
        _looked_through.add(path.parent)
        remove_abandoned(path.parent)
    temporary, descriptor = _locked_temporary(path)
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        os.close(descriptor)
        temporary.unlink(missing_ok=True)


def _locked_temporary(path: Path) -> tuple[Path, int]:
    """Create an empty temporary file beside a file, and return it with its locked descriptor."""
    while True:
        temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with suppress(OSError):  # file systems without locks
            # Of the open file, which keeps it when it is renamed: a `FileLock` opens a name, and makes it where it has gone.
            # Nobody holds it but who looks for abandoned files at this moment.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return temporary, descriptor
        os.close(descriptor)  # it was removed before it was locked


_looked_through: set[Path] = set()
_TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp")
# Where locks tell nothing: no file takes a day to write.
_ABANDONED_SECONDS = 24 * 3600.0


def remove_abandoned(folder: str | os.PathLike[str]) -> None:
    """Remove temporary files that killed processes have left in a folder; others stay."""
    with suppress(OSError):
        for name in os.listdir(folder):
            if _TEMPORARY.fullmatch(name):
                with suppress(OSError):
                    _remove_if_abandoned(os.path.join(folder, name))


def _remove_if_abandoned(path: str) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # whoever writes it lives
            return
        except OSError:
            if time.time() - os.fstat(descriptor).st_mtime < _ABANDONED_SECONDS:
                return
        os.unlink(path)  # while it is locked: whoever has just made it then sees that it is gone
    finally:
        os.close(descriptor)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8, bytes that Python escaped as they were, as `atomic_write` does."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="surrogateescape")


def check_is_file(path: str | os.PathLike[str]) -> None:
    """Refuse what is there and is no file: a pipe to which nobody writes would be waited for, and a device never ends."""
    path = Path(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Return what a file holds."""
    check_is_file(path)
    return Path(path).read_bytes()
