"""Reading files that may be compressed by gzip, no further than a limit: a small file can unpack to more than memory holds."""

from __future__ import annotations

import gzip
import io
import math
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from .atomic_files import check_is_file
from .errors import InputError
from .wording import one_line

LIMIT_VARIABLE = "OPENMM_DENSITY_UNPACK_LIMIT"
"""The environment variable that holds another limit for all files, in GB."""
MAP_LIMIT = 5.0
"""GB (10⁹ bytes) that a map or a trajectory may unpack to: 1000³ voxels take 4."""
TEXT_LIMIT = 1.0
"""GB that any other file may unpack to: an mmCIF file has some 100 bytes for each atom."""

_GZIP = b"\x1f\x8b"
_AT_ONCE = 1 << 22


def unpack_limit(default: float) -> int:
    """Return how many bytes a file may unpack to."""
    given = os.environ.get(LIMIT_VARIABLE)
    try:
        limit = default if not given else float(given)
    except ValueError:
        limit = math.nan
    if not 0 < limit < math.inf:
        raise InputError(
            f"{LIMIT_VARIABLE} in the environment must be a positive number of GB",
            found=given,
            remedy="correct it, or unset it",
        )
    return int(limit * 1e9)


def refuse_unpacked(path: str | os.PathLike[str], limit: int) -> InputError:
    """Return the error for a compressed file that holds more than so many bytes."""
    return InputError(
        f"it unpacks to more than {limit / 1e9:g} GB",
        source=path,
        remedy=f"if that is no mistake, unpack it yourself, or set {LIMIT_VARIABLE} to as many GB as it may have",
    )


@contextmanager
def opened(path: str | os.PathLike[str], limit: float = TEXT_LIMIT) -> Iterator[BinaryIO]:
    """Open a file for reading in bytes, and unpack it where it is compressed, whatever its name."""
    check_is_file(path)
    with open(path, "rb") as file:
        compressed = file.read(len(_GZIP)) == _GZIP
        file.seek(0)
        if not compressed:
            yield file
            return
        with gzip.GzipFile(fileobj=file) as packed:
            try:
                yield io.BufferedReader(_Limited(packed, path, unpack_limit(limit)), _AT_ONCE)
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                raise InputError(
                    f"it is not a whole gzip file ({one_line(error)})", source=path, remedy="copy it again"
                ) from error


def read_unpacked(
    path: str | os.PathLike[str], limit: float = TEXT_LIMIT, most: int | None = None
) -> bytearray:
    """Return what a file holds, unpacked where it is compressed; see `opened`."""
    with opened(path, limit) as file:
        return read_most(file, most)


def check_unpacked(path: str | os.PathLike[str], limit: float = TEXT_LIMIT) -> None:
    """Refuse a compressed file that another library is going to unpack, where `read_unpacked` would refuse it."""
    with opened(path, limit) as file:
        if bytes_left(file) is None:
            while file.read(_AT_ONCE):
                pass


def bytes_left(file: BinaryIO) -> int | None:
    """Return how much of an opened file is not read yet; None where only unpacking tells."""
    try:
        return os.fstat(file.fileno()).st_size - file.tell()
    except io.UnsupportedOperation:
        return None


def read_most(file: BinaryIO, most: int | None = None) -> bytearray:
    """Return the rest of a file, or as many bytes of it; memory is taken for what is there, not for what is asked for."""
    left = bytes_left(file)
    if left is None:
        return _read_chunks(file, most)
    contents = bytearray(max(left if most is None else min(left, most), 0))
    del contents[file.readinto(contents) :]
    return contents


def _read_chunks(file: BinaryIO, most: int | None) -> bytearray:
    contents = bytearray()
    while chunk := file.read(_AT_ONCE if most is None else min(_AT_ONCE, most - len(contents))):
        contents += chunk
    return contents


class _Limited(io.RawIOBase):
    """A compressed file that refuses to unpack more than a limit."""

    def __init__(self, packed: gzip.GzipFile, path: str | os.PathLike[str], limit: int) -> None:
        self._packed, self._path, self._limit, self._unpacked = packed, path, limit, 0

    def readable(self) -> bool:
        """Return True, which tells ``io`` that it can be read."""
        return True

    def readinto(self, buffer: memoryview) -> int:
        """Unpack as much as the buffer holds, or what is left."""
        count = self._packed.readinto(buffer)
        self._unpacked += count
        if self._unpacked > self._limit:
            raise refuse_unpacked(self._path, self._limit)
        return count
