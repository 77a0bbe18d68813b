"""CC_mask, CC_volume, CC_peaks and CC_box: the correlations of a model with a map that Phenix reports, by its definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import gemmi
import numpy as np

from ..base.units import takes_units
from ..maps.checks import check_map, check_resolution
from ..maps.density_map import DensityMap
from ..maps.grids import cell_parameters, checked_positions
from ..maps.model_density import ModelDensity
from ..models.chemistry.elements import is_hydrogen

if TYPE_CHECKING:
    from openmm.app import Topology

PROBE_RADIUS, SHRINK_RADIUS = 1.1, 0.9
"""Å, of the mask: those of a crystal's bulk solvent."""


class BoxCorrelations(NamedTuple):
    """Pearson correlations of a model with a map; None for what is undefined."""

    cc_mask: float | None  # Over the voxels inside the mask of the molecule
    cc_volume: float | None  # Over as many voxels as the mask has: those where the model's density is highest
    # Over those and as many where the map is highest; None for the map of a whole cell of a crystal
    cc_peaks: float | None
    cc_box: float | None  # Over all voxels of the map; None for that of a crystal


@takes_units("positions", "resolution", b_factors="Å²")
def box_correlations(
    density_map: DensityMap,
    topology: Topology,
    positions: Any,
    resolution: Any,
    *,
    b_factors: Any = None,
    occupancies: Any = None,
) -> BoxCorrelations:
    """Return the correlations of a model with a map in Phenix' definitions.

    The model's density is that of its atoms with their own B factors and occupancies (electron form factors), cut at the
    resolution in Fourier space; the mask is that of a crystal's bulk solvent (probe 1.1 Å, shrunk by 0.9 Å, cctbx' radii;
    hydrogens left out). What is computed here in a box around the model, and taken as 0 beyond it, Phenix transforms in the
    whole map: the figures differ in the third digit. `openmm_density.validation.correlation.cc_mask` is another figure, with a
    uniform B and a mask of 3 Å.

    Parameters
    ----------
    density_map : DensityMap
        The map as it was read.
    topology : openmm.app.Topology
        Names the elements of the N atoms.
    positions : Quantity or array_like, shape (N, 3)
        Cartesian positions in Å.
    resolution : float or Quantity
        Å.
    b_factors : array_like, shape (N,), optional
        Å²; by default 8 d for all.
    occupancies : array_like, shape (N,), optional
        1 by default.

    Raises
    ------
    InputError
        If positions and topology disagree, or an argument makes no sense.

    References
    ----------
    P. V. Afonine et al., Acta Cryst. D74, 814 (2018); the mask: J.-S. Jiang and A. T. Brünger, J. Mol. Biol. 243, 100 (1994).
    """
    check_map(density_map)
    model = ModelDensity(topology, resolution, b_factors=b_factors, occupancies=occupancies)
    check_resolution(density_map, model.resolution)
    positions = checked_positions(positions, model.n_atoms, topology)
    start, calculated = model.on_grid(positions, density_map.matrix, density_map.origin)
    inside = _inside(density_map, topology, positions, start, calculated.shape)
    on_map, of_box = density_map.overlap(start, np.array(calculated.shape[::-1]))
    observed = density_map.data[on_map].astype(np.float64)
    calculated, inside = calculated[of_box].astype(np.float64), inside[of_box]
    n_inside = int(inside.sum())
    if not n_inside or n_inside >= min(calculated.size, density_map.data.size):
        return BoxCorrelations(None, None, None, None)
    high = calculated >= _cut(calculated, n_inside)
    cc_mask, cc_volume = (_pearson(observed[part], calculated[part]) for part in (inside, high))
    if density_map.periodic:
        return BoxCorrelations(cc_mask, cc_volume, None, None)
    return BoxCorrelations(
        cc_mask, cc_volume, *_of_whole_map(density_map.data, observed, calculated, high, n_inside)
    )


def _of_whole_map(
    data: np.ndarray, observed: np.ndarray, calculated: np.ndarray, high: np.ndarray, n_inside: int
) -> tuple[float | None, float | None]:
    """Return CC_peaks and CC_box of a map: beyond the box the model has no density, and only sums over the map are needed."""
    peaks = _cut(data, n_inside)
    chosen = high | (observed >= peaks)
    over = data[data >= peaks].astype(np.float64)
    beyond = _sums(over) - _sums(observed[observed >= peaks])
    everywhere = _sums(data.reshape(-1)) - _sums(observed.reshape(-1))
    return (
        _pearson(observed[chosen], calculated[chosen], beyond),
        _pearson(observed.reshape(-1), calculated.reshape(-1), everywhere),
    )


def _inside(
    density_map: DensityMap,
    topology: Topology,
    positions: np.ndarray,
    start: np.ndarray,
    shape: tuple[int, ...],
) -> np.ndarray:
    """Return which points of a box of the map's grid are inside the molecule's mask, shape (nz, ny, nx)."""
    size = np.array(shape[::-1])
    cell = gemmi.UnitCell(*cell_parameters(density_map.matrix * size))
    in_cell = ((density_map.to_index(positions) - start) / size) @ np.array(cell.orth.mat.tolist()).T
    residue = gemmi.Residue()
    for atom, place in zip(topology.atoms(), in_cell.tolist()):
        if atom.element is not None and not is_hydrogen(atom):
            one = gemmi.Atom()
            one.element, one.pos = gemmi.Element(atom.element.symbol), gemmi.Position(*place)
            residue.add_atom(one)
    chain, model = gemmi.Chain("A"), gemmi.Model(1)
    chain.add_residue(residue)
    model.add_chain(chain)
    grid = gemmi.Int8Grid(*size.tolist())
    grid.set_unit_cell(cell)
    grid.spacegroup = gemmi.SpaceGroup("P 1")
    masker = gemmi.SolventMasker(gemmi.AtomicRadiiSet.Cctbx)
    masker.rprobe, masker.rshrink = PROBE_RADIUS, SHRINK_RADIUS
    masker.put_mask_on_int8_grid(grid, model)
    return grid.array.T == 0


def _cut(values: np.ndarray, n: int) -> float:
    """Return the value that n of all are above."""
    values = values.reshape(-1)
    return float(np.partition(values, values.size - 1 - n)[values.size - 1 - n])


def _sums(values: np.ndarray) -> np.ndarray:
    """Return number, sum and sum of squares of values, in float64."""
    return np.array(
        [values.size, values.sum(dtype=np.float64), np.einsum("i,i->", values, values, dtype=np.float64)]
    )


def _pearson(
    observed: np.ndarray, calculated: np.ndarray, beyond: np.ndarray | tuple[float, ...] = (0, 0, 0)
) -> float | None:
    """Correlate a map with a model, which beside these voxels has others of the map (`_sums`) where the model is 0."""
    count, total, squares = _sums(observed) + beyond
    of_model, squares_of_model = calculated.sum(), np.vdot(calculated, calculated)
    covariance = np.vdot(observed, calculated) - total * of_model / count
    variances = (squares - total**2 / count) * (squares_of_model - of_model**2 / count)
    return float(covariance / np.sqrt(variances)) if variances > 0 else None
