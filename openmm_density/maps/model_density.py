"""The density of a model at a resolution, by gemmi, which `simulate` writes and every reported correlation compares with.

The density that a fit's energy is computed from is another: see `openmm_density.kernels.density`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import gemmi
import numpy as np
from scipy import fft

from ..base.errors import InputError
from ..base.units import resolution_in_angstrom
from .fourier import low_passed
from .grids import cell_parameters, check_span, checked_positions, index_box

if TYPE_CHECKING:
    from openmm.app import Topology

# The reported correlation is taken within this distance (Å) of the atoms, from a density with this B (Å²) per Å of
# resolution.
MASK_RADIUS = 3.0
B_PER_RESOLUTION = 8.0
# With this much aliasing allowed at the resolution's edge, before form factors damp it further, and the ripples of
# the cut reaching around a box of this margin, correlations are within 0.001 of their limit.
ALIASING = 0.05
MARGIN_PER_RESOLUTION = 3.0
# Each takes some 16 bytes while it is filtered.
MOST_SAMPLES = 1 << 29
_GEMMI = ("_model", "_atoms", "_widest")


def non_hydrogens(topology: Topology) -> np.ndarray:
    """Return which atoms are non-hydrogen ones, around which correlations are taken, bool (N,)."""
    elements = [atom.element for atom in topology.atoms()]
    return np.array([each is not None and each.atomic_number > 1 for each in elements], dtype=bool)


class ModelDensity:
    """The density of a model at a resolution, on any grid: the one behind every reported correlation.

    gemmi's electron density of the atoms (five-Gaussian form factors c4322, Int. Tables C 4.3.2.2; or IT92
    for X-rays) with uniform B = 8 d and unit occupancy, cut at resolution d in Fourier space. It is computed
    in a P1 box around the model on the grid's own points, sampled finely enough first that the grid does not
    alias into the resolution, so its cost follows the model. Symmetry mates and lattice images are no part of
    the model.

    `topology`: names the element of every atom; atoms without one (virtual sites) do not scatter. `resolution`:
    resolution d in Å. `b_factors` (N,): B factors in Å² in place of the uniform 8 d. `scattering` {"electron", "xray"}:
    form factors. `occupancies` (N,) in place of 1. Raises InputError if an argument makes no sense or an element has no
    form factor.
    """

    def __init__(
        self,
        topology: Topology,
        resolution: Any,
        *,
        b_factors: Any = None,
        scattering: str = "electron",
        occupancies: Any = None,
    ) -> None:
        calculators = {"electron": gemmi.DensityCalculatorE, "xray": gemmi.DensityCalculatorX}
        if scattering not in calculators:
            raise InputError(
                "must be 'electron' or 'xray'",
                argument="scattering",
                found=repr(scattering),
                remedy="give one of these",
            )
        self.resolution = resolution_in_angstrom(resolution)
        self._calculator = calculators[scattering]
        elements = [atom.element for atom in topology.atoms()]
        self.n_atoms = len(elements)
        self._topology: Topology | None = topology
        #: Boolean array of shape (N,): see `non_hydrogens`.
        self.is_heavy = non_hydrogens(topology)
        if b_factors is None:
            b_factors = B_PER_RESOLUTION * self.resolution
        b = np.asarray(b_factors, dtype=np.float64)
        if b.shape not in ((), (self.n_atoms,)) or not (np.isfinite(b).all() and (b >= 0).all()):
            raise InputError(
                f"must be one number, or one for each of the {self.n_atoms} atoms, 0 or more",
                argument="b_factors",
                found=f"{b.min() if b.size else 0:g} and more, of shape {b.shape}",
                remedy="give them in Å²",
            )
        b = np.broadcast_to(b, (self.n_atoms,))
        self._scatterers = np.array([i for i, e in enumerate(elements) if e is not None], dtype=int)
        if not len(self._scatterers):
            raise InputError(
                "the topology has no atom with an element, so the model has no density",
                remedy="give a model with elements",
            )
        self._b = b[self._scatterers]
        self._least_b = float(self._b.min())
        self._occupancies = _checked_occupancies(occupancies, self.n_atoms)[self._scatterers]
        self._symbols = [elements[i].symbol for i in self._scatterers]
        self._make_model()
        table = "c4322" if scattering == "electron" else "it92"
        for symbol in set(self._symbols):
            if getattr(gemmi.Element(symbol), table) is None:
                raise InputError(
                    f"element {symbol} has no {scattering} form factor", remedy="leave its atoms out"
                )

    def _make_model(self) -> None:
        """Build gemmi's model, whose atoms are given their positions later."""
        self._model, self._atoms = _gemmi_model(self._symbols, self._b, self._occupancies)
        self._widest = list(
            {atom.element.name: atom for atom in sorted(self._atoms, key=lambda a: a.b_iso)}.values()
        )

    def __getstate__(self) -> dict[str, Any]:
        # Pickled, gemmi's atoms would not be those of its model any more; a topology, of 100 MB, names atoms in errors.
        kept = {name: value for name, value in vars(self).items() if name not in _GEMMI}
        return kept | {"_topology": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._make_model()

    def check_grid(self, positions: Any, matrix: np.ndarray, origin: np.ndarray) -> None:
        """Refuse a grid that `on_grid` would, before anything is computed on it."""
        self._box(
            checked_positions(positions, self.n_atoms, self._topology)[self._scatterers], matrix, origin
        )

    def on_grid(
        self, positions: Any, matrix: np.ndarray, origin: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute the density in a box around the model on the points of a grid.

        `positions` (N, 3): Cartesian positions in Å. Returns `start` int (3,): grid indices (i, j, k) of the box's
        first voxel; they may be negative or lie beyond the grid. `density` float32 (nz, ny, nx): density of the box. It
        reaches past every atom by the reach of its density and at least 3 Å.
        """
        positions = checked_positions(positions, self.n_atoms, self._topology)[self._scatterers]
        calculator, oversampling, start, size = self._box(positions, matrix, origin)
        fine_size = size * oversampling
        cell = gemmi.UnitCell(*cell_parameters(matrix * size))
        fractional = ((positions - origin) @ np.linalg.inv(matrix).T - start) / size
        in_cell = fractional @ np.array(cell.orth.mat.tolist()).T
        for atom, x, y, z in zip(self._atoms, *in_cell.T.tolist()):
            atom.pos = gemmi.Position(x, y, z)
        calculator.grid.set_size(*fine_size.tolist())
        calculator.grid.set_unit_cell(cell)
        calculator.grid.spacegroup = gemmi.SpaceGroup("P 1")
        calculator.add_model_density_to_grid(self._model)

        def sharpened(s2: np.ndarray) -> np.ndarray:
            return np.exp(calculator.blur / 4 * s2)

        density = low_passed(
            calculator.grid.array.T, matrix / oversampling, self.resolution, sharpened, oversampling.tolist()
        )
        return start, density

    def _box(
        self, positions: np.ndarray, matrix: np.ndarray, origin: np.ndarray
    ) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
        """Choose a calculator, how many times finer than the grid it works, and the first point and the size of its box."""
        calculator = self._calculator()
        oversampling, calculator.blur = self._sampling(matrix)
        atom_reach = max(calculator.estimate_radius(atom) for atom in self._widest)
        margin = max(atom_reach, MARGIN_PER_RESOLUTION * self.resolution, MASK_RADIUS)
        start, stop = index_box(positions, matrix, origin, margin)
        size = np.array([fft.next_fast_len(int(n), real=True) for n in stop - start])
        check_span(size * oversampling, MOST_SAMPLES)
        return calculator, oversampling, start, size

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


def _checked_occupancies(occupancies: Any, n_atoms: int) -> np.ndarray:
    if occupancies is None:
        return np.ones(n_atoms)
    values = np.asarray(occupancies, dtype=np.float64)
    if values.shape != (n_atoms,) or not (np.isfinite(values).all() and (values >= 0).all()):
        raise InputError(
            f"must be one for each of the {n_atoms} atoms, 0 or more",
            argument="occupancies",
            found=f"{np.min(values, initial=0):g} and more, of shape {values.shape}",
            remedy="give those of the model",
        )
    return values


def _gemmi_model(
    symbols: Sequence[str], b_factors: np.ndarray, occupancies: np.ndarray
) -> tuple[gemmi.Model, list[gemmi.Atom]]:
    """Return a gemmi model of atoms without positions, and its atoms in order."""
    residue = gemmi.Residue()
    for symbol, b, occupancy in zip(symbols, b_factors, occupancies):
        atom = gemmi.Atom()
        atom.element = gemmi.Element(symbol)
        atom.b_iso = b
        atom.occ = occupancy
        residue.add_atom(atom)
    chain = gemmi.Chain("A")
    chain.add_residue(residue)
    model = gemmi.Model(1)
    model.add_chain(chain)
    return model, list(model[0][0])
