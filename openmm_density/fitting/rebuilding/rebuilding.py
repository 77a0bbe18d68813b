"""Side chains fitted in other rotamers, and stretches shifted into register: more than dynamics of some picoseconds finds."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import chain

import numpy as np
import openmm
from openmm import app

from ...chemistry.residues import residue_label
from ...energies.density_fit import DensityFit
from ...models.preparation import Prepared
from ...validation.correlation import MapCorrelation
from ..interrupts import StopRequest
from ..stability import Unstable
from .changes import Changes, FittedRotamer, RebuiltStretch, span
from .density_model import DensityModel
from .local_system import LocalSystem
from .molecule import Molecule
from .register_search import RegisterSearch, Stretch
from .rotamer_search import RotamerSearch
from .search_plan import place_work
from .sequence_match import SequenceMatch

LEAST_GAIN = 50.0
"""kJ/mol by which a stretch has to be better where it was shifted to: twenty times the thermal energy."""
RETRY_WINDOW = 200.0
"""kJ/mol by which a shift may be worse and is still annealed again: its ends, and side chains that moved by 3 Å, need time."""
ANNEALING, ANNEALING_STEPS = (600.0, 450.0, 300.0, 150.0), 200
"""K, and steps at each, for a stretch to find its place in: over the barriers between rotamers and peptides."""

# Of the shifts tried in one place, those of lowest energy after a minimisation are annealed.
_ANNEALED = 4
# How often shifted and original stretch are annealed again where neither is clearly better.
_RETRIES = 3
# Once stretches were shifted, others may be found.
_ROUNDS = 3
# Each holds its surroundings' density as a spline, a gigabyte in a fine map.
_MOST_AT_ONCE = 8


class Rebuilding:
    """Rebuild parts of a model where they then fit better.

    Parameters
    ----------
    prepared : Prepared
        The model.
    system : openmm.System
        Its force field without constraints.
    correlation : MapCorrelation
        Of its topology with the map, at the resolution of the density.
    density : DensityFit
        With the similarity "cross-correlation" or "least-squares".
    strength : float
        k in kJ/mol, of all atoms together.
    threads : int, optional
        Stretches that are tried at once; as many as there are processors by default. What comes out does not depend on it.
    progress : callable, optional
        Called, in this thread, with a few words on what is being searched.

    Attributes
    ----------
    changes : Changes
        What was rebuilt so far.
    work : float
        The `place_work` of what was tried so far.
    """

    def __init__(
        self,
        prepared: Prepared,
        system: openmm.System,
        correlation: MapCorrelation,
        density: DensityFit,
        strength: float,
        threads: int | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self.changes, self.work = Changes(), 0.0
        self._progress = progress or (lambda _: None)
        self._threads = min(threads or os.cpu_count() or 1, _MOST_AT_ONCE)
        self._system = system
        self._residues = _as_given(prepared)
        self._molecule = Molecule(prepared.topology)
        self._density = DensityModel.of_fit(density, self._molecule, strength)
        self._rotamers = RotamerSearch(self._molecule, self._density)
        self._registers = RegisterSearch(prepared.topology)
        self._matches = SequenceMatch(prepared.topology, self._density, self._rotamers, self._registers)
        self._correlation = correlation

    def with_fitted_rotamers(self, positions: np.ndarray, stop: StopRequest | None = None) -> np.ndarray:
        """Return the positions (N, 3) in Å with side chains in the rotamers that the map shows; the same array if none is."""
        self._progress("side chains")
        fitted, residues = self._rotamers.improved(positions, only_seen=True, stop=stop)
        self.changes.side_chains += [
            FittedRotamer(
                residue_label(self._residues[residue]),
                self._residues[residue].index,
                *(
                    self._rotamers.side_chain(residue).torsion_angles(each).round().astype(int).tolist()
                    for each in (positions, fitted)
                ),
            )
            for residue in residues
            if self._rotamers.side_chain(residue).is_other_rotamer(positions, fitted)
        ]
        return fitted if residues else positions

    def with_shifted_stretches(
        self, positions: np.ndarray, stop: StopRequest, room: float = math.inf
    ) -> np.ndarray:
        """Return the positions in Å with stretches that are off by a residue shifted; the same array where none is.

        Each of the stretches that may be off (see `RegisterSearch.candidates` and `SequenceMatch.stretches`) is shifted. It has
        to have a lower energy in a `LocalSystem`, by `LEAST_GAIN`, than the same atoms after the same search and annealing where
        they were.

        Parameters
        ----------
        positions : np.ndarray, shape (N, 3)
            Å.
        stop : StopRequest
            Ends the search early.
        room : float
            The `place_work` that trying may take: of the places those that fit worst are tried.
        """
        result, changed = positions, None
        for _ in range(_ROUNDS):
            self._progress("register")
            correlations = self._correlation.residue_correlations(result)
            possible = self._searches(result, correlations, changed, stop)
            searches = self._worst(possible, correlations, room - self.work)
            self.changes.places_left += len(possible) - len(searches)
            found = self._each_shifted(result, searches, stop)
            changed = np.zeros(0, dtype=np.int64)
            after, kept = result.copy(), []
            # Where they overlap, the one that gains most.
            for (gain, atoms, places), (stretches, region) in sorted(
                zip(found, searches), key=lambda each: -each[0][0]
            ):
                if gain > LEAST_GAIN and not np.isin(region, changed).any():
                    changed = np.union1d(changed, region)
                    after[atoms] = places
                    kept.append((gain, _around(stretches)))
            if stop.requested:
                break
            self.changes.places_tried += len(searches)
            if not len(changed):
                break
            self.changes.stretches += [self._rebuilt(gain, result, after, around) for gain, around in kept]
            result = after
        return result

    def _searches(
        self,
        positions: np.ndarray,
        correlations: np.ndarray,
        changed: np.ndarray | None,
        stop: StopRequest,
    ) -> list[tuple[list[Stretch], np.ndarray]]:
        """Return stretches of which one may be shifted, and the residues that move then; with ``changed``, only near these."""
        searches = []
        candidates = self._registers.candidates(correlations)
        for stretches in candidates + self._matches.stretches(positions, stop, changed):
            region = np.unique(np.concatenate([stretch.region for stretch in stretches]))
            if not self._density.weights[self._registers.atoms_of(region)].any():  # none of it is fitted
                continue
            if changed is None or np.isin(region, changed).any():
                searches.append((stretches, region))
        return searches

    def _worst(
        self, searches: list[tuple[list[Stretch], np.ndarray]], correlations: np.ndarray, room: float
    ) -> list[tuple[list[Stretch], np.ndarray]]:
        """Choose the places of lowest correlation for which there is room, and take it."""
        known = np.where(np.isfinite(correlations), correlations, np.inf)
        chosen = []
        for number in sorted(range(len(searches)), key=lambda n: float(known[searches[n][1]].mean())):
            stretches, region = searches[number]
            moving = self._molecule.is_heavy[self._registers.atoms_of(region)].sum()
            shifts = sum(len(stretch.shifts) for stretch in stretches)
            work = place_work(int(moving), len(region), shifts)
            if work <= room:
                room -= work
                self.work += work
                chosen.append(number)
        return [searches[number] for number in sorted(chosen)]

    def _each_shifted(
        self, positions: np.ndarray, searches: list[tuple[list[Stretch], np.ndarray]], stop: StopRequest
    ) -> list[tuple[float, np.ndarray, np.ndarray]]:
        with ThreadPoolExecutor(min(self._threads, max(len(searches), 1))) as pool:
            tries = {pool.submit(self._shifted, positions, *each, stop): each[0] for each in searches}
            under_way = dict(tries)
            try:
                for number, done in enumerate(chain([None], as_completed(tries)), start=1):
                    under_way.pop(done, None)
                    if under_way:
                        first = _around(next(iter(under_way.values())))
                        self._progress(f"register: {self._named(first)} ({number} of {len(tries)})")
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
            return [each.result() for each in tries]

    def _named(self, stretch: Stretch) -> str:
        """Name a stretch as in ``A 61-72``."""
        first, last = (self._residues[stretch.chain[place]] for place in (stretch.first, stretch.last))
        return span(first.chain.id, _number(first), _number(last))

    def _rebuilt(self, gain: float, before: np.ndarray, after: np.ndarray, around: Stretch) -> RebuiltStretch:
        """Return what became of a stretch that was tried."""
        first, last, by = self._registers.displacement(before, after, around)
        residues = [self._residues[index] for index in around.chain[first : last + 1]]
        ends = map(_number, (residues[0], residues[-1]))
        rows = [residue.index for residue in residues]
        return RebuiltStretch(residues[0].chain.id, *ends, rows, by, round(float(gain), 1))

    def _shifted(
        self, positions: np.ndarray, stretches: Sequence[Stretch], region: np.ndarray, stop: StopRequest
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """Return what the best shift gains, and the atoms that it moves, and where to."""
        atoms = self._registers.atoms_of(region)
        unchanged = 0.0, atoms, positions[atoms]
        if stop.requested:
            return unchanged
        local = LocalSystem(self._system, self._molecule, self._density, positions, region)

        def built(start: np.ndarray) -> tuple[float, np.ndarray]:
            placed = local.minimized(start, soft=True)
            placed = local.minimized(self._rotamers.improved(placed, region, passes=1)[0])
            return local.energy(placed), placed

        def annealed(start: np.ndarray) -> tuple[float, np.ndarray]:
            try:
                placed = local.annealed(start, ANNEALING, ANNEALING_STEPS)
                placed = local.minimized(self._rotamers.improved(placed, region)[0])
                return local.energy(placed), placed
            except Unstable:
                return np.inf, start

        tries = []
        for stretch, by in [(each, by) for each in stretches for by in each.shifts]:
            if stop.requested:
                return unchanged
            try:
                tries.append(built(self._registers.shifted(positions, [stretch], by)))
            except Unstable:  # what cannot be minimised cannot be right
                continue
        best = np.inf, positions
        for _, start in sorted(tries, key=lambda each: each[0])[:_ANNEALED]:
            if stop.requested:
                return unchanged
            best = min(best, annealed(start), key=lambda each: each[0])
        try:
            start = built(positions)[1]
        except Unstable:
            return unchanged
        before = annealed(start)
        # Of several annealings one is better by luck.
        for _ in range(min(len(tries), _ANNEALED) - 1):
            if stop.requested or not LEAST_GAIN < before[0] - best[0] < RETRY_WINDOW:
                break
            before = min(before, annealed(start), key=lambda each: each[0])
        if not np.isfinite([before[0], best[0]]).all():  # there is nothing to compare
            return unchanged
        for _ in range(_RETRIES):
            if stop.requested or not -RETRY_WINDOW < before[0] - best[0] <= LEAST_GAIN:
                break
            before, best = (min(now, annealed(now[1]), key=lambda each: each[0]) for now in (before, best))
        return before[0] - best[0], atoms, local.with_hydrogens(positions, best[1])[atoms]


def _around(stretches: Sequence[Stretch]) -> Stretch:
    """Return the stretch that holds all of some in a chain."""
    first, last = min(each.first for each in stretches), max(each.last for each in stretches)
    return Stretch(stretches[0].chain, first, last)


def _as_given(prepared: Prepared) -> list[app.topology.Residue]:
    """Return for each residue that of the model that was given, which has its name and place; what that lacks as it is."""
    given = list(prepared.model.topology.atoms())
    residues = list(prepared.topology.residues())
    for atom, index in zip(prepared.topology.atoms(), prepared.input_index.tolist()):
        if index >= 0:
            residues[atom.residue.index] = given[index].residue
    return residues


def _number(residue: app.topology.Residue) -> str:
    return f"{residue.id}{residue.insertionCode.strip()}"
