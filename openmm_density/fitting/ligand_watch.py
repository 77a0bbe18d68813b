"""Ligands with a learned potential, watched while they move: where it does not know them they are held as they were before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import openmm

from ..base.errors import InputError
from ..base.units import ANGSTROM_PER_NANOMETER
from ..models.ligand_potentials import PlacedPotential
from ..models.preparation.ligand_terms import IDLE_SPRINGS, elastic_network, spring_pairs
from ..models.preparation.prepared import RIGID_CUTOFF, RIGID_FREQUENCY

LOOK_INTERVAL = 200
"""Steps between two looks."""
HELD_STEPS = 1000
"""Steps for which a ligand is held before its potential is tried again."""


@dataclass(frozen=True)
class WatchedLigand:
    """What is known of a ligand at a step of a fit; kept in saved states."""

    label: str  # As in ``A LIG 501``
    path: str  # `path`, `sha256` of the file of its potential.
    sha256: str
    # Its atoms' positions in nm, in the potential's order, when its potential last knew them; empty where it never
    # did
    known: list[list[float]]
    disagreement: float = 0.0  # Of the committee now, in kcal/mol/Å
    worst: float = 0.0  # The largest so far, from the first step on
    unknown: int = 0  # How often its potential did not know it when it was looked at
    looks: int = 0  # How often it was looked at
    # The step at which it is held no longer, if it is known then; -1 while it is not held
    held_until: int = -1
    held_times: int = 0  # How often it came to be held
    first_unknown: int | None = None  # The step at which it left what its potential knows

    @property
    def is_held(self) -> bool:
        """Whether springs hold it in the shape that was known."""
        return self.held_until >= 0


class LigandWatch:
    """Watch the ligands of a fit that have a learned potential.

    A committee of students learned each potential. Where their forces disagree more than `LigandEnergy.bound` says, none of
    them can be trusted: the ligand is then held by springs in the shape that it had when they last agreed, like a ligand
    without a potential, and the potential itself does not act. After `HELD_STEPS` steps it does again. A ligand that is not
    known from the start has its bonds and angles held as they are in the relaxed molecule, so that it comes to be known.
    `placed` of a model, or of all its copies in a System in their order; `masses` (N,) in Da.
    """

    def __init__(self, placed: Sequence[PlacedPotential], masses: np.ndarray) -> None:
        self.placed = list(placed)
        self._masses = masses

    def begun(self, positions: np.ndarray) -> list[dict[str, Any]]:
        """Return what a state keeps of ligands at the start, (N, 3) in nm; unknown ones are held to the next look."""
        return [asdict(_new(placed, positions[placed.atoms])) for placed in self.placed]

    def looked_at(
        self, context: openmm.Context, states: Sequence[dict[str, Any]], step: int, holds: bool = True
    ) -> list[dict[str, Any]]:
        """Look at the ligands in a Context; hold those that their potentials do not know, and release those held long enough.

        `states`: what was known of them before, which stays as it is; `step` of the fit; `holds`: whether those that
        are unknown are held, or only counted. Returns what is known of them now.
        """
        if not self.placed:
            return []
        positions = context.getState(positions=True).getPositions(asNumpy=True)._value
        now = self.seen(positions, states, step, holds)
        if are_held(now) != are_held(states):
            self.apply(context, now)
        return now

    def seen(
        self, positions: np.ndarray, states: Sequence[dict[str, Any]], step: int, holds: bool = True
    ) -> list[dict[str, Any]]:
        """Return what is known of the ligands at positions (N, 3) in nm, with the other arguments of `looked_at`; hold none."""
        return [
            asdict(_seen(placed, WatchedLigand(**state), positions[placed.atoms], step, holds))
            for placed, state in zip(self.placed, states)
        ]

    def apply(self, context: openmm.Context, states: Sequence[dict[str, Any]]) -> None:
        """Hold in a new Context the ligands that are held, and no others."""
        if self.placed and states:
            self._set(context, [WatchedLigand(**state) for state in states])

    def _set(self, context: openmm.Context, ligands: Sequence[WatchedLigand]) -> None:
        springs = next(f for f in context.getSystem().getForces() if f.getName() == IDLE_SPRINGS)
        number = 0
        for placed, ligand in zip(self.placed, ligands):
            network = self._network(placed, ligand) if ligand.is_held else {}
            for i, j in spring_pairs(placed):
                rest, stiffness = network.get((i, j), (0.0, 0.0))
                springs.setBondParameters(number, i, j, [rest / ANGSTROM_PER_NANOMETER, stiffness])
                number += 1
            context.setParameter(placed.parameter_name, 0.0 if ligand.is_held else 1.0)
        springs.updateParametersInContext(context)

    def _network(
        self, placed: PlacedPotential, ligand: WatchedLigand
    ) -> dict[tuple[int, int], tuple[float, float]]:
        """Return the springs of a ligand in the shape in which it was last known."""
        positions = np.zeros((len(self._masses), 3))
        if ligand.known:
            positions[placed.atoms] = np.array(ligand.known) * ANGSTROM_PER_NANOMETER
            pairs = None
        else:
            positions[placed.atoms] = placed.potential.positions
            pairs = _bonds_and_angles(placed.potential.bonds)
        return elastic_network(self._masses, placed.atoms, positions, RIGID_FREQUENCY, RIGID_CUTOFF, pairs)


def are_held(states: Sequence[dict[str, Any]]) -> list[bool]:
    """Return whether springs hold each ligand."""
    return [WatchedLigand(**state).is_held for state in states]


def _new(placed: PlacedPotential, positions: np.ndarray) -> WatchedLigand:
    potential = placed.potential
    path = "" if potential.path is None else str(potential.path)
    known = WatchedLigand(placed.label, path, potential.sha256, [])
    found = potential.disagreement(positions)
    return (
        replace(known, held_until=0) if found > potential.bound else replace(known, known=positions.tolist())
    )


def _bonds_and_angles(bonds: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return the pairs of atoms that one or two bonds join."""
    neighbours: dict[int, set[int]] = {}
    for a, b in bonds:
        neighbours.setdefault(a, set()).add(b)
        neighbours.setdefault(b, set()).add(a)
    pairs = {(min(a, b), max(a, b)) for a, b in bonds}
    pairs |= {pair for ends in neighbours.values() for pair in combinations(sorted(ends), 2)}
    return np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)


def _seen(
    placed: PlacedPotential, before: WatchedLigand, positions: np.ndarray, step: int, holds: bool
) -> WatchedLigand:
    """Return what is known of a ligand after a look at it."""
    found = placed.potential.disagreement(positions)
    ligand = replace(before, disagreement=found, worst=max(before.worst, found), looks=before.looks + 1)
    if found <= placed.potential.bound:
        # While it is held, the springs keep the shape that they were given.
        if ligand.is_held and step < ligand.held_until:
            return ligand
        return replace(ligand, known=positions.tolist(), held_until=-1)
    return replace(
        ligand,
        unknown=before.unknown + 1,
        held_until=step + HELD_STEPS if holds else before.held_until,
        held_times=before.held_times + (holds and (not before.is_held or not before.looks)),
        first_unknown=step if before.first_unknown is None else before.first_unknown,
    )


def check_same_potentials(
    states: Sequence[dict[str, Any]], placed: Sequence[PlacedPotential], folder: Path
) -> None:
    """Refuse to go on with other potentials than a fit began with."""
    for known, each in zip(states, placed):
        if known["label"] != each.label or known["sha256"] != each.potential.sha256:
            raise InputError(
                f"the fit began with another potential of {known['label']}",
                source=folder,
                remedy=f"give {known['path'] or 'that'}, or start the fit again",
            )
    if len(states) != len(placed):
        raise InputError(
            f"the fit began with {len(states)} ligands that have a potential, not {len(placed)}",
            source=folder,
            remedy="start the fit again",
        )
