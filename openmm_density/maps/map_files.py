"""Map files: MRC2014/CCP4 and SITUS, read and written, and maps from the structure factors of MTZ files."""

from __future__ import annotations

import gzip
import math
import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import gemmi
import mrcfile
import numpy as np

from ..base.atomic_files import atomic_write
from ..base.errors import InputError, as_argument, level_outside
from ..base.given_files import check_given_file
from ..base.unpacking import MAP_LIMIT, read_unpacked
from ..base.wording import one_line
from .grids import cell_parameters, check_finite, is_flat
from .map_suffixes import (
    check_can_be_written,
    check_columns,
    format_of_map_name,
    is_map_name,
    map_format,
)
from .mrc_contents import read_mrc_contents
from .mtz_maps import read_mtz_map

# Formatted by one operation; a multiple of the ten on a line.
SITUS_VALUES_AT_ONCE = 20_000
LONGEST_SITUS_NUMBER = 40
MAP_LABEL = b"openmm-density"
# Nothing in the format itself tells a rectangular cell in P1 from a box of cryo-EM.
CRYSTAL_LABEL = MAP_LABEL + b": one unit cell of a crystal"
PIECE_LABEL = MAP_LABEL + b": a piece of a crystal"
# Before the space group, which the header cannot name of what is written whole, as in P 1.
_IN = " in "

POSSIBLE_VOXELS = (0.01, 1000.0)
"""Å."""
FARTHEST_ORIGIN = 1e6
"""Å."""
WHOLE_STEPS = 1e-3
"""Steps of a grid by which its origin may differ from a whole number of them that is written for it."""


class PlacedVoxels(NamedTuple):
    """What a map file holds: voxels and their place, as in `openmm_density.maps.DensityMap`."""

    data: np.ndarray
    matrix: np.ndarray
    origin: np.ndarray
    periodic: bool
    space_group: str | None = None


def read_map(
    path: str | os.PathLike[str], *, columns: tuple[str, str] | None = None, periodic: bool | None = None
) -> PlacedVoxels:
    """Read a map file, or make a map from structure factors; `DensityMap.from_file` tells how."""
    path = Path(path)
    check_given_file(path, "give the path of a density map")
    format_ = map_format(path)
    check_columns(path, columns)
    if not is_map_name(path) or format_ != format_of_map_name(path):
        warnings.warn(
            f"{path.name} is read as {format_}, which it is by its content", stacklevel=level_outside()
        )
    if format_ == "MTZ":
        data, matrix, group = read_mtz_map(path, columns)
        _check_density(data, path)
        voxels = PlacedVoxels(data, matrix, np.zeros(3), periodic is not False, group.xhm())
    elif format_ == "SITUS":
        voxels = _read_situs(path, periodic)
    else:
        voxels = _read_mrc(path, periodic)
    _check_place(voxels, path)
    return voxels


def write_map(path: str | os.PathLike[str], voxels: PlacedVoxels) -> None:
    """Write a map file whole or not at all; `DensityMap.write` tells how."""
    path = Path(path)
    format_ = check_can_be_written(path)
    compressed = path.name.lower().endswith(".gz")
    with atomic_write(path) as temporary:
        if format_ == "SITUS":
            _write_situs(voxels, temporary, compressed, path)
        else:
            _write_mrc(voxels, temporary, compressed, path)


def _check_density(data: np.ndarray, path: Path) -> None:
    check_finite(data, str(path))
    if data.min() == data.max():
        raise InputError(
            f"all {data.size} voxels have the value {data.flat[0]:g}, so it holds no density",
            source=path,
            remedy="give another map",
        )


def _check_place(voxels: PlacedVoxels, path: Path) -> None:
    """Refuse what a damaged header says: with such sizes and places numbers lose their digits."""
    sides = np.linalg.norm(voxels.matrix, axis=0)
    low, high = POSSIBLE_VOXELS
    if not ((low <= sides) & (sides <= high)).all():
        raise InputError(
            f"its voxels must measure {low:g} to {high:g} Å, as in any map of a molecule",
            source=path,
            found=f"{' × '.join(f'{side:g}' for side in sides)} Å",
            remedy="correct the voxel size in the header",
        )
    if np.abs(voxels.origin).max() > FARTHEST_ORIGIN:
        raise InputError(
            f"its first voxel must be within {FARTHEST_ORIGIN:g} Å",
            source=path,
            found=f"{[float(f'{value:g}') for value in voxels.origin]} Å",
            remedy="correct the header",
        )


def _mrc_grid(path: Path, header: np.recarray) -> tuple[list[int], np.ndarray, gemmi.UnitCell, np.ndarray]:
    """Return what a header says of the grid: the order of the axes, the grid steps along the cell, the cell, and the matrix."""
    axes = [int(header[name]) for name in ("mapc", "mapr", "maps")]
    if sorted(axes) != [1, 2, 3]:
        raise InputError(
            "MAPC, MAPR, MAPS must be 1, 2, 3 in some order",
            source=path,
            found=axes,
            remedy="write it again, as the header is damaged",
        )
    sampling = np.array([int(header[name]) for name in ("mx", "my", "mz")])
    lengths = np.array([float(header["cella"][name]) for name in "xyz"])
    angles = np.array([float(header["cellb"][name]) for name in ("alpha", "beta", "gamma")])
    if (angles == 0).all():
        angles[:] = 90.0
    if not (np.isfinite(lengths).all() and (lengths > 0).all() and (sampling > 0).all()):
        raise InputError(
            "its voxels have no size",
            source=path,
            found=f"a cell of {lengths.tolist()} Å over {sampling.tolist()} grid steps",
            remedy="set the voxel size in the header",
        )
    if not (np.isfinite(angles).all() and (angles > 0).all() and (angles < 180).all()):
        raise InputError(
            "the cell angles are impossible",
            source=path,
            found=angles.tolist(),
            remedy="correct the header",
        )
    cell = gemmi.UnitCell(*lengths, *angles)
    matrix = np.array(cell.orth.mat.tolist()) / sampling
    if not np.isfinite(matrix).all() or is_flat(matrix):
        raise InputError(
            "its cell has no volume",
            source=path,
            found=f"angles of {angles.tolist()}",
            remedy="correct the header",
        )
    return axes, sampling, cell, matrix


def _read_mrc(path: Path, periodic: bool | None) -> PlacedVoxels:
    header, file_data, symmetry = read_mrc_contents(path)
    axes, sampling, cell, matrix = _mrc_grid(path, header)
    # Axis 2 of the file's array runs along the axis that MAPC names, axis 1 along MAPR's, axis 0 along
    # MAPS's.
    of_file = [2 - axes.index(axis) for axis in (3, 2, 1)]
    # An extended header of an odd length leaves the voxels between the places that memory has for them.
    data = np.require(file_data.transpose(of_file), np.float32, ["C", "A", "W"])
    _check_density(data, path)
    file_start = [int(header[name]) for name in ("nxstart", "nystart", "nzstart")]
    start = np.array([file_start[axes.index(axis)] for axis in (1, 2, 3)])
    origin = np.array([float(header["origin"][name]) for name in "xyz"])
    if not np.isfinite(origin).all():
        raise InputError(
            "the ORIGIN is not finite", source=path, found=origin.tolist(), remedy="correct the header"
        )
    if not origin.any():
        origin = matrix @ start

    covers_cell = data.shape == tuple(sampling[::-1])
    number = int(header["ispg"])
    rectangular = (cell.alpha, cell.beta, cell.gamma) == (90.0, 90.0, 90.0)
    label = bytes(header["label"][0])
    labelled = label.startswith(CRYSTAL_LABEL)
    is_crystal = 1 < number <= 230 or (covers_cell and (labelled or not rectangular))
    group = _space_group(number, symmetry, cell)
    name = group.xhm() if group is not None and number > 1 else _labelled_group(label)
    if periodic is False or not (is_crystal or periodic):
        of_crystal = is_crystal or label.startswith(PIECE_LABEL)
        return PlacedVoxels(data, matrix, origin, False, name if of_crystal else None)
    if covers_cell:
        return PlacedVoxels(data, matrix, origin, True, name)
    whole = _whole_cell(data, start, sampling, cell, group)
    if whole is not None:
        return PlacedVoxels(whole, matrix, origin - matrix @ start, True, name)
    if periodic:
        raise InputError(
            f"{data.shape[::-1]} of the cell's {tuple(sampling)} grid points do not cover an asymmetric unit, "
            "so it cannot be periodic",
            source=path,
            remedy=f"leave {as_argument('periodic')} out, or give a map of a whole cell",
        )
    return PlacedVoxels(data, matrix, origin, False, name if is_crystal else None)


def _labelled_group(label: bytes) -> str:
    """Return the space group that a label of ours names; empty where it names none."""
    if not label.startswith((CRYSTAL_LABEL, PIECE_LABEL)):
        return ""
    group = gemmi.find_spacegroup_by_name(label.decode("latin-1").partition(_IN)[2].strip("\0 "))
    return "" if group is None else group.xhm()


def _space_group(number: int, symmetry: str, cell: gemmi.UnitCell) -> gemmi.SpaceGroup | None:
    """Return the space group in the setting that the operators or the cell show; a number names several settings."""
    try:
        operators = gemmi.GroupOps([gemmi.Op(operator) for operator in symmetry.splitlines()])
        group = gemmi.find_spacegroup_by_ops(operators) if symmetry else None
    except (RuntimeError, ValueError):
        group = None
    if group is not None and group.number == max(number, 1):
        return group
    group = gemmi.find_spacegroup_by_number(max(number, 1))
    return group and gemmi.find_spacegroup_by_name(group.hm, cell.alpha, cell.gamma)


def _whole_cell(
    data: np.ndarray,
    start: np.ndarray,
    sampling: np.ndarray,
    cell: gemmi.UnitCell,
    group: gemmi.SpaceGroup | None,
) -> np.ndarray | None:
    """Expand part of a crystal to the whole cell by symmetry, or give None where it does not cover it."""
    # The images of an asymmetric unit cover the cell: no more points than that are worth memory.
    if group is None or math.prod(sampling.tolist()) > data.size * len(list(group.operations())):
        return None
    try:
        grid = gemmi.FloatGrid(*sampling.tolist())
        grid.spacegroup = group
        grid.set_unit_cell(cell)
        grid.fill(-np.inf)
        piece = np.ix_(
            *[np.arange(first, first + n) % cycle for first, n, cycle in zip(start, data.T.shape, sampling)]
        )
        grid.array[piece] = data.T
        grid.symmetrize_max()
    except (RuntimeError, ValueError):
        # gemmi refuses a sampling that the symmetry operators do not map onto itself.
        return None
    # Where the piece overlaps its own images, what was read stays as it was read.
    grid.array[piece] = data.T
    whole = np.ascontiguousarray(grid.array.T)
    return whole if np.isfinite(whole.sum(dtype=np.float64)) else None


def _write_mrc(voxels: PlacedVoxels, temporary: Path, compressed: bool, path: Path) -> None:
    size = np.array(voxels.data.shape[::-1])
    vectors = voxels.matrix * size
    *lengths, alpha, beta, gamma = cell_parameters(vectors)
    standard = np.array(gemmi.UnitCell(*lengths, alpha, beta, gamma).orth.mat.tolist())
    if np.abs(standard - vectors).max() > 1e-5 * np.abs(vectors).max():
        raise InputError(
            "an MRC file cannot hold a grid that is rotated or mirrored",
            source=path,
            remedy="resample the map on a grid whose first axis is x and second lies in the x-y plane",
        )
    rectangular = (alpha, beta, gamma) == (90.0, 90.0, 90.0)
    # A finite triclinic box that filled its cell would read as a crystal's: call it a piece of a larger cell.
    sampling = size if voxels.periodic or rectangular else size + 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with mrcfile.new(temporary, compression="gzip" if compressed else None, overwrite=True) as file:
            file.set_data(voxels.data)
            file.set_volume()
            header = file.header
            header.mx, header.my, header.mz = sampling
            header.cella = tuple(np.array(lengths) * (sampling / size))
            header.cellb = (alpha, beta, gamma)
            header.origin = tuple(voxels.origin)
            _set_start(header, voxels)
            named = f"{_IN}{voxels.space_group}".encode() if voxels.space_group else b""
            header.label[0] = MAP_LABEL if voxels.space_group is None else PIECE_LABEL + named
            if voxels.periodic:
                header.label[0] = CRYSTAL_LABEL + named
                file.set_extended_header(np.frombuffer(b"X,Y,Z".ljust(80), dtype="V80"))
                header.exttyp = b"CCP4"


def _set_start(header: np.recarray, voxels: PlacedVoxels) -> None:
    """Write where the grid begins as whole steps as well, where it does: some programs, such as Coot, read no ORIGIN."""
    steps = np.linalg.solve(voxels.matrix, voxels.origin)
    if np.abs(steps - np.round(steps)).max() < WHOLE_STEPS and np.abs(steps).max() < 2**31:
        header.nxstart, header.nystart, header.nzstart = (int(step) for step in np.round(steps))


def _read_situs(path: Path, periodic: bool | None) -> PlacedVoxels:
    if periodic:
        raise InputError(
            "a SITUS map has no unit cell and cannot be periodic",
            source=path,
            remedy=f"leave {as_argument('periodic')} out",
        )
    try:
        head, values = _situs_numbers(read_unpacked(path, MAP_LIMIT))
    except InputError:
        raise
    except (ValueError, OSError, DeprecationWarning) as error:
        raise InputError(
            f"it cannot be read as a SITUS map ({one_line(error)})", source=path, remedy="download it again"
        ) from error
    (spacing, *origin), size = head[:4], head[4:]
    if not (np.isfinite(spacing) and spacing > 0 and min(size) > 0 and np.isfinite(origin).all()):
        raise InputError(
            "its first line must give a positive voxel size, an origin and a positive size",
            source=path,
            found=f"voxels of {spacing} Å, the origin {origin} and the size {size}",
            remedy="download it again",
        )
    if values.size != math.prod(size):
        promised = " × ".join(map(str, size))
        raise InputError(
            f"it does not have the {promised} values that its first line promises",
            source=path,
            found=int(values.size),
            remedy="download it again",
        )
    _check_density(values, path)
    return PlacedVoxels(values.reshape(size[::-1]), np.diag([spacing] * 3), np.array(origin), periodic=False)


def _situs_numbers(text: bytearray) -> tuple[list[Any], np.ndarray]:
    """Return voxel size, origin and size of a SITUS map, and its values."""
    tokens = text.split(None, 7)
    if len(tokens) < 7 or max(map(len, tokens[:7])) > LONGEST_SITUS_NUMBER:
        raise ValueError("its first line is not seven numbers")
    head = [float(token) for token in tokens[:4]] + [int(token) for token in tokens[4:7]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return head, np.fromstring(bytes(tokens[7]) if len(tokens) > 7 else b"", dtype=np.float32, sep=" ")


def _write_situs(voxels: PlacedVoxels, temporary: Path, compressed: bool, path: Path) -> None:
    step = voxels.matrix[0, 0]
    if voxels.periodic:
        raise InputError(
            "a SITUS file cannot say that a map is periodic",
            source=path,
            remedy="write .ccp4, or crop the map first",
        )
    if np.abs(voxels.matrix - np.diag([step] * 3)).max() > 1e-6 * abs(step) or step <= 0:
        raise InputError(
            "a SITUS file only holds cubic voxels along x, y and z",
            source=path,
            found=f"{np.linalg.norm(voxels.matrix, axis=0).tolist()} Å on this grid",
            remedy="write .mrc",
        )
    nz, ny, nx = voxels.data.shape
    values = voxels.data.reshape(-1)
    with gzip.open(temporary, "wt") if compressed else open(temporary, "w") as file:
        file.write(" ".join(map(repr, [float(step), *voxels.origin.tolist()])) + f" {nx} {ny} {nz}\n\n")
        for first in range(0, len(values), SITUS_VALUES_AT_ONCE):
            block = values[first : first + SITUS_VALUES_AT_ONCE].tolist()
            lines, rest = divmod(len(block), 10)
            file.write((_situs_line(10) * lines + _situs_line(rest)) % tuple(block))


def _situs_line(n: int) -> str:
    """Return the format of a line of n values; nine significant digits tell every float32 apart."""
    return " ".join(["%.9g"] * n) + "\n" if n else ""
