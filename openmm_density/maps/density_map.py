"""Density maps: a grid of values placed in space, cropped, resampled, filtered, masked and interpolated."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import fft, ndimage

from ..base.errors import InputError, as_argument
from ..base.units import checked_length, positions_in_angstrom, takes_units
from .fourier import fourier_resampled, mirror_filtered
from .grids import (
    MOST_VOXELS,
    cell_parameters,
    check_finite,
    check_grid,
    checked_positions,
    checked_voxel_size,
    index_box,
    index_reach,
    real_numbers,
    voxels_around,
)
from .map_files import PlacedVoxels, read_map, write_map
from .model_density import MASK_RADIUS, ModelDensity
from .simulated_map import band_limited_noise, check_grid_like, check_noise, empty_grid

if TYPE_CHECKING:
    from openmm.app import Topology


@takes_units("matrix", "origin")
@dataclass(frozen=True, eq=False, repr=False)
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
    space_group : str, optional
        Of a crystal's map, or a piece of one: its Hermann-Mauguin name, empty where nobody knows it. None of another map.
    path : Path, optional
        The file that it was read from.

    Raises
    ------
    InputError
        If an array has the wrong shape, the steps do not span space, or a value is not finite.
    """

    data: np.ndarray
    matrix: np.ndarray
    origin: np.ndarray
    periodic: bool = False
    space_group: str | None = None
    path: Path | None = None

    def __post_init__(self) -> None:
        data = np.ascontiguousarray(real_numbers(self.data, "data"), dtype=np.float32)
        matrix = np.array(real_numbers(self.matrix, "matrix"), dtype=np.float64)
        origin = np.array(real_numbers(self.origin, "origin"), dtype=np.float64)
        check_grid(data, matrix, origin)
        check_finite(data, "the density map")
        for name, value in (("data", data), ("matrix", matrix), ("origin", origin)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "periodic", bool(self.periodic))
        if self.periodic and self.space_group is None:
            object.__setattr__(self, "space_group", "")

    def __repr__(self) -> str:
        size = " × ".join(str(n) for n in self.size)
        steps = " × ".join(f"{step:.4g}" for step in self.voxel_size)
        origin = ", ".join(f"{x:.6g}" for x in self.origin)
        kind = "periodic" if self.periodic else "not periodic"
        return f"DensityMap({size} voxels of {steps} Å, origin ({origin}) Å, {kind})"

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
        return cell_parameters(self.matrix * self.size)

    @takes_units("points")
    def to_index(self, points: Any) -> np.ndarray:
        """Return the fractional grid indices (i, j, k) of points, shape (N, 3).

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
            Indices of the same points in `data` and in an array of the box; a periodic map may have one voxel several times.
        """
        if self.periodic:
            x, y, z = (np.arange(first, first + n) % cycle for first, n, cycle in zip(start, size, self.size))
            return np.ix_(z, y, x), (slice(None),) * 3
        first, last = np.clip(start, 0, self.size), np.clip(start + size, 0, self.size)
        on_map = tuple(slice(*limits) for limits in zip(first, last))[::-1]
        of_box = tuple(slice(*limits) for limits in zip(first - start, np.maximum(last, first) - start))[::-1]
        return on_map, of_box

    @classmethod
    @takes_units("voxel_size", "origin")
    def from_array(
        cls, data: np.ndarray, voxel_size: Any, origin: Any = (0.0, 0.0, 0.0), *, periodic: bool = False
    ) -> DensityMap:
        """Return the map of an array on an orthogonal grid.

        Parameters
        ----------
        data : np.ndarray, shape (nz, ny, nx)
        voxel_size : float, Quantity, or one for each of x, y and z
            In Å.
        origin : Quantity or array_like, shape (3,)
            Cartesian position in Å of ``data[0, 0, 0]``.
        periodic : bool
            Whether the array is one whole unit cell of a crystal.
        """
        return cls(data, np.diag(np.broadcast_to(checked_voxel_size(voxel_size), 3)), origin, periodic)

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
            ``.mrc``, ``.map``, ``.ccp4`` (MRC2014, CCP4), ``.situs``, ``.sit`` (SITUS) or ``.mtz``, each also with ``.gz``.
        columns : (str, str), optional
            Labels of amplitude and phase in an MTZ file; found among the usual ones (FWT/PHWT, …) when not given.
        periodic : bool, optional
            True: the map is (part of) a unit cell; False: a finite piece, whatever the file says. Decided as
            above when not given.

        Raises
        ------
        InputError
            If the file is missing, is not such a file, is cut short, contradicts itself, or holds no density.
        """
        return cls(*read_map(path, columns=columns, periodic=periodic), path=Path(path))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the map; what `from_file` reads back has the same voxels in the same place.

        Cell and origin are float32 in MRC files. A periodic map is marked as one whole cell of a crystal in P1.

        Parameters
        ----------
        path : path-like
            ``.mrc``, ``.map`` or ``.ccp4`` (MRC2014, mode 2), or ``.situs``, ``.sit``, each also with ``.gz``.

        Raises
        ------
        InputError
            If the suffix is none of these, the folder does not exist, or the format cannot hold the map: SITUS only takes finite
            maps of cubic voxels, MRC only steps along x and in the x-y plane for the first two axes.
        """
        write_map(path, PlacedVoxels(self.data, self.matrix, self.origin, self.periodic, self.space_group))

    @takes_units("around", "margin")
    def crop(self, around: Any, margin: Any) -> DensityMap:
        """Return the part of the map around some positions, as a finite map on the same grid points.

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
        start, stop = index_box(checked_positions(around), self.matrix, self.origin, margin)
        if not self.periodic:
            start, stop = np.maximum(start, 0), np.minimum(stop, self.size)
            if (stop <= start).any():
                raise InputError(
                    "the positions to crop around lie outside the density map",
                    remedy="place the model in the map, or check the map's origin",
                )
        on_map, _ = self.overlap(start, stop - start)
        origin = self.origin + self.matrix @ start
        return DensityMap(self.data[on_map].copy(), self.matrix, origin, space_group=self.space_group)

    @takes_units("voxel_size")
    def resample(self, voxel_size: Any) -> DensityMap:
        """Return the same density, over the same physical extent, on a grid of other voxels, by Fourier interpolation.

        Along each axis the number of voxels is the least that is FFT-friendly and makes them no larger than asked; an axis that
        already has that size keeps its grid points. Grid point (0, 0, 0) stays where it is. A finite map is continued by its
        mirror image, so that opposite edges do not ring into each other. Coarser voxels lose what they cannot hold.

        Parameters
        ----------
        voxel_size : float, Quantity, or one for each of x, y, z
            Largest step wanted along the axes, in Å.

        Raises
        ------
        InputError
            If it is no length, or makes more voxels than memory should hold.
        """
        wanted = np.broadcast_to(checked_voxel_size(voxel_size), (3,))
        data, size, resampled_size = self.data, self.size, self.size.copy()
        least = np.maximum(np.ceil(size * self.voxel_size / wanted - 1e-6), 1)
        if not math.prod(least.tolist()) <= MOST_VOXELS:
            raise InputError(
                f"makes {' × '.join(f'{n:g}' for n in least)} voxels of this map, more than fits in memory",
                argument="voxel_size",
                found=str(voxel_size),
                remedy="give a larger one in Å",
            )
        for axis in range(3):
            if least[axis] == size[axis]:
                continue
            resampled_size[axis] = fft.next_fast_len(int(least[axis]), real=True)
            data = fourier_resampled(data, 2 - axis, resampled_size[axis], self.periodic)
        return replace(self, data=data, matrix=self.matrix * (size / resampled_size))

    @takes_units("sigma")
    def gaussian_filter(self, sigma: Any) -> DensityMap:
        """Return the map convolved with an isotropic Gaussian.

        Done in Fourier space, where exp(−2π²σ²|s|²) is the filter on any grid. A periodic map is filtered as
        the crystal that it is; a finite one is continued by its mirror image, so that its mean is kept.

        Parameters
        ----------
        sigma : float or Quantity
            Standard deviation of the Gaussian in Å; 0 changes nothing.

        Raises
        ------
        InputError
            If it is no length, or so large that the map with all that it is blurred into is more than fits in memory.
        """
        sigma = checked_length(sigma, "sigma")
        reach = index_reach(self.matrix, 5 * sigma)[::-1]
        widths = np.zeros_like(reach) if self.periodic else reach
        if np.prod(self.shape + 2.0 * widths) > MOST_VOXELS:
            raise InputError(
                f"blurs a map of {' × '.join(map(str, self.size))} voxels into more than fits in memory",
                argument="sigma",
                found=sigma,
                remedy="give a smaller one in Å",
            )
        smooth = mirror_filtered(
            self.data, self.matrix, lambda s2: np.exp(-2 * np.pi**2 * sigma**2 * s2), widths
        )
        return replace(self, data=smooth)

    def normalized(self) -> DensityMap:
        """Return the map with mean 0 and standard deviation 1 over all its voxels."""
        mean, deviation = self.data.mean(dtype=np.float64), self.data.std(dtype=np.float64)
        if deviation == 0:
            raise InputError("all its voxels have one value", found=float(mean), remedy="give another")
        return replace(self, data=(self.data - np.float32(mean)) / np.float32(deviation))

    @takes_units("voxel_size")
    def with_voxel_size(self, voxel_size: Any) -> DensityMap:
        """Return the same voxels with other steps between them, as where the header had them wrong.

        The Cartesian zero stays at the index where it is: the origin (ORIGIN of a file, or NSTART steps) scales with the
        steps, as that of a piece does that was cut from a larger map. A model that lay in the density has to be placed anew.

        Parameters
        ----------
        voxel_size : float, Quantity, or one for each of x, y, z
            Steps along the axes, in Å.

        Raises
        ------
        InputError
            If it is no length, or one length for steps that differ by more than 1%.
        """
        given = checked_voxel_size(voxel_size)
        steps = self.voxel_size
        if given.shape == () and steps.max() > 1.01 * steps.min():
            sizes = " × ".join(f"{step:.4g}" for step in steps)
            raise InputError(
                "is one number for voxels that are not cubes",
                argument="voxel_size",
                found=f"{voxel_size} where the map has {sizes} Å",
                remedy="give three, for x, y and z",
            )
        matrix = self.matrix * (given / steps)
        return replace(self, matrix=matrix, origin=matrix @ np.linalg.inv(self.matrix) @ self.origin)

    def mirrored(self) -> DensityMap:
        """Return the mirror image of the map in the same box.

        On an orthogonal grid z is reversed; on others, where no axis alone makes a mirror image, all three are.
        """
        flipped = self.data[::-1] if self.is_orthogonal else self.data[::-1, ::-1, ::-1]
        return replace(self, data=flipped.copy())

    def inverted(self) -> DensityMap:
        """Return the map with its sign changed: molecules that were negative in it are positive."""
        return replace(self, data=-self.data)

    @takes_units("positions", "radius")
    def mask_around(self, positions: Any, radius: Any) -> np.ndarray:
        """Return which voxels lie within a radius of any of the positions.

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
        radius = checked_length(radius, "radius")
        mask = np.zeros(self.shape, dtype=bool)
        index = self.to_index(checked_positions(positions))
        if self.periodic:
            index %= self.size
        else:
            reach = index_reach(self.matrix, radius)
            index = index[((index >= -reach) & (index <= self.size - 1 + reach)).all(axis=1)]
        if not len(index):
            return mask
        start, stop = index_box(index @ self.matrix.T, self.matrix, np.zeros(3), radius)
        around = np.zeros((stop - start)[::-1], dtype=bool)
        for _, voxels in voxels_around(index - start, stop - start, self.matrix, radius):
            around.reshape(-1)[voxels] = True
        on_map, of_box = self.overlap(start, stop - start)
        if self.periodic:
            mask[tuple(axis.ravel()[where] for axis, where in zip(on_map, np.nonzero(around)))] = True
        else:
            mask[on_map] = around[of_box]
        return mask

    @takes_units("points")
    def value_at(self, points: Any) -> np.ndarray:
        """Return the density at points, interpolated trilinearly between grid points.

        Parameters
        ----------
        points : Quantity or array_like, shape (N, 3)
            Cartesian positions in Å.

        Returns
        -------
        np.ndarray of float64, shape (N,)
            NaN where a coordinate is, and beyond a finite map. A periodic one continues across the borders of its cell.
        """
        with np.errstate(invalid="ignore"):
            index = self.to_index(points)
        # Column by column: numpy takes longer to look along rows of three.
        i, j, k = np.isfinite(index).T
        unknown = ~(i & j & k)
        if not self.periodic:
            # Rounding must not push a point that is meant to be on the outermost grid points off the map.
            nearest = np.rint(index)
            index = np.where(np.abs(index - nearest) < 1e-9 * self.size, nearest, index)
            i, j, k = ((index < 0) | (index > self.size - 1)).T
            unknown |= i | j | k
        index[unknown] = 0
        mode = "grid-wrap" if self.periodic else "nearest"
        values = ndimage.map_coordinates(self.data, index[:, ::-1].T, output=np.float64, order=1, mode=mode)
        return np.where(unknown, np.nan, values)

    @classmethod
    @takes_units("positions", "resolution", "voxel_size", "margin", b_factors="Å²")
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
        occupancies: Any = None,
        scattering: str = "electron",
        noise: float = 0.0,
        seed: int = 0,
    ) -> DensityMap:
        """Return the map of a model at a resolution, as `ModelDensity` defines it.

        Parameters
        ----------
        topology, resolution, b_factors, occupancies, scattering
            As of `ModelDensity`; `openmm_density.models.conformer_topology.all_conformers` has those of a Model.
        positions : Quantity or array_like, shape (N, 3)
            Cartesian positions in Å.
        voxel_size : float or Quantity, optional
            Side in Å of the cubic voxels, a quarter of the resolution by default; there is a warning above half of it.
        margin : float or Quantity
            The map reaches at least this far, in Å, beyond every atom.
        like : DensityMap, optional
            Use this map's grid in place of `voxel_size` and `margin`.
        noise : float
            Standard deviation of Gaussian noise without frequencies beyond the resolution, added to the whole map; as a
            fraction of the standard deviation of the density within 3 Å of the non-hydrogen atoms. `seed` is that of the noise.

        Raises
        ------
        InputError
            If arguments disagree or make no sense, or the voxels are larger than the resolution, or more than fits in memory.
        """
        check_noise(noise, seed)
        positions = checked_positions(positions, topology=topology)
        atoms = {"b_factors": b_factors, "occupancies": occupancies, "scattering": scattering}
        model = ModelDensity(topology, resolution, **atoms)
        if like is None:
            simulated = cls(*empty_grid(model, positions, voxel_size, margin))
        elif voxel_size is not None:
            raise InputError(
                f"{as_argument('voxel_size')} and {as_argument('like')} both set the grid of the simulated map",
                remedy="give one of them",
            )
        else:
            check_grid_like(model, positions, like.matrix, like.origin)
            simulated = replace(like, data=np.zeros_like(like.data), path=None)
        start, density = model.on_grid(positions, simulated.matrix, simulated.origin)
        on_map, of_box = simulated.overlap(start, np.array(density.shape[::-1]))
        np.add.at(simulated.data, on_map, density[of_box])
        if noise == 0:
            return simulated
        near = simulated.data[simulated.mask_around(positions[model.is_heavy], MASK_RADIUS)]
        added = band_limited_noise(near, simulated.shape, simulated.matrix, model.resolution, noise, seed)
        return replace(simulated, data=simulated.data + added)
