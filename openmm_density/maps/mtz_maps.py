"""Maps from the structure factors of MTZ files, whose header is checked against the file first."""

from __future__ import annotations

import math
import os
import struct
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import gemmi
import numpy as np

from ..base.errors import InputError, as_argument
from ..base.unpacking import read_unpacked
from ..base.wording import one_line
from .grids import MOST_VOXELS, is_flat

# Amplitudes and phases of a map that is to be fitted, by the programs that write them: BUSTER and Phenix, REFMAC,
# Phenix, DM, Parrot.
MAP_COLUMNS = (
    ("2FOFCWT", "PH2FOFCWT"),
    ("FWT", "PHWT"),
    ("2FOFCWT_fill", "PH2FOFCWT_fill"),
    ("FDM", "PHIDM"),
    ("parrot.F_phi.F", "parrot.F_phi.phi"),
)
# Grid points per shortest wavelength, where two would hold the map: values between grid points are interpolated
# trilinearly.
SAMPLE_RATE = 3.0
# Grid points for each reflection and symmetry operator; complete data have 13. A damaged index makes a grid of
# many more, of which next to nothing is known. Small grids do no harm.
MOST_POINTS_PER_REFLECTION = 1000
HARMLESS_POINTS = 1 << 22

_RECORD = 80
_DAMAGED = "download it again, as it is damaged"


def read_mtz_map(
    path: str | os.PathLike[str], columns: tuple[str, str] | None = None
) -> tuple[np.ndarray, np.ndarray, gemmi.SpaceGroup]:
    """Return a cell's float32 map (nz, ny, nx), the grid's steps as columns (3, 3) in Å, and the space group."""
    path = Path(path)
    mtz = read_mtz(path)
    amplitude, phase = _labels(mtz, columns, path)
    check_reflections(mtz, path)
    try:
        grid = mtz.transform_f_phi_to_map(amplitude, phase, sample_rate=SAMPLE_RATE)
    except (RuntimeError, ValueError) as error:
        raise InputError(
            f"columns {amplitude} and {phase} give no map ({one_line(error)})",
            source=path,
            remedy=f"choose others with {as_argument('columns')}",
        ) from error
    matrix = np.array(grid.unit_cell.orth.mat.tolist()) / (grid.nu, grid.nv, grid.nw)
    return np.ascontiguousarray(grid.array.T), matrix, mtz.spacegroup


def read_mtz(path: Path) -> gemmi.Mtz:
    """Read an MTZ file, compressed or not, whose header promises no more than it holds."""
    try:
        contents = read_unpacked(path)
        _check_length(contents)
        with _unpacked(path, contents) as plain:
            return gemmi.read_mtz_file(plain)
    except InputError:
        raise
    except (RuntimeError, ValueError, IndexError, OSError) as error:
        raise InputError(
            f"it cannot be read as an MTZ file ({one_line(error)})", source=path, remedy="check the file"
        ) from error


@contextmanager
def _unpacked(path: Path, contents: bytearray) -> Iterator[str]:
    """Yield the name of a file with these contents, which gemmi reads by name."""
    if path.stat().st_size == len(contents):
        yield str(path)
        return
    with tempfile.NamedTemporaryFile(suffix=".mtz") as file:
        file.write(contents)
        file.flush()
        yield file.name


def _check_length(contents: bytearray) -> None:
    """Refuse a header that gives other numbers of columns and reflections than there is room for."""
    if contents[:4] != b"MTZ ":
        raise ValueError("it does not start with MTZ")
    if len(contents) < _RECORD:
        raise ValueError("it is cut short")
    # As in the machine stamp: 1 is big-endian, all else is taken for little-endian.
    order = ">" if contents[9] >> 4 == 1 else "<"
    words = struct.unpack_from(f"{order}i", contents, 4)[0]
    if words == -1:
        words = struct.unpack_from(f"{order}q", contents, 12)[0]
    start = 4 * (words - 1)
    if not _RECORD <= start < len(contents):
        raise ValueError(f"its header would be at byte {start} of {len(contents)}")
    for place in range(start, len(contents), _RECORD):
        fields = contents[place : place + _RECORD].split()
        if fields[:1] == [b"NCOL"]:
            columns, reflections, batches = (int(field) for field in [*fields[1:4], 0, 0, 0][:3])
            break
    else:
        raise ValueError("its header does not give the number of columns")
    if columns < 0 or not 0 <= batches <= len(contents) // _RECORD or reflections < 0:
        raise ValueError(
            f"its header gives {columns} columns, {reflections} reflections and {batches} batches"
        )
    if 4 * columns * reflections > start - _RECORD:
        raise ValueError(
            f"its header gives {reflections} reflections in {columns} columns, and it has room for "
            f"{(start - _RECORD) // 4} numbers"
        )


def usual_map_columns(types: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the first labels of map coefficients of a usual name among the types of columns, or None."""
    return next(
        ((f, phi) for f, phi in MAP_COLUMNS if types.get(f) == "F" and types.get(phi) == "P"),
        None,
    )


def _labels(mtz: gemmi.Mtz, columns: tuple[str, str] | None, path: Path) -> tuple[str, str]:
    """Return the labels of amplitude and phase to make a map from."""
    try:
        types = {column.label: column.type for column in mtz.columns}
    except (RuntimeError, ValueError, TypeError):
        raise InputError(
            "the labels of its columns are not text",
            source=path,
            remedy=_DAMAGED,
        ) from None
    available = ", ".join(f"{label} ({kind})" for label, kind in types.items())
    if columns is not None:
        if isinstance(columns, str) or len(columns) != 2:
            raise InputError(
                "must be two labels, of amplitude and phase",
                source=path,
                argument="columns",
                found=repr(columns),
                remedy="give both",
            )
        for label, kind, meaning in zip(columns, "FP", ("amplitudes (type F)", "phases (type P)")):
            if types.get(label) != kind:
                raise InputError(
                    f"column {label!r} does not hold {meaning}",
                    source=path,
                    remedy=f"choose among its columns, {available}",
                )
        return columns[0], columns[1]
    usual = usual_map_columns(types)
    if usual is not None:
        return usual
    kinds = set(types.values())
    if not {"F", "P"} <= kinds:
        measured = "" if kinds & {"F", "J", "G", "K"} else " nor measured amplitudes or intensities"
        raise InputError(
            f"it has no map coefficients (amplitudes and phases){measured}; its columns are {available}",
            source=path,
            remedy="give the file that has them",
        )
    raise InputError(
        f"it has no map coefficients of a usual name; its columns are {available}",
        source=path,
        remedy=f"choose two of them with {as_argument('columns')}",
    )


def check_reflections(mtz: gemmi.Mtz, path: Path) -> None:
    """Refuse indices and cells that are damaged: from them follows how large the grid becomes."""
    if [column.type for column in mtz.columns][:3] != ["H"] * 3 or not mtz.nreflections:
        raise InputError(
            "it has no reflections, or no indices H, K, L before them",
            source=path,
            remedy=_DAMAGED,
        )
    indices = np.array(mtz, copy=False)[:, :3]
    if not (np.isfinite(indices).all() and (indices == np.rint(indices)).all()):
        raise InputError(
            "it has Miller indices that are not whole numbers",
            source=path,
            remedy=_DAMAGED,
        )
    for cell in (mtz.cell, mtz.get_cell()):
        matrix = np.array(cell.orth.mat.tolist())
        lengths = np.array([cell.a, cell.b, cell.c])
        if not (np.isfinite(matrix).all() and (lengths > 1).all() and (lengths < 1e5).all()) or is_flat(
            matrix
        ):
            raise InputError(
                f"its unit cell {cell.parameters} is none",
                source=path,
                remedy=_DAMAGED,
            )
    if mtz.spacegroup is None:
        raise InputError(
            "its space group is not known",
            source=path,
            remedy=_DAMAGED,
        )
    farthest = np.abs(indices.astype(np.float64)).max()
    if farthest > mtz.nreflections * len(list(mtz.spacegroup.operations())):
        raise InputError(
            f"it has a Miller index of {farthest:g} among {mtz.nreflections} reflections",
            source=path,
            remedy=_DAMAGED,
        )
    points = math.prod(mtz.get_size_for_hkl(sample_rate=SAMPLE_RATE))
    known = MOST_POINTS_PER_REFLECTION * mtz.nreflections * len(list(mtz.spacegroup.operations()))
    if not 0 < points <= min(max(known, HARMLESS_POINTS), MOST_VOXELS):
        raise InputError(
            f"its {mtz.nreflections} reflections span a grid of {points} points, which they cannot determine",
            source=path,
            remedy=_DAMAGED,
        )
