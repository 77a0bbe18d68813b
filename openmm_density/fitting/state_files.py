"""Numbers out of a file of a saved state, each of them checked: a damaged state must not be taken for a whole one."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
import struct
import tokenize
import types
import typing
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..whole_files import read_file

PLAIN = "plain"
# What numpy writes before an array of two dimensions is 128 bytes.
_LONGEST_HEADER = 256


class DamagedState(ValueError):
    """A file that holds no state; the message says what is amiss, to stand in brackets."""


def read_archive(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays of float64 in an .npz file, and the JSON of its array of bytes `PLAIN`.

    No more memory is taken than the file has bytes, whatever it promises.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    DamagedState
        If it is no such file.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(read_file(path))) as archive:
            arrays = {
                info.filename.removesuffix(".npy"): _array(archive, info) for info in archive.infolist()
            }
            plain = json.loads(arrays.pop(PLAIN).tobytes())
    except FileNotFoundError:
        raise
    except _UNREADABLE as error:
        raise DamagedState(" ".join(str(error).split()) or type(error).__name__) from None
    if not isinstance(plain, dict):
        raise DamagedState("its entries have no names")
    wrong = [name for name, array in arrays.items() if array.dtype != np.float64]
    if wrong:
        raise DamagedState(f"{wrong[0]} is of {arrays[wrong[0]].dtype}, not of float64")
    return arrays, plain


# All that zipfile, numpy and json say of files that are none. MemoryError is not among them: the sizes are checked.
_UNREADABLE = (
    *(OSError, ValueError, LookupError, TypeError, EOFError, OverflowError, SyntaxError, RuntimeError),
    *(zipfile.BadZipFile, struct.error, zlib.error, tokenize.TokenError),
)


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
        raise DamagedState(f"{info.filename} is compressed, and states are not")
    contents = archive.read(info)
    file = io.BytesIO(contents)
    if np.lib.format.read_magic(file) != (1, 0):
        raise DamagedState(f"{info.filename} is an array of another format")
    shape, in_columns, dtype = np.lib.format.read_array_header_1_0(file, max_header_size=_LONGEST_HEADER)
    left = len(contents) - file.tell()
    if dtype.hasobject or min(shape, default=1) < 0 or math.prod(shape) * dtype.itemsize != left:
        raise DamagedState(f"{info.filename} has {left} bytes for {dtype} of shape {shape}")
    values = np.frombuffer(contents, dtype, offset=file.tell())
    return values.reshape(shape, order="F" if in_columns else "C").copy()


def check_entries(kind: type, entries: Mapping[str, Any], finite: bool = True) -> None:
    """Refuse entries that are not fields of a dataclass, or not of their types; arrays are left alone.

    Parameters
    ----------
    kind : type
        A dataclass whose fields are numbers, strings, and lists and dicts of these.
    entries : mapping
        To be passed to it. All whole numbers are counts.
    finite : bool
        Whether numbers must be finite.

    Raises
    ------
    DamagedState
        Naming the first that is wrong.
    """
    hints = typing.get_type_hints(kind)
    known = {field.name: field for field in dataclasses.fields(kind)}
    missing = [
        name
        for name, field in known.items()
        if name not in entries
        and field.default is field.default_factory is dataclasses.MISSING
        and hints[name] is not np.ndarray
    ]
    if missing or not entries.keys() <= known.keys():
        raise DamagedState("it was written by another version")
    for name, value in entries.items():
        if not _is_of(value, hints[name], finite):
            raise DamagedState(f"{name} is {value!r:.60}")


def _is_of(value: Any, hint: Any, finite: bool) -> bool:
    """Tell whether what JSON gave is of a type."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_is_of(value, part, finite) for part in parts)
    if hint is int:
        return type(value) is int and 0 <= value < 2**63
    if hint is float:
        return type(value) in (int, float) and (not finite or math.isfinite(value))
    if origin is list:
        return isinstance(value, list) and all(_is_of(each, parts[0], finite) for each in value)
    if origin is tuple:
        return (
            isinstance(value, list)
            and len(value) == len(parts)
            and all(_is_of(each, part, finite) for each, part in zip(value, parts))
        )
    if origin is dict:
        return isinstance(value, dict) and all(_is_of(each, parts[1], finite) for each in value.values())
    return isinstance(value, hint)
