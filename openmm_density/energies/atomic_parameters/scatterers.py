"""The atoms of a model as they scatter: form factors, B factors and occupancies, with the derivatives that the kernels return."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from openmm_density.kernels.density import density_gather, density_splat

from ...models.symmetry_operators import SymmetryOperators
from ..contact_images import mates_near
from ..form_factors import form_factor_gaussians
from .masked_map import MaskedMap

CUTOFF_IN_SIGMA = 4.5
_DISPLACED_B, _DISPLACED_CUTOFF_IN_SIGMA = 250.0, 4.0


@dataclass(frozen=True)
class Mates:
    """The atoms of symmetry mates that lie beside a unit, with the B factors and occupancies of its own."""

    places: np.ndarray  # (K, 3), Å
    sources: np.ndarray  # int (K,), the atom of the unit that each is an image of
    # (M,), what each of the unit's M atoms has of a site that it shares with its own images, on an element of
    # symmetry; else 1
    shares: np.ndarray

    @classmethod
    def of(
        cls, operators: SymmetryOperators, positions: np.ndarray, reach: float, occupancies: np.ndarray
    ) -> Mates:
        """Return those within a reach (Å) of atoms at positions (M, 3) with these occupancies."""
        places, sources = mates_near(operators, positions, reach)
        shares = operators.site_weights(positions, occupancies)
        return cls(places, sources, np.ones(len(positions)) if shares is None else shares)


class Scatterers:
    """Atoms at fixed places in the box of a `MaskedMap`.

    `elements` length M: symbols; `positions` (M, 3) in Å; `largest_b` in Å²: the density of atoms with larger B factors
    is cut off nearer than `CUTOFF_IN_SIGMA`; `scattering` {"electron", "xray"}: form factors; `mates`: what else has
    density there.
    """

    def __init__(
        self,
        elements: Sequence[str],
        positions: np.ndarray,
        masked: MaskedMap,
        largest_b: float,
        scattering: str = "electron",
        mates: Mates | None = None,
    ) -> None:
        self._masked = masked
        own = np.arange(len(elements))
        self._sources = own if mates is None else np.concatenate([own, mates.sources])
        self._shares = np.ones(len(own)) if mates is None else mates.shares
        every = positions if mates is None else np.concatenate([positions, mates.places])
        self._positions = torch.from_numpy(np.ascontiguousarray(every, dtype=np.float64))
        self._matrix, self._origin = torch.from_numpy(masked.matrix), torch.from_numpy(masked.origin)
        zeros, ones = (
            torch.zeros(len(elements), dtype=torch.float64),
            torch.ones(len(elements), dtype=torch.float64),
        )
        # Of B = 0 without a resolution: A = a (4π/b)^(3/2), α = 4π²/b.
        amplitudes, exponents = form_factor_gaussians(elements, scattering, zeros + _TINY, ones, 0.0)
        self._b = (4 * math.pi**2 / exponents).numpy() - _TINY
        self._a = (amplitudes / (4 * math.pi / (4 * math.pi**2 / exponents)) ** 1.5).numpy()
        widest = float(np.median(self._b.max(axis=1))) + largest_b + masked.blur
        self._cutoff = CUTOFF_IN_SIGMA * math.sqrt(widest / (8 * math.pi**2))

    def density(self, b_factors: np.ndarray, occupancies: np.ndarray) -> np.ndarray:
        """Return the density on the grid, blurred by the grid's `MaskedMap.blur`."""
        amplitudes, exponents, _ = self._gaussians(b_factors, occupancies)
        return self._splat(amplitudes, exponents, self._cutoff)

    def displaced(self, occupancies: np.ndarray) -> np.ndarray:
        """Return the volume of the atoms as a density, as soft at its edge as that of a solvent is.

        An atom displaces the solvent where it is: by its occupancy. Else what is in no copy of a molecule would need density to
        make up for the solvent that it is said to displace.
        """
        width = np.full((len(self._a), 1), _DISPLACED_B + self._masked.blur)
        amplitudes = (self._shares * occupancies)[:, None] * (4 * math.pi / width) ** 1.5
        # It is as wide whatever the largest B factor of the atoms may be.
        reach = _DISPLACED_CUTOFF_IN_SIGMA * math.sqrt((_DISPLACED_B + self._masked.blur) / (8 * math.pi**2))
        return self._splat(amplitudes, 4 * math.pi**2 / width, max(self._cutoff, reach))

    def gradients(
        self, field: np.ndarray, b_factors: np.ndarray, occupancies: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the derivatives of Σ field·density with respect to B factors and occupancies, each of shape (M,)."""
        amplitudes, exponents, width = self._gaussians(b_factors, occupancies)
        _, by_amplitude, by_exponent = density_gather(
            torch.from_numpy(field),
            self._positions,
            torch.from_numpy(amplitudes[self._sources].astype(np.float32)),
            torch.from_numpy(exponents[self._sources].astype(np.float32)),
            self._cutoff,
            self._matrix,
            self._origin,
        )
        by_amplitude, by_exponent = self._folded(by_amplitude), self._folded(by_exponent)
        by_b = -(1.5 * by_amplitude * amplitudes + by_exponent * exponents) / width
        each = self._shares[:, None] * self._a * (4 * math.pi / width) ** 1.5
        return by_b.sum(axis=1), (by_amplitude * each).sum(axis=1)

    def form_factors(self, s2: np.ndarray) -> np.ndarray:
        """Return f(s) of each atom, shape (M, len(s2)), for |s|² in Å⁻²."""
        return (self._a[:, :, None] * np.exp(-self._b[:, :, None] * s2 / 4)).sum(axis=1)

    def _gaussians(
        self, b_factors: np.ndarray, occupancies: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        width = self._b + b_factors[:, None] + self._masked.blur
        amplitudes = (self._shares * occupancies)[:, None] * self._a * (4 * math.pi / width) ** 1.5
        return amplitudes, 4 * math.pi**2 / width, width

    def _folded(self, derivatives: torch.Tensor) -> np.ndarray:
        """Return derivatives by what the unit's atoms have, of those by what they and their images have."""
        values, n = derivatives.double().numpy(), len(self._a)
        folded = values[:n].copy()
        np.add.at(folded, self._sources[n:], values[n:])
        return folded

    def _splat(self, amplitudes: np.ndarray, exponents: np.ndarray, cutoff: float) -> np.ndarray:
        return density_splat(
            self._positions,
            torch.from_numpy(amplitudes[self._sources].astype(np.float32)),
            torch.from_numpy(exponents[self._sources].astype(np.float32)),
            cutoff,
            self._matrix,
            self._origin,
            list(self._masked.shape),
        ).numpy()


# Å², so that no Gaussian of the table without a width of its own is infinitely narrow.
_TINY = 1e-3
