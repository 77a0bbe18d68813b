"""What the log of a fit says of its model."""

from __future__ import annotations

import itertools
import time

import numpy as np
import openmm
from openmm import unit

from ..chemistry.planes import PlaneSet
from ..energies.density_fit import DensityFit
from ..errors import InputError
from ..maps.density_map import DensityMap
from ..models.matching import ca_rmsd, match_alpha_carbons
from ..models.preparation import Prepared
from ..models.structures import Model
from ..units import positions_in_angstrom
from ..validation.correlation import MapCorrelation
from .fit_result import Row
from .fit_systems import DENSITY_GROUP

TIMINGS = 10


class Measurements:
    """Measure the model of a fit, as it goes on.

    Parameters
    ----------
    prepared : Prepared
    density : DensityFit
        At the resolution of the map.
    correlation : MapCorrelation
        Of the model as it was read with the map: hydrogens that were built have no say.
    planes : PlaneSet
        Flat groups of the model as it was read.
    reference : Model, optional
        A model of the target.
    free_map : DensityMap, optional
        Another map of the same.

    Raises
    ------
    InputError
        If the reference is no model of the same molecule.
    """

    def __init__(
        self,
        prepared: Prepared,
        density: DensityFit,
        correlation: MapCorrelation,
        planes: PlaneSet,
        reference: Model | None = None,
        free_map: DensityMap | None = None,
    ) -> None:
        self._prepared, self._density, self._planes = prepared, density, planes
        self._correlation, self._free_correlation = correlation, None
        if free_map is not None:
            self._free_correlation = MapCorrelation(free_map, prepared.model.topology, density.resolution)
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
                raise InputError(f"{reference.path}: {error}") from None

    def row(self, context: openmm.Context, step: int, stage: str, temperature: float) -> Row:
        """Return the row of the log for a Context at a step, at its temperature in K."""
        state = context.getState(energy=True, positions=True)
        positions = positions_in_angstrom(state.getPositions(asNumpy=True))
        density = context.getState(energy=True, groups={DENSITY_GROUP})
        in_input = self._prepared.input_positions(positions)
        strength = context.getParameter(self._density.parameter_name)
        return Row(
            step=step,
            stage=stage,
            potential_energy=state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole),
            density_energy=density.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole),
            strength=strength / self._density.n_fitted_atoms,
            similarity=self._density.similarity(positions),
            cc=self._correlation.cc_mask(in_input),
            temperature=temperature,
            planarity_rms=self._planes.rms(in_input),
            ca_rmsd=self.ca_rmsd(positions),
            cc_free=None if self._free_correlation is None else self._free_correlation.cc_mask(in_input),
        )

    def ca_rmsd(self, positions: np.ndarray) -> float | None:
        """Return the RMSD of Cα in Å to the reference, if there is one, of positions in Å."""
        if self._reference is None:
            return None
        return ca_rmsd(positions, self._reference.positions, self._pairs)


def density_milliseconds(context: openmm.Context) -> float:
    """Return the median milliseconds of evaluating the density force alone."""
    context.getState(forces=True, groups={DENSITY_GROUP})
    ticks = []
    for _ in range(TIMINGS + 1):
        ticks.append(time.perf_counter())
        context.getState(forces=True, groups={DENSITY_GROUP})
    return 1000 * float(np.median([b - a for a, b in itertools.pairwise(ticks)]))
