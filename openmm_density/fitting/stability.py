"""Blow-ups: looked for after each segment of dynamics or minimisation, rolled back, tried more gently, told by atom names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import openmm
from openmm import app, unit

from ..base.units import ANGSTROM_PER_NANOMETER
from ..base.wording import named_atoms
from ..models.merging import masses_of

MOST_NAMED = 5
"""Atoms that a message names."""
FARTHEST = 5.0
"""nm that no atom goes in one segment between two looks: a proton of 600 K flies 2 nm in 0.16 ps, if nothing is in its way."""
HOT, TIMES_TOO_HOT = 1500.0, 4.0
"""Hotter than this, in K and in the temperature that is wanted, a simulation has blown up, whatever it does next."""
ATOM_TIMES_TOO_HOT = 60.0
"""kT at the hottest bearable temperature that no single atom has as kinetic energy: by chance one has in 10²⁵."""
# Of more atoms than these that are lost, those which were the first cannot be told from the others.
_SPREAD = 50
# nm; farther from the origin no model is, nor can floats of 32 bits tell its atoms apart there.
_OUT_OF_THIS_WORLD = 1.0e5
# Atoms named for the forces on them, where nothing else tells them from the others.
_LIKELY = 3
_BOLTZMANN = unit.MOLAR_GAS_CONSTANT_R.value_in_unit(unit.kilojoule_per_mole / unit.kelvin)

_Result = TypeVar("_Result")


class Unstable(Exception):
    """A simulation blew up; the message says what happened to which atoms, or is of so many (`everywhere`) that it names none."""

    def __init__(self, message: str, everywhere: bool = False) -> None:
        super().__init__(message)
        self.everywhere = everywhere

    def amended(self, state: Any, protocol: Any, where: str) -> str | None:
        """Amend the `RunState` that is rolled back to, and return a sentence on it; None where all that helps is more care."""
        return None


class Motion(NamedTuple):
    """Positions in nm and velocities in nm/ps, each of shape (N, 3)."""

    positions: np.ndarray
    velocities: np.ndarray


class Safeguard:
    """Check what segments of dynamics and minimisation did to a Context, roll back, and retry.

    Every segment of a fit passes here: `run` does one in a Context that it puts back where it blows up, `check` looks at one
    that the caller repeats from a saved state. `topology`: names the atoms; `system`: tells their masses. Attributes: `masses`
    (N,) in dalton.
    """

    def __init__(self, topology: app.Topology, system: openmm.System) -> None:
        self.masses = masses_of(system)
        self._topology = topology
        self._periodic = system.usesPeriodicBoundaryConditions()
        self._sound: np.ndarray | None = None
        # New ones for each look would cost as much as the arithmetic, or on some systems ten times as much.
        self._moved, self._squares = np.empty((len(self.masses), 3)), np.empty((2, len(self.masses)))

    def run(
        self,
        context: openmm.Context,
        attempts: Sequence[Callable[[], _Result]],
        hottest: float | None = None,
    ) -> _Result:
        """Do a segment in the first of some ways after which the Context is sound, and return what that returns."""
        before = context.getState(positions=True, velocities=True, parameters=True)
        self._sound = self._checked(before, None, hottest=None).positions
        blown = None
        for attempt in attempts:
            if blown is not None:
                context.setState(before)
            try:
                result = attempt()
                self.check(context, hottest, energy=True)
                return result
            except Unstable as error:
                blown = error
            except openmm.OpenMMException as error:
                if not is_blow_up(error):
                    raise
                blown = self.explained(context)
        context.setState(before)
        raise blown

    def check(self, context: openmm.Context, hottest: float | None = None, energy: bool = False) -> Motion:
        """Check positions, velocities and, if asked for, the energy of a Context."""
        state = context.getState(positions=True, velocities=True)
        try:
            motion = self._checked(state, self._sound, hottest)
        except Unstable as error:
            if not error.everywhere:
                raise
            raise Unstable(f"{error}{self._strained(context, self._sound)}") from None
        if energy and not np.isfinite(context.getState(energy=True).getPotentialEnergy()._value):
            raise Unstable(f"the energy is not a number{self._strained(context, motion.positions)}")
        self._sound = motion.positions
        return motion

    def begin(self, positions: np.ndarray) -> None:
        """Note the positions (nm) from which the next segment begins."""
        self._sound = np.array(positions, dtype=np.float64)

    def explained(self, context: openmm.Context) -> Unstable:
        """Return what blew up in a Context of which OpenMM said that something is not a number."""
        try:
            self.check(context)
        except Unstable as error:
            return error
        return Unstable(f"forces or energy are not numbers{self._strained(context, self._sound)}")

    def _checked(self, state: openmm.State, since: np.ndarray | None, hottest: float | None) -> Motion:
        positions = _array(state.getPositions(asNumpy=True))
        velocities = _array(state.getVelocities(asNumpy=True))
        moved = positions if since is None else np.subtract(positions, since, out=self._moved)
        if since is not None and self._periodic:  # a barostat puts molecules back into the box
            box = _array(state.getPeriodicBoxVectors(asNumpy=True))
            moved = moved - np.round(moved @ np.linalg.inv(box)) @ box
        farthest = _OUT_OF_THIS_WORLD if since is None else FARTHEST
        most = np.inf if hottest is None else ATOM_TIMES_TOO_HOT * _BOLTZMANN * hottest
        distances, kinetic = self._squares
        np.einsum("ij,ij->i", moved, moved, out=distances)
        np.einsum("ij,ij->i", velocities, velocities, out=kinetic)
        kinetic *= 0.5 * self.masses
        # A fit looks hundreds of times. Where something is not a number, neither is the maximum, and it is not below anything.
        fastest = kinetic.max(initial=0.0)
        if not (distances.max(initial=0.0) <= farthest**2 and np.isfinite(fastest) and fastest <= most):
            self._refuse(positions, velocities, farthest, most)
        return Motion(positions, velocities)

    def _refuse(self, positions: np.ndarray, velocities: np.ndarray, farthest: float, most: float) -> None:
        """Raise what is amiss: with numbers, with how far atoms went (nm), or with the kinetic energy of one (kJ/mol)."""
        for what, numbers in (("positions", positions), ("velocities", velocities)):
            lost = np.flatnonzero(~np.isfinite(numbers).all(axis=1))
            if len(lost):
                everywhere = len(lost) > _SPREAD
                raise Unstable(f"the {what} of {self._named(lost)} are not numbers any more", everywhere)
        distances, kinetic = self._squares
        far = np.flatnonzero(distances > farthest**2)
        if len(far):
            far = far[np.argsort(-distances[far], kind="stable")]
            longest = ANGSTROM_PER_NANOMETER * np.sqrt(distances[far[0]])
            raise Unstable(f"{self._named(far)} flew {longest:.3g} Å away", everywhere=len(far) > _SPREAD)
        fast = np.flatnonzero(kinetic > most)
        if len(fast):
            fast = fast[np.argsort(-kinetic[fast], kind="stable")]
            raise Unstable(f"{self._named(fast)} became far too fast")

    def _strained(self, context: openmm.Context, positions: np.ndarray | None) -> str:
        """Name, to end a sentence, the atoms on which forces were largest when positions (nm) were numbers."""
        if positions is None:
            return ""
        try:
            context.setPositions(positions)
            forces = context.getState(forces=True).getForces(asNumpy=True)
        except openmm.OpenMMException:
            return ""
        size = np.linalg.norm(_array(forces), axis=1)
        lost = np.flatnonzero(~np.isfinite(size))
        if len(lost):
            return f", and the forces on {self._named(lost)} are none before"
        return f"; before, forces were largest on {self._named(np.argsort(-size, kind='stable')[:_LIKELY])}"

    def _named(self, indices: np.ndarray) -> str:
        if len(indices) > _SPREAD:
            return f"{len(indices)} atoms"
        return named_atoms(self._topology, indices, MOST_NAMED)


def hottest_bearable(kelvin: float) -> float:
    """Return the temperature in K that no simulation of a wanted temperature reaches."""
    return max(HOT, TIMES_TOO_HOT * kelvin)


def is_blow_up(error: openmm.OpenMMException) -> bool:
    """Return whether OpenMM found something that is not a number."""
    return any(word in str(error) for word in ("NaN", "nan", "infinite"))


def _array(quantity: Any) -> np.ndarray:
    """Return what a State has, in nm, ps and kJ/mol: asked for in a unit, it would be copied."""
    return np.asarray(quantity._value, dtype=np.float64)
