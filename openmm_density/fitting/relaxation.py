"""Models with atoms in one place, torn bonds, bent angles or pierced rings, made fit for a force field in stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import openmm
from openmm import app, unit
from scipy.spatial import cKDTree

from ..base.units import ANGSTROM_PER_NANOMETER
from ..base.wording import counted, listing
from ..models.chemistry.pierced_rings import PiercedRing, pierced_rings
from ..models.chemistry.topologies import bonded_pairs, hydrogen_mask, part_of_topology
from ..models.merging import copied_force, masses_of, part_of_force, terms_of
from ..restraints import make_restraints
from .descent import descend
from .interrupts import Stop
from .platforms import make_context, platform_named
from .stability import Safeguard
from .worker_process import available_cores

STRETCHED = 0.05
"""nm by which a bond differs from its ideal length in no model that was refined."""
BENT, WILD = 4.0, 40.0
"""Degrees by which angles of heavy atoms are off in no model that was refined: as the root mean square, and each."""
ONE_PLACE = 0.05
"""nm; nearer than this no two atoms are, bonded or not."""

# Atoms nearer than this (nm) have no direction to part in: each is first moved by about half of it.
_NO_DIRECTION = 0.02
# nm, half of the distance below which the soft repulsion acts: hydrogens are in contact then, and heavy atoms a little nearer.
_HEAVY, _HYDROGEN = 0.14, 0.06
_REPULSION = 1.0e5
# One after the other: parts of the repulsion, kJ/mol/nm² of the anchors that hold heavy atoms where they were, and parts of the
# push out of rings and of the repulsion between these and what they are pierced by.
_STAGES = ((0.01, 1000.0, 1.0, 0.0), (0.1, 300.0, 1.0, 0.0), (1.0, 100.0, 1.0, 1.0), (1.0, 30.0, 0.0, 1.0))
_PARAMETERS = ("softness", "anchor", "push", "between")
_DESCENT, _ITERATIONS = 50, 200
# How often rings that are still pierced are freed again, each time another way.
_ROUNDS = 3
# nm beyond its farthest atom by which the middle of the bond is brought out of a ring, and how hard it is pushed (kJ/mol/nm²).
_BEYOND, _PUSH = 0.2, 2.0e4
_RESTRAINTS = ("chirality", "cis")
_MOST_NAMED = 10
_REACH = 0.6
"""nm from what is wrong within which residues move, and from atoms that move within which they are there: farther than a bonded
term or a contact reaches."""
_FEW = 5000
"""Atoms that a CPU moves in less than the second or two that a GPU takes to compile kernels for a new System."""
_MOST = 0.5
"""Part of a model's atoms from which on all are relaxed."""

_BONDED = (
    openmm.HarmonicBondForce,
    openmm.HarmonicAngleForce,
    openmm.PeriodicTorsionForce,
    openmm.RBTorsionForce,
    openmm.CMAPTorsionForce,
    openmm.CustomTorsionForce,
)
"""Forces of a System that act while it is relaxed."""


@dataclass(frozen=True)
class Strain:
    """What is wrong with a model's geometry, so that it has to be relaxed in stages before a force field sees it."""

    clashing: int  # Pairs of atoms in one place, or not bonded and nearly so
    stretched: int  # Bonds that differ from their ideal length by more than `STRETCHED`
    angle_rmsd: float  # Of the angles between heavy atoms, in degrees
    wild: int  # Of these, those that differ by more than `WILD`
    pierced: list[PiercedRing]
    atoms: np.ndarray = field(repr=False, compare=False)  # Those that are part of what is wrong, int (A,)

    @property
    def is_bad(self) -> bool:
        """Whether the model has to be relaxed in stages before it is minimised."""
        return bool(self.clashing or self.stretched or self.wild or self.pierced or self.angle_rmsd > BENT)

    def described(self, topology: app.Topology) -> list[str]:
        """Return in a few words each what is bad."""
        found = [
            (self.clashing, counted(self.clashing, "pair") + " of atoms nearly in one place"),
            (self.stretched, counted(self.stretched, "bond") + f" off by more than {10 * STRETCHED:g} Å"),
            (self.angle_rmsd > BENT, f"an RMSD of angles of {self.angle_rmsd:.1f}°"),
            (self.wild, counted(self.wild, "angle") + f" off by more than {WILD:g}°"),
            (self.pierced, f"rings pierced by bonds: {self.named_rings(topology)}"),
        ]
        return [words for is_bad, words in found if is_bad]

    def named_rings(self, topology: app.Topology) -> str:
        """Name the rings that are pierced, and by what."""
        return listing([each.described(topology) for each in self.pierced], _MOST_NAMED)

    def as_dict(self, topology: app.Topology) -> dict[str, Any]:
        """Return plain numbers and names."""
        return {
            "clashing_pairs": self.clashing,
            "stretched_bonds": self.stretched,
            "angle_rmsd": self.angle_rmsd,
            "wild_angles": self.wild,
            "pierced_rings": [each.described(topology) for each in self.pierced],
            "relaxed_in_stages": self.is_bad,
        }


class Relaxation:
    """Bring models to where the forces of a force field are moderate.

    What joins atoms acts in full from the start. A soft repulsion, which lets atoms pass each other at first, grows in stages
    to contact, while the anchors that hold heavy atoms where they were are loosened; bonds are pushed out of rings through the
    nearest side. Chiral centres and peptide bonds stay as they were given, right or wrong. All forces are bounded, so that it
    is the same on every platform up to rounding. `system`: the force field, and restraints if they act on torsions, without
    constraints; `safeguard`: looks at what each stage did; `properties` of the platform. A small part of
    a model leaves a GPU for the CPU, where it has so many `threads`.
    """

    def __init__(
        self,
        system: openmm.System,
        topology: app.Topology,
        safeguard: Safeguard,
        platform: openmm.Platform,
        properties: dict[str, str],
        threads: int | None = None,
    ) -> None:
        self._threads = threads
        self._system, self._topology, self._safeguard = system, topology, safeguard
        self._platform = platform, properties
        self._hydrogen = hydrogen_mask(topology)
        self._bonds, self._lengths = self._terms(openmm.HarmonicBondForce, "Bond", 2)
        self._angles, self._bends = self._terms(openmm.HarmonicAngleForce, "Angle", 3)

    def strain(self, positions: np.ndarray) -> Strain:
        """Measure positions (nm), of shape (N, 3), against the force field."""
        first, second = self._bonds.T
        lengths = np.linalg.norm(positions[first] - positions[second], axis=1)
        deviations = _angles(positions, self._angles) - self._bends
        together = cKDTree(positions).query_pairs(ONE_PLACE, output_type="ndarray")
        clashing = clashing_pairs(self._system, positions)
        stretched = np.abs(lengths - self._lengths) > STRETCHED
        wild = np.abs(deviations) > np.radians(WILD)
        pierced = pierced_rings(self._topology, positions * ANGSTROM_PER_NANOMETER)
        rings = [index for each in pierced for index in (*each.ring, *each.bond)]
        wrong = (together, clashing, self._bonds[stretched], self._angles[wild])
        return Strain(
            len(clashing) + len(together),
            int(stretched.sum()),
            float(np.degrees(np.sqrt((deviations**2).mean()))) if len(deviations) else 0.0,
            int(wild.sum()),
            pierced,
            np.unique([*rings, *np.concatenate([each.ravel() for each in wrong])]).astype(np.int64),
        )

    def relaxed(
        self, given: np.ndarray, stop: Stop | None = None, strain: Strain | None = None
    ) -> np.ndarray:
        """Return positions (nm) of moderate forces; where `strain`, known or not, finds nothing bad, the array that was given.

        Where only some residues are bad, they and what is near them move and the rest is held. A request to stop is looked for
        before each stage; what is returned then is of no use.
        """
        strain = strain or self.strain(given)
        if not strain.is_bad:
            return given
        if strain.angle_rmsd <= BENT:
            part = _strained_part(self._system, self._topology, given, strain.atoms)
            if part is not None:
                safeguard = Safeguard(part.topology, part.system)
                local = Relaxation(part.system, part.topology, safeguard, *self._platform_of(len(part.atoms)))
                positions = given.copy()
                pierced = pierced_rings(part.topology, given[part.atoms] * ANGSTROM_PER_NANOMETER)
                positions[part.atoms] = local._relaxed(given[part.atoms], stop, pierced)
                return positions
        return self._relaxed(given, stop, strain.pierced)

    def _platform_of(self, n_atoms: int) -> tuple[openmm.Platform, dict[str, str]]:
        """Return where a part of the model moves."""
        if n_atoms > _FEW or self._platform[0].getName() in ("CPU", "Reference"):
            return self._platform
        return platform_named("CPU", self._threads or available_cores())

    def _relaxed(self, given: np.ndarray, stop: Stop | None, pierced: list[PiercedRing]) -> np.ndarray:
        positions = given.copy()
        close = np.unique(cKDTree(positions).query_pairs(_NO_DIRECTION, output_type="ndarray"))
        positions[close] += np.random.default_rng(0).normal(0.0, _NO_DIRECTION / 2, (len(close), 3))
        for number in range(_ROUNDS):
            context = self._soft_context(given, positions, pierced, number)
            for stage in _STAGES:
                if stop is not None and stop.requested:
                    return positions
                for name, value in zip(_PARAMETERS, stage):
                    context.setParameter(name, value)
                self._safeguard.run(
                    context, (partial(_minimized, context), partial(descend, context, _ITERATIONS))
                )
            found = context.getState(positions=True).getPositions(asNumpy=True)
            positions = np.array(found.value_in_unit(unit.nanometer))
            pierced = pierced_rings(self._topology, positions * ANGSTROM_PER_NANOMETER)
            if not pierced:
                break
        return positions

    def _terms(self, kind: type[openmm.Force], term: str, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the atoms of the terms between heavy atoms of some kind of force, and their ideal values."""
        forces = [force for force in self._system.getForces() if isinstance(force, kind)]
        terms = [terms_of(force, term, size) for force in forces]
        atoms = np.concatenate([np.empty((0, size), dtype=np.int64), *(each for each, _ in terms)])
        ideal = np.concatenate([np.empty(0), *(values[:, 0] for _, values in terms)])
        heavy = ~self._hydrogen[atoms].any(axis=1)
        return atoms[heavy], ideal[heavy]

    def _soft_context(
        self, given: np.ndarray, positions: np.ndarray, pierced: list[PiercedRing], number: int
    ) -> openmm.Context:
        soft = openmm.System()
        for mass in masses_of(self._system).tolist():
            soft.addParticle(mass)
        for force in self._system.getForces():
            if isinstance(force, _BONDED):
                soft.addForce(copied_force(force))
        names = {name: {"parameter_name": f"relaxation_{name}"} for name in _RESTRAINTS}
        for restraint in make_restraints(
            _RESTRAINTS, self._topology, given * ANGSTROM_PER_NANOMETER, options=names
        ):
            soft.addForce(restraint.create_force())
        through = {tuple(sorted((i, j))) for each in pierced for i in each.ring for j in each.bond}
        exceptions = {tuple(sorted(pair)) for pair in nonbonded_exceptions(self._system)}
        radii = np.where(self._hydrogen, _HYDROGEN, _HEAVY)
        for force in (
            _repulsion(radii, exceptions | through),
            _repulsion_between(radii, through - exceptions),
            _anchors(given, ~self._hydrogen),
            _pushes(positions, pierced, number),
        ):
            soft.addForce(force)
        context = make_context(soft, openmm.VerletIntegrator(0.001), self._platform)
        context.setPositions(positions)
        return context


def _minimized(context: openmm.Context) -> None:
    descend(context, _DESCENT)
    openmm.LocalEnergyMinimizer.minimize(context, maxIterations=_ITERATIONS)


def _repulsion(radii: np.ndarray, excluded: set[tuple[int, int]]) -> openmm.CustomNonbondedForce:
    force = openmm.CustomNonbondedForce(f"softness*{_REPULSION!r}*max(0, radius1 + radius2 - r)^2")
    force.addGlobalParameter("softness", 0.0)
    force.addPerParticleParameter("radius")
    for radius in radii.tolist():
        force.addParticle([radius])
    for pair in sorted(excluded):
        force.addExclusion(*pair)
    force.setNonbondedMethod(openmm.CustomNonbondedForce.CutoffNonPeriodic)
    force.setCutoffDistance(2 * _HEAVY)
    return force


def _repulsion_between(radii: np.ndarray, pairs: set[tuple[int, int]]) -> openmm.CustomBondForce:
    force = openmm.CustomBondForce(f"between*{_REPULSION!r}*max(0, contact - r)^2")
    force.addGlobalParameter("between", 0.0)
    force.addPerBondParameter("contact")
    for i, j in sorted(pairs):
        force.addBond(i, j, [float(radii[i] + radii[j])])
    return force


def _anchors(given: np.ndarray, anchored: np.ndarray) -> openmm.CustomExternalForce:
    # Beyond an ångström the pull does not grow: what has to go far may.
    force = openmm.CustomExternalForce(
        "anchor*0.01*(sqrt(1 + 100*((x - x0)^2 + (y - y0)^2 + (z - z0)^2)) - 1)"
    )
    force.addGlobalParameter("anchor", 0.0)
    for name in ("x0", "y0", "z0"):
        force.addPerParticleParameter(name)
    for index in np.flatnonzero(anchored).tolist():
        force.addParticle(index, given[index].tolist())
    return force


def _pushes(positions: np.ndarray, pierced: list[PiercedRing], number: int) -> openmm.CustomCentroidBondForce:
    """Push the middle of each bond along the plane of its ring, over the side that is nearest; in later rounds over the next."""
    force = openmm.CustomCentroidBondForce(
        2,
        f"0.5*{_PUSH!r}*push*max(0, reach - (x2 - x1)*ux - (y2 - y1)*uy - (z2 - z1)*uz)^2",
    )
    force.addGlobalParameter("push", 0.0)
    for name in ("reach", "ux", "uy", "uz"):
        force.addPerBondParameter(name)
    for each in pierced:
        corners = positions[list(each.ring)]
        outward = (corners + np.roll(corners, -1, axis=0)) / 2 - corners.mean(axis=0)
        to_sides = outward - (each.point / ANGSTROM_PER_NANOMETER - corners.mean(axis=0))
        nearest = np.argsort(np.linalg.norm(to_sides, axis=1), kind="stable")
        chosen = outward[nearest[number % len(nearest)]]
        distance = float(np.linalg.norm(chosen))
        groups = [force.addGroup(list(atoms), [1.0] * len(atoms)) for atoms in (each.ring, each.bond)]
        force.addBond(groups, [distance + _BEYOND, *(chosen / distance).tolist()])
    return force


def _angles(positions: np.ndarray, triples: np.ndarray) -> np.ndarray:
    first, second = (positions[triples[:, k]] - positions[triples[:, 1]] for k in (0, 2))
    across = np.linalg.norm(np.cross(first, second), axis=1)
    return np.arctan2(across, (first * second).sum(axis=1))


TOO_CLOSE = 0.08
"""nm; nearer than this no two atoms are bonded, and Lennard-Jones forces overflow."""


def clashing_pairs(system: openmm.System, positions: np.ndarray) -> np.ndarray:
    """Return the pairs of atoms nearer than `TOO_CLOSE` that no bonded term joins, shape (n, 2). `positions` (N, 3) in nm."""
    pairs = cKDTree(positions).query_pairs(TOO_CLOSE, output_type="ndarray")
    # To list what is bonded takes far longer, and most models have no such pairs.
    bonded = nonbonded_exceptions(system) if len(pairs) else set()
    apart = [pair for pair in pairs.tolist() if frozenset(pair) not in bonded]
    return np.array(apart, dtype=np.int64).reshape(-1, 2)


def nonbonded_exceptions(system: openmm.System) -> set[frozenset[int]]:
    """Return the pairs of atoms up to three bonds apart: those between which a System's `NonbondedForce` does not act in full."""
    nonbonded = next(force for force in system.getForces() if isinstance(force, openmm.NonbondedForce))
    return set(map(frozenset, terms_of(nonbonded, "Exception", 2)[0].tolist()))


@dataclass(frozen=True)
class _StrainedPart:
    """Some residues of a model as one of their own. `atoms` int (A,): those of the whole model."""

    atoms: np.ndarray
    topology: app.Topology
    system: openmm.System  # Bonded terms, and which pairs are exceptions; atoms that are held have no mass


def _strained_part(
    system: openmm.System, topology: app.Topology, positions: np.ndarray, wrong: np.ndarray
) -> _StrainedPart | None:
    """Return what has to be relaxed of a model where some atoms are wrong; None where it is most of the model.

    `positions` (N, 3) in nm; `wrong` int (W,).
    """
    residue_of = np.array([atom.residue.index for atom in topology.atoms()])

    def residues_near(atoms: np.ndarray) -> np.ndarray:
        apart = cKDTree(positions[atoms]).query(positions, distance_upper_bound=_REACH)[0]
        return np.isin(residue_of, residue_of[apart <= _REACH])

    moving = residues_near(wrong)
    present = residues_near(moving)
    if present.sum() > _MOST * len(present):
        return None
    atoms = np.flatnonzero(present)
    place = np.full(len(present), -1)
    place[atoms] = np.arange(len(atoms))
    part = openmm.System()
    for mass in np.where(moving, masses_of(system), 0.0)[atoms].tolist():
        part.addParticle(mass)
    for force in system.getForces():
        if isinstance(force, (*_BONDED, openmm.NonbondedForce)):
            part.addForce(part_of_force(force, place))
    return _StrainedPart(atoms, part_of_topology(topology, atoms, bonded_pairs(topology)), part)
