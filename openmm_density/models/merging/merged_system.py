"""Several Systems in one that do not interact."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import openmm

from ...base.errors import InputError
from ...base.units import takes_units, vectors
from .bonded_forces import BONDED, term_columns
from .copied_system import add_particles, copied_force
from .terms import without_terms


@dataclass(frozen=True)
class MergedSystem:
    """Systems side by side in one, each moved by a displacement, with all particles of one before those of the next.

    Attributes
    ----------
    system : openmm.System
    first : np.ndarray of int, shape (N + 1,)
        The index of each one's first particle; at the end, the total number.
    displacements : np.ndarray, shape (N, 3)
        nm by which each has been moved.
    """

    system: openmm.System
    first: np.ndarray
    displacements: np.ndarray

    def __len__(self) -> int:
        return len(self.displacements)

    def particles(self, copy: int) -> slice:
        """Return the particles of one of the Systems."""
        return slice(int(self.first[copy]), int(self.first[copy + 1]))

    def split(self, values: np.ndarray) -> list[np.ndarray]:
        """Return the part of an array over all particles, such as velocities or forces, that belongs to each System (views)."""
        return [values[self.particles(copy)] for copy in range(len(self))]

    @takes_units(positions="nm")
    def merged_positions(self, positions: Sequence[np.ndarray]) -> np.ndarray:
        """Return positions (nm) of all particles from those of each System in its original place."""
        return np.concatenate([each + moved for each, moved in zip(positions, self.displacements)])

    @takes_units(positions="nm")
    def separate_positions(self, positions: np.ndarray) -> list[np.ndarray]:
        """Return positions (nm) of each System in its original place from those of all particles."""
        return [each - moved for each, moved in zip(self.split(positions), self.displacements)]


@takes_units(displacements="nm")
def merge_systems(
    systems: Sequence[openmm.System], displacements: Any, without: Collection[str] = ()
) -> MergedSystem:
    """Merge Systems that have no periodic box into one.

    The energy of the merged System is the sum of theirs as long as no two come within a cut-off: `displacements_apart` keeps
    them apart. Forces with the same settings become one force, over the terms of all; global parameters are shared.

    Parameters
    ----------
    systems : sequence of openmm.System
        The same one may occur several times.
    displacements : array_like, shape (N, 3)
        nm by which each is moved. Forces that act at points in space (`CustomExternalForce`) are moved along.
    without : collection of str
        Names of forces (``getName()``) to leave out, such as the density's, which cannot handle copies.

    Raises
    ------
    InputError
        A System is periodic, has virtual sites, or has a force that cannot be merged; settings differ; displacements are not
        finite, or not one for each System.
    """
    remedy = "take displacements_apart(positions, gap)"
    displacements = vectors(displacements, "displacements", remedy)
    if not np.isfinite(displacements).all():
        raise InputError("must be finite", argument="displacements", remedy=remedy)
    if not len(systems) or len(systems) != len(displacements):
        raise InputError(
            "must be one for each System",
            argument="displacements",
            found=f"{len(displacements)} for {len(systems)}",
            remedy=remedy,
        )
    read: dict[int, list[tuple[Any, openmm.Force, Any]]] = {}
    for system in systems:
        if id(system) not in read:
            _check(system)
            read[id(system)] = _forces(system, without)
    merged = openmm.System()
    first = np.cumsum([0, *(system.getNumParticles() for system in systems)])
    for system, begin in zip(systems, first.tolist()):
        add_particles(merged, system, begin)
    _add_forces(merged, [read[id(system)] for system in systems], first.tolist(), displacements)
    return MergedSystem(merged, first, displacements)


def unmergeable(system: openmm.System, without: Collection[str] = ()) -> list[str]:
    """Return the names of a System's forces that `merge_systems` would refuse, some excepted."""
    return [
        force.getName()
        for force in system.getForces()
        if force.getName() not in without
        and type(force).__name__ not in BONDED
        and type(force).__name__ not in NONBONDED
    ]


def _check(system: openmm.System) -> None:
    if system.usesPeriodicBoundaryConditions():
        raise InputError(
            "a periodic System cannot be merged with others: the copies would need boxes of their own",
            remedy="make it without a box (nonbondedMethod=CutoffNonPeriodic), and without water",
        )
    if any(system.isVirtualSite(i) for i in range(system.getNumParticles())):
        raise InputError(
            "a System with virtual sites cannot be merged with others",
            remedy="take a water model of three sites, or none",
        )


def _forces(system: openmm.System, without: Collection[str]) -> list[tuple[Any, openmm.Force, Any]]:
    """Return settings, force and terms for every force of a System."""
    found, seen = [], {}
    for force in system.getForces():
        if force.getName() in without:
            continue
        kind = type(force).__name__
        if kind not in BONDED and kind not in NONBONDED:
            raise InputError(
                f"{kind} cannot be merged",
                found=f'one named "{force.getName()}"',
                remedy="make the System without it; of CMMotionRemover, with removeCMMotion=False",
            )
        settings = _settings(force)
        seen[settings] = seen.get(settings, 0) + 1
        found.append(((kind, seen[settings], settings), force, (BONDED | NONBONDED)[kind](force)))
    return found


def _settings(force: openmm.Force) -> tuple[Any, ...]:
    """Return the settings of a force: everything but its terms."""
    root = without_terms(force)
    # Turning tables with thousands of values into text again would take longer than everything else here.
    return tuple((each.tag, *each.attrib.items(), each.text, len(each)) for each in root.iter())


def _add_forces(
    merged: openmm.System,
    found: Sequence[Sequence[tuple[Any, openmm.Force, Any]]],
    first: Sequence[int],
    displacements: np.ndarray,
) -> None:
    forces: dict[Any, openmm.Force] = {}
    counts: dict[Any, int] = {}
    for forces_here, begin, displacement in zip(found, first, displacements):
        for key, force, terms in forces_here:
            is_new = key not in forces
            if is_new:
                forces[key] = copied_force(force)
            counts[key] = counts.get(key, 0) + 1
            terms.add_to(forces[key], begin, displacement, is_new)
    for key, force in forces.items():
        if key[0] in NONBONDED and counts[key] != len(displacements):
            raise InputError(
                f"{key[0]} must have the same settings in all Systems that are merged",
                remedy="make them with the same cut-off and options",
            )
        merged.addForce(force)
    _check_parameters(merged)


def _check_parameters(merged: openmm.System) -> None:
    """Refuse parameters of one name with different default values, as a Context has one of each."""
    defaults: dict[str, float] = {}
    for force in merged.getForces():
        for i in range(force.getNumGlobalParameters() if hasattr(force, "getNumGlobalParameters") else 0):
            name, value = force.getGlobalParameterName(i), force.getGlobalParameterDefaultValue(i)
            if defaults.setdefault(name, value) != value:
                raise InputError(
                    f'parameter "{name}" must start with the same value in all Systems that are merged',
                    found=f"{defaults[name]:g} and {value:g}",
                    remedy="make all forces with one value, and set it in the Context",
                )


class Particles:
    """`GBSAOBCForce` and `CustomGBForce`: particles, and exclusions."""

    def __init__(self, force: openmm.Force) -> None:
        _refuse_without_cutoff(force)
        self._terms = term_columns(force)

    def add_to(self, merged: openmm.Force, first: int, displacement: np.ndarray, replace: bool) -> None:
        """Add the particles of a System whose first one has this number; those of the first System are already present."""
        if not replace:
            for terms in self._terms:
                terms.add_to(merged, first)


class NonbondedParticles(Particles):
    """`NonbondedForce`: particles and exceptions."""

    def __init__(self, force: openmm.NonbondedForce) -> None:
        super().__init__(force)
        if force.getNumParticleParameterOffsets() or force.getNumExceptionParameterOffsets():
            raise InputError(
                "NonbondedForce with parameter offsets cannot be merged",
                remedy="set the parameters themselves",
            )


class CustomNonbondedParticles(Particles):
    """`CustomNonbondedForce`, with its interaction groups."""

    def __init__(self, force: openmm.CustomNonbondedForce) -> None:
        super().__init__(force)
        self._groups = [
            [list(each) for each in force.getInteractionGroupParameters(i)]
            for i in range(force.getNumInteractionGroups())
        ]

    def add_to(self, merged: openmm.Force, first: int, displacement: np.ndarray, replace: bool) -> None:
        """See `Particles.add_to`."""
        super().add_to(merged, first, displacement, replace)
        if replace:
            return
        for one, other in self._groups:
            merged.addInteractionGroup([i + first for i in one], [i + first for i in other])


def _refuse_without_cutoff(force: Any) -> None:
    if force.getNonbondedMethod() != force.CutoffNonPeriodic:
        raise InputError(
            f"{type(force).__name__} must have a cut-off and no periodic box to be merged, as copies would interact",
            remedy="make the System with nonbondedMethod=CutoffNonPeriodic",
        )


NONBONDED = {
    "NonbondedForce": NonbondedParticles,
    "CustomNonbondedForce": CustomNonbondedParticles,
    "GBSAOBCForce": Particles,
    "CustomGBForce": Particles,
}
