"""The header, voxels and symmetry of an MRC2014 or CCP4 file, read after its header was checked against the file's length."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from mrcfile import utils
from mrcfile.dtypes import HEADER_DTYPE

from ..base.errors import InputError
from ..base.unpacking import MAP_LIMIT, bytes_left, opened, read_most, refuse_unpacked, unpack_limit
from ..base.wording import one_line

DENSITY_MODES = (0, 1, 2, 6, 12)
# A space group has at most so many operators, each in a record of so many bytes.
_MOST_RECORDS, _RECORD = 192, 80


class MrcContents(NamedTuple):
    """A header, voxels in the file's axis order (3-D), and the symmetry operators as text, one per line."""

    header: np.recarray
    data: np.ndarray
    symmetry: str


def read_mrc_contents(path: str | os.PathLike[str]) -> MrcContents:
    """Read an MRC or CCP4 file, compressed or not, in no more memory than its bytes; a false machine stamp is forgiven."""
    path = Path(path)
    try:
        with opened(path, MAP_LIMIT) as file:
            header = _header(path, file.read(HEADER_DTYPE.itemsize))
            return _contents(path, file, header)
    except OSError as error:
        raise InputError(
            f"it cannot be read ({error.strerror or one_line(error)})", source=path, remedy="check the file"
        ) from error


def _header(path: Path, start: bytes) -> np.recarray:
    if start[208:211] != b"MAP":
        raise InputError(
            "it is not an MRC or CCP4 map, for it lacks the letters MAP at byte 208",
            source=path,
            remedy="give a file in one of these formats",
        )
    if len(start) < HEADER_DTYPE.itemsize:
        raise InputError(
            f"it is cut short, within its header of {HEADER_DTYPE.itemsize} bytes",
            source=path,
            remedy="download it again",
        )
    header = np.frombuffer(bytearray(start), HEADER_DTYPE).reshape(()).view(np.recarray)
    try:
        order = utils.byte_order_from_machine_stamp(header.machst)
    except ValueError:
        order = "<"
    header = header.view(header.dtype.newbyteorder(order))
    mode = int(header.mode)
    if not _is_mode(mode) and _is_mode(int(np.array(mode, np.int32).byteswap())):
        header = header.view(header.dtype.newbyteorder())
        mode = int(header.mode)
    if mode not in DENSITY_MODES:
        raise InputError(
            "it does not hold a density",
            source=path,
            found=f"mode {mode}",
            remedy="write it in mode 0, 1, 2, 6 or 12",
        )
    size = [int(header[name]) for name in ("nx", "ny", "nz")]
    if min(size) <= 0:
        raise InputError(
            "the size in its header must be positive", source=path, found=size, remedy="write it again"
        )
    if 401 <= int(header.ispg) <= 630 and size[2] != int(header.mz):
        raise InputError(
            "it is a stack of several volumes",
            source=path,
            remedy="extract one of them",
        )
    if int(header.nsymbt) < 0:
        raise InputError(
            "it cannot be read as an MRC or CCP4 map, for its header gives an extended header of "
            f"{header.nsymbt} bytes",
            source=path,
            remedy="write it again",
        )
    return header


def _is_mode(mode: int) -> bool:
    try:
        utils.dtype_from_mode(mode)
    except ValueError:
        return False
    return True


def _contents(path: Path, file: BinaryIO, header: np.recarray) -> MrcContents:
    """Read what follows the header."""
    nx, ny, nz = (int(header[name]) for name in ("nx", "ny", "nz"))
    dtype = utils.data_dtype_from_header(header)
    extended, voxels = int(header.nsymbt), nx * ny * nz * dtype.itemsize
    promised = f"{nx} × {ny} × {nz} voxels of mode {int(header.mode)}"
    if extended:
        promised += f" after an extended header of {extended} bytes"
    rest = extended + voxels
    there = bytes_left(file)
    if there is None and HEADER_DTYPE.itemsize + rest > unpack_limit(MAP_LIMIT):
        raise refuse_unpacked(path, unpack_limit(MAP_LIMIT))
    if there is None or there == rest:
        contents = read_most(file, rest + 1)
        there = len(contents)
    if there < rest:
        raise InputError(
            f"it is cut short, for its header promises {promised}",
            source=path,
            remedy="download it again",
        )
    if there > rest:
        raise InputError(
            f"it is longer than the {promised} in its header",
            source=path,
            remedy="write it again",
        )
    data = np.frombuffer(contents, dtype, offset=extended).reshape(nz, ny, nx)
    return MrcContents(
        header, data, _symmetry_records(contents[: min(extended, _MOST_RECORDS * _RECORD + 1)])
    )


def _symmetry_records(extended: bytearray) -> str:
    """Return the operators of an extended header of symmetry records, or nothing where it holds something else."""
    if len(extended) > _MOST_RECORDS * _RECORD:
        return ""
    lines = [
        extended[i : i + _RECORD].decode("ascii", "replace").strip(" \0")
        for i in range(0, len(extended), _RECORD)
    ]
    operators = [line for line in lines if line]
    return "\n".join(operators) if all(line.upper().count(",") == 2 for line in operators) else ""
