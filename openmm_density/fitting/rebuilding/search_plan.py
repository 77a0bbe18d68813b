"""How much of the searches a fit has time for: as much as its steps take, by an estimate that is the same on every machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..protocols import Stage

ALIKE_UP_TO = 2000
"""Steps of a fit up to which its searches may take about as long as these; in longer ones they may take longer in proportion:
up to ten times as long as 20000, those of the built-in protocols, which leaves nothing out of any fit that was seen."""

# Times of one thread of a Xeon at 2.5 GHz, in those of one atom in a step of the whole model: 2.8 µs, of 4564 atoms in all.
# Two minimisations of the whole model, each of 450 steps, and the first steps of what was rebuilt, by atom.
_SETTLING = 1000.0
# A side chain in all of its rotamers until none changes any more; a residue matched with the places next to it.
_SIDE_CHAIN, _MATCH = 2600.0, 950.0
# A peptide: one of six is turned over and minimised, and of those half are annealed, in the first of two or three rounds.
_PEPTIDE = 7000.0
# A local system has so many atoms, by its moving ones; its creation, minimisation and annealing take so long for each, with what
# is done around them: by themselves, of 318 atoms, 12, 3 and 27 ms (`examples/benchmarks/local_dynamics.py`), which is a half and
# less. Where `openmm_density.kernels.local_dynamics` cannot be compiled, OpenMM takes four times as long.
_AROUND, _PER_MOVING = 150.0, 1.9
_CREATION, _MINIMIZATION, _ANNEALING = 30.0, 20.0, 70.0
# One pass over a residue's side chain there, in one model and in one of many at once; so many shifts are annealed of those that
# are built, and both ends again.
_PASS, _PASS_OF_MANY, _ANNEALED = 700.0, 250.0, 4
# Of shifts that evidence proposes, the part that is not given up once the backbone is built.
_WEIGHED = 0.6
# Minimisations of a shift that is built, most of which are given up, and the part whose side chains are turned.
_BUILT, _TURNED, _QUENCHED = 1.15, 0.4, 1.4
# The least place for which a search is made: heavy atoms and residues of an average place, and its shifts.
_AVERAGE_PLACE = (100, 13, 12)


def place_work(n_moving: int, n_residues: int, n_shifts: int) -> float:
    """Return the work of trying to shift stretches of one place, in atoms times steps."""
    members = _AROUND + _PER_MOVING * n_moving
    built = _BUILT * _MINIMIZATION * members + _TURNED * _PASS_OF_MANY * n_residues
    annealed = _annealing_work(members, n_residues)
    return _CREATION * members + (n_shifts + 1) * built + 2 * min(n_shifts, _ANNEALED) * annealed


def pair_work(n_moving: int, n_residues: int, annealed: bool) -> float:
    """Return the work of building one shift, or of then annealing it, and the same of the stretch where it was."""
    members = _AROUND + _PER_MOVING * n_moving
    if annealed:  # twice as long
        return _CREATION * members + 2 * (_annealing_work(members, n_residues) + _ANNEALING * members)
    built = _MINIMIZATION * members + _WEIGHED * (3 * _MINIMIZATION * members + 2 * _PASS * n_residues)
    return _CREATION * members + built


def _annealing_work(members: float, n_residues: int) -> float:
    return (_ANNEALING + _QUENCHED * _MINIMIZATION) * members + 2 * _PASS * n_residues


@dataclass(frozen=True)
class Share:
    """What a search before a stage may do."""

    # Work in atoms times steps that trying to shift stretches may take; 0 where it is not done
    register: float
    side_chains: bool  # Whether rotamers are fitted
    # What the stage asks for and the steps leave no time for: ``register``, ``side chains``, ``peptides``
    left_out: tuple[str, ...] = ()
    peptides: bool = False  # Whether peptides are flipped
    only_evidence: bool = False  # Whether stretches are shifted by evidence alone, and not by their energy

    @property
    def is_nothing(self) -> bool:
        """Whether no search is made."""
        return not (self.register or self.side_chains or self.peptides)


class SearchPlan:
    """Share the time for searches out among the stages that ask for one.

    Side chains come first, as they are cheap, then peptides, and of stages the last, where the model is best; what remains is
    shared alike by the searches for stretches.

    `stages`: those of the protocol, and whether each has a density to search in. `search` {"off", "auto", "full"}: no
    search, searches that take about as long as the steps, or whatever the stages ask for. `n_atoms` of the whole model.
    `n_side_chains`: those that have rotamers. `registers`: whether stretches may be shifted at all. `n_peptides`: those
    that may be flipped, before stages that fit rotamers; 0 where the map does not show them. `by_energy`: whether
    stretches are shifted by their energy as well as by evidence, which takes a tenth of the time.
    """

    def __init__(
        self,
        stages: Sequence[tuple[Stage, bool]],
        search: str,
        n_atoms: int,
        n_side_chains: int,
        registers: bool = True,
        n_peptides: int = 0,
        by_energy: bool = False,
    ) -> None:
        searched = [number for number, (_, has_density) in enumerate(stages) if has_density]
        self._asked = {
            "register": {n for n in searched if stages[n][0].register and registers},
            # Whatever was shifted, rotamers are fitted after it.
            "side chains": {n for n in searched if stages[n][0].rotamers or stages[n][0].register},
            "peptides": {n for n in searched if stages[n][0].rotamers and n_peptides},
        }
        self._only_after_shifts = {n for n in searched if not stages[n][0].rotamers}
        self._n_atoms, self._search, self._by_energy = n_atoms, search, by_energy
        steps = sum(stage.steps for stage, _ in stages)
        self._total = math.inf if search == "full" else steps * max(1.0, steps / ALIKE_UP_TO) * n_atoms
        self._fitting = _SETTLING * n_atoms + _SIDE_CHAIN * n_side_chains
        self._flipping = _PEPTIDE * n_peptides
        self._matching = 0.5 * _SETTLING * n_atoms + _MATCH * n_side_chains
        self._fitted: set[int] = set()
        self._shifted: set[int] = set()
        self._flipped: set[int] = set()
        if search == "off":
            return
        left = self._total
        for number in sorted(self._asked["side chains"], reverse=True):
            # After shifts they are fitted anyway.
            if number in self._asked["register"] and not stages[number][0].rotamers:
                continue
            if left >= self._fitting:
                self._fitted.add(number)
                left -= self._fitting
        for number in sorted(self._asked["peptides"] & self._fitted, reverse=True):
            if left >= self._flipping:
                self._flipped.add(number)
                left -= self._flipping
        for number in sorted(self._asked["register"], reverse=True):
            base = self._matching + (0.0 if number in self._fitted else self._fitting)
            if left / (len(self._shifted) + 1) >= base + place_work(*_AVERAGE_PLACE):
                self._shifted.add(number)
        self._fitted |= self._shifted
        if search == "full":
            self._fitted |= self._asked["side chains"]
            self._flipped |= self._asked["peptides"]

    def before(self, number: int, made: Sequence[Mapping[str, Any]] = ()) -> Share | None:
        """Return what may be searched before a stage, or None where nothing is asked for.

        Once two searches for stretches were made, "auto" makes none after one that found nothing: but by evidence, where it
        would be made by energy as well.

        `number` of the stage, from 0; `made`: the searches so far, as in `FitResult.rebuilding`.
        """
        asked = [name for name, numbers in self._asked.items() if number in numbers]
        if self._search == "off" or not asked:
            return None
        peptides = number in self._flipped
        at_rest = number in self._shifted and self._at_rest(made)
        if at_rest and not self._by_energy:
            return Share(0.0, number in self._fitted - self._only_after_shifts, peptides=peptides)
        register = 0.0
        if number in self._shifted:
            spent = sum(each.get("work", 0.0) for each in made) * self._n_atoms
            to_fit = sum(n >= number for n in self._fitted) * self._fitting
            to_fit += sum(n >= number for n in self._flipped) * self._flipping
            sharing = sum(n >= number for n in self._shifted)
            register = (self._total - spent - to_fit) / sharing - self._matching
        register = max(register, 0.0)
        side_chains = number in self._fitted
        done = {"register": register > 0, "side chains": side_chains, "peptides": peptides}
        left_out = tuple(name for name in asked if not done[name])
        return Share(register, side_chains, left_out, peptides, only_evidence=at_rest)

    def _at_rest(self, made: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether two searches for stretches were made, and the last one changed and left nothing."""
        numbers = sorted(set().union(*self._asked.values()))
        searches = [each for number, each in zip(numbers, made) if number in self._shifted]
        if self._search != "auto" or len(searches) < 2:
            return False
        last = searches[-1]
        return not (last.get("stretches", True) or last.get("undone") or last.get("places_left"))

    def work(self, share: Share, tried: float) -> float:
        """Return the work of a search, in steps of the whole model.

        `share`: what it was to do; `tried`: the `place_work` of the places that it tried.
        """
        base = (self._matching if share.register else 0.0) + (self._fitting if share.side_chains else 0.0)
        base += self._flipping if share.peptides else 0.0
        return (base + tried) / self._n_atoms
