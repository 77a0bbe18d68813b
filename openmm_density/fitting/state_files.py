"""The file of a saved state: each number that is read is checked, as a damaged state must not be taken for a whole one."""

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
from typing import Any, BinaryIO

import numpy as np

from ..base.atomic_files import read_file
from .adaptive_strength import AdaptiveStrength
from .convergence import Plateau
from .fit_result import Row
from .run_state import RunState

PLAIN = "plain"

_ARRAYS = ("positions", "velocities", "relaxed", "box", "replica_positions", "replica_velocities")
_REPLICAS = _ARRAYS[4:]
_FORMAT = 3
# What numpy writes before an array of two dimensions is 128 bytes.
_LONGEST_HEADER = 256


class DamagedState(ValueError):
    """A file that holds no state; the message says what is amiss, to stand in brackets."""


def write_state(file: BinaryIO, state: RunState) -> None:
    """Write a state: its arrays as such, all else as JSON."""
    arrays = {name: getattr(state, name) for name in _ARRAYS if getattr(state, name) is not None}
    others = {name: value for name, value in vars(state).items() if name not in _ARRAYS}
    plain = json.dumps({**others, "format": _FORMAT}, default=_as_plain)
    np.savez(file, **{PLAIN: np.frombuffer(plain.encode(), dtype=np.uint8)}, **arrays)


def _as_plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else vars(value)


def read_state(path: str | os.PathLike[str]) -> RunState:
    """Read a state, and refuse one that no fit can have saved."""
    arrays, plain = read_archive(path)
    names = {*arrays}
    if (
        plain.pop("format", None) != _FORMAT
        or not {*_ARRAYS[:3]} <= names <= {*_ARRAYS}
        or names & plain.keys()
    ):
        raise DamagedState("it was written by another version")
    atoms = len(arrays["positions"])
    for name, array in arrays.items():
        shape = (3, 3) if name == "box" else (atoms, 3)
        if name in _REPLICAS:
            shape = (len(array), *shape)
        if array.shape != shape or not atoms or not len(array):
            raise DamagedState(f"{name} has the shape {array.shape}, not {shape}")
        if not np.isfinite(array).all():
            raise DamagedState(f"{name} has values that are not numbers")
    if "adaptive" in plain:
        plain["adaptive"] = _restored(AdaptiveStrength, plain["adaptive"])
    if "plateau" in plain:
        plain["plateau"] = _restored_plateau(plain["plateau"])
    if isinstance(plain.get("rows"), list):
        plain["rows"] = [_restored(Row, row, finite=False) for row in plain["rows"]]
    check_fields(RunState, plain)
    return RunState(**arrays, **plain)


def _restored(kind: type, entries: Any, finite: bool = True) -> Any:
    """Return the object of a dataclass with these entries, checked."""
    if not isinstance(entries, dict):
        raise DamagedState(f"{kind.__name__} is {entries!r:.60}")
    check_fields(kind, entries, finite)
    return kind(**entries)


def _restored_plateau(entries: Any) -> Plateau:
    if not isinstance(entries, dict):
        raise DamagedState(f"{Plateau.__name__} is {entries!r:.60}")
    entries = dict(entries)
    models = []
    if entries.get("total") is not None:
        models.append(entries["total"])
    previous = entries.get("previous")
    if previous is not None:
        if not isinstance(previous, list) or len(previous) != 2:
            raise DamagedState(_NO_MODELS)
        models.append(previous[1])
    arrays = [_model(each) for each in models]
    if any(array.shape != arrays[0].shape for array in arrays):
        raise DamagedState(_NO_MODELS)
    if previous is not None:
        entries["previous"] = (previous[0], arrays.pop())
    if arrays:
        entries["total"] = arrays.pop()
    return _restored(Plateau, entries)


_NO_MODELS = "its mean models have no shape"


def _model(values: Any) -> np.ndarray:
    """Return the sum or mean of models as an array, shape (n, 3)."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise DamagedState(_NO_MODELS) from None
    if array.dtype.kind not in "if" or array.ndim != 2 or array.shape[1] != 3 or not np.isfinite(array).all():
        raise DamagedState(_NO_MODELS)
    return array.astype(np.float64)


def read_archive(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return an .npz file's float64 arrays and the JSON of its bytes `PLAIN`, with no more memory than the file has bytes."""
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


def check_fields(kind: type, entries: Mapping[str, Any], finite: bool = True) -> None:
    """Refuse entries that are not fields of a dataclass, or not of their types; arrays are left alone."""
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
    """Return whether what JSON gave is of a type."""
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
            isinstance(value, (list, tuple))
            and len(value) == len(parts)
            and all(_is_of(each, part, finite) for each, part in zip(value, parts))
        )
    if origin is dict:
        return isinstance(value, dict) and all(_is_of(each, parts[1], finite) for each in value.values())
    return isinstance(value, hint)
