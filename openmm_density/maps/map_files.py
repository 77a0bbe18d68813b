"""Map files: MRC2014/CCP4 and SITUS, read and written, and maps from the structure factors of MTZ files."""

from __future__ import annotations

import gzip
import os
import warnings
import zlib
from pathlib import Path
from typing import NamedTuple

import gemmi
import mrcfile
import numpy as np

from openmm_density.errors import InputError
from openmm_density.maps.grids import cell_parameters, check_finite, is_flat
from openmm_density.whole_files import written_whole
from openmm_density.wording import one_line

MRC_SUFFIXES = (".mrc", ".map", ".ccp4")
SITUS_SUFFIXES = (".situs", ".sit")
# Formatted by one operation; a multiple of the ten on a line.
SITUS_VALUES_AT_ONCE = 20_000
MTZ_SUFFIX = ".mtz"

MAP_LABEL = b"openmm-density"
# Nothing in the format itself tells a rectangular cell in P1 from a box of cryo-EM.
CRYSTAL_LABEL = MAP_LABEL + b": one unit cell of a crystal"

# Amplitudes and phases of a map that is to be fitted, by the programs that write them: BUSTER and Phenix, REFMAC,
# Phenix, DM, Parrot.
MTZ_MAP_COLUMNS = (
    ("2FOFCWT", "PH2FOFCWT"),
    ("FWT", "PHWT"),
    ("2FOFCWT_fill", "PH2FOFCWT_fill"),
    ("FDM", "PHIDM"),
    ("parrot.F_phi.F", "parrot.F_phi.phi"),
)
# Grid points per shortest wavelength, where two would hold the map: values between grid points are interpolated
# trilinearly.
MTZ_SAMPLE_RATE = 3.0


POSSIBLE_VOXELS = (0.01, 1000.0)
"""Å."""
FARTHEST_ORIGIN = 1e6
"""Å."""


class PlacedVoxels(NamedTuple):
    """What a map file holds: voxels and their place, as in `openmm_density.maps.DensityMap`."""

    data: np.ndarray
    matrix: np.ndarray
    origin: np.ndarray
    periodic: bool


def read_map(
    path: str | os.PathLike[str], *, columns: tuple[str, str] | None = None, periodic: bool | None = None
) -> PlacedVoxels:
    """Read a map file, or make a map from structure factors; `DensityMap.from_file` tells how.

    Parameters
    ----------
    path : path-like
        ``.mrc``, ``.map``, ``.ccp4``, ``.situs``, ``.sit`` or ``.mtz``, each also with ``.gz``.
    columns : (str, str), optional
        Labels of amplitude and phase in an MTZ file.
    periodic : bool, optional
        Whether the map is (part of) a unit cell, where the file is not to decide.

    Raises
    ------
    InputError
        If the file is missing, is not such a file, is cut short, contradicts itself, or holds no density.
    """
    path = Path(path)
    suffix = _map_suffix(path)
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; give the path of a density map")
    if columns is not None and suffix != MTZ_SUFFIX:
        raise InputError(f"{path}: columns={columns!r} can only be chosen in an .mtz file; leave it out")
    if suffix == MTZ_SUFFIX:
        return _read_mtz(path, columns, periodic)
    voxels = _read_situs(path, periodic) if suffix in SITUS_SUFFIXES else _read_mrc(path, periodic)
    _check_place(voxels, path)
    return voxels


def write_map(path: str | os.PathLike[str], voxels: PlacedVoxels) -> None:
    """Write a map file whole or not at all; `DensityMap.write` tells how.

    Parameters
    ----------
    path : path-like
        ``.mrc``, ``.map``, ``.ccp4``, ``.situs`` or ``.sit``, each also with ``.gz``.
    voxels : PlacedVoxels
        The map.

    Raises
    ------
    InputError
        If the suffix is none of these, the folder does not exist, or the format cannot hold the map.
    """
    path = Path(path)
    suffix = _map_suffix(path)
    if suffix == MTZ_SUFFIX:
        raise InputError(f"{path}: maps are not written as .mtz; use .mrc, .map, .ccp4 or .situs")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist; create it first")
    compressed = path.name.lower().endswith(".gz")
    with written_whole(path) as temporary:
        if suffix in SITUS_SUFFIXES:
            _write_situs(voxels, temporary, compressed, path)
        else:
            _write_mrc(voxels, temporary, compressed, path)


def _map_suffix(path: Path) -> str:
    """Give the suffix that tells the format, without .gz."""
    name = path.name.lower().removesuffix(".gz")
    for suffix in (*MRC_SUFFIXES, *SITUS_SUFFIXES, MTZ_SUFFIX):
        if name.endswith(suffix):
            return suffix
    known = ", ".join((*MRC_SUFFIXES, *SITUS_SUFFIXES, MTZ_SUFFIX))
    raise InputError(f"{path}: its suffix is not a density map's; use one of {known}, each also with .gz")


def _check_density(data: np.ndarray, path: Path) -> None:
    check_finite(data, str(path))
    if data.min() == data.max():
        raise InputError(
            f"{path}: all {data.size} voxels have the value {data.flat[0]:g}, so it holds no density"
        )


def _check_place(voxels: PlacedVoxels, path: Path) -> None:
    """Refuse what a damaged header says: with such sizes and places numbers lose their digits."""
    sides = np.linalg.norm(voxels.matrix, axis=0)
    low, high = POSSIBLE_VOXELS
    if not ((low <= sides) & (sides <= high)).all():
        raise InputError(
            f"{path}: its voxels measure {' × '.join(f'{side:g}' for side in sides)} Å, and a map of molecules has {low:g} to "
            f"{high:g} Å; correct the voxel size in the header"
        )
    if np.abs(voxels.origin).max() > FARTHEST_ORIGIN:
        raise InputError(
            f"{path}: its first voxel is at {[float(f'{value:g}') for value in voxels.origin]} Å, farther away than "
            f"{FARTHEST_ORIGIN:g} Å; correct the header"
        )


def _read_mrc(path: Path, periodic: bool | None) -> PlacedVoxels:
    header, file_data, symmetry = _mrc_contents(path)
    axes = [int(header[name]) for name in ("mapc", "mapr", "maps")]
    if sorted(axes) != [1, 2, 3]:
        raise InputError(
            f"{path}: MAPC, MAPR, MAPS are {axes}, not 1, 2, 3 in some order; the header is damaged, write it again"
        )
    sampling = np.array([int(header[name]) for name in ("mx", "my", "mz")])
    lengths = np.array([float(header["cella"][name]) for name in "xyz"])
    angles = np.array([float(header["cellb"][name]) for name in ("alpha", "beta", "gamma")])
    if (angles == 0).all():
        angles[:] = 90.0
    if not (np.isfinite(lengths).all() and (lengths > 0).all() and (sampling > 0).all()):
        raise InputError(
            f"{path}: its voxels have no size (cell {lengths.tolist()} Å over {sampling.tolist()} grid steps); "
            "set the voxel size in the header"
        )
    if not (np.isfinite(angles).all() and (angles > 0).all() and (angles < 180).all()):
        raise InputError(
            f"{path}: the cell angles {angles.tolist()} are not angles of a cell; correct the header"
        )
    cell = gemmi.UnitCell(*lengths, *angles)
    matrix = np.array(cell.orth.mat.tolist()) / sampling
    if not np.isfinite(matrix).all() or is_flat(matrix):
        raise InputError(
            f"{path}: a cell with the angles {angles.tolist()} has no volume; correct the header"
        )

    # Axis 2 of the file's array runs along the axis that MAPC names, axis 1 along MAPR's, axis 0 along
    # MAPS's.
    of_file = [2 - axes.index(axis) for axis in (3, 2, 1)]
    data = np.ascontiguousarray(file_data.transpose(of_file), dtype=np.float32)
    data.flags.writeable = True
    _check_density(data, path)
    file_start = [int(header[name]) for name in ("nxstart", "nystart", "nzstart")]
    start = np.array([file_start[axes.index(axis)] for axis in (1, 2, 3)])
    origin = np.array([float(header["origin"][name]) for name in "xyz"])
    if not np.isfinite(origin).all():
        raise InputError(f"{path}: the ORIGIN {origin.tolist()} is not finite; correct the header")
    if not origin.any():
        origin = matrix @ start

    covers_cell = data.shape == tuple(sampling[::-1])
    number = int(header["ispg"])
    rectangular = (angles == 90).all()
    labelled = bytes(header["label"][0]).startswith(CRYSTAL_LABEL)
    is_crystal = 1 < number <= 230 or (covers_cell and (labelled or not rectangular))
    if periodic is False or not (is_crystal or periodic):
        return PlacedVoxels(data, matrix, origin, periodic=False)
    if covers_cell:
        return PlacedVoxels(data, matrix, origin, periodic=True)
    whole = _whole_cell(data, start, sampling, cell, _space_group(number, symmetry, cell))
    if whole is not None:
        return PlacedVoxels(whole, matrix, origin - matrix @ start, periodic=True)
    if periodic:
        raise InputError(
            f"{path}: {data.shape[::-1]} of the cell's {tuple(sampling)} grid points do not cover an asymmetric unit, "
            "so it cannot be periodic; leave periodic out, or give a map of a whole cell"
        )
    return PlacedVoxels(data, matrix, origin, periodic=False)


def _mrc_contents(path: Path) -> tuple[np.recarray, np.ndarray, str]:
    """Read header, voxels in the file's axis order (3-D), and the symmetry operators as text, one per line."""
    _check_map_letters(path)
    header, *_ = _opened(path, header_only=True)
    mode = int(header["mode"])
    if mode not in (0, 1, 2, 6, 12):
        raise InputError(f"{path}: mode {mode} does not hold a density; write it in mode 0, 1, 2, 6 or 12")
    size = [int(header[name]) for name in ("nx", "ny", "nz")]
    if min(size) <= 0:
        raise InputError(f"{path}: its header gives the impossible size {size}; write it again")
    if 401 <= int(header["ispg"]) <= 630 and size[2] != int(header["mz"]):
        raise InputError(f"{path}: it is a stack of several volumes; extract one of them")
    header, data, extended, complaints = _opened(path, header_only=False)
    promised = f"{size[0]} × {size[1]} × {size[2]} voxels of mode {mode}"
    if data is None or extended is None:
        raise InputError(f"{path}: it is cut short, for its header promises {promised}; fetch it again")
    if "larger than expected" in complaints:
        raise InputError(f"{path}: it is longer than the {promised} in its header; write it again")
    return header, data.reshape(size[::-1]), _symmetry_records(extended.tobytes())


def _check_map_letters(path: Path) -> None:
    # mrcfile would first take whatever the file holds for the length of an extended header, and make room for it.
    try:
        with open(path, "rb") as plain:
            compressed = plain.read(2) == b"\x1f\x8b"
        with gzip.open(path) if compressed else open(path, "rb") as file:
            start = file.read(211)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: it cannot be read ({one_line(error)})") from error
    if start[208:] != b"MAP":
        raise InputError(f"{path}: it is not an MRC or CCP4 map, for it lacks the letters MAP at byte 208")


def _opened(path: Path, header_only: bool) -> tuple[np.recarray, np.ndarray | None, np.ndarray | None, str]:
    """Let mrcfile read header, data and extended header, and give its complaints as text.

    It is permissive, because some programs write a machine stamp that contradicts the byte order that they used.
    """
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with mrcfile.open(path, permissive=True, header_only=header_only) as file:
                contents = file.header, file.data, file.extended_header
    except (ValueError, OSError, EOFError, MemoryError, zlib.error) as error:
        raise InputError(f"{path}: it cannot be read as an MRC or CCP4 map ({one_line(error)})") from error
    return *contents, " ".join(str(warning.message) for warning in caught)


def _symmetry_records(extended: bytes) -> str:
    """Give the operators of an extended header of symmetry records, or nothing where it holds something else."""
    lines = [
        extended[i : i + 80].decode("ascii", "replace").strip(" \0") for i in range(0, len(extended), 80)
    ]
    operators = [line for line in lines if line]
    return "\n".join(operators) if all(line.upper().count(",") == 2 for line in operators) else ""


def _space_group(number: int, symmetry: str, cell: gemmi.UnitCell) -> gemmi.SpaceGroup | None:
    """Give the space group in the setting that the operators or the cell show; a number names several settings."""
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
    if group is None:
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
            f"{path}: an MRC file cannot hold a grid that is rotated or mirrored; "
            "resample the map on a grid whose first axis is x and second lies in the x-y plane"
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
            header.label[0] = MAP_LABEL
            if voxels.periodic:
                header.label[0] = CRYSTAL_LABEL
                file.set_extended_header(np.frombuffer(b"X,Y,Z".ljust(80), dtype="V80"))
                header.exttyp = b"CCP4"


def _read_situs(path: Path, periodic: bool | None) -> PlacedVoxels:
    if periodic:
        raise InputError(f"{path}: a SITUS map has no unit cell and cannot be periodic; leave periodic out")
    try:
        with gzip.open(path, "rb") if path.name.lower().endswith(".gz") else open(path, "rb") as file:
            text = file.read()
        tokens = text.split(None, 7)
        spacing, *origin = (float(token) for token in tokens[:4])
        nx, ny, nz = (int(token) for token in tokens[4:7])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            values = np.fromstring(tokens[7] if len(tokens) > 7 else b"", dtype=np.float32, sep=" ")
    except (ValueError, OSError, EOFError, zlib.error, DeprecationWarning) as error:
        raise InputError(f"{path}: it cannot be read as a SITUS map ({one_line(error)})") from error
    if not (np.isfinite(spacing) and spacing > 0 and min(nx, ny, nz) > 0 and np.isfinite(origin).all()):
        raise InputError(
            f"{path}: its first line gives voxels of {spacing} Å, the origin {origin} and the size {[nx, ny, nz]}; "
            "a SITUS map needs a positive voxel size and size"
        )
    if values.size != nx * ny * nz:
        raise InputError(
            f"{path}: it has {values.size} values where its first line promises {nx} × {ny} × {nz}; fetch it again"
        )
    _check_density(values, path)
    return PlacedVoxels(values.reshape(nz, ny, nx), np.diag([spacing] * 3), np.array(origin), periodic=False)


def _write_situs(voxels: PlacedVoxels, temporary: Path, compressed: bool, path: Path) -> None:
    step = voxels.matrix[0, 0]
    if voxels.periodic:
        raise InputError(
            f"{path}: a SITUS file cannot say that a map is periodic; write .ccp4, or crop the map first"
        )
    if np.abs(voxels.matrix - np.diag([step] * 3)).max() > 1e-6 * abs(step) or step <= 0:
        raise InputError(
            f"{path}: a SITUS file only holds cubic voxels, not {np.linalg.norm(voxels.matrix, axis=0).tolist()} Å on this grid; "
            "write .mrc"
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
    """Give the format of a line of n values; nine significant digits tell every float32 apart."""
    return " ".join(["%.9g"] * n) + "\n" if n else ""


def _read_mtz(path: Path, columns: tuple[str, str] | None, periodic: bool | None) -> PlacedVoxels:
    try:
        mtz = gemmi.read_mtz_file(str(path))
    except (RuntimeError, ValueError, OSError) as error:
        raise InputError(f"{path}: it cannot be read as an MTZ file ({one_line(error)})") from error
    amplitude, phase = _map_columns(mtz, columns, path)
    try:
        grid = mtz.transform_f_phi_to_map(amplitude, phase, sample_rate=MTZ_SAMPLE_RATE)
    except (RuntimeError, ValueError) as error:
        raise InputError(
            f"{path}: columns {amplitude} and {phase} give no map ({one_line(error)}); choose others with columns="
        ) from error
    data = np.ascontiguousarray(grid.array.T)
    _check_density(data, path)
    matrix = np.array(grid.unit_cell.orth.mat.tolist()) / (grid.nu, grid.nv, grid.nw)
    return PlacedVoxels(data, matrix, np.zeros(3), periodic=periodic is not False)


def _map_columns(mtz: gemmi.Mtz, columns: tuple[str, str] | None, path: Path) -> tuple[str, str]:
    """Give the labels of amplitude and phase to make a map from."""
    types = {column.label: column.type for column in mtz.columns}
    available = ", ".join(f"{label} ({kind})" for label, kind in types.items())
    if columns is not None:
        if isinstance(columns, str) or len(columns) != 2:
            raise InputError(f"{path}: columns={columns!r} must be two labels, of amplitude and phase")
        for label, kind, meaning in zip(columns, "FP", ("amplitudes (type F)", "phases (type P)")):
            if types.get(label) != kind:
                raise InputError(
                    f"{path}: column {label!r} does not hold {meaning}; its columns are {available}"
                )
        return columns[0], columns[1]
    for amplitude, phase in MTZ_MAP_COLUMNS:
        if types.get(amplitude) == "F" and types.get(phase) == "P":
            return amplitude, phase
    raise InputError(f"{path}: it has no map coefficients of a usual name; choose columns= among {available}")
