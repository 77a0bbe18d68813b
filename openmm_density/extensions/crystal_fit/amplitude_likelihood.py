"""`AmplitudeLikelihood`: how probable measured amplitudes are with the atoms of a model, and the derivatives of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import gemmi
import numpy as np
import torch
from scipy import fft, special

from openmm_density.kernels.density import density_gather, density_splat

from ...energies.form_factors import form_factor_gaussians
from ..crystals import Phased

CUTOFF_IN_SIGMA = 4.5
"""Of the density of an atom whose B factor nine in ten do not exceed."""
SHELLS = 40
"""Of resolution, in which the average curvature is added up."""


class Likelihood(NamedTuple):
    """What atoms make of the data."""

    loss: float  # The negative logarithm of the likelihood, up to a constant
    by_position: np.ndarray  # (N, 3), its derivative, 1/Å
    by_b: np.ndarray  # (N,), 1/Å²


class AmplitudeLikelihood:
    """The likelihood of the amplitudes that a map of `Phased` shows (Read, Acta Cryst. 1986, A42, 140-149).

    Scale, bulk solvent, σ_A and whatever of the model is not among these atoms are those of the `Phased` model, and stay. The
    derivative by F_c has the coefficients of a map mF_o − DF_c, each divided by its variance. Reflections that are held out,
    or that σ_A was estimated from, take no part. `elements` length N: symbols. `positions` (N, 3) in Å, as in the phased
    model. `b_factors`, `occupancies` (N,) as there; Å².
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

VOXELS_PER_RESOLUTION = 3.0
"""Of the grid: it holds frequencies up to 1.5 times those of the data, so that what an atom aliases to can be damped before."""
ALIASING = 0.01
"""The most that a frequency at the resolution may gain from its alias, as a part of it."""


class UnitCellGrid:
    """A periodic grid over a unit cell, on which the atoms of one asymmetric unit are splatted.

    Copies are not splatted: by F(h) = Σ F₁(hR) exp(2πi h·t) over the operators (R, t) of the space group, the structure
    factors of all atoms follow from F₁, those of one unit. Both directions are exact adjoints of each other. `hkl` int32 (M,
    3): the indices that are asked for; `resolution` of the finest of these, in Å. Attributes: `matrix` (3, 3): its columns are
    the steps from voxel to voxel along x, y and z, Å; `shape`: (nz, ny, nx); `blur` in Å², to be added to the atoms' B factors
    in what is splatted; `n_operations`: copies of a unit in the cell.
    """

    def __init__(
        self, cell: gemmi.UnitCell, space_group: gemmi.SpaceGroup, hkl: np.ndarray, resolution: float
    ) -> None:
        axes = np.array(cell.orth.mat.tolist())
        least = VOXELS_PER_RESOLUTION / resolution * np.array([1 / each for each in _spacings(cell)])
        numbers = [fft.next_fast_len(math.ceil(n), real=True) for n in least]
        self.matrix, self.shape = axes / numbers, tuple(numbers[::-1])
        finest = 1 / resolution
        planes = min(n * each for n, each in zip(numbers, _spacings(cell)))
        self.blur = -4 * math.log(ALIASING) / ((planes - finest) ** 2 - finest**2)
        operations = space_group.operations()
        self.n_operations = len(operations)
        indices, phases = [], []
        for op in operations.sym_ops:
            indices.append(np.array(hkl, dtype=np.int64) @ np.array(op.rot) // gemmi.Op.DEN)
            phases.append(np.exp(2j * np.pi * (hkl @ np.array(op.tran)) / gemmi.Op.DEN))
        of_all, phase = np.concatenate(indices), np.concatenate(phases)
        self._sum = len(indices), len(hkl)
        # Of centring vectors each adds the same, as absent reflections are not asked for.
        unblur = np.exp(self.blur / 4 * cell.calculate_1_d2_array(np.ascontiguousarray(hkl, dtype=np.int32)))
        self._factor = np.tile(unblur, len(indices)) * phase * len(operations.cen_ops)
        nz, ny, nx = self.shape
        self._half = (nz, ny, nx // 2 + 1)
        # Half a spectrum of a real grid is kept; of the other half each is the conjugate of its opposite. NumPy's transform has
        # the sign of crystallography's inverse one.
        self._kept = of_all[:, 0] >= 0
        self._plane = of_all[:, 0] == 0
        self._places = self._flat(np.where(self._kept[:, None], of_all, -of_all))
        self._opposite = self._flat(-of_all[self._plane])
        self._volume = cell.volume / (nx * ny * nz)

    def structure_factors(self, density: np.ndarray) -> np.ndarray:
        """Return F, complex of shape (M,), of a density of one unit on the grid, splatted with `blur`."""
        spectrum = fft.rfftn(density.astype(np.float64)).ravel()[self._places]
        spectrum = np.where(self._kept, spectrum.conj(), spectrum)
        return self._volume * (self._factor * spectrum).reshape(self._sum).sum(axis=0)

    def field(self, derivative: np.ndarray) -> np.ndarray:
        """Return the derivative by one unit's density of what changes by Re(conj(derivative) · dF), `derivative` (M,)."""
        each = 0.5 * self._volume * np.tile(derivative.conj(), self._sum[0]) * self._factor
        size = int(np.prod(self._half))
        # The transform back has exp(+2πi h·r), of which a half spectrum stands for both h and -h.
        kept = np.where(self._kept, each, each.conj())
        parts = [
            np.bincount(self._places, values, minlength=size)
            + np.bincount(self._opposite, opposite, minlength=size)
            for values, opposite in (
                (kept.real, each[self._plane].real),
                (kept.imag, -each[self._plane].imag),
            )
        ]
        spectrum = (parts[0] + 1j * parts[1]).reshape(self._half)
        return np.ascontiguousarray(fft.irfftn(spectrum, s=self.shape, norm="forward"), dtype=np.float32)

    def _flat(self, hkl: np.ndarray) -> np.ndarray:
        nz, ny, _ = self.shape
        h, k, index = hkl.T
        return ((index % nz) * ny + k % ny) * self._half[2] + h


def _spacings(cell: gemmi.UnitCell) -> tuple[float, float, float]:
    """Return 1/d of the first plane along each axis: the lengths of the reciprocal axes, in 1/Å."""
    reciprocal = cell.reciprocal()
    return reciprocal.a, reciprocal.b, reciprocal.c
