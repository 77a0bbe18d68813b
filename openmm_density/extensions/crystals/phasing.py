"""`phased`: what a model makes of measured amplitudes: R factors and σA-weighted maps."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import gemmi
import numpy as np

from ...base.atomic_files import atomic_write
from ...base.errors import InputError
from ...maps.density_map import DensityMap
from ...maps.mtz_maps import SAMPLE_RATE
from .crystal_model import crystal_structure
from .r_factors import RFactors, r_factors
from .reflections import Reflections
from .sigma_a import SigmaA, estimate_sigma_a, figure_of_merit, mean_squares
from .structure_factors import CalculatedAmplitudes, calculated

ESTIMATED_FROM = 0.05, 500, 0.1
"""σA is estimated from this part of the work reflections, from as many if that is more, but at most from this part."""
_ESTIMATION_SEED = 19860140


@dataclass(frozen=True)
class Phased:
    """Measured amplitudes with the phases of a model, and what follows from them.

    Attributes
    ----------
    reflections : Reflections
    hkl : np.ndarray of int32, shape (M, 3)
        All indices to the resolution of the data, measured or not.
    measured : np.ndarray of int, shape (N,)
        The place of each reflection among them.
    scaled : Scaled
    sigma_a : SigmaA
    figures_of_merit : np.ndarray, shape (N,)
    r_factors : RFactors
    shown : np.ndarray of bool, shape (N,)
        Which reflections the maps show as they were measured; the others are there as the model predicts them.
    """

    reflections: Reflections
    hkl: np.ndarray
    measured: np.ndarray
    scaled: Scaled
    sigma_a: SigmaA
    figures_of_merit: np.ndarray
    r_factors: RFactors
    shown: np.ndarray

    def map_coefficients(self) -> np.ndarray:
        """Return 2mF_o - DF_c, mF_o of centric reflections, on the absolute scale, shape (M,), complex.

        Reflections that are held out or not measured have DF_c: they show nothing that the model does not.
        """
        return self._coefficients(2.0, 1.0, self.sigma_a.d * self.scaled.model)

    def atom_coefficients(self) -> np.ndarray:
        """Return 2mF_o - DF_c, mF_o of centric reflections, less the bulk solvent's part of DF_c, shape (M,), complex.

        This is the density of the atoms as if in a vacuum, as a model without solvent has it. With the solvent in the map, atoms
        would have to be sharper to make up for the density that they displace.
        """
        return self.map_coefficients() - self.sigma_a.d * self.scaled.solvent

    def difference_coefficients(self) -> np.ndarray:
        """Return mF_o - DF_c, shape (M,), complex: 0 of reflections that are held out or not measured."""
        return self._coefficients(1.0, 1.0, np.zeros(len(self.hkl), dtype=np.complex128))

    def _coefficients(self, acentric: float, centric: float, others: np.ndarray) -> np.ndarray:
        shown = self.measured[self.shown]
        model = self.scaled.model[shown]
        unit = np.where(np.abs(model) > 0, model / np.maximum(np.abs(model), 1e-30), 1.0)
        data = self.reflections.amplitudes[self.shown] / self.scaled.scale[shown]
        expected = self.figures_of_merit[self.shown] * data * unit
        of_model = self.sigma_a.d[shown] * model
        is_centric = self.reflections.centric[self.shown]
        # A centric phase has no direction in which half of a missing atom would be lost.
        times = np.where(is_centric, centric, acentric)
        subtracted = np.where(is_centric & (acentric == 2.0), 0.0, 1.0)
        result = others.copy()
        result[shown] = times * expected - subtracted * of_model
        return result

    def density_map(self, coefficients: np.ndarray | None = None) -> DensityMap:
        """Return the periodic map of a unit cell, by default that of `map_coefficients`, in electrons per Å³ about its mean."""
        if coefficients is None:
            coefficients = self.map_coefficients()
        data = gemmi.ComplexAsuData(
            self.reflections.cell,
            self.reflections.space_group,
            self.hkl,
            np.ascontiguousarray(coefficients, dtype=np.complex64),
        )
        grid = data.transform_f_phi_to_map(sample_rate=SAMPLE_RATE)
        matrix = np.array(grid.unit_cell.orth.mat.tolist()) / (grid.nu, grid.nv, grid.nw)
        data, name = np.ascontiguousarray(grid.array.T), self.reflections.space_group.xhm()
        return DensityMap(data, matrix, np.zeros(3), periodic=True, space_group=name)

    def write_mtz(self, path: str | os.PathLike[str]) -> None:
        """Write amplitudes, free flags (1 is free) and map coefficients, with the labels that Coot and Phenix know."""
        mtz = gemmi.Mtz(with_base=True)
        mtz.spacegroup = self.reflections.space_group
        mtz.set_cell_for_all(self.reflections.cell)
        mtz.add_dataset("openmm-density")
        columns = [np.full(len(self.hkl), np.nan) for _ in range(4)]
        for label, kind in (("F-obs", "F"), ("SIGF-obs", "Q"), ("R-free-flags", "I"), ("FOM", "W")):
            mtz.add_column(label, kind)
        flags = np.zeros(len(self.reflections)) if self.reflections.free is None else self.reflections.free
        found = self.reflections.amplitudes, self.reflections.deviations, flags, self.figures_of_merit
        for column, values in zip(columns, found, strict=True):
            column[self.measured] = values
        scale = self.scaled.scale
        for name, values in (
            ("F-model", scale * self.scaled.model),
            ("2FOFCWT", self.map_coefficients()),
            ("FOFCWT", self.difference_coefficients()),
        ):
            mtz.add_column(name, "F")
            mtz.add_column("PHIF-model" if name == "F-model" else f"PH{name}", "P")
            columns += [np.abs(values), np.degrees(np.angle(values))]
        mtz.set_data(np.column_stack([self.hkl, *columns]).astype(np.float32))
        with atomic_write(Path(path)) as temporary:
            mtz.write_to_file(str(temporary))


def phased(
    structure: gemmi.Structure, reflections: Reflections, *, holding_out_estimation: bool = True
) -> Phased:
    """Return what a model makes of measured amplitudes.

    Free reflections take part in nothing but R_free. σA has to come from reflections that the model was not fitted to: they are
    a part of the work reflections, always the same one, that the map then shows as the model predicts them, too.

    Parameters
    ----------
    structure : gemmi.Structure
        From `crystal_structure`.
    reflections : Reflections
    holding_out_estimation : bool
        Whether the map leaves out the reflections that σA is estimated from, as the target of a fit has to; a map that is only
        looked at shows them.

    Raises
    ------
    InputError
        If the model explains nothing of the data, or the numbers are not finite.
    """
    cell, group = reflections.cell, reflections.space_group
    resolution = reflections.resolution
    hkl = gemmi.make_miller_array(cell, group, resolution * (1 - 1e-6))
    hkl = np.ascontiguousarray(hkl[~group.operations().systematic_absences(hkl)], dtype=np.int32)
    measured = _places(hkl, reflections.hkl)
    work = reflections.work
    fitted = scaled_model(reflections, calculated(structure, hkl, resolution), hkl, measured, work)
    if not (np.isfinite(fitted.scale).all() and (fitted.scale > 0).all() and np.isfinite(fitted.model).all()):
        raise InputError(
            "no scale brings the model to the data", remedy="check that both are of the same crystal"
        )
    estimation = _estimation_set(reflections)
    sigma_a, normalised = _sigma_a(reflections, fitted, hkl, measured, estimation)
    at = sigma_a.sigma_a[measured]
    merit = figure_of_merit(*normalised, at, reflections.centric)
    factors = r_factors(
        reflections.amplitudes,
        fitted.scale[measured] * np.abs(fitted.model[measured]),
        ~work,
        reflections.inverse_d2,
    )
    shown = work & ~estimation if holding_out_estimation else work
    return Phased(reflections, hkl, measured, fitted, sigma_a, merit, factors, shown)


def phased_file(path: str | os.PathLike[str], reflections: Reflections) -> Phased:
    """Return what the model of a file makes of measured amplitudes, see `phased`; its map is one that is looked at."""
    return phased(crystal_structure(path, reflections), reflections, holding_out_estimation=False)


def _places(hkl: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return where each index is among all."""
    place = {index: number for number, index in enumerate(map(tuple, hkl.tolist()))}
    return np.array([place[index] for index in map(tuple, wanted.tolist())], dtype=np.int64)


def _estimation_set(reflections: Reflections) -> np.ndarray:
    """Return which work reflections σA is estimated from: the same ones for the same indices."""
    least, count, most = ESTIMATED_FROM
    work = np.flatnonzero(reflections.work)
    number = int(min(max(least * len(work), count), most * len(work)))
    order = work[np.lexsort(reflections.hkl[work].T[::-1])]
    chosen = np.zeros(len(reflections), dtype=bool)
    chosen[order[np.random.default_rng(_ESTIMATION_SEED).permutation(len(order))[:number]]] = True
    return chosen


def _sigma_a(
    reflections: Reflections, fitted: Scaled, hkl: np.ndarray, measured: np.ndarray, estimation: np.ndarray
) -> tuple[SigmaA, tuple[np.ndarray, np.ndarray]]:
    """Return σA of all indices, and normalised amplitudes of the measured reflections and of the model there."""
    inverse_d2 = reflections.cell.calculate_1_d2_array(hkl)
    root_epsilon = np.sqrt(reflections.epsilon)
    data = reflections.amplitudes / fitted.scale[measured] / root_epsilon
    model = np.abs(fitted.model[measured]) / root_epsilon
    work, at = reflections.work, reflections.inverse_d2
    total = mean_squares(data[work], at[work], inverse_d2)
    of_model = mean_squares(model[work], at[work], inverse_d2)
    normalised = data / np.sqrt(total[measured]), model / np.sqrt(of_model[measured])
    from_these = (each[estimation] for each in (*normalised, at, reflections.centric))
    sigma_a = estimate_sigma_a(*from_these, inverse_d2)
    d = sigma_a * np.sqrt(total / of_model)
    return SigmaA(sigma_a, d, total, int(estimation.sum())), normalised


REJECTED = 4.5
"""Amplitudes that are this many times the root mean square of their shell take no part in finding the scale: hardly any is."""


@dataclass(frozen=True)
class Scaled:
    """A model's amplitudes with solvent, and the scale of the data to them."""

    # complex128 (N,), atoms and solvent, in electrons, with the isotropic B factor by which those of all atoms are
    # too small
    model: np.ndarray
    solvent: np.ndarray  # complex128 (N,), what of these is the bulk solvent's
    # float64 (N,), what these are multiplied by to be those measured: k exp(-hᵀ b h / 4) without that
    scale: np.ndarray
    solvent_density: float  # `solvent_density`, `solvent_b`: electrons per Å³, and Å².
    solvent_b: float
    # Of the overall anisotropic scale, with its isotropic part: b11, b22, b33, b12, b13, b23 in Å²
    b_tensor: tuple[float, ...]


def scaled_model(
    reflections: Reflections,
    calculated: CalculatedAmplitudes,
    all_hkl: np.ndarray,
    measured: np.ndarray,
    used: np.ndarray,
) -> Scaled:
    """Return the model on the scale of the data, found by least squares on some of the reflections (gemmi's `Scaling`).

    `calculated` of all indices up to the resolution; `all_hkl` int32 (M, 3): these indices; `measured` int (N,): the
    place of each measured reflection among them; `used` bool (N,): the reflections that the scale is found from: none
    that are held out.
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
