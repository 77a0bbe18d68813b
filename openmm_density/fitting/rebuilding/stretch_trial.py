"""One place of a model where stretches may be off by a residue: each shift is built, and the best are annealed.

What is done to some conformations is a `Task`, which any process with the same `TrialTools` can do: what comes out depends on the
task alone. A `StretchTrial` says which tasks follow from the results of others.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...models.chemistry.elements import is_hydrogen
from ..stability import Unstable
from .bonded_terms import BondedTerms
from .density_model import DensityModel
from .local_system import MINIMIZATION, LocalSystem
from .molecule import Molecule
from .register_search import ChainShift, RegisterSearch, Stretch, axes_of_planes
from .rotamer_search import RotamerSearch
from .sequence_match import SequenceMatch

LEAST_GAIN = 50.0
"""kJ/mol by which a stretch has to be better where it was shifted to: twenty times the thermal energy."""
RETRY_WINDOW = 200.0
"""kJ/mol by which a shift may be worse and is still annealed again: its ends, and side chains that moved by 3 Å, need time."""
HOPELESS = 1000.0
"""kJ/mol by which a shift that was built may be worse than the stretch where it is, and is still annealed: of 70 that were
annealed in nine places, those that came out best had been up to 480 worse, and from 1300 none came near."""
ANNEALING, ANNEALING_STEPS = (600.0, 450.0, 300.0, 150.0), 134
"""K, and steps at each, for a stretch to find its place in: over the barriers between rotamers and peptides."""
MOST_ANNEALED = 4
"""Of the shifts tried in one place, those of lowest energy after a minimisation are annealed."""

PLACES_KEPT = 2
"""Places whose Systems a process keeps: making one takes as long as minimising ten shifts."""

# How often shifted and original stretch are annealed again where neither is clearly better.
_RETRIES = 3
# Iterations of a soft minimisation, and the part of the shifts that the next ones are for; in the end all have `MINIMIZATION`.
# What is strained comes to rest late: of 50 shifts in one place, the best was the 26th after 80 iterations.
_SOFT_SCREENS = ((80, 0.65), (MINIMIZATION - 80, 0.4))
# The same with full contacts.
_HARD_SCREENS = ((60, 0.6), (MINIMIZATION - 60, 1.0))
# Conformations of one task: so few that many processes have something to do, and always as many, so that sums are the same.
# Turning the side chains of six at once takes two thirds of the time per conformation, which is a tenth of what a task does.
_AT_ONCE = 3


class Built(NamedTuple):
    """A conformation and its energy in kJ/mol, which is infinite where it could not be computed."""

    energy: float
    places: np.ndarray  # (n, 3), Å, of the heavy atoms that move


@dataclass(frozen=True)
class Task:
    """What is done to some conformations of one place."""

    # {"shift", "soft", "turn", "hard", "anneal", "match"}, minimise shifted stretches with soft contacts; go on with
    # that; turn side chains and minimise; go on with that; anneal. Or match residues with places along their chain,
    # which the region then is.
    what: str
    iterations: int = MINIMIZATION  # Of the minimisation
    shifts: tuple[ChainShift, ...] = ()  # To be built, for "shift"
    places: tuple[np.ndarray, ...] = ()  # (n, 3), Å; the conformations, for the others
    steps: int = ANNEALING_STEPS  # At each temperature, for "anneal"
    seed: int = 1  # Of velocities
    matched: tuple[int, ...] = ()  # Places in the chain, of the residues to "match"


@dataclass(frozen=True)
class TrialTools:
    """What trials need of a model and its map; it can be pickled."""

    force_field: BondedTerms
    molecule: Molecule
    density: DensityModel
    rotamers: RotamerSearch
    registers: RegisterSearch
    compiled: bool = True  # Whether there is the kernel of local dynamics

    @cached_property
    def matches(self) -> SequenceMatch:
        """What matches side chains with places."""
        return SequenceMatch(self.molecule.topology, self.density, self.rotamers, self.registers)

    def is_fitted(self, residues: np.ndarray) -> bool:
        """Return whether any atom of some residues is fitted: what is not is shown by no density."""
        return bool(self.density.weights[self.registers.atoms_of(residues)].any())


class TrialPlace:
    """One place in which tasks are done.

    `positions` (N, 3) in Å, of the whole model; `region` int: the residues that move.
    """

    def __init__(self, tools: TrialTools, positions: np.ndarray, region: np.ndarray) -> None:
        self._tools, self._positions, self._region = tools, positions, region

    @cached_property
    def _local(self) -> LocalSystem:
        tools = self._tools
        return LocalSystem(
            tools.force_field,
            tools.molecule,
            tools.density,
            self._positions,
            self._region,
            compiled=tools.compiled,
        )

    def do(self, task: Task) -> list[Built] | np.ndarray:
        """Return what became of each conformation of a task; of a match the energies, see `SequenceMatch.energies`."""
        if task.what == "match":
            return self._tools.matches.energies(self._positions, self._region, task.matched)
        if task.what == "anneal":
            return [self._annealed(self._whole(places), task) for places in task.places]
        if task.what == "shift":
            displaced = self._tools.registers.displaced
            starts = [displaced(self._positions, shift) for shift in task.shifts]
        else:
            starts = [self._whole(places) for places in task.places]
        if task.what == "turn":
            starts = list(self._turned(np.array(starts), passes=1))
        soft = task.what in ("shift", "soft")
        return [self._lowered(start, soft, task.iterations) for start in starts]

    def _whole(self, places: np.ndarray) -> np.ndarray:
        result = self._positions.copy()
        result[self._local.moving] = places
        return result

    def _turned(self, positions: np.ndarray, **how: int) -> np.ndarray:
        return self._tools.rotamers.improved_each(positions, self._region, **how)[0]

    def _lowered(self, start: np.ndarray, soft: bool = False, iterations: int = MINIMIZATION) -> Built:
        try:
            energy, placed = self._local.lowered(start, soft, iterations)
        except Unstable:  # what cannot be minimised cannot be right
            energy, placed = np.inf, start
        return Built(energy, placed[self._local.moving])

    def _annealed(self, start: np.ndarray, task: Task) -> Built:
        try:
            placed = self._local.annealed(start, ANNEALING, task.steps, task.seed)
        except Unstable:
            return Built(np.inf, start[self._local.moving])
        return self._lowered(self._turned(placed[None])[0])


class StretchTrial:
    """Shift the stretches of one place, and tell what the best of them gains.

    `positions` (N, 3) in Å; `stretches` of which one may be shifted; `region` int: the residues that move. Attributes:
    `stretches`, `region` as given. `moving` int: the heavy atoms that move. `gain` in kJ/mol that the best shift gains;
    0 until the course has come to its end, or where there is nothing to compare.
    """

    def __init__(
        self, molecule: Molecule, positions: np.ndarray, stretches: Sequence[Stretch], region: np.ndarray
    ) -> None:
        self.stretches, self.region = stretches, region
        self._molecule, self._positions = molecule, positions
        self.moving = np.flatnonzero(molecule.is_heavy & np.isin(molecule.residue_of, region))
        self._best = positions[self.moving]
        self.gain = 0.0

    @property
    def size(self) -> int:
        """Shifts times atoms: what takes longest is begun first."""
        return sum(len(stretch.shifts) for stretch in self.stretches) * len(self.moving)

    def shifted(self) -> np.ndarray:
        """Return the positions (N, 3) in Å with the best shift, hydrogens as well."""
        result = self._positions.copy()
        result[self.moving] = self._best
        return BoundHydrogens(self._molecule, self.moving).carried(self._positions, result)

    def course(self) -> Generator[list[Task], list[list[Built]], None]:
        """Yield tasks that do not depend on each other, take their results, and so on until `gain` is known."""
        shifts = tuple(
            ChainShift.of_stretch(stretch, by) for stretch in self.stretches for by in stretch.shifts
        )
        own, tries = yield from self._built(shifts)
        # Without the first there is nothing to compare with.
        if not np.isfinite(own.energy):
            return
        tries = [each for each in tries if each.energy < own.energy + HOPELESS]
        if not tries:
            return
        annealings = [own, *tries]
        before, *tried = yield from _annealed(annealings, 1)
        best = _lowest(tried)
        # Of several annealings one is better by luck.
        if LEAST_GAIN < before.energy - best.energy < RETRY_WINDOW and len(tries) > 1:
            before = _lowest([before, *(yield from _annealed([own] * (len(tries) - 1), 2))])
        for retry in range(_RETRIES):
            if not -RETRY_WINDOW < before.energy - best.energy <= LEAST_GAIN:
                break
            again = yield from _annealed([before, best], 3 + retry)
            before, best = (_lowest(pair) for pair in zip((before, best), again))
        if np.isfinite([before.energy, best.energy]).all():
            self.gain, self._best = float(before.energy - best.energy), best.places

    def _built(
        self, shifts: tuple[ChainShift, ...]
    ) -> Generator[list[Task], list[list[Built]], tuple[Built, list[Built]]]:
        """Build the shifts with ever more iterations, ever fewer of them; return the stretch as it was, and those to be annealed.

        The stretch as it was is minimised beside them.
        """
        (first, part), *more = _SOFT_SCREENS
        chunks = [shifts[begin : begin + _AT_ONCE] for begin in range(0, len(shifts), _AT_ONCE)]
        (own,), *results = yield [
            Task("soft", places=(self._positions[self.moving],)),
            *(Task("shift", first, shifts=chunk) for chunk in chunks),
        ]
        found = _fraction([each for result in results for each in result], part)
        own_turned = [Task("turn", places=(own.places,))]
        for what, screens in (("soft", more), ("turn", _HARD_SCREENS[:1]), ("hard", _HARD_SCREENS[1:])):
            for iterations, part in screens:
                results = yield [*own_turned, *_tasks(what, found, iterations)]
                if own_turned:
                    (own,), *results = results
                    own_turned = []
                found = _fraction([each for result in results for each in result], part)
        return own, _fraction(found, 0.0)


def _tasks(what: str, conformations: Sequence[Built], iterations: int) -> list[Task]:
    """Return what does the same to each of some conformations."""
    places = [each.places for each in conformations]
    chunks = [tuple(places[begin : begin + _AT_ONCE]) for begin in range(0, len(places), _AT_ONCE)]
    return [Task(what, iterations, places=chunk) for chunk in chunks]


def _annealed(
    conformations: Sequence[Built], series: int
) -> Generator[list[Task], list[list[Built]], list[Built]]:
    """Anneal each of some conformations, with velocities of its own."""
    tasks = [
        Task("anneal", places=(each.places,), steps=ANNEALING_STEPS, seed=1000 * series + number)
        for number, each in enumerate(conformations)
    ]
    return [result[0] for result in (yield tasks)]


def _fraction(found: list[Built], part: float) -> list[Built]:
    """Return the best part of what could be built, at least as many as are annealed."""
    sound = sorted((each for each in found if np.isfinite(each.energy)), key=_energy)
    return sound[: max(int(np.ceil(part * len(found))), MOST_ANNEALED)]


def _lowest(conformations: Sequence[Built]) -> Built:
    return min(conformations, key=_energy)


def _energy(conformation: Built) -> float:
    return conformation.energy


class BoundHydrogens:
    """Where hydrogens are, by the atoms that they are bound to and the neighbours of these.

    `moving` int: the heavy atoms whose hydrogens follow.
    """

    def __init__(self, molecule: Molecule, moving: np.ndarray) -> None:
        def neighbours(atom: int, hydrogens: bool) -> list[int]:
            return [k for k in molecule.bonded.get(atom, ()) if is_hydrogen(molecule.atoms[k]) == hydrogens]

        frames = []
        for parent in moving.tolist():
            hydrogens, first = neighbours(parent, True), sorted(neighbours(parent, False))
            if not hydrogens or not first:
                continue
            second = first[1:] or [k for k in sorted(neighbours(first[0], False)) if k != parent]
            if second:
                frames += [(hydrogen, parent, first[0], second[0]) for hydrogen in hydrogens]
        self._frames = np.array(frames, dtype=np.int64).reshape(-1, 4)

    def carried(self, before: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return positions with the hydrogens where they were before, seen from the atoms that they are bound to."""
        hydrogens, *frame = self._frames.T
        local = np.einsum("nij,nj->ni", axes_of_planes(before, *frame), before[hydrogens] - before[frame[0]])
        result = positions.copy()
        result[hydrogens] = positions[frame[0]] + np.einsum(
            "nij,ni->nj", axes_of_planes(positions, *frame), local
        )
        return result
