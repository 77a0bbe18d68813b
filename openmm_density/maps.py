"""Density maps: read, written, cropped, resampled, filtered, and simulated from a model."""

from __future__ import annotations

import gzip
import os
import uuid
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gemmi
import mrcfile
import numpy as np
from openmm import unit
from scipy import fft, ndimage, signal

from openmm_density.errors import InputError
from openmm_density.units import in_angstrom, positions_in_angstrom, value_in

if TYPE_CHECKING:
    from openmm.app import Topology

MRC_SUFFIXES = (".mrc", ".map", ".ccp4")
SITUS_SUFFIXES = (".situs", ".sit")
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

# The reported correlation is taken within this distance (Å) of the atoms, from a density with this B (Å²) per Å of
# resolution.
MASK_RADIUS = 3.0
B_PER_RESOLUTION = 8.0
# With this much aliasing allowed at the resolution's edge, before form factors damp it further, and the ripples of
# the cut reaching around a box of this margin, correlations are within 0.001 of their limit.
ALIASING = 0.05
MARGIN_PER_RESOLUTION = 3.0

STAMPED_VOXELS_AT_ONCE = 1 << 21
MOST_VOXELS = 1 << 30


@dataclass(frozen=True, eq=False)
class DensityMap:
    """A density on a grid that is placed in Cartesian space; immutable by convention.

    Grid point (i, j, k) along x, y, z lies at ``origin + matrix @ (i, j, k)``; its value is ``data[k, j, i]``.

    Parameters
    ----------
    data : np.ndarray, shape (nz, ny, nx)
        Density, kept as C-contiguous float32 (not copied if it is that already).
    matrix : np.ndarray, shape (3, 3)
        Its columns are the Cartesian steps in Å for one index step along x, y and z.
    origin : np.ndarray, shape (3,)
        Cartesian position in Å of grid point (0, 0, 0).
    periodic : bool
        True only where the grid is one whole unit cell of a crystal.

    Raises
    ------
    InputError
        If an array has the wrong shape, the steps do not span space, or a value is not finite.
    """

    data: np.ndarray
    matrix: np.ndarray
    origin: np.ndarray
    periodic: bool = False

    def __post_init__(self) -> None:
        data = np.ascontiguousarray(self.data, dtype=np.float32)
        matrix = np.array(self.matrix, dtype=np.float64)
        origin = np.array(self.origin, dtype=np.float64)
        if data.ndim != 3 or data.size == 0:
            raise InputError(f"a density map needs data of shape (nz, ny, nx), found {data.shape}")
        if matrix.shape != (3, 3) or origin.shape != (3,):
            raise InputError(
                f"a density map needs a matrix of shape (3, 3) and an origin of shape (3,), "
                f"found {matrix.shape} and {origin.shape}"
            )
        if not np.isfinite(matrix).all() or not np.isfinite(origin).all() or _is_flat(matrix):
            raise InputError("a density map needs a finite origin and three steps that span space")
        _check_finite(data, "the density map")
        for name, value in (("data", data), ("matrix", matrix), ("origin", origin)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "periodic", bool(self.periodic))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Number of grid points as (nz, ny, nx)."""
        return self.data.shape

    @property
    def size(self) -> np.ndarray:
        """Number of grid points as (nx, ny, nz), the order of every index and vector outside ``data``."""
        return np.array(self.data.shape[::-1])

    @property
    def voxel_size(self) -> np.ndarray:
        """Lengths in Å of the steps along x, y and z, shape (3,)."""
        return np.linalg.norm(self.matrix, axis=0)

    @property
    def voxel_volume(self) -> float:
        """Volume of one voxel in Å³."""
        return float(abs(np.linalg.det(self.matrix)))

    @property
    def is_orthogonal(self) -> bool:
        """Whether the steps lead along the Cartesian axes x, y and z, in the positive sense."""
        off_axis = self.matrix - np.diag(self.voxel_size)
        return bool(np.abs(off_axis).max() < 1e-6 * self.voxel_size.min())

    @property
    def cell(self) -> tuple[float, float, float, float, float, float]:
        """Lengths in Å and angles in degrees of the box that the whole grid fills; a crystal's unit cell."""
        return _cell_parameters(self.matrix * self.size)

    def to_index(self, points: Any) -> np.ndarray:
        """Give the fractional grid indices (i, j, k) of points, shape (N, 3).

        Parameters
        ----------
        points : Quantity or array_like, shape (N, 3)
            Cartesian positions in Å.
        """
        return (positions_in_angstrom(points) - self.origin) @ np.linalg.inv(self.matrix).T

    def overlap(self, start: np.ndarray, size: np.ndarray) -> tuple[tuple[Any, ...], tuple[slice, ...]]:
        """Match a box of grid points with the voxels of the map.

        Parameters
        ----------
        start, size : np.ndarray of int, shape (3,)
            The box's first indices (i, j, k), which may lie outside the map, and its number of points.

        Returns
        -------
        on_map, of_box : tuples
            Indices into `data` and into an array of the box, shape (nz, ny, nx), that select the same grid
            points. On a periodic map the whole box is selected, and one voxel may come more than once.
        """
        if self.periodic:
            x, y, z = (np.arange(first, first + n) % cycle for first, n, cycle in zip(start, size, self.size))
            return np.ix_(z, y, x), (slice(None),) * 3
        first, last = np.clip(start, 0, self.size), np.clip(start + size, 0, self.size)
        on_map = tuple(slice(*limits) for limits in zip(first, last))[::-1]
        of_box = tuple(slice(*limits) for limits in zip(first - start, np.maximum(last, first) - start))[::-1]
        return on_map, of_box

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        *,
        columns: tuple[str, str] | None = None,
        periodic: bool | None = None,
    ) -> DensityMap:
        """Read a map, or make one from structure factors.

        MRC2014 and CCP4 files may have any mode of real numbers (0, 1, 2, 6, 12), either byte order and any
        axis order. The first voxel is placed by ORIGIN (Cartesian, Å) where that is not zero, else by NSTART
        (grid steps along the cell's axes); never by both. Angles that are all zero are read as 90°.

        A file is taken for a crystal's where its space group number is 2…230, and in P1 where it covers exactly
        one cell that is not rectangular, or that `write` labelled as a crystal's. A rectangular box in space group
        0 or 1 is what cryo-EM writes, and stays finite. A crystal's map that covers an asymmetric unit is expanded
        to the whole cell; one that does not stays the finite piece that it is.

        Parameters
        ----------
        path : path-like
            ``.mrc``, ``.map``, ``.ccp4`` (MRC2014, CCP4), ``.situs``, ``.sit`` (SITUS) or ``.mtz``, each also
            with ``.gz``.
        columns : (str, str), optional
            Labels of amplitude and phase in an MTZ file; found among the usual ones (2FOFCWT/PH2FOFCWT,
            FWT/PHWT, …) when not given.
        periodic : bool, optional
            True: the map is (part of) a unit cell; False: a finite piece, whatever the file says. Decided as
            above when not given.

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
        if suffix in SITUS_SUFFIXES:
            return _read_situs(path, periodic)
        return _read_mrc(path, periodic)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the map; what `from_file` reads back has the same voxels in the same place.

        MRC files hold cell and origin in float32. A periodic map is marked as one whole cell of a crystal in
        P1; a finite triclinic one as a piece of a larger cell, which is the format's own way to say so.

        Parameters
        ----------
        path : path-like
            ``.mrc``, ``.map`` or ``.ccp4`` (MRC2014, mode 2), or ``.situs``, ``.sit``, each also with
            ``.gz``.

        Raises
        ------
        InputError
            If the suffix is none of these, the folder does not exist, or the format cannot hold the map:
            SITUS only takes finite maps of cubic voxels, MRC only steps along x and in the x-y plane for the
            first two axes.
        """
        path = Path(path)
        suffix = _map_suffix(path)
        if suffix == MTZ_SUFFIX:
            raise InputError(f"{path}: maps are not written as .mtz; use .mrc, .map, .ccp4 or .situs")
        if not path.parent.is_dir():
            raise InputError(f"{path}: the folder {path.parent} does not exist; create it first")
        temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
        compressed = path.name.lower().endswith(".gz")
        try:
            if suffix in SITUS_SUFFIXES:
                _write_situs(self, temporary, compressed, path)
            else:
                _write_mrc(self, temporary, compressed, path)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    def crop(self, around: Any, margin: Any) -> DensityMap:
        """Give the part of the map around some positions, as a finite map on the same grid points.

        A finite map is cut at its own edges; a periodic one is continued across the borders of its cell.

        Parameters
        ----------
        around : Quantity or array_like, shape (N, 3)
            Cartesian positions in Å.
        margin : float or Quantity
            The box reaches at least this far, in Å, beyond every position.

        Raises
        ------
        InputError
            If there are no finite positions, or the box does not overlap a finite map.
        """
        margin = in_angstrom(margin, "margin")
        start, stop = _index_box(_checked_positions(around), self.matrix, self.origin, margin)
        if not self.periodic:
            start, stop = np.maximum(start, 0), np.minimum(stop, self.size)
            if (stop <= start).any():
                raise InputError(
                    "the positions to crop around lie outside the density map; "
                    "place the model in the map, or check the map's origin"
                )
        on_map, _ = self.overlap(start, stop - start)
        return DensityMap(self.data[on_map].copy(), self.matrix, self.origin + self.matrix @ start)

    def resample(self, voxel_size: Any) -> DensityMap:
        """Give the same density, over the same physical extent, on a grid of other voxels, by Fourier interpolation.

        Along each axis the number of voxels is the least that is FFT-friendly and makes them no larger than
        asked; an axis that already has the size asked for keeps its grid points. Grid point (0, 0, 0) stays
        where it is. A finite map is continued by its mirror image, so that opposite edges do not ring into
        each other. Coarser voxels lose the frequencies that they cannot hold.

        Parameters
        ----------
        voxel_size : float, Quantity, or one for each of x, y, z
            Largest step wanted along the axes, in Å.
        """
        wanted = np.broadcast_to(np.asarray(value_in(voxel_size, unit.angstrom), dtype=np.float64), (3,))
        if not (np.isfinite(wanted).all() and (wanted > 0).all()):
            raise InputError(f"voxel_size={voxel_size} is not a length; give a positive number of Å")
        data, size = self.data, self.size
        resampled_size = size.copy()
        for axis in range(3):
            least = int(np.ceil(size[axis] * self.voxel_size[axis] / wanted[axis] - 1e-6))
            if least == size[axis]:
                continue
            resampled_size[axis] = fft.next_fast_len(max(least, 1), real=True)
            data = _fourier_resampled(data, 2 - axis, resampled_size[axis], self.periodic)
        return replace(self, data=data, matrix=self.matrix * (size / resampled_size))

    def gaussian_filter(self, sigma: Any) -> DensityMap:
        """Give the map convolved with an isotropic Gaussian.

        Done in Fourier space, where exp(−2π²σ²|s|²) is the filter on any grid. A periodic map is filtered as
        the crystal that it is; a finite one is continued by its mirror image, so that its mean is kept.

        Parameters
        ----------
        sigma : float or Quantity
            Standard deviation of the Gaussian in Å; 0 changes nothing.
        """
        sigma = in_angstrom(sigma, "sigma")
        if not (np.isfinite(sigma) and sigma >= 0):
            raise InputError(f"sigma={sigma} is not a length; give 0 or a positive number of Å")
        widths = [0, 0, 0] if self.periodic else _reach(self.matrix, 5 * sigma)[::-1]
        inside = tuple(slice(width, width + n) for width, n in zip(widths, self.shape))
        padded = np.pad(self.data, [(width, width) for width in widths], mode="symmetric")
        smooth = _filtered(padded, self.matrix, lambda s2: np.exp(-2 * np.pi**2 * sigma**2 * s2))
        return replace(self, data=smooth[inside])

    def normalized(self) -> DensityMap:
        """Give the map with mean 0 and standard deviation 1 over all its voxels."""
        mean, deviation = self.data.mean(dtype=np.float64), self.data.std(dtype=np.float64)
        if deviation == 0:
            raise InputError("a map whose voxels all have one value cannot be normalized")
        return replace(self, data=(self.data - np.float32(mean)) / np.float32(deviation))

    def mask_around(self, positions: Any, radius: Any) -> np.ndarray:
        """Tell which voxels lie within a radius of any of the positions.

        Parameters
        ----------
        positions : Quantity or array_like, shape (N, 3)
            Cartesian positions in Å; on a periodic map, every image of them counts.
        radius : float or Quantity
            Distance in Å; grid points at exactly this distance are inside.

        Returns
        -------
        np.ndarray of bool, shape (nz, ny, nx)
        """
        radius = in_angstrom(radius, "radius")
        if not (np.isfinite(radius) and radius >= 0):
            raise InputError(f"radius={radius} is not a distance; give 0 or a positive number of Å")
        mask = np.zeros(self.shape, dtype=bool)
        index = self.to_index(_checked_positions(positions))
        if self.periodic:
            index %= self.size
        else:
            reach = _reach(self.matrix, radius)
            index = index[((index >= -reach) & (index <= self.size - 1 + reach)).all(axis=1)]
        if not len(index):
            return mask
        start, stop = _index_box(index @ self.matrix.T, self.matrix, np.zeros(3), radius)
        around = np.zeros((stop - start)[::-1], dtype=bool)
        for _, voxels in voxels_around(index - start, stop - start, self.matrix, radius):
            around.reshape(-1)[voxels] = True
        on_map, of_box = self.overlap(start, stop - start)
        if self.periodic:
            mask[tuple(axis.ravel()[where] for axis, where in zip(on_map, np.nonzero(around)))] = True
        else:
            mask[on_map] = around[of_box]
        return mask

    def value_at(self, points: Any) -> np.ndarray:
        """Give the density at points, interpolated trilinearly between grid points.

        Parameters
        ----------
        points : Quantity or array_like, shape (N, 3)
            Cartesian positions in Å.

        Returns
        -------
        np.ndarray of float64, shape (N,)
            NaN where a coordinate is, and beyond the first or last grid point of a finite map: nothing is known
            there. A periodic map continues across the borders of its cell.
        """
        with np.errstate(invalid="ignore"):
            index = self.to_index(points)
        unknown = ~np.isfinite(index).all(axis=1)
        if not self.periodic:
            # Rounding must not push a point that is meant to be on the outermost grid points off the map.
            nearest = np.rint(index)
            index = np.where(np.abs(index - nearest) < 1e-9 * self.size, nearest, index)
            unknown |= ((index < 0) | (index > self.size - 1)).any(axis=1)
        index[unknown] = 0
        mode = "grid-wrap" if self.periodic else "nearest"
        values = ndimage.map_coordinates(self.data, index[:, ::-1].T, output=np.float64, order=1, mode=mode)
        values[unknown] = np.nan
        return values

    @classmethod
    def simulate(
        cls,
        topology: Topology,
        positions: Any,
        resolution: Any,
        voxel_size: Any = None,
        *,
        margin: Any = 10.0,
        like: DensityMap | None = None,
        b_factors: Any = None,
        scattering: str = "electron",
        noise: float = 0.0,
        seed: int = 0,
    ) -> DensityMap:
        """Make the map of a model at a resolution, as `ModelDensity` defines it.

        Parameters
        ----------
        topology : openmm.app.Topology
            Names the element of every atom; atoms without one (virtual sites) do not scatter.
        positions : Quantity or array_like, shape (N, 3)
            Cartesian positions in Å.
        resolution : float or Quantity
            Resolution d in Å.
        voxel_size : float or Quantity, optional
            Side in Å of the cubic voxels; a quarter of the resolution when not given.
        margin : float or Quantity
            The map reaches at least this far, in Å, beyond every atom.
        like : DensityMap, optional
            Use this map's grid in place of `voxel_size` and `margin`.
        b_factors : float or array_like of shape (N,), optional
            B factors in Å² in place of the uniform 8 d.
        scattering : {"electron", "xray"}
            Form factors.
        noise : float
            Standard deviation of the Gaussian noise that is added to the whole map, as a fraction of the
            standard deviation of the density within 3 Å of the non-hydrogen atoms. Like the density it has no
            frequencies beyond the resolution.
        seed : int
            Seed of the noise.

        Raises
        ------
        InputError
            If positions and topology disagree or an argument makes no sense.
        """
        d = in_angstrom(resolution, "resolution")
        positions = _checked_positions(positions)
        model = ModelDensity(topology, d, b_factors=b_factors, scattering=scattering)
        if like is None:
            step = d / 4 if voxel_size is None else in_angstrom(voxel_size, "voxel_size")
            if not (np.isfinite(step) and step > 0):
                raise InputError(f"voxel_size={voxel_size} is not a length; give a positive number of Å")
            matrix = np.diag([step] * 3)
            start, stop = _index_box(positions, matrix, np.zeros(3), in_angstrom(margin, "margin"))
            size = [fft.next_fast_len(int(n), real=True) for n in stop - start]
            grid = cls(np.zeros(size[::-1], np.float32), matrix, matrix @ start)
        elif voxel_size is not None:
            raise InputError("voxel_size and like both set the grid of the simulated map; give one of them")
        else:
            grid = replace(like, data=np.zeros_like(like.data))

        start, density = model.on_grid(positions, grid.matrix, grid.origin)
        on_map, of_box = grid.overlap(start, np.array(density.shape[::-1]))
        np.add.at(grid.data, on_map, density[of_box])
        if noise < 0 or not np.isfinite(noise):
            raise InputError(
                f"noise={noise} is not a fraction of the density's standard deviation; give 0 or more"
            )
        if noise == 0:
            return grid
        inside = grid.data[grid.mask_around(positions[model.is_heavy], MASK_RADIUS)]
        if not inside.any():
            raise InputError(
                "noise is a fraction of the model's density, but no non-hydrogen atom is on the grid"
            )
        white = np.random.default_rng(seed).standard_normal(grid.shape, dtype=np.float32)
        band_limited = _filtered(white, grid.matrix, lambda s2: s2 <= 1 / d**2)
        scale = noise * inside.std(dtype=np.float64) / band_limited.std(dtype=np.float64)
        return replace(grid, data=grid.data + np.float32(scale) * band_limited)


class ModelDensity:
    """The density of a model at a resolution, on any grid: the one behind every reported correlation.

    gemmi's electron density of the atoms (five-Gaussian form factors c4322, Int. Tables C 4.3.2.2; or IT92
    for X-rays) with uniform B = 8 d and unit occupancy, cut at resolution d in Fourier space. It is computed
    in a P1 box around the model on the grid's own points, sampled finely enough first that the grid does not
    alias into the resolution, so its cost follows the model. Symmetry mates and lattice images are no part of
    the model.

    Parameters
    ----------
    topology : openmm.app.Topology
        Names the element of every atom; atoms without one (virtual sites) do not scatter.
    resolution : float or Quantity
        Resolution d in Å.
    b_factors : float or array_like of shape (N,), optional
        B factors in Å² in place of the uniform 8 d.
    scattering : {"electron", "xray"}
        Form factors.

    Raises
    ------
    InputError
        If an argument makes no sense or an element has no form factor.
    """

    def __init__(
        self, topology: Topology, resolution: Any, *, b_factors: Any = None, scattering: str = "electron"
    ) -> None:
        calculators = {"electron": gemmi.DensityCalculatorE, "xray": gemmi.DensityCalculatorX}
        if scattering not in calculators:
            raise InputError(f"scattering={scattering!r} is unknown; use 'electron' or 'xray'")
        self.resolution = in_angstrom(resolution, "resolution")
        if not (np.isfinite(self.resolution) and self.resolution > 0):
            raise InputError(f"resolution={resolution} is not a resolution; give a positive number of Å")
        self._calculator = calculators[scattering]
        elements = [atom.element for atom in topology.atoms()]
        self.n_atoms = len(elements)
        #: Boolean array of shape (N,): the non-hydrogen atoms, around which correlations are taken.
        self.is_heavy = np.array([e is not None and e.atomic_number > 1 for e in elements], dtype=bool)
        if b_factors is None:
            b_factors = B_PER_RESOLUTION * self.resolution
        b = np.asarray(value_in(b_factors, unit.angstrom**2), dtype=np.float64)
        if b.shape not in ((), (self.n_atoms,)) or not (np.isfinite(b).all() and (b >= 0).all()):
            raise InputError(
                f"b_factors of shape {b.shape} do not fit {self.n_atoms} atoms; "
                "give one number or one per atom, in Å² and not negative"
            )
        b = np.broadcast_to(b, (self.n_atoms,))
        self._scatterers = np.array([i for i, e in enumerate(elements) if e is not None], dtype=int)
        if not len(self._scatterers):
            raise InputError("the topology has no atom with an element, so the model has no density")
        self._least_b = float(b[self._scatterers].min())
        self._model, self._atoms = _gemmi_model([elements[i] for i in self._scatterers], b[self._scatterers])
        self._widest = list(
            {atom.element.name: atom for atom in sorted(self._atoms, key=lambda a: a.b_iso)}.values()
        )
        table = "c4322" if scattering == "electron" else "it92"
        for symbol in {elements[i].symbol for i in self._scatterers}:
            if getattr(gemmi.Element(symbol), table) is None:
                raise InputError(f"element {symbol} has no {scattering} form factor; leave its atoms out")

    def on_grid(
        self, positions: Any, matrix: np.ndarray, origin: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute the density in a box around the model on the points of a grid.

        Parameters
        ----------
        positions : Quantity or array_like, shape (N, 3)
            Cartesian positions in Å.
        matrix, origin : np.ndarray, shapes (3, 3) and (3,)
            The grid, as in `DensityMap`.

        Returns
        -------
        start : np.ndarray of int, shape (3,)
            Grid indices (i, j, k) of the box's first voxel; they may be negative or lie beyond the grid.
        density : np.ndarray of float32, shape (nz, ny, nx)
            Density of the box. It reaches past every atom by the reach of its density and at least 3 Å.

        Raises
        ------
        InputError
            If there is not one finite position per atom of the topology.
        """
        positions = _checked_positions(positions, self.n_atoms)[self._scatterers]
        calculator = self._calculator()
        oversampling, calculator.blur = self._sampling(matrix)
        atom_reach = max(calculator.estimate_radius(atom) for atom in self._widest)
        margin = max(atom_reach, MARGIN_PER_RESOLUTION * self.resolution, MASK_RADIUS)
        start, stop = _index_box(positions, matrix, origin, margin)
        size = np.array([fft.next_fast_len(int(n), real=True) for n in stop - start])
        fine_size = size * oversampling
        _check_span(fine_size)

        cell = gemmi.UnitCell(*_cell_parameters(matrix * size))
        fractional = ((positions - origin) @ np.linalg.inv(matrix).T - start) / size
        in_cell = fractional @ np.array(cell.orth.mat.tolist()).T
        for atom, position in zip(self._atoms, in_cell.tolist()):
            atom.pos = gemmi.Position(*position)
        calculator.grid.set_size(*fine_size.tolist())
        calculator.grid.set_unit_cell(cell)
        calculator.grid.spacegroup = gemmi.SpaceGroup("P 1")
        calculator.add_model_density_to_grid(self._model)

        def cut(s2: np.ndarray) -> np.ndarray:
            return np.where(s2 <= 1 / self.resolution**2, np.exp(calculator.blur / 4 * s2), 0)

        x, y, z = oversampling
        density = _filtered(calculator.grid.array.T, matrix / oversampling, cut)
        return start, np.ascontiguousarray(density[::z, ::y, ::x])

    def _sampling(self, matrix: np.ndarray) -> tuple[np.ndarray, float]:
        """Choose how many times finer than the grid each axis is sampled, and the B factor to add before the cut.

        A frequency s = 1/d is contaminated by its alias at q − s, where q is the density of the sampled
        planes, and B has damped that by exp(−B/4 ((q − s)² − s²)) in relation to s. Finer sampling and
        additional B, which the cut takes off again, both help; the cheapest sampling that has enough of them
        is the one to take.
        """
        s = 1 / self.resolution
        planes = np.linalg.norm(np.linalg.inv(matrix), axis=1)
        cheapest = np.inf
        for fineness in (2.2 * s, 2.5 * s, 3 * s, 4 * s, 6 * s, 8 * s):
            factors = np.ceil(fineness / planes).astype(int)
            q = (planes * factors).min()
            b = max(self._least_b, -4 * np.log(ALIASING) / ((q - s) ** 2 - s**2))
            # An atom covers voxels in proportion to the volume of its Gaussian; its form factor adds about 10 Å².
            cost = factors.prod() * (b + 10) ** 1.5
            if cost < cheapest:
                cheapest, chosen = cost, (factors, float(b - self._least_b))
        return chosen


def voxels_around(
    index: np.ndarray, size: np.ndarray, matrix: np.ndarray, radius: float
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """List the grid points within a radius of each of some points, a bounded number of pairs at a time.

    Parameters
    ----------
    index : np.ndarray, shape (N, 3)
        Fractional indices (i, j, k) of the points in a box of the grid.
    size : np.ndarray of int, shape (3,)
        Number of grid points (nx, ny, nz) of the box, which must hold the sphere around every point.
    matrix : np.ndarray, shape (3, 3)
        Its columns are the Cartesian steps in Å of the grid.
    radius : float
        Distance in Å.

    Yields
    ------
    points : np.ndarray of int, shape (P,)
        For each pair, which of the N points it belongs to.
    voxels : np.ndarray of int, shape (P,)
        For each pair, the grid point's number in the box's C-ordered array of shape (nz, ny, nx).
    """
    strides = np.array([1, size[0], size[0] * size[1]])
    corners = np.stack(np.meshgrid(*[[-0.5, 0.5]] * 3), axis=-1).reshape(-1, 3)
    half_diagonal = np.linalg.norm(corners @ matrix.T, axis=1).max()
    reach = _reach(matrix, radius + half_diagonal)
    offsets = np.stack(np.meshgrid(*[np.arange(-n, n + 1) for n in reach]), axis=-1).reshape(-1, 3)
    steps = offsets @ matrix.T
    square = (steps**2).sum(axis=1)
    near = square <= (radius + half_diagonal) ** 2
    offsets, steps, square = offsets[near] @ strides, steps[near], square[near]
    chunk = max(1, STAMPED_VOXELS_AT_ONCE // len(offsets))
    for first in range(0, len(index), chunk):
        exact = index[first : first + chunk]
        nearest = np.rint(exact)
        shift = (nearest - exact) @ matrix.T
        distance2 = square + 2 * shift @ steps.T + (shift**2).sum(axis=1)[:, None]
        # A grid point at exactly the radius must count, whatever the rounding of its distance.
        points, which = np.nonzero(distance2 <= radius**2 + 1e-9)
        yield points + first, (nearest.astype(np.int64) @ strides)[points] + offsets[which]


def _gemmi_model(elements: Sequence[Any], b_factors: np.ndarray) -> tuple[gemmi.Model, list[gemmi.Atom]]:
    """Give a gemmi model of atoms without positions, and its atoms in order."""
    residue = gemmi.Residue()
    for element, b in zip(elements, b_factors):
        atom = gemmi.Atom()
        atom.element = gemmi.Element(element.symbol)
        atom.b_iso = b
        atom.occ = 1.0
        residue.add_atom(atom)
    chain = gemmi.Chain("A")
    chain.add_residue(residue)
    model = gemmi.Model(1)
    model.add_chain(chain)
    return model, list(model[0][0])


def _checked_positions(positions: Any, n_atoms: int | None = None) -> np.ndarray:
    positions = positions_in_angstrom(positions)
    if n_atoms is not None and len(positions) != n_atoms:
        raise InputError(
            f"there are {len(positions)} positions for the {n_atoms} atoms of the topology; give one each"
        )
    if not len(positions):
        raise InputError("there are no positions; give at least one")
    if not np.isfinite(positions).all():
        raise InputError("positions contain NaN or infinite coordinates; give finite ones")
    return positions


def _check_finite(data: np.ndarray, name: str) -> None:
    # The sum is NaN or infinite if any voxel is, and needs no array of flags as large as the map.
    if not np.isfinite(data.sum(dtype=np.float64)):
        raise InputError(f"{name}: it has NaN or infinite voxels; write it again without them")


def _check_density(data: np.ndarray, path: Path) -> None:
    _check_finite(data, str(path))
    if data.min() == data.max():
        raise InputError(
            f"{path}: all {data.size} voxels have the value {data.flat[0]:g}, so it holds no density"
        )


def _is_flat(matrix: np.ndarray) -> bool:
    lengths = np.linalg.norm(matrix, axis=0)
    return not (lengths > 0).all() or abs(np.linalg.det(matrix / lengths)) < 1e-6


def _cell_parameters(vectors: np.ndarray) -> tuple[float, float, float, float, float, float]:
    """Give lengths in Å and angles in degrees of the cell whose vectors are the columns."""
    a, b, c = np.linalg.norm(vectors, axis=0)
    cosines = (vectors.T @ vectors) / np.outer((a, b, c), (a, b, c))
    # Without rounding here a right angle comes back as 89.99999999999999.
    alpha, beta, gamma = np.degrees(np.arccos(np.round([cosines[1, 2], cosines[0, 2], cosines[0, 1]], 15)))
    return float(a), float(b), float(c), float(alpha), float(beta), float(gamma)


def _reach(matrix: np.ndarray, radius: float) -> np.ndarray:
    """Give how many grid steps along each axis a sphere of this radius reaches, shape (3,)."""
    return np.ceil(radius * np.linalg.norm(np.linalg.inv(matrix), axis=1)).astype(int)


def _index_box(
    positions: np.ndarray, matrix: np.ndarray, origin: np.ndarray, margin: float
) -> tuple[np.ndarray, np.ndarray]:
    """Give the first indices, and those past the last, of the least box that holds spheres around all positions."""
    if not (np.isfinite(margin) and margin >= 0):
        raise InputError(f"margin={margin} is not a length; give 0 or a positive number of Å")
    inverse = np.linalg.inv(matrix)
    index = (positions - origin) @ inverse.T
    reach = margin * np.linalg.norm(inverse, axis=1)
    start = np.floor(index.min(axis=0) - reach + 1e-9).astype(int)
    stop = np.ceil(index.max(axis=0) + reach - 1e-9).astype(int) + 1
    _check_span(stop - start)
    return start, stop


def _check_span(size: np.ndarray) -> None:
    if np.prod(size.astype(np.float64)) > MOST_VOXELS:
        raise InputError(
            f"positions and margin span {size.tolist()} voxels, more than memory should hold; "
            "check that the coordinates are in Å and that no atom has flown off"
        )


def _filtered(
    data: np.ndarray, matrix: np.ndarray, transfer: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Multiply the Fourier transform of a periodic array by a function of |s|² in Å⁻²."""
    nz, ny, nx = data.shape
    reciprocal = np.linalg.inv(matrix)
    hx, hy, hz = fft.rfftfreq(nx), fft.fftfreq(ny)[:, None], fft.fftfreq(nz)[:, None, None]
    s2 = sum((hx * x + hy * y + hz * z) ** 2 for x, y, z in reciprocal.T)
    spectrum = fft.rfftn(data)
    spectrum *= transfer(s2)
    return fft.irfftn(spectrum, s=data.shape).astype(np.float32, copy=False)


def _fourier_resampled(data: np.ndarray, axis: int, n: int, periodic: bool) -> np.ndarray:
    """Resample one axis to n points over the same extent; a finite axis is continued by its mirror image."""
    if periodic:
        return signal.resample(data, n, axis=axis)
    mirrored = np.concatenate([data, np.flip(data, axis)], axis=axis)
    return np.take(signal.resample(mirrored, 2 * n, axis=axis), np.arange(n), axis=axis)


def _map_suffix(path: Path) -> str:
    """Give the suffix that tells the format, without .gz."""
    name = path.name.lower().removesuffix(".gz")
    for suffix in (*MRC_SUFFIXES, *SITUS_SUFFIXES, MTZ_SUFFIX):
        if name.endswith(suffix):
            return suffix
    known = ", ".join((*MRC_SUFFIXES, *SITUS_SUFFIXES, MTZ_SUFFIX))
    raise InputError(f"{path}: its suffix is not a density map's; use one of {known}, each also with .gz")


def _read_mrc(path: Path, periodic: bool | None) -> DensityMap:
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
    if not np.isfinite(matrix).all() or _is_flat(matrix):
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
        return DensityMap(data, matrix, origin, periodic=False)
    if covers_cell:
        return DensityMap(data, matrix, origin, periodic=True)
    whole = _whole_cell(data, start, sampling, cell, _space_group(number, symmetry, cell))
    if whole is not None:
        return DensityMap(whole, matrix, origin - matrix @ start, periodic=True)
    if periodic:
        raise InputError(
            f"{path}: {data.shape[::-1]} of the cell's {tuple(sampling)} grid points do not cover an asymmetric unit, "
            "so it cannot be periodic; leave periodic out, or give a map of a whole cell"
        )
    return DensityMap(data, matrix, origin, periodic=False)


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
        raise InputError(f"{path}: it cannot be read ({_sentence(error)})") from error
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
        raise InputError(f"{path}: it cannot be read as an MRC or CCP4 map ({_sentence(error)})") from error
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


def _write_mrc(density_map: DensityMap, temporary: Path, compressed: bool, path: Path) -> None:
    size = density_map.size
    vectors = density_map.matrix * size
    standard = np.array(gemmi.UnitCell(*density_map.cell).orth.mat.tolist())
    if np.abs(standard - vectors).max() > 1e-5 * np.abs(vectors).max():
        raise InputError(
            f"{path}: an MRC file cannot hold a grid that is rotated or mirrored; "
            "resample the map on a grid whose first axis is x and second lies in the x-y plane"
        )
    *lengths, alpha, beta, gamma = density_map.cell
    rectangular = (alpha, beta, gamma) == (90.0, 90.0, 90.0)
    # A finite triclinic box that filled its cell would read as a crystal's: call it a piece of a larger cell.
    sampling = size if density_map.periodic or rectangular else size + 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with mrcfile.new(temporary, compression="gzip" if compressed else None, overwrite=True) as file:
            file.set_data(density_map.data)
            file.set_volume()
            header = file.header
            header.mx, header.my, header.mz = sampling
            header.cella = tuple(np.array(lengths) * (sampling / size))
            header.cellb = (alpha, beta, gamma)
            header.origin = tuple(density_map.origin)
            header.label[0] = MAP_LABEL
            if density_map.periodic:
                header.label[0] = CRYSTAL_LABEL
                file.set_extended_header(np.frombuffer(b"X,Y,Z".ljust(80), dtype="V80"))
                header.exttyp = b"CCP4"


def _read_situs(path: Path, periodic: bool | None) -> DensityMap:
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
        raise InputError(f"{path}: it cannot be read as a SITUS map ({_sentence(error)})") from error
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
    return DensityMap(values.reshape(nz, ny, nx), np.diag([spacing] * 3), np.array(origin))


def _write_situs(density_map: DensityMap, temporary: Path, compressed: bool, path: Path) -> None:
    step = density_map.matrix[0, 0]
    if density_map.periodic:
        raise InputError(
            f"{path}: a SITUS file cannot say that a map is periodic; write .ccp4, or crop the map first"
        )
    if np.abs(density_map.matrix - np.diag([step] * 3)).max() > 1e-6 * abs(step) or step <= 0:
        raise InputError(
            f"{path}: a SITUS file only holds cubic voxels, not {density_map.voxel_size.tolist()} Å on this grid; "
            "write .mrc"
        )
    nx, ny, nz = density_map.size
    values = density_map.data.reshape(-1)
    with gzip.open(temporary, "wt") if compressed else open(temporary, "w") as file:
        file.write(" ".join(map(repr, [float(step), *density_map.origin.tolist()])) + f" {nx} {ny} {nz}\n\n")
        for first in range(0, len(values), 10):
            # Nine significant digits tell every float32 apart.
            file.write(" ".join(f"{value:.9g}" for value in values[first : first + 10].tolist()) + "\n")


def _read_mtz(path: Path, columns: tuple[str, str] | None, periodic: bool | None) -> DensityMap:
    try:
        mtz = gemmi.read_mtz_file(str(path))
    except (RuntimeError, ValueError, OSError) as error:
        raise InputError(f"{path}: it cannot be read as an MTZ file ({_sentence(error)})") from error
    amplitude, phase = _map_columns(mtz, columns, path)
    try:
        grid = mtz.transform_f_phi_to_map(amplitude, phase, sample_rate=MTZ_SAMPLE_RATE)
    except (RuntimeError, ValueError) as error:
        raise InputError(
            f"{path}: columns {amplitude} and {phase} give no map ({_sentence(error)}); choose others with columns="
        ) from error
    data = np.ascontiguousarray(grid.array.T)
    _check_density(data, path)
    matrix = np.array(grid.unit_cell.orth.mat.tolist()) / (grid.nu, grid.nv, grid.nw)
    return DensityMap(data, matrix, np.zeros(3), periodic=periodic is not False)


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


def _sentence(error: Exception) -> str:
    """Give another library's message as part of a sentence."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
