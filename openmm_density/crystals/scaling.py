"""The scale between measured and calculated amplitudes: overall, anisotropic, with bulk solvent."""

from __future__ import annotations

from dataclasses import dataclass

import gemmi
import numpy as np

from .reflections import Reflections
from .structure_factors import CalculatedAmplitudes

REJECTED = 4.5
"""Amplitudes that are this many times the root mean square of their shell take no part in finding the scale: hardly any is."""


@dataclass(frozen=True)
class Scaled:
    """A model's amplitudes with solvent, and the scale of the data to them.

    Attributes
    ----------
    model : np.ndarray of complex128, shape (N,)
        Atoms and solvent, in electrons, with the isotropic B factor by which those of all atoms are too small.
    solvent : np.ndarray of complex128, shape (N,)
        What of these is the bulk solvent's.
    scale : np.ndarray of float64, shape (N,)
        What these are multiplied by to be those measured: k exp(-hᵀ b h / 4) without that.
    solvent_density, solvent_b : float
        Electrons per Å³, and Å².
    b_tensor : tuple of float
        Of the overall anisotropic scale, with its isotropic part: b11, b22, b33, b12, b13, b23 in Å².
    """

    model: np.ndarray
    solvent: np.ndarray
    scale: np.ndarray
    solvent_density: float
    solvent_b: float
    b_tensor: tuple[float, ...]


def scaled(
    reflections: Reflections,
    calculated: CalculatedAmplitudes,
    all_hkl: np.ndarray,
    measured: np.ndarray,
    used: np.ndarray,
) -> Scaled:
    """Return the model on the scale of the data, found by least squares on some of the reflections (gemmi's `Scaling`).

    Parameters
    ----------
    reflections : Reflections
    calculated : CalculatedAmplitudes
        Of all indices up to the resolution.
    all_hkl : np.ndarray of int32, shape (M, 3)
        These indices.
    measured : np.ndarray of int, shape (N,)
        The place of each measured reflection among them.
    used : np.ndarray of bool, shape (N,)
        The reflections that the scale is found from: none that are held out.
    """
    cell, group = reflections.cell, reflections.space_group
    chosen = np.flatnonzero(used & ~_extreme(reflections))
    hkl = np.ascontiguousarray(reflections.hkl[chosen])
    order = np.lexsort(hkl.T[::-1])
    hkl, chosen = np.ascontiguousarray(hkl[order]), chosen[order]
    observed = np.stack([reflections.amplitudes[chosen], reflections.deviations[chosen]], axis=1)

    def asu(values: np.ndarray) -> gemmi.ComplexAsuData:
        return gemmi.ComplexAsuData(cell, group, hkl, values[measured[chosen]].astype(np.complex64))

    scaling = gemmi.Scaling(cell, group)
    scaling.use_solvent = True
    atoms, solvent = asu(calculated.atoms), asu(calculated.solvent)
    data = gemmi.ValueSigmaAsuData(cell, group, hkl, np.ascontiguousarray(observed, dtype=np.float32))
    scaling.prepare_points(atoms, data, solvent)
    scaling.fit_isotropic_b_approximately()
    scaling.fit_parameters()
    scale = scaling.get_overall_scale_factor(np.ascontiguousarray(all_hkl, dtype=np.int32))
    stol2 = cell.calculate_1_d2_array(all_hkl) / 4
    factor = scaling.k_sol * np.exp(-scaling.b_sol * stol2)
    tensor = scaling.b_overall
    # What is isotropic of it is the atoms' own: left in the scale of the data, maps would have whatever B factors the model has,
    # and these would drift from cycle to cycle.
    missing = np.exp(-tensor.trace() / 3 * stol2)
    of_solvent = missing * factor * calculated.solvent
    return Scaled(
        missing * calculated.atoms + of_solvent,
        of_solvent,
        scale / missing,
        scaling.k_sol,
        scaling.b_sol,
        (tensor.u11, tensor.u22, tensor.u33, tensor.u12, tensor.u13, tensor.u23),
    )


def _extreme(reflections: Reflections) -> np.ndarray:
    """Return which amplitudes are far above those of their resolution."""
    from .french_wilson import mean_intensity

    intensity = reflections.amplitudes**2 / reflections.epsilon
    # The mean is that of the work reflections' own, so that no other one changes which are left out.
    work = reflections.work
    expected = np.empty(len(reflections))
    expected[work] = mean_intensity(intensity[work], reflections.inverse_d2[work])
    expected[~work] = np.inf
    return intensity > REJECTED**2 * expected
