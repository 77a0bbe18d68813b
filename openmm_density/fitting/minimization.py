"""The minimisations of a fit: they relieve steric clashes, also those of a strong density, and end when asked to stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import openmm

from ..base.errors import SimulationError
from ..base.garbage import without_collection
from ..base.units import ANGSTROM_PER_NANOMETER, positions_in_angstrom
from ..energies.density_fit import DensityFit
from ..models.chemistry.stereocentres import with_hydrogens_opposite
from ..restraints import IdealGeometryRestraint
from .descent import descend
from .final_geometry import EXCESS_PARAMETERS, RESTING_SCALES
from .fit_systems import LARGE, FitSystems
from .interrupts import Stop
from .platforms import in_double_precision, make_context
from .preconditioned import Stiffness
from .preconditioned import minimize as minimize_stiff
from .relaxation import Relaxation, Strain
from .stability import Safeguard, Unstable

# Where the minimiser is not told of a Ctrl-C.
MINIMIZED_AT_ONCE = 100
ON_GPU = ("CUDA", "HIP")
# Of the descent before a minimisation that is tried again, or of a bad geometry.
CAREFUL_STEPS = 100
# A bad geometry is minimised so often at most until no force (kJ/mol/nm) would throw an atom of 12 Da by 0.1 Å in 4 fs.
MINIMIZED_AT_MOST, STRAINED = 3, 7.5e3
HARSH = 1.0e5
"""kJ/mol/nm; with a larger force on an atom the minimiser is not begun with."""
MOST_PASSES = 3
"""Minimisations in ideal geometry, each more stiffly than the one before, until the model is as near to it as is asked for."""


class Rest(NamedTuple):
    """A Context in which a fit comes to rest in ideal geometry, see `final_geometry`, and, on a CPU, what is stiff there."""

    context: openmm.Context
    ideal: IdealGeometryRestraint
    stiffness: Stiffness | None


class Minimizer:
    """Bring Contexts of a fit to rest on a platform; `safeguard` looks at what comes out."""

    def __init__(
        self, systems: FitSystems, safeguard: Safeguard, platform: openmm.Platform, properties: dict[str, str]
    ) -> None:
        self._systems, self._safeguard, self._platform = systems, safeguard, (platform, properties)
        # A reporter is given all positions and forces as lists, which takes longer than an iteration on a GPU, and of a large
        # model half as long as one on a CPU. With one OpenMM also keeps Python's interpreter lock, for which PythonForce waits in
        # another thread wherever the CPU does not run it. There it minimises in stretches instead, and looks between them whether
        # to stop.
        name = platform.getName()
        waits_for_lock = systems.force_backend == "PythonForce" and name not in ("CPU", "Reference")
        self._strains: dict[bytes, Strain] = {}
        self._in_stretches = name in ON_GPU or waits_for_lock

    def minimize(
        self,
        context: openmm.Context,
        iterations: int,
        stop: Stop | None = None,
        stiffness: Stiffness | None = None,
    ) -> None:
        """Minimise, until a request to stop; after a blow-up by a descent, then in double precision, see `relax`.

        `stiffness`, if known, of a System without constraints.
        """
        if iterations == 0:  # to the minimiser, no limit
            return

        attempts = (
            (lambda: self._minimized(context, iterations, stop))
            if stiffness is None
            else (lambda: minimize_stiff(context, stiffness, iterations, stop)),
            lambda: self._carefully(context, iterations, stop),
            lambda: self.relax(context, iterations, stop),
        )
        try:
            self._safeguard.run(context, attempts)
        except Unstable as error:
            raise self._failed(error) from None

    def settle(self, context: openmm.Context, iterations: int, stop: Stop | None = None) -> None:
        """Minimise after a blow-up: by a descent, or else, slowly, in double precision (by Reference where there is none)."""
        attempts = (
            lambda: self._carefully(context, iterations, stop),
            lambda: self.relax(context, iterations, stop),
        )
        self._safeguard.run(context, attempts)

    def relax(self, context: openmm.Context, iterations: int, stop: Stop | None = None) -> None:
        """Minimise a Context in double precision: in steps that no atom exceeds, and then as usual."""
        precise = openmm.Context(
            context.getSystem(), openmm.VerletIntegrator(0.001), *in_double_precision(*self._platform)
        )
        state = context.getState(positions=True, parameters=True)
        precise.setState(state)
        self._carefully(precise, iterations, stop)
        context.setPositions(precise.getState(positions=True).getPositions())

    def _carefully(self, context: openmm.Context, iterations: int, stop: Stop | None) -> None:
        descend(context, CAREFUL_STEPS, stop=stop)
        self._minimized(context, iterations, stop)

    def _minimized(self, context: openmm.Context, iterations: int, stop: Stop | None) -> None:
        in_stretches = self._in_stretches or context.getSystem().getNumParticles() > LARGE
        stretch = MINIMIZED_AT_ONCE if in_stretches else iterations
        reporter = None if stop is None or in_stretches else _Stoppable(stop)
        for done in range(0, iterations, stretch):
            if in_stretches and stop is not None and stop.requested:
                break
            at_once = min(stretch, iterations - done)
            openmm.LocalEnergyMinimizer.minimize(context, maxIterations=at_once, reporter=reporter)

    def place(
        self,
        context: openmm.Context,
        positions: np.ndarray,
        iterations: int,
        stop: Stop | None = None,
    ) -> None:
        """Put atoms where they were read or built (Å), and minimise; what is bad there is relaxed in stages before."""
        given = positions / ANGSTROM_PER_NANOMETER
        try:
            relaxed = self._relaxation.relaxed(given, stop, self.strain(positions))
        except Unstable as error:
            raise self._failed(error) from None
        context.setPositions(relaxed)
        if relaxed is given or not iterations:
            self.minimize(context, iterations, stop)
            return
        if not _largest_force(context) <= HARSH:  # nor where it is NaN
            descend(context, CAREFUL_STEPS, stop=stop)
        for _ in range(MINIMIZED_AT_MOST):
            self.minimize(context, iterations, stop)
            if _largest_force(context) < STRAINED or (stop is not None and stop.requested):
                break

    @cached_property
    def _relaxation(self) -> Relaxation:
        systems = self._systems
        topology = systems.prepared.topology
        return Relaxation(systems.for_relaxation, topology, self._safeguard, *self._platform, systems.threads)

    def strain(self, positions: np.ndarray) -> Strain:
        """Measure how bad the geometry of positions (Å) is, once for each."""
        key = positions.tobytes()
        if key not in self._strains:
            self._strains[key] = self._relaxation.strain(positions / ANGSTROM_PER_NANOMETER)
        return self._strains[key]

    def forget_first(self) -> None:
        """Free what a first minimisation takes, which is made again if it is needed again."""
        self.__dict__.pop("_relaxation", None)
        self._systems.forget_first()

    def _failed(self, error: Unstable) -> SimulationError:
        return SimulationError(
            f"{self._systems.prepared.model.path}: the energy cannot be minimised, not even in small steps and double precision "
            f"({error}): look for clashes in the model there, or lower the strength."
        )

    @without_collection()
    def rest_of(self, context: openmm.Context, density: DensityFit, stiff: bool = False) -> Rest:
        """Make what `bring_to_rest` minimises the model of a Context in, and others that atoms have not moved far in since."""
        positions = with_hydrogens_opposite(self._systems.prepared.topology, _positions(context))
        system, ideal, contacts = self._systems.at_rest(density, positions, stiff)
        resting = make_context(system, openmm.VerletIntegrator(0.001), self._platform)
        # On a GPU OpenMM's iterations take less than to solve with the stiffness does on its CPU.
        on_gpu = self._platform[0].getName() in ON_GPU
        return Rest(resting, ideal, None if on_gpu else Stiffness(system, ideal, contacts))

    def bring_to_rest(
        self,
        context: openmm.Context,
        rest: Rest,
        iterations: int,
        stop: Stop,
        stiffer: Callable[[np.ndarray], Sequence[float]],
    ) -> None:
        """Minimise in ideal geometry, all atoms kept apart.

        `stiffer` returns for positions (N, 3) in Å by which factors their bonds and angles are to be held more stiffly, 1 where
        they are near enough to the ideal ones. That costs less correlation than a weaker pull.
        """
        resting = rest.context
        positions = with_hydrogens_opposite(self._systems.prepared.topology, _positions(context))
        resting.setPositions(positions / ANGSTROM_PER_NANOMETER)
        there = set(resting.getParameters())  # a barostat is not
        for name, value in context.getParameters().items():
            if name in there:
                resting.setParameter(name, value)
        self.rest_in(rest, iterations, stop, stiffer)
        context.setPositions(resting.getState(positions=True).getPositions())

    def rest_in(
        self, rest: Rest, iterations: int, stop: Stop, stiffer: Callable[[np.ndarray], Sequence[float]]
    ) -> None:
        """Do the same from where the Context of a `Rest` is, whose parameters are those of the stage."""
        resting, ideal = rest.context, rest.ideal
        there = set(resting.getParameters())
        for restraint in self._systems.restraints:
            name, times = restraint.parameter_name, RESTING_SCALES.get(restraint.name, 1.0)
            if name in there:
                resting.setParameter(name, times * resting.getParameter(name))
        resting.setParameter(ideal.parameter_name, ideal.force_constant)
        stiffness = np.ones(len(EXCESS_PARAMETERS))
        for _ in range(MOST_PASSES):
            for name, times in zip(EXCESS_PARAMETERS, stiffness.tolist()):
                resting.setParameter(name, (times - 1.0) * ideal.force_constant)
            self.minimize(resting, iterations, stop, rest.stiffness)
            factors = 1.0 if stop.requested else np.array(stiffer(_positions(resting)))
            if np.all(factors <= 1.0):
                break
            stiffness *= factors


class _Stoppable(openmm.MinimizationReporter):
    """End a minimisation after the iteration in which the request to stop came."""

    def __init__(self, stop: Stop) -> None:
        super().__init__()
        self._stop = stop

    def report(self, iteration: int, x: object, grad: object, args: object) -> bool:
        """Tell the minimiser whether to end."""
        return self._stop.requested


def _largest_force(context: openmm.Context) -> float:
    forces = context.getState(forces=True).getForces(asNumpy=True)._value
    return float(np.linalg.norm(forces, axis=1).max())


def _positions(context: openmm.Context) -> np.ndarray:
    return positions_in_angstrom(context.getState(positions=True).getPositions(asNumpy=True))
