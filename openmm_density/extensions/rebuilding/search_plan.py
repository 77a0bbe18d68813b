"""How much of the searches a fit has time for: about as long as the rest of it takes, by work that is counted and not timed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...fitting.protocols import Stage

# Work is in atoms times steps of the whole model: 2.8 µs of one thread of a Xeon at 2.5 GHz. The rest of a fit, which prepares,
# minimises, scores and writes, takes as long as so many steps on a CPU.
_REST = 4000.0
# Trials are shared by processes, as the steps are by threads on a CPU. Beside a GPU are so many cores, and a step there takes
# this part of the time of one thread; the rest of a fit so much: 26 s of 292 residues, and 77 s of 1140 (H200, 16 cores).
_CORES, _GPU_STEP, _GPU_REST = 8, 0.02, 1800.0
# A quench, the first steps of what was rebuilt, and looking for what is suspicious, by atom.
_SETTLING = 700.0
# A local system has so many atoms, by its moving ones; its creation, minimisation and annealing take so long for each, with what
# is done around them: by themselves, of 318 atoms, 12, 3 and 27 ms (`examples/benchmarks/local_dynamics.py`), which is a half and
# less. Where `openmm_density.kernels.local_dynamics` cannot be compiled, OpenMM takes four times as long.
_AROUND, _PER_MOVING = 150.0, 1.9
_CREATION, _MINIMIZATION, _ANNEALING = 30.0, 20.0, 70.0
# One pass over a residue's side chain there, in one model and in one of many at once; so many shifts are annealed of those that
# are built, and both ends again.
_PASS, _PASS_OF_MANY, _ANNEALED = 700.0, 250.0, 4
# Of shifts that evidence proposes, the part that is not given up once the backbone is built; of flips, that is annealed.
_WEIGHED, _FLIPPED = 0.6, 0.15
# Minimisations of a shift that is built, most of which are given up, and the part whose side chains are turned.
_BUILT, _TURNED, _QUENCHED = 1.15, 0.4, 1.4


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


def flip_work(n_moving: int, n_residues: int, n_turns: int) -> float:
    """Return the work of turning something over in so many ways."""
    members = _AROUND + _PER_MOVING * n_moving
    built = _MINIMIZATION * members * n_turns
    return _CREATION * members + built + 2 * _FLIPPED * _annealing_work(members, n_residues)


def _annealing_work(members: float, n_residues: int) -> float:
    return (_ANNEALING + _QUENCHED * _MINIMIZATION) * members + 2 * _PASS * n_residues


@dataclass(frozen=True)
class Share:
    """What a search before a stage may do, beside fitting rotamers."""

    work: float  # Atoms times steps that its trials may take
    register: bool = False
    peptides: bool = False
    flips: bool = False  # Whether sugars and bases of nucleotides are flipped, as far as the map shows them
    by_energy: bool = True  # Whether stretches are shifted by their energy too, and not by evidence alone


class SearchPlan:
    """Share the time for searches out among the stages that ask for one.

    Of what is left each search may take a half, and the last one all: the first finds most. `stages` come with whether each has a
    density to search in; `search` is "off", "auto" or "full"; `registers` and `peptides` tell what may be searched for at all.
    """

    def __init__(
        self,
        stages: Sequence[tuple[Stage, bool]],
        search: str,
        n_atoms: int,
        on_gpu: bool = False,
        registers: bool = True,
        peptides: bool = True,
    ) -> None:
        self._n_atoms = n_atoms
        self._asked = {
            number: (stage.register and registers, stage.rotamers and peptides, stage.rotamers)
            for number, (stage, searchable) in enumerate(stages)
            if searchable and search != "off" and (stage.rotamers or (stage.register and registers))
        }
        steps = sum(stage.steps for stage, _ in stages)
        rest = _CORES * (_GPU_STEP * steps + _GPU_REST) if on_gpu else steps + _REST
        self._total = math.inf if search == "full" else rest * n_atoms
        self._ends_early = search == "auto"

    def before(self, number: int, made: Sequence[Mapping[str, Any]] = ()) -> Share | None:
        """Return what may be searched before a stage, or None where nothing is asked for.

        Once two searches for stretches were made, "auto" makes none by energy after one that found nothing.

        `number` of the stage, from 0; `made`: the searches so far, as in `FitResult.rebuilding`.
        """
        if number not in self._asked:
            return None
        register, peptides, flips = self._asked[number]
        to_come = sum(other > number for other in self._asked)
        spent = sum(each.get("work", 0.0) for each in made) + (to_come + 1) * _SETTLING
        room = max(self._total - spent * self._n_atoms, 0.0) / (2 if to_come else 1)
        return Share(room, register, peptides, flips, by_energy=not self._at_rest(made))

    def _at_rest(self, made: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether two searches for stretches were made, and the last one changed and left nothing."""
        searches = [each for number, each in zip(sorted(self._asked), made) if self._asked[number][0]]
        if not self._ends_early or len(searches) < 2:
            return False
        last = searches[-1]
        return not (last.get("stretches", True) or last.get("undone") or last.get("places_left"))

    def work(self, tried: float) -> float:
        """Return the work of a search, in steps of the whole model, by that of its trials."""
        return _SETTLING + tried / self._n_atoms
