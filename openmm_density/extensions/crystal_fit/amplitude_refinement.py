"""The end of each cycle: positions and B factors refined against the amplitudes themselves, in ideal geometry."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import openmm
from openmm import unit

from ...base.units import ANGSTROM_PER_NANOMETER
from ...energies.atomic_parameters.b_factors import BOUNDS
from ...energies.atomic_parameters.levels import b_level
from ...fitting.fit_result import FitResult
from ...fitting.flexible_fit import FlexibleFit
from ...models.chemistry.topologies import hydrogen_mask
from ...report import OutputFolder
from ..crystals import Phased, Reflections
from .amplitude_likelihood import AmplitudeLikelihood
from .models import model_of, phased_model
from .refined_atoms import RefinedAtoms

MACROCYCLES = 3
"""Of new scale, solvent and σ_A, then positions, then B factors."""
POSITION_ITERATIONS, B_ITERATIONS = 30, 10
WEIGHT = 3.0
"""Times that the data's logarithm of likelihood counts beside the energy in kT: with 1 a force field whose molecules are in a
vacuum holds atoms off where amplitudes to 1.2 Å have them."""
KT = (unit.MOLAR_GAS_CONSTANT_R * 300 * unit.kelvin).value_in_unit(unit.kilojoule_per_mole)
RELEASED = ("rotamers", "water")
"""Restraints without a part in it: the data tell where waters and side chains are, and a start that is off does not."""
BONDED_CURVATURE, HYDROGEN_CURVATURE = 1000.0, 400.0
"""kT/Å²: about what bonds and angles make of the second derivative by a coordinate."""
LONGEST_MOVE, LARGEST_CHANGE = 0.1, 0.5
"""Å of a coordinate in one iteration, and of the logarithm of a B factor's width."""


class AmplitudeRefinement:
    """Refine what a cycle's fit ended with.

    Minimised is E/kT − `WEIGHT` · ln(likelihood), E of the force field in ideal geometry (see `final_geometry`), mates and
    restraints, and the prior that holds B factors of neighbours alike; first by positions, then by B factors, again and again,
    each time with new scale, solvent and σ_A. A minimum has no thermal motion, each atom has its own form factor and B factor,
    and phases follow the atoms. `output`: into which models on the way are written, as ``after.*``.
    """

    def __init__(self, fit: FlexibleFit, output: OutputFolder, reflections: Reflections) -> None:
        self._fit, self._output, self._reflections = fit, output, reflections

    def refine(self, result: FitResult) -> FitResult:
        """Return the result with its model refined; a sentence on what became of R-work is added to the notes of the fit."""
        values = []
        context = self._fit.context_at_rest(result)
        for restraint in self._fit.restraints:
            if restraint.name in RELEASED:
                context.setParameter(restraint.parameter_name, 0.0)
        for _ in range(MACROCYCLES):
            phased = self._phased(result)
            values.append(phased.r_factors.r_work)
            result = _Macrocycle(self._fit, context, phased, result).refined()
        values.append(self._phased(result).r_factors.r_work)
        self._fit.notes.append(
            f"Positions{'' if result.b_factors is None else ' and B factors'} were refined against the amplitudes after the "
            f"fit into the map: R-work {values[0]:.4f} to {values[-1]:.4f}."
        )
        return replace(result, amplitude_weight=WEIGHT)

    def _phased(self, result: FitResult) -> Phased:
        self._output.write_model("after", result)
        return phased_model(model_of(self._output.path), self._reflections)


class _Macrocycle:
    """Positions, then B factors, with one scale, solvent and σ_A."""

    def __init__(self, fit: FlexibleFit, context: openmm.Context, phased: Phased, result: FitResult) -> None:
        self._fit, self._context, self._phased, self._result = fit, context, phased, result
        self._refined = refined = RefinedAtoms.of(result)
        self._scattering = refined.in_file
        atoms = list(refined.atoms.topology.atoms())
        self._light = hydrogen_mask(refined.atoms.topology)
        self._likelihood = AmplitudeLikelihood(
            phased,
            [atoms[i].element.symbol for i in self._scattering],
            refined.atoms.positions[self._scattering],
            refined.b_factors[self._scattering],
            refined.atoms.occupancies[self._scattering],
        )

    def refined(self) -> FitResult:
        """Return the result with positions and, where it has refined ones, B factors."""
        positions = self._positions()
        result = self._fit.moved(self._result, positions)
        if result.b_factors is None:
            return result
        return self._refined.with_b_factors(result, self._b_factors(positions, result.b_factors.level))

    def _positions(self) -> np.ndarray:
        """Return refined positions of all atoms, (N + K, 3) in Å."""
        scattering, b_factors = self._scattering, self._refined.b_factors[self._scattering]
        curvature = np.where(self._light, HYDROGEN_CURVATURE, BONDED_CURVATURE)
        curvature[scattering] += WEIGHT * self._likelihood.curvatures(b_factors)[0]

        def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
            positions = x.reshape(-1, 3)
            energy, gradient = self._energy(positions)
            found = self._likelihood(positions[scattering], b_factors)
            gradient[scattering] += WEIGHT * found.by_position
            return energy + WEIGHT * found.loss, gradient.ravel()

        start, curvatures = self._refined.atoms.positions.ravel(), np.repeat(curvature, 3)
        return minimized(evaluate, start, curvatures, POSITION_ITERATIONS, LONGEST_MOVE).x.reshape(-1, 3)

    def _energy(self, positions: np.ndarray) -> tuple[float, np.ndarray]:
        """Return energy in kT and its gradient in kT/Å."""
        self._context.setPositions(positions / ANGSTROM_PER_NANOMETER)
        state = self._context.getState(energy=True, forces=True)
        energy = state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole)
        forces = state.getForces(asNumpy=True).value_in_unit(unit.kilojoule_per_mole / unit.nanometer)
        return energy / KT, -np.array(forces) / ANGSTROM_PER_NANOMETER / KT

    def _b_factors(self, positions: np.ndarray, level_name: str) -> np.ndarray:
        """Return refined B factors of all atoms, (N + K,) in Å²."""
        given, atoms = self._refined.b_factors, self._refined.atoms
        level = b_level(level_name, atoms.topology, positions, atoms.scattering, atoms.groups(None))
        group, n = level.group_of_atom, level.n_groups
        # Hydrogens go with the atom that they are bound to; of others the data know nothing.
        of_scattering = np.where(atoms.place >= 0, group[atoms.place], -1)[self._scattering]
        has = of_scattering >= 0
        shift = self._fit.fit_map.resolution**2
        lowest, highest = (np.log(bound + shift) for bound in BOUNDS)
        means = np.bincount(group, given[atoms.scattering], minlength=n) / np.bincount(group, minlength=n)
        start, middle = np.log(means + shift), np.log(given[atoms.scattering].mean() + shift)
        prior, at = level.precision(), positions[self._scattering]

        def b_factors(x: np.ndarray) -> np.ndarray:
            values = np.exp(np.clip(x, lowest, highest)) - shift
            return atoms.of_all(values[group], given)

        def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
            values = b_factors(x)[self._scattering]
            found = self._likelihood(at, values)
            away = x - middle
            held = prior @ away
            width = np.where((x > lowest) & (x < highest), np.exp(x), 0.0)
            by_group = np.bincount(of_scattering[has], found.by_b[has], minlength=n)
            loss = WEIGHT * found.loss + 0.5 * float(away @ held)
            return loss, WEIGHT * by_group * width + held

        each = self._likelihood.curvatures(b_factors(start)[self._scattering])[1]
        by_group = np.bincount(of_scattering[has], each[has], minlength=n)
        curvature = WEIGHT * by_group * np.exp(2 * start) + prior.diagonal()
        return b_factors(minimized(evaluate, start, curvature, B_ITERATIONS, LARGEST_CHANGE).x)


_MEMORY = 20
# Of the energy: a rise by less is noise.
_NOISE = 1e-7
# Of it too: where less is to be gained, the minimum is reached.
_CONVERGED = 1e-9
_SHORTER, _ATTEMPTS = 0.35, 6
_SUFFICIENT = 1e-4


class Minimum(NamedTuple):
    """Where a minimisation ended."""

    x: np.ndarray  # (N,)
    energy: float
    iterations: int
    evaluations: int


def minimized(
    evaluate: Callable[[np.ndarray], tuple[float, np.ndarray]],
    x: np.ndarray,
    curvature: np.ndarray,
    iterations: int,
    longest: float,
) -> Minimum:
    """Minimise an energy of many variables (J. Nocedal, Math. Comput. 1980, 35, 773-782).

    `x` (N,) from where; `curvature` (N,) about the second derivative by each variable, positive: what the variables are
    scaled by.
    """
    scale = np.sqrt(curvature)
    energy, gradient = evaluate(x)
    slope = gradient / scale
    pairs: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=_MEMORY)
    done, evaluations = 0, 1
    while done < iterations:
        direction = _direction(slope, pairs)
        direction *= min(1.0, longest / max(np.abs(direction / scale).max(), 1e-300))
        expected, length = float(direction @ slope), 1.0
        if -expected <= _CONVERGED * abs(energy):
            break
        for _ in range(_ATTEMPTS):
            tried = x + length * direction / scale
            energy_there, gradient = evaluate(tried)
            evaluations += 1
            bound = energy + _SUFFICIENT * length * expected + _NOISE * abs(energy)
            if np.isfinite(energy_there) and np.isfinite(gradient).all() and energy_there <= bound:
                break
            length *= _SHORTER
        else:
            if not pairs:
                break
            pairs.clear()
            continue
        step, change = length * direction, gradient / scale - slope
        if step @ change > 1e-10 * np.sqrt((step @ step) * (change @ change)):
            pairs.append((step, change))
        x, energy, slope, done = tried, energy_there, gradient / scale, done + 1
    return Minimum(x, energy, done, evaluations)


def _direction(slope: np.ndarray, pairs: deque[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return the direction of descent by the two loops of the method."""
    q, parts = slope.copy(), []
    for step, change in reversed(pairs):
        parts.append((step @ q) / (step @ change))
        q -= parts[-1] * change
    if pairs:
        step, change = pairs[-1]
        q *= (step @ change) / (change @ change)
    for (step, change), part in zip(pairs, reversed(parts)):
        q += step * (part - (change @ q) / (step @ change))
    return -q if q @ slope > 0 else -slope
