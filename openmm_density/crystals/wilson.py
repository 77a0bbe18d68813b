"""The Wilson B factor of measured amplitudes: how fast they fall with resolution, whatever the model."""

from __future__ import annotations

import gemmi
import numpy as np

from .reflections import Reflections

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
