"""What a Table 1 says of a crystal: its space group, its data, and how a model explains them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import gemmi
import numpy as np

from ..crystals import Reflections, error_of_r_free

if TYPE_CHECKING:
    from ...maps.density_map import DensityMap
    from ..crystals import Phased


@dataclass(frozen=True)
class DiffractionShell:
    """Measured amplitudes of a range of resolution, and how a model explains them."""

    coarsest: float  # `coarsest`, `finest` in Å.
    finest: float
    n_work: int  # `n_work`, `n_free`: reflections.
    n_free: int
    completeness: float  # Of all that there can be in the range, measured ones as a part
    f_over_sigma: float  # Mean of F/σ(F)
    r_all: float
    r_work: float | None
    r_free: float | None  # None without free reflections

    @property
    def r_free_error(self) -> float | None:
        """What R-free is off by chance; None without free reflections."""
        return error_of_r_free(self.r_free, self.n_free)


@dataclass(frozen=True)
class DiffractionFigures:
    """What is known of the measured amplitudes of a crystal."""

    whole: DiffractionShell
    finest_shell: DiffractionShell
    wilson_b: float | None  # Å²; None where the data do not reach far enough
    # `solvent_density`, `solvent_b` of the flat bulk solvent, in electrons per Å³ and Å².
    solvent_density: float
    solvent_b: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers."""
        return asdict(self)


@dataclass(frozen=True)
class Crystal:
    """A crystal, as far as a model and its map, or its data, tell of it."""

    space_group: str  # Hermann-Mauguin; empty where it is not known
    cell: Sequence[float] | None  # Å and degrees; None where it is not known
    diffraction: DiffractionFigures | None = None  # None where only a map is known


def crystal_of(density_map: DensityMap, cell: Sequence[float] | None, space_group: str) -> Crystal | None:
    """Return the crystal of a map that is, or was cut from, a whole cell, by default as the map's cell; None of others."""
    if density_map.space_group is None:
        return None
    own = tuple(density_map.cell) if density_map.periodic else None
    return Crystal(space_group or density_map.space_group, own if cell is None else tuple(cell))


def diffraction_figures(phased: Phased) -> DiffractionFigures:
    """Return what is known of measured amplitudes to which a model gave phases."""
    shells = phased.r_factors.shells
    finest = shells[-1].coarsest ** -2 * (1 - 1e-9)
    return DiffractionFigures(
        _shell(phased, 0.0),
        _shell(phased, finest),
        wilson_b(phased.reflections),
        phased.scaled.solvent_density,
        phased.scaled.solvent_b,
    )


def crystal_of_data(phased: Phased) -> Crystal:
    """Return the crystal of measured amplitudes to which a model gave phases."""
    data = phased.reflections
    return Crystal(data.space_group.xhm(), tuple(data.cell.parameters), diffraction_figures(phased))


def _shell(phased: Phased, from_inverse_d2: float) -> DiffractionShell:
    """Return the figures of all reflections that are as fine, or finer."""
    data, scaled = phased.reflections, phased.scaled
    chosen = data.inverse_d2 >= from_inverse_d2
    inverse_d2 = data.inverse_d2[chosen]
    possible = int((data.cell.calculate_1_d2_array(phased.hkl) >= from_inverse_d2).sum())
    measured = data.amplitudes[chosen]
    away = np.abs(measured - (scaled.scale * np.abs(scaled.model))[phased.measured][chosen])
    work = data.work[chosen]

    def r_factor(part: np.ndarray) -> float | None:
        return float(away[part].sum() / measured[part].sum()) if part.any() else None

    return DiffractionShell(
        coarsest=float(inverse_d2.min() ** -0.5),
        finest=float(inverse_d2.max() ** -0.5),
        n_work=int(work.sum()),
        n_free=int((~work).sum()),
        completeness=float(chosen.sum() / possible),
        f_over_sigma=float((measured / data.deviations[chosen]).mean()),
        r_all=float(away.sum() / measured.sum()),
        r_work=r_factor(work),
        r_free=r_factor(~work),
    )


COMPOSITION = {"C": 5.0, "N": 1.35, "O": 2.5, "S": 0.04, "H": 9.0}
"""Atoms for each residue of a protein and the water bound to it; only the shape of the curve matters."""
COARSEST = 4.0
"""Å, beyond which the amplitudes show the arrangement of atoms and the solvent, not their B factors."""
FEWEST_SHELLS, PER_SHELL = 4, 50


def wilson_b(reflections: Reflections) -> float | None:
    """Return the Wilson B factor in Å², isotropic; None of data that have too little beyond 4 Å.

    The logarithm of ⟨F²/ε⟩/Σf² falls along -B/(2d²) (Wilson, Nature 1942, 150, 152); a line is drawn through its means in
    shells from 4 Å to the end of the data.
    """
    inverse_d2 = reflections.inverse_d2
    chosen = np.flatnonzero(inverse_d2 >= COARSEST**-2)
    n_shells = min(len(chosen) // PER_SHELL, 30)
    if n_shells < FEWEST_SHELLS:
        return None
    intensities = reflections.amplitudes**2 / reflections.epsilon
    places, values = [], []
    for shell in np.array_split(chosen[np.argsort(inverse_d2[chosen], kind="stable")], n_shells):
        mean = float(intensities[shell].mean())
        if mean > 0:
            places.append(float(inverse_d2[shell].mean()))
            values.append(np.log(mean / _scattering(places[-1])))
    if len(places) < FEWEST_SHELLS:
        return None
    slope, _ = np.polyfit(places, values, 1)
    return float(-2 * slope)


def _scattering(inverse_d2: float) -> float:
    """Return Σf² of the mean composition."""
    at = inverse_d2 / 4  # (sin θ / λ)²
    return sum(n * gemmi.Element(name).it92.calculate_sf(at) ** 2 for name, n in COMPOSITION.items())
