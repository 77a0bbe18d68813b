"""What the log of a fit says of its model."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import openmm
from openmm import unit

from ..base.errors import InputError
from ..base.units import positions_in_angstrom
from ..energies.density_fit import DensityFit
from ..models.chemistry.planes import PlaneSet
from ..models.matching import ca_rmsd, match_alpha_carbons
from ..models.preparation import Prepared
from ..models.structures import Model
from ..validation.correlation import MapCorrelation
from .fit_map import FitMap
from .fit_result import Row
from .fit_systems import DENSITY_GROUP
from .helper_processes import HelperProcesses, HelperResult

TIMINGS = 10
NO_GROUP = 31
"""The last of OpenMM's force groups, in which no force is."""

_ALL_BUT_DENSITY = set(range(32)) - {DENSITY_GROUP}


@dataclass(frozen=True)
class PendingRow:
    """A row of the log whose correlations may yet be computed."""

    known: Row  # Without them
    cc: HelperResult[float]
    cc_free: HelperResult[float] | None

    @property
    def is_done(self) -> bool:
        """Whether nothing is waited for."""
        return self.cc.is_done and (self.cc_free is None or self.cc_free.is_done)

    def result(self) -> Row:
        """Return the row, when all of it is there."""
        free = None if self.cc_free is None else self.cc_free.result()
        return replace(self.known, cc=self.cc.result(), cc_free=free)


class Measurements:
    """Measure the model of a fit, as it goes on.

    `density` at the resolution of the map; `cc_initial`: correlation of the model as it was read with the map, where
    the fit starts; `planes`: flat groups of the model as it was read; `reference`: a model of the target; `free_map`:
    another map of the same; `beside`: what correlations are computed by. Raises InputError if the reference is no model
    of the same molecule.
    """

    def __init__(
        self,
        prepared: Prepared,
        density: DensityFit,
        fit_map: FitMap,
        cc_initial: float,
        planes: PlaneSet,
        reference: Model | None = None,
        free_map: FitMap | None = None,
        beside: HelperProcesses | None = None,
    ) -> None:
        self._prepared, self._density, self._planes = prepared, density, planes
        self.cc_initial = cc_initial
        # Scored is what the user gave, atom for atom: hydrogens that were built are excluded.
        scored = prepared.model.topology
        self._fit_map, self._correlation = fit_map, fit_map.correlation(scored)
        self._free_correlation = None if free_map is None else free_map.correlation(scored)
        self._beside = beside or HelperProcesses()
        self._reference, self._pairs = reference, None
        if reference is not None:
            try:
                self._pairs = match_alpha_carbons(
                    prepared.topology,
                    reference.topology,
                    positions=prepared.positions,
                    reference_positions=reference.positions,
                )
            except InputError as error:
                raise error.within(reference.path) from None

    def row(
        self, context: openmm.Context, density: DensityFit, step: int, stage: str, temperature: float
    ) -> PendingRow:
        """Return the row of the log for a Context, of which correlations may yet be computed beside what follows."""
        # Apart, so that the density is evaluated once.
        state = context.getState(energy=True, positions=True, groups=_ALL_BUT_DENSITY)
        density_energy = _energy(context.getState(energy=True, groups={DENSITY_GROUP}))
        positions = positions_in_angstrom(state.getPositions(asNumpy=True))
        in_input = self._prepared.input_positions(positions)
        strength = context.getParameter(density.parameter_name)
        if density is self._density and strength:
            similarity = density.measure.similarity_from_energy(density_energy, strength)
        else:  # A coarser map or wider Gaussians have other similarities; at k = 0 the energy tells nothing.
            similarity = self._density.similarity(positions)
        known = Row(
            step=step,
            stage=stage,
            potential_energy=_energy(state) + density_energy,
            density_energy=density_energy,
            strength=strength / self._density.n_fitted_atoms,
            similarity=similarity,
            cc=np.nan,
            temperature=temperature,
            planarity_rms=self._planes.rms(in_input),
            ca_rmsd=self.ca_rmsd(positions),
            cc_free=None,
        )
        free = self._free_correlation
        return PendingRow(
            known,
            self._cc_mask(self._correlation, in_input),
            None if free is None else self._cc_mask(free, in_input),
        )

    def _cc_mask(self, correlation: MapCorrelation, in_input: np.ndarray) -> HelperResult[float]:
        return self._beside.begin(MapCorrelation.cc_mask, self._beside.shared(correlation), in_input)

    def cc_noise(self, positions: np.ndarray, cc: float) -> float:
        """Return the standard error of a correlation that the model has at positions in Å."""
        return self._correlation.standard_error(self._prepared.input_positions(positions), cc)

    def cc_reference(self) -> float | None:
        """Return the correlation of the reference with the map, if there is one."""
        if self._reference is None:
            return None
        return self._fit_map.correlation(self._reference.topology).cc_mask(self._reference.positions)

    def ca_rmsd(self, positions: np.ndarray) -> float | None:
        """Return the RMSD of Cα in Å to the reference, if there is one, of positions in Å."""
        if self._reference is None:
            return None
        return ca_rmsd(positions, self._reference.positions, self._pairs)


def density_milliseconds(context: openmm.Context) -> float:
    """Return the median milliseconds of evaluating the density force alone, less what a State of any forces takes."""
    ticks = []
    for _ in range(TIMINGS + 1):  # the first one allocates, compiles or records
        for group in (DENSITY_GROUP, NO_GROUP):
            ticks.append(time.perf_counter())
            context.getState(forces=True, groups={group})
    of_density, of_none = np.diff([*ticks, time.perf_counter()]).reshape(-1, 2)[1:].T
    return 1000 * max(float(np.median(of_density - of_none)), 0.0)


def _energy(state: openmm.State) -> float:
    return state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole)
