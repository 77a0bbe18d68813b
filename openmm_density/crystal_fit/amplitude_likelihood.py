"""`AmplitudeLikelihood`: how probable measured amplitudes are with the atoms of a model, and the derivatives of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy import special

from openmm_density.kernels.density import density_gather, density_splat

from ..crystals import Phased
from ..crystals.unit_cell_grid import UnitCellGrid
from ..energies.form_factors import form_factor_gaussians

CUTOFF_IN_SIGMA = 4.5
"""Of the density of an atom whose B factor nine in ten do not exceed."""
SHELLS = 40
"""Of resolution, in which the average curvature is added up."""


class Likelihood(NamedTuple):
    """What atoms make of the data.

    Attributes
    ----------
    loss : float
        The negative logarithm of the likelihood, up to a constant.
    by_position : np.ndarray, shape (N, 3)
        Its derivative, 1/Å.
    by_b : np.ndarray, shape (N,)
        1/Å².
    """

    loss: float
    by_position: np.ndarray
    by_b: np.ndarray


class AmplitudeLikelihood:
    """The likelihood of the amplitudes that a map of `Phased` shows (Read, Acta Cryst. 1986, A42, 140-149).

    Scale, bulk solvent, σ_A and whatever of the model is not among these atoms are those of the `Phased` model, and stay. The
    derivative by F_c has the coefficients of a map mF_o − DF_c, each divided by its variance. Reflections that are held out, or
    that σ_A was estimated from, take no part.

    Parameters
    ----------
    phased : Phased
    elements : sequence of str, length N
        Symbols.
    positions : np.ndarray, shape (N, 3)
        Å, as in the phased model.
    b_factors, occupancies : np.ndarray, shape (N,)
        As there; Å².
    """

    def __init__(
        self,
        phased: Phased,
        elements: Sequence[str],
        positions: np.ndarray,
        b_factors: np.ndarray,
        occupancies: np.ndarray,
    ) -> None:
        data, scaled = phased.reflections, phased.scaled
        shown = phased.measured[phased.shown]
        hkl = np.ascontiguousarray(phased.hkl[shown])
        self._grid = UnitCellGrid(data.cell, data.space_group, hkl, data.resolution)
        self._inverse_d2 = inverse_d2 = data.cell.calculate_1_d2_array(hkl)
        self._factor = np.exp(-sum(scaled.b_tensor[:3]) / 12 * inverse_d2)
        self._data = data.amplitudes[phased.shown] / scaled.scale[shown]
        self._centric = data.centric[phased.shown]
        sigma_a = phased.sigma_a
        self._d = sigma_a.d[shown]
        variance = data.epsilon[phased.shown] * sigma_a.total[shown] * (1 - sigma_a.sigma_a[shown] ** 2)
        # Of a centric amplitude, which is one normal variable and not two, it is twice as much.
        self._variance = np.where(self._centric, 2.0, 1.0) * variance
        table = form_factor_gaussians(
            elements, "xray", torch.full((len(elements),), _TINY), torch.ones(len(elements)), 0.0
        )
        exponents = table[1].double().numpy()
        self._b = 4 * math.pi**2 / exponents - _TINY
        self._a = table[0].double().numpy() / (exponents / math.pi) ** 1.5
        self._occupancies = occupancies
        widest = float(np.median(self._b.max(axis=1)) + np.percentile(b_factors, 90)) + self._grid.blur
        self._cutoff = CUTOFF_IN_SIGMA * math.sqrt(widest / (8 * math.pi**2))
        self._rest = scaled.model[shown] - self._factor * self._of_atoms(positions, b_factors)

    @property
    def n_reflections(self) -> int:
        """Return how many amplitudes take part."""
        return len(self._data)

    def __call__(self, positions: np.ndarray, b_factors: np.ndarray) -> Likelihood:
        """Return what atoms at these positions (Å) with these B factors (Å²) make of the data."""
        model = self._rest + self._factor * self._of_atoms(positions, b_factors)
        size = np.abs(model)
        # Both kinds have the same form, with their own variance and Bessel function, I₀ or cosh.
        x = 2 * self._data * self._d * size / self._variance
        logarithm = np.where(self._centric, np.logaddexp(x, -x) - math.log(2), np.log(special.i0e(x)) + x)
        loss = float(((self._d * size) ** 2 / self._variance - logarithm).sum())
        merit = np.where(self._centric, np.tanh(x), special.i1e(x) / special.i0e(x))
        slope = 2 * self._d / self._variance * (self._d * size - merit * self._data)
        by_f = slope * model / np.maximum(size, 1e-30)
        field = torch.from_numpy(self._grid.field(self._factor * by_f))
        amplitudes, exponents, width = self._gaussians(b_factors)
        moved, by_amplitude, by_exponent = density_gather(
            field, *self._splatted(positions, amplitudes, exponents), True
        )
        by_b = 1.5 * by_amplitude.double().numpy() * amplitudes + by_exponent.double().numpy() * exponents
        return Likelihood(loss, moved.double().numpy(), -(by_b / width).sum(axis=1))

    def curvatures(self, b_factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return about the second derivatives of the loss by a coordinate and by the B factor of each atom, (N,) and (N,).

        Those of an atom alone among others whose phases are anything, without those of its own structure factor (Gauss-Newton).
        """
        inverse_d2 = self._inverse_d2
        edges = np.linspace(0, inverse_d2.max() * (1 + 1e-9), SHELLS + 1)
        shell = np.clip(np.digitize(inverse_d2, edges) - 1, 0, SHELLS - 1)
        weight = (self._d * self._factor) ** 2 / self._variance * self._grid.n_operations
        weights, s2 = np.bincount(shell, weight, minlength=SHELLS), (edges[1:] + edges[:-1]) / 2
        widths = (self._b + b_factors[:, None])[:, :, None]
        scattered = (self._a[:, :, None] * np.exp(-widths * s2 / 4)).sum(axis=1) * self._occupancies[:, None]
        each = scattered**2 * weights
        return (each * (4 * math.pi**2 / 3 * s2)).sum(axis=1), (each * (s2 / 4) ** 2).sum(axis=1)

    def _of_atoms(self, positions: np.ndarray, b_factors: np.ndarray) -> np.ndarray:
        amplitudes, exponents, _ = self._gaussians(b_factors)
        density = density_splat(
            *self._splatted(positions, amplitudes, exponents), list(self._grid.shape), True
        )
        return self._grid.structure_factors(density.numpy())

    def _splatted(self, positions: np.ndarray, amplitudes: np.ndarray, exponents: np.ndarray) -> tuple:
        return (
            torch.from_numpy(np.ascontiguousarray(positions, dtype=np.float64)),
            torch.from_numpy(amplitudes.astype(np.float32)),
            torch.from_numpy(exponents.astype(np.float32)),
            self._cutoff,
            torch.from_numpy(self._grid.matrix),
            torch.zeros(3, dtype=torch.float64),
        )

    def _gaussians(self, b_factors: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        width = self._b + b_factors[:, None] + self._grid.blur
        amplitudes = self._occupancies[:, None] * self._a * (4 * math.pi / width) ** 1.5
        return amplitudes, 4 * math.pi**2 / width, width


# Å², so that no Gaussian of the table without a width of its own is infinitely narrow.
_TINY = 1e-3
