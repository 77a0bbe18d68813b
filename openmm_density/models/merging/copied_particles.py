"""Copies of particles of a System that do not interact: alternative positions of atoms, bonded to the same neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import openmm

from ...base.errors import InputError
from .bonded_forces import LISTED
from .terms import listed_terms, plain

# Forces that act at points in space, or on groups of particles as a whole: copies are free of them.
_WITHOUT_COPIES = ("CustomExternalForce", "CustomCentroidBondForce", "MonteCarloBarostat")


@dataclass(frozen=True)
class CopiedParticles:
    """The particles of a System of N to copy.

    Attributes
    ----------
    originals : np.ndarray of int, shape (K,)
        The particle that each is a copy of; the copies are numbered from N on.
    labels : tuple of str, length K
        Which copies belong together: each label gets one set of bonded terms, between the copies that have it and, elsewhere,
        the originals.
    weights : np.ndarray, shape (N + K,)
        Factors of the charges, so that an atom and its copies have the charge of one atom.
    apart : np.ndarray of int, shape (P, 2)
        Particles, copies included, that never occur together.
    """

    originals: np.ndarray
    labels: tuple[str, ...]
    weights: np.ndarray
    apart: np.ndarray

    def numbering(self, n_particles: int) -> list[dict[int, int]]:
        """Return, label by label, the copy that replaces each particle that has one."""
        found: dict[str, dict[int, int]] = {}
        for k, (original, label) in enumerate(zip(self.originals.tolist(), self.labels)):
            found.setdefault(label, {})[original] = n_particles + k
        return list(found.values())


def add_copies(system: openmm.System, copied: CopiedParticles) -> None:
    """Add copies of particles to a System, with the terms of the originals.

    Masses, constraints and bonded terms are those of the originals, as are all numbers of nonbonded forces but charges, which
    both share by their weights: neighbours feel all copies of an atom, in full where they touch. In an implicit solvent
    each has its share of the charge and displaces its share of a sphere.

    Parameters
    ----------
    system : openmm.System
        Changed in place.
    copied : CopiedParticles

    Raises
    ------
    InputError
        If a force cannot have copies, or a virtual site is to be copied.
    """
    first = system.getNumParticles()
    numbering = copied.numbering(first)
    if any(system.isVirtualSite(int(original)) for original in copied.originals):
        raise InputError("a virtual site cannot have copies", remedy="take a water model of three sites")
    for original in copied.originals.tolist():
        system.addParticle(system.getParticleMass(original))
    constraints = [plain(system.getConstraintParameters(k)) for k in range(system.getNumConstraints())]
    for (a, b), (length,) in _renumbered(constraints, 2, numbering):
        system.addConstraint(a, b, length)
    for force in system.getForces():
        kind = type(force).__name__
        if kind in LISTED:
            _copy_listed(force, numbering)
        elif kind == "CustomCompoundBondForce":
            terms = [plain(force.getBondParameters(k)) for k in range(force.getNumBonds())]
            flat = [[*particles, parameters] for particles, parameters in terms]
            for particles, (parameters,) in _renumbered(flat, force.getNumParticlesPerBond(), numbering):
                force.addBond(particles, parameters)
        elif kind == "CMAPTorsionForce":
            maps = [plain(force.getTorsionParameters(k)) for k in range(force.getNumTorsions())]
            for particles, (used,) in _renumbered([[*each[1:], each[0]] for each in maps], 8, numbering):
                force.addTorsion(used, *particles)
        elif kind in _NONBONDED:
            _NONBONDED[kind](force, copied, numbering)
        elif kind not in _WITHOUT_COPIES:
            raise InputError(
                f"{kind} cannot have copies of particles",
                found=f'one named "{force.getName()}"',
                remedy="make the System without it",
            )


def _renumbered(
    terms: Iterable[Sequence[Any]], n_particles: int, numbering: Sequence[dict[int, int]]
) -> list[tuple[list[int], Sequence[Any]]]:
    """Return particles and parameters of the copies' terms, from terms whose first entries are particles."""
    return [
        ([numbers.get(particle, particle) for particle in term[:n_particles]], term[n_particles:])
        for term in terms
        for numbers in numbering
        if any(particle in numbers for particle in term[:n_particles])
    ]


def _copy_listed(force: openmm.Force, numbering: Sequence[dict[int, int]]) -> None:
    kind, count = LISTED[type(force).__name__]
    for particles, parameters in _renumbered(listed_terms(force, kind), count, numbering):
        getattr(force, f"add{kind}")(*particles, *parameters)


def _copy_nonbonded(
    force: openmm.NonbondedForce, copied: CopiedParticles, numbering: Sequence[dict[int, int]]
) -> None:
    if force.getNumParticleParameterOffsets() or force.getNumExceptionParameterOffsets():
        raise InputError(
            "NonbondedForce with parameter offsets cannot have copies", remedy="set the parameters themselves"
        )
    weights = copied.weights
    exceptions = [plain(force.getExceptionParameters(k)) for k in range(force.getNumExceptions())]
    for number, (a, b, product, *size) in enumerate(exceptions):
        if product and weights[a] * weights[b] != 1:
            force.setExceptionParameters(number, a, b, product * weights[a] * weights[b], *size)
    _copy_parameters(force, copied, _charge_weighted)
    known = {frozenset(each[:2]) for each in exceptions}
    for (a, b), (product, *size) in _renumbered(exceptions, 2, numbering):
        known.add(frozenset((a, b)))
        force.addException(a, b, product * weights[a] * weights[b], *size)
    for a, b in copied.apart.tolist():
        if frozenset((a, b)) not in known:
            force.addException(a, b, 0.0, 0.1, 0.0)


def _copy_custom_nonbonded(
    force: openmm.CustomNonbondedForce, copied: CopiedParticles, numbering: Sequence[dict[int, int]]
) -> None:
    if force.getNumInteractionGroups():
        raise InputError(
            "CustomNonbondedForce with interaction groups cannot have copies", remedy="leave it out"
        )
    _copy_parameters(force, copied, _unweighted)
    pairs = [list(force.getExclusionParticles(k)) for k in range(force.getNumExclusions())]
    known = {frozenset(pair) for pair in pairs}
    for a, b in [*(each for each, _ in _renumbered(pairs, 2, numbering)), *copied.apart.tolist()]:
        if frozenset((a, b)) not in known:
            known.add(frozenset((a, b)))
            force.addExclusion(a, b)


def _copy_born(force: openmm.GBSAOBCForce, copied: CopiedParticles, _: Sequence[dict[int, int]]) -> None:
    _copy_parameters(force, copied, lambda values, w: [w * values[0], values[1], w * values[2]])


def _copy_custom_born(
    force: openmm.CustomGBForce, copied: CopiedParticles, _: Sequence[dict[int, int]]
) -> None:
    names = [force.getPerParticleParameterName(k) for k in range(force.getNumPerParticleParameters())]
    # Names in OpenMM's implicit solvents: charge, and the scaled radius that displaces solvent.
    weighted = [k for k, name in enumerate(names) if name in ("charge", "q", "sr", "scale")]
    if not weighted:
        raise InputError("a CustomGBForce without charges cannot have copies", remedy="take another solvent")

    def parts(values: list[Any], weight: float) -> list[Any]:
        return [weight * value if k in weighted else value for k, value in enumerate(values)]

    _copy_parameters(force, copied, lambda values, w: [parts(list(values[0]), w)], nested=True)


def _charge_weighted(values: list[Any], weight: float) -> list[Any]:
    return [weight * values[0], *values[1:]]


def _unweighted(values: list[Any], weight: float) -> list[Any]:
    return values


def _copy_parameters(force: Any, copied: CopiedParticles, weighted: Any, nested: bool = False) -> None:
    """Add the parameters of copies, and weight those of the originals."""

    def parameters(particle: int) -> list[Any]:
        values = force.getParticleParameters(particle)
        return [list(values)] if nested or isinstance(force, openmm.CustomNonbondedForce) else plain(values)

    every = [parameters(int(original)) for original in copied.originals]
    first = force.getNumParticles()
    done: set[int] = set()
    for k, (original, values) in enumerate(zip(copied.originals.tolist(), every)):
        force.addParticle(*weighted(values, float(copied.weights[first + k])))
        if original not in done:
            done.add(original)
            force.setParticleParameters(original, *weighted(values, float(copied.weights[original])))


_NONBONDED = {
    "NonbondedForce": _copy_nonbonded,
    "CustomNonbondedForce": _copy_custom_nonbonded,
    "GBSAOBCForce": _copy_born,
    "CustomGBForce": _copy_custom_born,
}
