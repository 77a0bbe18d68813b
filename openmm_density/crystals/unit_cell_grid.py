"""`UnitCellGrid`: structure factors of atoms by a periodic grid, and what a change of structure factors makes of the atoms."""

from __future__ import annotations

import math

import gemmi
import numpy as np
from scipy import fft

VOXELS_PER_RESOLUTION = 3.0
"""Of the grid: it holds frequencies up to 1.5 times those of the data, so that what an atom aliases to can be damped before."""
ALIASING = 0.01
"""The most that a frequency at the resolution may gain from its alias, as a part of it."""


class UnitCellGrid:
    """A periodic grid over a unit cell, on which the atoms of one asymmetric unit are splatted.

    Copies are not splatted: by F(h) = Σ F₁(hR) exp(2πi h·t) over the operators (R, t) of the space group, the structure factors
    of all atoms follow from F₁, those of one unit. Both directions are exact adjoints of each other.

    Parameters
    ----------
    cell : gemmi.UnitCell
    space_group : gemmi.SpaceGroup
    hkl : np.ndarray of int32, shape (M, 3)
        The indices that are asked for.
    resolution : float
        Of the finest of these, in Å.

    Attributes
    ----------
    matrix : np.ndarray, shape (3, 3)
        Its columns are the steps from voxel to voxel along x, y and z, Å.
    shape : tuple of int
        (nz, ny, nx).
    blur : float
        Å², to be added to the atoms' B factors in what is splatted.
    n_operations : int
        Copies of a unit in the cell.
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
        """Return the derivative by the density of one unit on the grid, of what changes by Re(conj(derivative) · dF).

        Parameters
        ----------
        derivative : np.ndarray of complex, shape (M,)
        """
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
