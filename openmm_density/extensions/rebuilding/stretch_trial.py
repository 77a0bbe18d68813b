"""One place of a model where stretches may be off by a residue: each shift is built, and the best are annealed.

A trial is a plain object, and `run` does all of it in a `TrialPlace`, in whatever process: what comes out depends on these alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...fitting.stability import Unstable
from ...models.chemistry.elements import is_hydrogen
from ...models.chemistry.secondary_structure import HydrogenBonds
from .bonded_terms import BondedTerms
from .density_model import DensityModel
from .local_system import MINIMIZATION, LocalSystem
from .molecule import Molecule
from .register_search import ChainShift, RegisterSearch, Stretch, axes_of_planes
from .rotamer_search import RotamerSearch
from .side_chain_evidence import SideChainEvidence

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

# How often shifted and original stretch are annealed again where neither is clearly better.
_RETRIES = 3
# Iterations of a soft minimisation, and the part of the shifts that the next ones are for; in the end all have `MINIMIZATION`.
# What is strained comes to rest late: of 50 shifts in one place, the best was the 26th after 80 iterations.
_SOFT_SCREENS = ((80, 0.65), (MINIMIZATION - 80, 0.4))
# The same with full contacts.
_HARD_SCREENS = ((60, 0.6), (MINIMIZATION - 60, 1.0))
AT_ONCE = 6
"""Conformations whose side chains are turned at once: of six each takes two thirds of the time."""


class Built(NamedTuple):
    """A conformation and its energy in kJ/mol, which is infinite where it could not be computed."""

    energy: float
    places: np.ndarray  # (n, 3), Å, of the heavy atoms that move


class TrialResult(NamedTuple):
    """What a trial found."""

    gain: float  # kJ/mol that it is better by
    places: np.ndarray  # (n, 3), Å, of the heavy atoms that move


@dataclass(frozen=True)
class TrialTools:
    """What trials need of a model and its map; it can be pickled.

    `compiled`: whether there is the kernel of local dynamics; `evidence`: for the register.
    """

    force_field: BondedTerms
    molecule: Molecule
    density: DensityModel
    rotamers: RotamerSearch
    registers: RegisterSearch
    compiled: bool = True
    evidence: SideChainEvidence | None = None

    @cached_property
    def hydrogen_bonds(self) -> HydrogenBonds:
        """Those of the backbone: a `LocalSystem` has no charges."""
        return HydrogenBonds(self.molecule.topology)

    @property
    def fitted_chains(self) -> list[np.ndarray]:
        """The chains of which any atom is fitted."""
        return [chain for chain in self.registers.chains if self.is_fitted(chain)]

    def is_fitted(self, residues: np.ndarray) -> bool:
        """Return whether any atom of some residues is fitted: what is not is shown by no density."""
        return bool(self.density.weights[self.registers.atoms_of(residues)].any())


class TrialPlace:
    """One place of a model, in which trials try other conformations.

    `positions` (N, 3) in Å, of the whole model; `region` int: the residues that move.
    """

    def __init__(self, tools: TrialTools, positions: np.ndarray, region: np.ndarray) -> None:
        self.tools, self.positions, self._region = tools, positions, region

    @cached_property
    def _local(self) -> LocalSystem:
        tools = self.tools
        return LocalSystem(
            tools.force_field,
            tools.molecule,
            tools.density,
            self.positions,
            self._region,
            compiled=tools.compiled,
        )

    @cached_property
    def _moving(self) -> np.ndarray:
        molecule = self.tools.molecule
        return np.flatnonzero(molecule.is_heavy & np.isin(molecule.residue_of, self._region))

    @property
    def own(self) -> np.ndarray:
        """Where the heavy atoms that move are, shape (n, 3), in Å."""
        return self.positions[self._moving]

    def whole(self, places: np.ndarray) -> np.ndarray:
        """Return the positions (N, 3) of the model with the heavy atoms that move elsewhere."""
        result = self.positions.copy()
        result[self._moving] = places
        return result

    def shifted(self, shift: ChainShift) -> np.ndarray:
        """Return where the heavy atoms come to lie as a shift is built."""
        return self.tools.registers.displaced(self.positions, shift)[self._moving]

    def minimized(self, places: np.ndarray, iterations: int = MINIMIZATION, soft: bool = False) -> Built:
        """Minimise a conformation; soft, atoms may pass through each other."""
        try:
            energy, placed = self._local.lowered(self.whole(places), soft, iterations)
        except Unstable:  # what cannot be minimised cannot be right
            return Built(np.inf, places)
        return Built(energy, placed[self._moving])

    def each_minimized(
        self, conformations: Sequence[np.ndarray], iterations: int = MINIMIZATION, soft: bool = False
    ) -> list[Built]:
        """Minimise some conformations, as `minimized` does."""
        return [self.minimized(each, iterations, soft) for each in conformations]

    def turned(self, conformations: Sequence[np.ndarray], iterations: int = MINIMIZATION) -> list[Built]:
        """Put the side chains of some conformations into their best rotamers, once, and minimise each."""
        found: list[Built] = []
        for begin in range(0, len(conformations), AT_ONCE):
            some = np.array([self.whole(each) for each in conformations[begin : begin + AT_ONCE]])
            for each in self._with_best_rotamers(some, passes=1):
                found.append(self.minimized(each[self._moving], iterations))
        return found

    def each_annealed(self, starts: Sequence[tuple[np.ndarray, int]], steps: int) -> list[Built]:
        """Anneal some conformations, each with a seed, as `annealed` does."""
        return [self.annealed(places, steps, seed) for places, seed in starts]

    def annealed(self, places: np.ndarray, steps: int, seed: int = 1) -> Built:
        """Anneal a conformation, with so many steps at each temperature and a seed of velocities; turn side chains, minimise."""
        try:
            placed = self._local.annealed(self.whole(places), ANNEALING, steps, seed)
        except Unstable:
            return Built(np.inf, places)
        (best,) = self._with_best_rotamers(placed[None])
        return self.minimized(best[self._moving])

    def _with_best_rotamers(self, positions: np.ndarray, **how: int) -> np.ndarray:
        slopes = self.tools.density.slopes(self.positions)
        return self.tools.rotamers.improved_each(positions, self._region, slopes=slopes, **how)[0]


class Trial:
    """Something else that is tried in one place of a model, of which the residues of a ``region`` move: of these the heavy atoms
    ``moving``, from `positions` (N, 3) in Å.
    """

    gain = 0.0  # By how much what was found is better; so before, and where there is nothing to compare
    # Whether its conformations can be shared out among processes
    is_divisible = False

    def __init__(self, molecule: Molecule, positions: np.ndarray, region: np.ndarray) -> None:
        self.region, self.annealing_steps = region, ANNEALING_STEPS
        self._molecule, self._positions = molecule, positions
        self.moving = np.flatnonzero(molecule.is_heavy & np.isin(molecule.residue_of, region))
        self._best = positions[self.moving]

    def __getstate__(self) -> dict[str, Any]:
        # Every process has the model.
        return {name: value for name, value in vars(self).items() if name not in ("_molecule", "_positions")}

    @property
    def size(self) -> int:
        """About how long it takes: what takes longest is begun first."""
        return len(self.moving)

    def run(self, place: TrialPlace) -> Any:
        """Do it, and return what `take` takes; None where there is nothing to compare."""
        raise NotImplementedError

    def take(self, found: Any) -> None:
        """Note what `run` returned."""
        if found is not None:
            self.gain, self._best = found

    def shifted(self) -> np.ndarray:
        """Return the positions (N, 3) in Å with what was found, hydrogens as well."""
        result = self._positions.copy()
        result[self.moving] = self._best
        return BoundHydrogens(self._molecule, self.moving).carried(self._positions, result)


class StretchTrial(Trial):
    """Shift the stretches of one place, of which one may be off, and tell what the best of them gains, in kJ/mol."""

    is_divisible = True

    def __init__(
        self, molecule: Molecule, positions: np.ndarray, stretches: Sequence[Stretch], region: np.ndarray
    ) -> None:
        super().__init__(molecule, positions, region)
        self.stretches = stretches

    @property
    def size(self) -> int:
        """Shifts times atoms."""
        return sum(len(stretch.shifts) for stretch in self.stretches) * len(self.moving)

    def run(self, place: TrialPlace) -> TrialResult | None:
        """Build all shifts, anneal the best and the stretch as it was, and return what the best gains."""
        own, tries = self._built(place)
        # Without the first there is nothing to compare with.
        if not np.isfinite(own.energy):
            return None
        tries = [each for each in tries if each.energy < own.energy + HOPELESS]
        if not tries:
            return None
        before, *tried = _annealed(place, [own, *tries], 1, self.annealing_steps)
        best = _lowest(tried)
        # Of several annealings one is better by luck.
        if LEAST_GAIN < before.energy - best.energy < RETRY_WINDOW and len(tries) > 1:
            before = _lowest([before, *_annealed(place, [own] * (len(tries) - 1), 2, self.annealing_steps)])
        for retry in range(_RETRIES):
            if not -RETRY_WINDOW < before.energy - best.energy <= LEAST_GAIN:
                break
            again = _annealed(place, [before, best], 3 + retry, self.annealing_steps)
            before, best = (_lowest(pair) for pair in zip((before, best), again))
        if not np.isfinite([before.energy, best.energy]).all():
            return None
        return TrialResult(float(before.energy - best.energy), best.places)

    def _built(self, place: TrialPlace) -> tuple[Built, list[Built]]:
        """Build the shifts with ever more iterations, ever fewer; return the stretch as it was, and those to be annealed."""
        own = place.minimized(place.own, soft=True)
        (own,) = place.turned([own.places])
        found = [
            Built(0.0, place.shifted(ChainShift.of_stretch(stretch, by)))
            for stretch in self.stretches
            for by in stretch.shifts
        ]
        for iterations, part in _SOFT_SCREENS:
            soft = place.each_minimized([each.places for each in found], iterations, soft=True)
            found = _fraction(soft, part)
        (first, part), *more = _HARD_SCREENS
        found = _fraction(place.turned([each.places for each in found], first), part)
        for iterations, part in more:
            found = _fraction(place.each_minimized([each.places for each in found], iterations), part)
        return own, _fraction(found, 0.0)


def _annealed(place: TrialPlace, conformations: Sequence[Built], series: int, steps: int) -> list[Built]:
    """Anneal each of some conformations, with velocities of its own."""
    starts = [(each.places, 1000 * series + number) for number, each in enumerate(conformations)]
    return place.each_annealed(starts, steps)


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
