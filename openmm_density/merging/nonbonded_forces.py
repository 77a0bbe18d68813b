"""How forces between all particles are merged: with a cut-off, within which copies never come."""

from __future__ import annotations

from typing import Any

import numpy as np
import openmm

from ..errors import InputError
from .terms import plain


class NonbondedParticles:
    """`NonbondedForce`."""

    def __init__(self, force: openmm.NonbondedForce) -> None:
        _refuse_without_cutoff(force)
        if force.getNumParticleParameterOffsets() or force.getNumExceptionParameterOffsets():
            raise InputError(
                "NonbondedForce with parameter offsets cannot be merged",
                remedy="set the parameters themselves",
            )
        self._particles = [plain(force.getParticleParameters(i)) for i in range(force.getNumParticles())]
        self._exceptions = [plain(force.getExceptionParameters(i)) for i in range(force.getNumExceptions())]

    def add_to(self, merged: openmm.Force, first: int, displacement: np.ndarray, replace: bool) -> None:
        """Add the particles of a System whose first one has this number; those of the first System are there."""
        if replace:
            return
        for parameters in self._particles:
            merged.addParticle(*parameters)
        for a, b, *parameters in self._exceptions:
            merged.addException(a + first, b + first, *parameters)


class CustomBornParticles:
    """`CustomGBForce`: particles and exclusions."""

    def __init__(self, force: openmm.CustomGBForce | openmm.CustomNonbondedForce) -> None:
        _refuse_without_cutoff(force)
        self._particles = [list(force.getParticleParameters(i)) for i in range(force.getNumParticles())]
        self._exclusions = [force.getExclusionParticles(i) for i in range(force.getNumExclusions())]

    def add_to(self, merged: openmm.Force, first: int, displacement: np.ndarray, replace: bool) -> None:
        """See `NonbondedParticles.add_to`."""
        if replace:
            return
        for parameters in self._particles:
            merged.addParticle(parameters)
        for a, b in self._exclusions:
            merged.addExclusion(a + first, b + first)


class CustomNonbondedParticles(CustomBornParticles):
    """`CustomNonbondedForce`, which has groups of particles that interact as well."""

    def __init__(self, force: openmm.CustomNonbondedForce) -> None:
        super().__init__(force)
        self._groups = [
            [list(each) for each in force.getInteractionGroupParameters(i)]
            for i in range(force.getNumInteractionGroups())
        ]

    def add_to(self, merged: openmm.Force, first: int, displacement: np.ndarray, replace: bool) -> None:
        """See `NonbondedParticles.add_to`."""
        super().add_to(merged, first, displacement, replace)
        if replace:
            return
        for one, other in self._groups:
            merged.addInteractionGroup([i + first for i in one], [i + first for i in other])


class BornParticles:
    """`GBSAOBCForce`."""

    def __init__(self, force: openmm.GBSAOBCForce) -> None:
        _refuse_without_cutoff(force)
        self._particles = [plain(force.getParticleParameters(i)) for i in range(force.getNumParticles())]

    def add_to(self, merged: openmm.Force, first: int, displacement: np.ndarray, replace: bool) -> None:
        """See `NonbondedParticles.add_to`."""
        if not replace:
            for parameters in self._particles:
                merged.addParticle(*parameters)


def _refuse_without_cutoff(force: Any) -> None:
    if force.getNonbondedMethod() != force.CutoffNonPeriodic:
        raise InputError(
            f"{type(force).__name__} must have a cut-off and no periodic box to be merged, as copies would interact",
            remedy="make the System with nonbondedMethod=CutoffNonPeriodic",
        )


NONBONDED = {
    "NonbondedForce": NonbondedParticles,
    "CustomNonbondedForce": CustomNonbondedParticles,
    "GBSAOBCForce": BornParticles,
    "CustomGBForce": CustomBornParticles,
}
