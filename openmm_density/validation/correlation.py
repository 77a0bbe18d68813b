"""The correlation of a model with its map: the one that every table and summary reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..base.errors import InputError
from ..base.units import positions_in_angstrom, takes_units
from ..maps.checks import check_map, check_resolution
from ..maps.density_map import DensityMap
from ..maps.grids import voxels_around
from ..maps.model_density import MASK_RADIUS, ModelDensity

if TYPE_CHECKING:
    from openmm.app import Topology


LARGEST_PART_OUTSIDE = 0.1
"""Of a model's atoms: beyond it model and map hardly belong together as they are."""
LOW_CORRELATION = 0.4
"""Models that fit have a CC well above it at any resolution."""


class Correlations(NamedTuple):
    """Correlations of one set of positions with a map."""

    cc_mask: float
    residues: np.ndarray


class MapCorrelation:
    """Correlations of a model with one map, for one or many sets of positions.

    The model's density is that of `openmm_density.maps.model_density.ModelDensity`: gemmi's electron density with
    uniform B = 8 d, cut at resolution d. The map is taken as it was read. On a crystal's map the voxels
    continue across the borders of the cell, but the density is that of the model alone, without symmetry
    mates. What does not depend on the positions is prepared once.

    Parameters
    ----------
    density_map : DensityMap
        The map.
    topology : openmm.app.Topology
        Names elements and residues of the N atoms.
    resolution : float or Quantity
        Resolution d in Å.
    b_factors : array_like, shape (N,), optional
        B factors in Å² in place of the uniform 8 d: another figure than the one that is reported everywhere.
    counted : np.ndarray of bool, shape (N,), optional
        The atoms that have a density and around which correlations are taken; all by default.

    Attributes
    ----------
    density_map : DensityMap

    Raises
    ------
    InputError
        If the map is no `DensityMap`, the model has no non-hydrogen atom or an element without form factor, or
        the resolution is not positive, finer than the map's voxels or coarser than the map is wide.
    """

    @takes_units("resolution", b_factors="Å²")
    def __init__(
        self,
        density_map: DensityMap,
        topology: Topology,
        resolution: Any,
        *,
        b_factors: Any = None,
        counted: np.ndarray | None = None,
    ) -> None:
        check_map(density_map)
        self.density_map = density_map
        self._model = ModelDensity(topology, resolution, b_factors=b_factors, occupancies=counted)
        check_resolution(density_map, self._model.resolution)
        self._n_residues = topology.getNumResidues()
        residue_of_atom = np.array([atom.residue.index for atom in topology.atoms()], dtype=np.int64)
        self._heavy = np.flatnonzero(self._model.is_heavy & (counted if counted is not None else True))
        self._residue_of_heavy = residue_of_atom[self._heavy]
        if not len(self._heavy):
            raise InputError(
                "the model has no non-hydrogen atom, and correlations are taken around those",
                remedy="give a model that has some",
            )

    @takes_units("positions")
    def cc_mask(self, positions: Any) -> float:
        """Return the Pearson correlation over the voxels within 3 Å of a non-hydrogen atom.

        Parameters
        ----------
        positions : Quantity or array_like, shape (N, 3)
            Cartesian positions in Å.

        Returns
        -------
        float
            0 where it is undefined, because the model reaches no voxel of the map or only voxels of one
            value: such a model has nothing in common with the map.
        """
        positions = positions_in_angstrom(positions)
        return self._overall(positions, self._densities(positions))

    @takes_units("positions")
    def standard_error(self, positions: Any, cc: float | None = None) -> float:
        """Return the standard error of `cc_mask`: (1 - CC²)/√n of n independent values.

        A map cut at resolution d has 4π/3 d⁻³ of these in each Å³ of the mask, one for each Fourier coefficient.

        Parameters
        ----------
        positions : Quantity or array_like, shape (N, 3)
            Cartesian positions in Å.
        cc : float, optional
            What `cc_mask` found there, where that is known.

        Returns
        -------
        float
            1 at most.
        """
        positions = positions_in_angstrom(positions)
        cc = self.cc_mask(positions) if cc is None else cc
        mask = self.density_map.mask_around(positions[self._heavy], MASK_RADIUS)
        count = (
            4
            * np.pi
            / 3
            * mask.sum()
            * abs(np.linalg.det(self.density_map.matrix))
            / self._model.resolution**3
        )
        return float((1 - cc**2) / np.sqrt(max(count, 1.0)))

    @takes_units("positions")
    def residue_correlations(self, positions: Any) -> np.ndarray:
        """Return the same correlation for every residue, over the voxels around that residue's atoms alone.

        Parameters
        ----------
        positions : Quantity or array_like, shape (N, 3)
            Cartesian positions in Å.

        Returns
        -------
        np.ndarray of float64, shape (n_residues,)
            NaN for a residue without non-hydrogen atoms, outside the map, or where map or model do not vary.
        """
        positions = positions_in_angstrom(positions)
        return self._by_residue(positions, self._densities(positions))

    @takes_units("positions")
    def group_correlations(self, positions: Any, groups: np.ndarray, n_groups: int) -> np.ndarray:
        """Return the same correlation over the voxels around each of some groups of atoms, as of all bases.

        Parameters
        ----------
        positions : Quantity or array_like, shape (N, 3)
            Cartesian positions in Å.
        groups : np.ndarray of int, shape (N,)
            The group of each atom, -1 for one in none.
        n_groups : int

        Returns
        -------
        np.ndarray of float64, shape (n_groups,)
            NaN as in `residue_correlations`.
        """
        positions = positions_in_angstrom(positions)
        atoms = self._heavy[groups[self._heavy] >= 0]
        return self._by_group(positions, self._densities(positions), atoms, groups[atoms], n_groups)

    @takes_units("positions")
    def evaluate(self, positions: Any) -> Correlations:
        """Return both correlations from one model density.

        Parameters
        ----------
        positions : Quantity or array_like, shape (N, 3)
            Cartesian positions in Å.
        """
        positions = positions_in_angstrom(positions)
        densities = self._densities(positions)
        return Correlations(self._overall(positions, densities), self._by_residue(positions, densities))

    def _densities(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return a box's start and, for its voxels, the model's density, the map's, and which of them are on the map."""
        start, model = self._model.on_grid(positions, self.density_map.matrix, self.density_map.origin)
        observed, known = np.zeros_like(model), np.zeros(model.shape, dtype=bool)
        on_map, of_box = self.density_map.overlap(start, np.array(model.shape[::-1]))
        observed[of_box], known[of_box] = self.density_map.data[on_map], True
        return start, model, observed, known

    def _near_atoms(
        self,
        positions: np.ndarray,
        start: np.ndarray,
        shape: tuple[int, ...],
        atoms: np.ndarray,
        groups: np.ndarray,
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """List pairs of the group of an atom and the number of a voxel near it, some more than once."""
        index = self.density_map.to_index(positions[atoms]) - start
        for near, voxels in voxels_around(index, np.array(shape[::-1]), self.density_map.matrix, MASK_RADIUS):
            yield groups[near], voxels

    def _overall(self, positions: np.ndarray, densities: tuple[np.ndarray, ...]) -> float:
        _, model, observed, _ = densities
        mask = self._mask(positions, densities)
        value = _pearson(np.zeros(mask.sum(), dtype=np.int64), model[mask], observed[mask], 1)[0]
        return 0.0 if np.isnan(value) else float(value)

    def _mask(self, positions: np.ndarray, densities: tuple[np.ndarray, ...]) -> np.ndarray:
        """Return which voxels of the box are on the map and near an atom."""
        start, model, _, known = densities
        mask = np.zeros(model.size, dtype=bool)
        for _, voxels in self._near_atoms(positions, start, model.shape, self._heavy, self._residue_of_heavy):
            mask[voxels] = True
        return mask.reshape(model.shape) & known

    def _by_residue(self, positions: np.ndarray, densities: tuple[np.ndarray, ...]) -> np.ndarray:
        return self._by_group(positions, densities, self._heavy, self._residue_of_heavy, self._n_residues)

    def _by_group(
        self,
        positions: np.ndarray,
        densities: tuple[np.ndarray, ...],
        atoms: np.ndarray,
        groups: np.ndarray,
        n_groups: int,
    ) -> np.ndarray:
        start, model, observed, known = densities
        pairs = [
            (of_atoms * model.size + voxels)[known.reshape(-1)[voxels]]
            for of_atoms, voxels in self._near_atoms(positions, start, model.shape, atoms, groups)
        ]
        # np.unique hashes, which takes ten times as long as sorting here.
        sorted_pairs = np.sort(np.concatenate(pairs))
        is_first = np.diff(sorted_pairs, prepend=-1) > 0
        of_voxels, voxels = np.divmod(sorted_pairs[is_first], model.size)
        return _pearson(of_voxels, model.reshape(-1)[voxels], observed.reshape(-1)[voxels], n_groups)


@takes_units("positions", "resolution")
def cc_mask(density_map: DensityMap, topology: Topology, positions: Any, resolution: Any) -> float:
    """Return the correlation of a model with a map, as every table and summary reports it.

    The Pearson correlation, over the voxels within 3 Å of a non-hydrogen atom of the model, between the map
    as it was read and gemmi's electron density of the model with uniform B = 8 d, cut at resolution d in
    Fourier space. `MapCorrelation` does this for many sets of positions.

    Parameters
    ----------
    density_map : DensityMap
        The map.
    topology : openmm.app.Topology
        Names the elements of the N atoms.
    positions : Quantity or array_like, shape (N, 3)
        Cartesian positions in Å.
    resolution : float or Quantity
        Resolution d in Å.

    Returns
    -------
    float
        0 where the model reaches no voxel of the map, or only voxels of one value.

    Raises
    ------
    InputError
        If positions and topology disagree, or an argument makes no sense.
    """
    return MapCorrelation(density_map, topology, resolution).cc_mask(positions)


@takes_units("positions", "resolution")
def residue_correlations(
    density_map: DensityMap, topology: Topology, positions: Any, resolution: Any
) -> np.ndarray:
    """Return the correlation of every residue with a map, from the density of the whole model.

    As `cc_mask`, but for each residue over the voxels within 3 Å of its own non-hydrogen atoms.

    Parameters
    ----------
    density_map : DensityMap
        The map.
    topology : openmm.app.Topology
        Names elements and residues of the N atoms.
    positions : Quantity or array_like, shape (N, 3)
        Cartesian positions in Å.
    resolution : float or Quantity
        Resolution d in Å.

    Returns
    -------
    np.ndarray of float64, shape (n_residues,)
        NaN for a residue without non-hydrogen atoms, outside the map, or where map or model do not vary.

    Raises
    ------
    InputError
        If positions and topology disagree, or an argument makes no sense.
    """
    return MapCorrelation(density_map, topology, resolution).residue_correlations(positions)


def _pearson(groups: np.ndarray, a: np.ndarray, b: np.ndarray, n_groups: int) -> np.ndarray:
    """Correlate a with b within each group, in float64 about the group's means; NaN where either does not vary."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    count = np.maximum(np.bincount(groups, minlength=n_groups), 1)
    a = a - (np.bincount(groups, a, n_groups) / count)[groups]
    b = b - (np.bincount(groups, b, n_groups) / count)[groups]
    covariance = np.bincount(groups, a * b, n_groups)
    variances = np.bincount(groups, a * a, n_groups) * np.bincount(groups, b * b, n_groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(variances > 0, covariance / np.sqrt(variances), np.nan)
