"""The end of a fit with alternate conformers: these and the model's own are fitted together, each to its part of the density."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import openmm
from openmm import unit

from ...base.errors import SimulationError
from ...base.units import ANGSTROM_PER_NANOMETER, positions_in_angstrom
from ...energies.density_fit import DensityFit
from ...fitting.descent import descend
from ...fitting.dynamics import set_temperature
from ...fitting.engine import Engine
from ...fitting.final_strength import stiffer
from ...fitting.fit_systems import RESTRAINT_GROUP
from ...fitting.interrupts import Stop
from ...fitting.minimization import Minimizer, Rest
from ...fitting.platforms import make_context
from ...fitting.protocols import Protocol, Stage
from ...fitting.stability import Safeguard, is_blow_up
from ...fitting.written_atoms import labels_of
from ...models.chemistry.elements import is_hydrogen
from ...models.chemistry.stereocentres import with_hydrogens_opposite
from ...models.chemistry.torsions import torsion_angles
from ...models.preparation import Prepared
from ...restraints import IdealGeometryRestraint
from ...validation.ideal_values import IdealValues
from .copies import ConformerCopies, where_given
from .fitted import FittedConformers

if TYPE_CHECKING:
    from ...energies.atomic_parameters import Occupancies

WIDTHS = (1.4, 1.0)
"""Of the atoms' Gaussians, in those of the map's resolution, in which the conformers are minimised one after the other: wide ones
find density that a displaced side chain does not touch."""
DESCENT_STEPS, ITERATIONS = 100, 300
STRONGER = 5.0
"""Times by which the density pulls more strongly than on the model before, as each conformer feels its part of it only."""
FREE_REACH = 4.0
"""Å from a conformer up to which residues move: the others stay where they are."""
STEPS_SHARE, LEAST_STEPS = 0.05, 600
"""Steps of dynamics, as a part of those of the protocol, and the least."""
LEAST_FITTED = (0.35, 0.25, 0.15)
"""The least occupancy of a conformer in each of these and in the dynamics behind them: with less it is not pulled to a density
that it does not touch yet."""
HOT, COLD = 300.0, 10.0
TIMESTEP = 0.5
"""Of that of the stage: a pull so much stronger asks for shorter steps."""
COOLING_BLOCKS = 20


class ConformerFit:
    """Fit the conformers of a model together. `prepared`: the model as it is simulated."""

    def __init__(
        self, engine: Engine, protocol: Protocol, prepared: Prepared, copies: ConformerCopies
    ) -> None:
        self._engine, self._protocol, self._prepared, self._copies = engine, protocol, prepared, copies
        self._given: np.ndarray | None = None
        self._moves: np.ndarray | None = None
        interval = protocol.density_interval
        self.steps = max(LEAST_STEPS, round(STEPS_SHARE * protocol.steps)) // interval * interval

    def fitted(
        self,
        positions: np.ndarray,
        density: DensityFit,
        stage: Stage,
        strength: float,
        integrator: openmm.Integrator,
        stop: Stop,
        occupancies: Callable[[FittedConformers], Occupancies],
    ) -> FittedConformers:
        """Return the conformers, fitted with the model from its positions (N, 3) in Å, at a total k of `strength` kJ/mol."""
        found = FittedConformers(self._copies, self._start(positions, density))
        for width, least in zip(WIDTHS, LEAST_FITTED):
            self._share(occupancies(found), least)
            wide = density.with_atoms_wider(width)
            placed = self._minimized(found.positions, wide, stage, strength, stop)
            found = FittedConformers(self._copies, placed)
        self._share(occupancies(found), LEAST_FITTED[-1])
        annealed = self._annealed(found.positions, density, stage, strength, integrator, stop)
        return FittedConformers(self._copies, annealed)

    def _share(self, found: Occupancies, least: float) -> None:
        """Take occupancies for what is fitted next, none of them very small."""
        shares = []
        for of_group, _ in of_conformers(self._copies, found):
            seen = {label: max(share, least) for label, share in of_group.items()}
            shares.append({label: share / sum(seen.values()) for label, share in seen.items()})
        self._copies = self._copies.with_shares(shares)

    def with_occupancies(
        self,
        found: FittedConformers,
        occupancies: Occupancies,
        density: DensityFit,
        stage: Stage,
        strength: float,
        stop: Stop,
    ) -> FittedConformers:
        """Return the same, minimised with refined occupancies, which are named as in ``A LYS 45 B``."""
        of_groups = of_conformers(found.copies, occupancies)
        self._copies = found.copies.with_shares([shares for shares, _ in of_groups])
        return replace(
            found,
            copies=self._copies,
            deviations=[deviations for _, deviations in of_groups],
            positions=self._minimized(found.positions, density, stage, strength, stop),
        )

    def at_rest(
        self,
        found: FittedConformers,
        groups: list[int],
        density: DensityFit,
        stage: Stage,
        strength: float,
        stop: Stop,
    ) -> FittedConformers:
        """Return those of some groups in ideal geometry, the model's own conformers of the others with all of the density."""
        assert self._given is not None and self._moves is not None
        n = found.copies.n_atoms
        kept = np.concatenate([np.ones(n, dtype=bool), np.isin(found.copies.group_of_copy, groups)])
        self._given, self._moves = self._given[kept], self._moves[kept]
        found = found.with_only(groups)
        self._copies = found.copies
        systems, topology = self._engine.systems, found.copies.others.joined
        start = with_hydrogens_opposite(topology, found.positions)
        ideal = systems.ideal_geometry(start[:n])
        context = self._context(start, density, stage, strength, ideal=ideal)
        safeguard = Safeguard(topology, context.getSystem())
        minimizer = Minimizer(systems, safeguard, *self._engine.platform)
        rest = Rest(context, ideal, None)
        asked = StiffnessAsked(found.copies, systems.dictionaries)
        minimizer.rest_in(rest, ITERATIONS, stop, asked)
        return replace(found, positions=_checked(context))

    def _start(self, positions: np.ndarray, density: DensityFit) -> np.ndarray:
        """Return where all atoms start (Å): each residue's own conformer as given or as fitted, what agrees better."""
        copies = self._copies
        given = where_given(self._prepared, copies, positions)
        self._given, chosen = given, given.copy()
        self._moves = copies.near(given, FREE_REACH)
        _, system = self._system(density, given, stiff=False, free=True)
        joint = density.with_copies(
            copies.others.joined, copies.others.originals, copies.occupancies(), given, system
        )
        for number in range(len(copies.groups)):
            atoms = np.unique(copies.others.originals[copies.group_of_copy == number])
            tried = chosen.copy()
            tried[atoms] = positions[atoms]
            if joint.similarity(tried) > joint.similarity(chosen):
                chosen = tried
        return chosen

    def _system(
        self,
        density: DensityFit,
        positions: np.ndarray,
        stiff: bool,
        free: bool,
        ideal: IdealGeometryRestraint | None = None,
    ) -> tuple[DensityFit, openmm.System]:
        copied = self._copies.copied(labels_of(self._prepared), positions)
        return self._engine.systems.with_copied_atoms(
            density, self._copies.others.joined, positions, copied, stiff, free, ideal
        )

    def _context(
        self,
        start: np.ndarray,
        density: DensityFit,
        stage: Stage,
        strength: float,
        integrator: openmm.Integrator | None = None,
        ideal: IdealGeometryRestraint | None = None,
    ) -> openmm.Context:
        systems = self._engine.systems
        free = integrator is None
        _, system = self._system(density, start, stage.final, free, ideal)
        assert self._given is not None and self._moves is not None
        system.addForce(torsion_hold(self._copies, self._given, RESTRAINT_GROUP))
        freeze(system, ~self._moves)
        integrator = integrator or openmm.VerletIntegrator(0.001)
        context = make_context(system, integrator, self._engine.platform)
        context.setPositions(start / ANGSTROM_PER_NANOMETER)
        context.setParameter(density.parameter_name, STRONGER * strength)
        systems.release_restraints(context, stage)
        # In full in minimisations; else by what is stable at the time step.
        timestep = None if free else integrator.getStepSize().value_in_unit(unit.picosecond)
        systems.set_stiff_restraints(context, stage, timestep)
        return context

    def _minimized(
        self, start: np.ndarray, density: DensityFit, stage: Stage, strength: float, stop: Stop
    ) -> np.ndarray:
        context = self._context(start, density, stage, strength)
        descend(context, DESCENT_STEPS, stop=stop)
        openmm.LocalEnergyMinimizer.minimize(context, maxIterations=ITERATIONS)
        return _checked(context)

    def _annealed(
        self,
        start: np.ndarray,
        density: DensityFit,
        stage: Stage,
        strength: float,
        integrator: openmm.Integrator,
        stop: Stop,
    ) -> np.ndarray:
        integrator.setStepSize(TIMESTEP * integrator.getStepSize())
        context = self._context(start, density, stage, strength, integrator)
        context.applyConstraints(1e-6)
        set_temperature(integrator, HOT)
        context.setVelocitiesToTemperature(HOT, 1 + integrator.getRandomNumberSeed() % (2**31 - 2))
        interval = self._protocol.density_interval
        block = max(self.steps // COOLING_BLOCKS // interval, 1)
        try:
            for number in range(COOLING_BLOCKS):
                if stop.requested:
                    break
                set_temperature(integrator, HOT + (COLD - HOT) * number / (COOLING_BLOCKS - 1))
                integrator.step(block)
            warm = _checked(context)
        except (openmm.OpenMMException, SimulationError) as error:
            if isinstance(error, openmm.OpenMMException) and not is_blow_up(error):
                raise
            return start
        return self._minimized(warm, density, stage, strength, stop)


class StiffnessAsked:
    """By which factors bonds and angles of conformers are to be held more stiffly, see `Minimizer.bring_to_rest`.

    Of these alone: the rest of the model, which stays where it is, would hide them.
    """

    def __init__(self, copies: ConformerCopies, dictionaries: Any = ()) -> None:
        self._copies = copies
        self._values = IdealValues(copies.others.topology, dictionaries=dictionaries)
        self._alternating = np.isin(np.arange(copies.n_atoms), copies.others.originals)

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """Return those of bonds and angles at positions (N + K, 3) in Å."""
        labels = ("", *sorted(set(self._copies.others.labels)))
        models = (self._copies.positions_of(positions, label) for label in labels)
        scores = (self._values.scores(model, self._alternating) for model in models)
        return np.max([stiffer(each) for each in scores], axis=0)


def of_conformers(
    copies: ConformerCopies, found: Occupancies
) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Return the occupancies of each group's conformers, and their standard deviations, by label."""
    result = []
    for group in copies.groups:
        names = {label: f"{group.name} {label}" for label in (group.chosen, *group.labels)}
        shares, deviations = (
            {label: values[name] for label, name in names.items()}
            for values in (found.values, found.deviations)
        )
        result.append((shares, deviations))
    return result


def freeze(system: openmm.System, atoms: np.ndarray) -> None:
    """Take the masses of particles of a System, and their constraints, which need masses: they stay where they are."""
    for index in np.flatnonzero(atoms).tolist():
        system.setParticleMass(index, 0.0)
    for index in reversed(range(system.getNumConstraints())):
        a, b, _ = system.getConstraintParameters(index)
        if atoms[a] or atoms[b]:
            system.removeConstraint(index)


def _checked(context: openmm.Context) -> np.ndarray:
    positions = positions_in_angstrom(context.getState(positions=True).getPositions(asNumpy=True))
    if not np.isfinite(positions).all():
        raise SimulationError("The conformers' coordinates are no numbers any more.")
    return positions


TOLERANCE = math.radians(40.0)
"""Each torsion is free within it: a third of what is between rotamers is 40 degrees."""
FORCE_CONSTANT = 2000.0
"""kJ/mol/rad², beyond it."""
_ENERGY = f"0.5*{FORCE_CONSTANT}*max(0, min(apart, {2 * math.pi} - apart) - {TOLERANCE})^2; apart = abs(theta - start)"


def held_torsions(copies: ConformerCopies) -> np.ndarray:
    """Return the torsions of heavy atoms, one about each bond of a conformer that turns some of its atoms; shape (T, 4)."""
    topology = copies.others.joined
    atoms = list(topology.atoms())
    conformers = [
        {int(k) for k in copies.members(number, label)}
        for number, group in enumerate(copies.groups)
        for label in (group.chosen, *group.labels)
    ]
    alternating = set().union(*conformers)
    bonded: dict[int, list[int]] = defaultdict(list)
    for a, b in topology.bonds():
        if not (is_hydrogen(a) or is_hydrogen(b)):
            bonded[a.index].append(b.index)
            bonded[b.index].append(a.index)
    found = []
    for members in conformers:

        def neighbours(atom: int, but: int, members: set[int] = members) -> list[int]:
            """Return what an atom is bonded to in this conformer."""
            every = [k for k in bonded[atom] if k != but and (k in members or k not in alternating)]
            return sorted(every, key=lambda k: (k not in members, atoms[k].name))

        # Bonds that turn atoms of it: of its own, and those to what these are bonded to.
        pivots = sorted(members | {k for each in members for k in neighbours(each, -1)})
        for c in pivots:
            for b in neighbours(c, -1):
                before = neighbours(b, c)[-1:]
                after = [k for k in neighbours(c, b) if k in members][:1]
                if before and after and not (c in members and b in members and b > c):
                    found.append((before[0], b, c, after[0]))
    return np.array(found, dtype=np.int64).reshape(-1, 4)


def torsion_hold(copies: ConformerCopies, positions: np.ndarray, force_group: int = 0) -> openmm.Force:
    """Return the force that holds the torsions of conformers near those at positions (N + K, 3) in Å."""
    torsions = held_torsions(copies)
    force = openmm.CustomTorsionForce(_ENERGY)
    force.setName("ConformerTorsions")
    force.setForceGroup(force_group)
    force.addPerTorsionParameter("start")
    for atoms, angle in zip(torsions.tolist(), torsion_angles(positions, torsions).tolist()):
        force.addTorsion(*atoms, [angle])
    return force
