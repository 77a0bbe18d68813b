"""Side chains fitted, peptides flipped, and stretches shifted into register: more than dynamics of some picoseconds finds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any, TypeVar

import numpy as np
from openmm import app
from scipy.spatial import cKDTree

from ...base.stopwatch import counted_as
from ...base.wording import residue_label
from ...energies.density_fit import DensityFit
from ...fitting.interrupts import Deadline, Stop, StopRequest
from ...models.confidence import SURE
from ...models.preparation import Prepared
from ...validation.correlation import MapCorrelation
from .bonded_terms import BondedTerms
from .changes import Changes, FittedRotamer, FlippedPeptide, FlippedSugar, RebuiltStretch, span
from .compiled_dynamics import kernel_serves
from .density_model import DensityModel
from .evidence_search import SIDE_BY_SIDE, EvidenceSearch, Moved
from .loop_search import LoopSearch, LoopTrial
from .molecule import Molecule
from .peptide_search import FlipTrial, PeptideSearch, PeptideTrial, is_flipped
from .register_search import RegisterSearch, Stretch
from .rotamer_search import RotamerSearch
from .search_plan import flip_work, place_work
from .side_chain_evidence import ENERGY_PER_NAT, SideChainEvidence
from .side_chain_packing import PackingTrial, RotamerTrial, SideChainPacking, shared_out
from .stretch_trial import LEAST_GAIN, StretchTrial, Trial, TrialTools
from .sugar_search import PuckerFlip, SugarSearch, SugarTrial
from .surrounding_mates import SurroundingMates
from .suspicions import FALLEN, falls, unusual_torsions
from .thread_search import ThreadSearch
from .trial_workers import TrialWorkers

# Once stretches were shifted, others may be found.
_ROUNDS = 3
# Å from side chains that changed together, within which others are looked at again.
_DISTURBED = 10.0

_Trial = TypeVar("_Trial", bound=Trial)
_Flip = TypeVar("_Flip", bound=FlipTrial)


class Rebuilding:
    """Rebuild parts of a model where they then fit better.

    `force_field` of the model without constraints. `correlation` of its topology, and of its mates', with the map, at the
    resolution of the density, whose similarity is "cross-correlation" or "least-squares". `strength`: k in kJ/mol, of all atoms
    together. `workers` try stretches; by default this process alone; what comes out does not depend on their number. `progress`
    is called with a few words on what is being searched. `evidence`: by which stretches are shifted too; `by_energy`: whether
    they are shifted by their energy alone. `again`: whether the model was searched before: one model is then followed by
    evidence, and not several side by side. `mates` of a unit in the density of all copies; each search finds them where the unit
    then has them. `room`: the work that trials may take, those first that promise most, see
    `openmm_density.extensions.rebuilding.search_plan`. Attributes: `changes`, what was rebuilt so far; `work`, that of what was
    tried.
    """

    def __init__(
        self,
        prepared: Prepared,
        force_field: BondedTerms,
        correlation: MapCorrelation,
        density: DensityFit,
        strength: float,
        workers: TrialWorkers | None = None,
        progress: Callable[[str], None] | None = None,
        evidence: SideChainEvidence | None = None,
        by_energy: bool = True,
        again: bool = False,
        mates: SurroundingMates | None = None,
        room: float = math.inf,
    ) -> None:
        self._begin(progress, again, room, by_energy)
        self._workers = workers or TrialWorkers(1)
        self._residues = _as_given(prepared)
        plddt = np.zeros(0) if prepared.plddt is None else prepared.plddt
        self._mates = mates
        self._molecule = Molecule(prepared.topology if mates is None else mates.topology)
        self._is_sure = np.zeros(self._molecule.topology.getNumResidues(), dtype=bool)
        self._is_sure[: len(plddt)] = plddt >= SURE
        self._density = DensityModel.of_fit(density, self._molecule, strength, mates)
        self._rotamers = RotamerSearch(self._molecule, self._density)
        self._registers = RegisterSearch(prepared.topology)
        self._tools = TrialTools(
            force_field,
            self._molecule,
            self._density,
            self._rotamers,
            self._registers,
            kernel_serves(),
            evidence,
        )
        self._peptides = PeptideSearch(self._molecule, self._density, self._registers)
        self._loops = LoopSearch(self._molecule, self._density, self._peptides, self._registers)
        self._sugars = SugarSearch(self._molecule, self._density, prepared.topology)
        self._packing = SideChainPacking(self._molecule, self._density, self._rotamers)
        self._correlation = correlation

    def _begin(
        self, progress: Callable[[str], None] | None, again: bool, room: float, by_energy: bool
    ) -> None:
        self.changes, self.work, self._room = Changes(), 0.0, room
        self._progress, self._by_energy = progress or (lambda _: None), by_energy
        # Where the energy tells as well, it finds what one model leaves.
        self._side_by_side = 1 if by_energy or again else SIDE_BY_SIDE
        # The regions of flips, and of stretches, for which there was no room.
        self._left: tuple[set[bytes], set[bytes]] = set(), set()

    def renewed(self, progress: Callable[[str], None] | None, again: bool, room: float) -> Rebuilding:
        """Return the same with nothing rebuilt yet: what is known of molecule and density is kept, here and by the workers."""
        result = copy(self)
        result._begin(progress, again, room, self._by_energy)
        return result

    def with_fitted_rotamers(
        self, positions: np.ndarray, stop: StopRequest | None = None, packed: bool = True
    ) -> np.ndarray:
        """Return the positions (N, 3) in Å with side chains in the rotamers that the map shows; the same array if none is.

        `positions` (N, 3) in Å; `stop`: ends the search early; `packed`: whether those that are in each other's places
        change together.
        """
        self._progress("side chains")
        fitted = positions
        # Mates are fixed in a round: where theirs were wrong too, the right places are free in the next one.
        for _ in range(1 if self._mates is None else _ROUNDS):
            before, fitted = fitted, self._among_mates(self._with_other_rotamers, fitted, stop, packed)
            if fitted is before:
                break
        moved = (fitted != positions).any(axis=1)
        residues = np.unique(self._molecule.residue_of[: len(positions)][moved]).tolist()
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
        return fitted

    def _with_other_rotamers(
        self, positions: np.ndarray, stop: StopRequest | None, packed: bool
    ) -> np.ndarray:
        stop = stop or Deadline(math.inf)
        promising = sorted(self._rotamers.promising(positions))
        trials = [RotamerTrial(self._molecule, positions, each) for each in shared_out(promising)]
        if not self._workers.run(self._tools, positions, trials, stop, lambda _: None):
            return positions
        known = {residue: best for trial in trials for residue, best in trial.found.items()}
        fitted, residues = self._rotamers.improved(positions, only_seen=True, stop=stop, known=known)
        after = self._packed(fitted, stop) if packed else fitted
        if after is not fitted:
            moved = after[(after != fitted).any(axis=1)]
            near = cKDTree(moved).query(after, distance_upper_bound=_DISTURBED)[0] < np.inf
            residues = np.unique(self._molecule.residue_of[near])
            fitted, _ = self._rotamers.improved(after, residues, only_seen=True, stop=stop)
            return fitted if (fitted != positions).any() else positions
        return fitted if residues else positions

    def _among_mates(
        self, search: Callable[..., np.ndarray], positions: np.ndarray, *options: Any
    ) -> np.ndarray:
        """Return what a search makes of a unit's positions, its mates being where it puts them; the same array if nothing."""
        if self._mates is None:
            return search(positions, *options)
        everywhere = self._mates.around(positions)
        found = search(everywhere, *options)
        return positions if found is everywhere else found[: len(positions)]

    def _packed(self, positions: np.ndarray, stop: Stop) -> np.ndarray:
        """Return the positions with side chains changed that were in each other's places; the same array where none was."""

        def run(trials: Sequence[Trial]) -> bool:
            return self._workers.run(self._tools, positions, trials, stop, lambda _: None)

        changes = self._packing.candidates(positions, self._falls(positions), run)
        trials = [PackingTrial(self._molecule, self._registers, positions, each) for each in changes]
        if not run(trials):
            return positions
        gaining = [each for each in trials if each.gain > each.change.least_gain]
        return self._with_best(positions, gaining)[0]

    def with_flipped_peptides(self, positions: np.ndarray, stop: StopRequest) -> np.ndarray:
        """Return the positions in Å with peptides turned over where that is better; the same array where none is.

        Each of `PeptideSearch.candidates` is built, and has to have a lower energy, by `peptide_search.LEAST_GAIN`, than the same
        atoms after the same search and annealing as they were. Of flips that move the same residues the one that gains most is
        made, and the others are looked at again.
        """
        return self._among_mates(self._with_flipped_peptides, positions, stop)

    def _with_flipped_peptides(self, positions: np.ndarray, stop: StopRequest) -> np.ndarray:
        def possible(positions: np.ndarray, changed: np.ndarray | None) -> list[FlipTrial]:
            fallen, unusual = self._falls(positions), self._unusual(positions)
            suspicious = unusual | (np.nan_to_num(fallen) > FALLEN)
            planes = self._peptides.candidates(positions, suspicious, changed)
            loops = self._loops.candidates(fallen, unusual, changed)
            trials: list[FlipTrial] = [LoopTrial(self._molecule, positions, each) for each in loops]
            return trials + [PeptideTrial(self._molecule, positions, *each) for each in planes]

        def record(trial: FlipTrial, before: np.ndarray, after: np.ndarray) -> None:
            self.changes.peptides += self._flipped(trial, before, after)

        return self._with_flips("peptides", possible, record, positions, stop)

    def with_flipped_sugars(
        self, positions: np.ndarray, stop: StopRequest, by_density: bool = True
    ) -> np.ndarray:
        """Return the positions in Å with sugars in the other pucker and bases turned over; the same array where none is.

        As `with_flipped_peptides`, of `SugarSearch.candidates`; `by_density`: whether the map shows them.
        """
        return self._among_mates(self._with_flipped_sugars, positions, stop, by_density)

    def _with_flipped_sugars(self, positions: np.ndarray, stop: StopRequest, by_density: bool) -> np.ndarray:
        if not len(self._sugars.sugars.residues):
            return positions

        def possible(positions: np.ndarray, changed: np.ndarray | None) -> list[SugarTrial]:
            found = self._sugars.candidates(positions, self._falls(positions), by_density, changed)
            return [SugarTrial(self._molecule, positions, self._sugars, *each) for each in found]

        def record(trial: SugarTrial, before: np.ndarray, after: np.ndarray) -> None:
            self.changes.sugars.append(self._flipped_sugar(trial, before, after))

        return self._with_flips("sugars", possible, record, positions, stop)

    def _with_flips(
        self,
        what: str,
        possible: Callable[[np.ndarray, np.ndarray | None], list[_Flip]],
        record: Callable[[_Flip, np.ndarray, np.ndarray], None],
        positions: np.ndarray,
        stop: StopRequest,
    ) -> np.ndarray:
        """Return the positions with what gains by being turned over, in rounds, as one flip may call for another.

        `possible`: returns the trials at some positions, near residues that changed; `record`: notes one that was made.
        """
        result, changed = positions, None
        for _ in range(_ROUNDS):
            self._progress(what)
            every = possible(result, changed)
            trials = [each for each in every if self._has_room(_work_of_flip(each))]
            self.changes.flips_left += _more_left(self._left[0], every, trials)
            if not self._workers.run(self._tools, result, trials, stop, lambda _: None) or stop.requested:
                break
            gaining = [each for each in trials if each.gain > each.least_gain]
            after, made, changed = self._with_best(result, gaining)
            for trial in made:
                record(trial, result, after)
            result = after
            if not made:
                break
        return result

    def _flipped_sugar(self, trial: SugarTrial, before: np.ndarray, after: np.ndarray) -> FlippedSugar:
        """Return the record of a sugar or base that was flipped."""
        residue, flip = self._residues[trial.flip.residue], trial.flip
        kind = "pucker" if isinstance(flip, PuckerFlip) else "base"
        angles = (round(flip.angle(each)) for each in (before, after))
        return FlippedSugar(residue_label(residue), residue.index, kind, *angles, round(float(trial.gain), 1))

    def _flipped(self, trial: FlipTrial, before: np.ndarray, after: np.ndarray) -> list[FlippedPeptide]:
        """Return the records of the peptides that a trial flipped."""
        peptides = [each for each in trial.peptides if is_flipped(each, before, after)]
        residues = [self._residues[peptide.residue] for peptide in peptides]
        gain = round(float(trial.gain), 1)
        return [FlippedPeptide(residue_label(residue), residue.index, gain) for residue in residues]

    def with_shifted_stretches(
        self, positions: np.ndarray, stop: StopRequest, by_energy: bool = True
    ) -> np.ndarray:
        """Return the positions in Å with stretches that are off by a residue shifted; the same array where none is.

        Each of the stretches that may be off (see `RegisterSearch.candidates`) is shifted. It has to have a lower energy in a
        `LocalSystem`, by `LEAST_GAIN`, than the same atoms after the same search and annealing where they were.

        `positions` (N, 3) in Å; `stop` ends the search early; `by_energy`: whether stretches are shifted by their energy, too,
        where they may be at all.
        """
        return self._among_mates(self._with_shifted_stretches, positions, stop, by_energy)

    def _with_shifted_stretches(
        self, positions: np.ndarray, stop: StopRequest, by_energy: bool
    ) -> np.ndarray:
        result, changed = positions, None
        if self._tools.evidence is not None:
            if by_energy:  # whole chains are led elsewhere early or not at all
                with counted_as("threading"):
                    result = self._by_evidence(self._thread_search, result, stop)
            result = self._by_evidence(self._evidence_search, result, stop)
        for _ in range(_ROUNDS if self._by_energy and by_energy else 0):
            self._progress("register")
            trials = self._stretch_trials(result, changed)
            if not self._run(result, trials, stop):
                break
            gaining = [each for each in trials if each.gain > LEAST_GAIN]
            after, made, changed = self._with_best(result, gaining)
            self.changes.places_tried += len(trials)
            if not made:
                break
            self.changes.stretches += [
                self._rebuilt(each.gain, result, after, _around(each.stretches)) for each in made
            ]
            result = after
        return result

    def _falls(self, positions: np.ndarray) -> np.ndarray:
        """Return by how much each residue fits worse than is usual where it is; NaN where nothing is fitted, as of water."""
        correlations = self._correlation.residue_correlations(positions)
        fitted = np.bincount(self._molecule.residue_of, self._density.weights != 0, len(correlations)) > 0
        return falls(self._molecule, positions, np.where(fitted, correlations, np.nan))

    def _has_room(self, work: float) -> bool:
        """Return whether there is room for some work, and take it."""
        if self.work + work > self._room:
            return False
        self.work += work
        return True

    def _with_best(
        self, positions: np.ndarray, trials: Sequence[_Trial]
    ) -> tuple[np.ndarray, list[_Trial], np.ndarray]:
        """Return the positions with what trials found, of those that overlap the one that gains most; these, and what they moved.

        The same array where there is no trial.
        """
        made: list[_Trial] = []
        changed = np.zeros(0, dtype=np.int64)
        result = positions.copy() if trials else positions
        for trial in sorted(trials, key=lambda each: -each.gain):
            if not np.isin(trial.region, changed).any():
                changed = np.union1d(changed, trial.region)
                atoms = self._registers.atoms_of(trial.region)
                result[atoms] = trial.shifted()[atoms]
                made.append(trial)
        return result, made, changed

    def _thread_search(self, chain: np.ndarray) -> ThreadSearch:
        return ThreadSearch(self._tools, self._workers, [chain])

    def _evidence_search(self, chain: np.ndarray) -> EvidenceSearch:
        return EvidenceSearch(self._tools, self._workers, self._side_by_side, [chain])

    def _by_evidence(
        self,
        search_of: Callable[[np.ndarray], ThreadSearch | EvidenceSearch],
        positions: np.ndarray,
        stop: StopRequest,
    ) -> np.ndarray:
        """Return the positions with stretches moved to where the density beside the backbone speaks for them.

        The chains that this is so of share the room, and are searched beside each other, each among the others as they are.
        """
        if stop.requested:
            return positions
        self._progress("register")
        searches = [search_of(chain) for chain in self._tools.fitted_chains]
        searches = [each for each in searches if each.is_called_for(positions)]
        room = (self._room - self.work) / max(len(searches), 1)
        calls = [partial(each.improved, positions, stop, room) for each in searches]
        found = self._workers.beside(calls, self._tell)
        result = positions
        for search, (after, moved) in zip(searches, found):
            if moved:
                changed = (after != positions).any(axis=1)[:, None]
                result = np.where(changed, after, result)
            self.work += search.work
            self.changes.places_tried += search.tried
            self.changes.places_left += search.left
            self.changes.stretches += map(self._moved, moved)
        return result

    def _moved(self, moved: Moved) -> RebuiltStretch:
        """Return the record of a stretch that was moved by evidence."""
        residues = [self._residues[index] for index in moved.shift.residues]
        ends = (_number(residues[0]), _number(residues[-1]))
        rows = [residue.index for residue in residues]
        by, gain = moved.shift.usual, ENERGY_PER_NAT * moved.gain
        return RebuiltStretch(residues[0].chain.id, *ends, rows, by, round(gain, 1), round(moved.evidence, 2))

    def _unusual(self, positions: np.ndarray) -> np.ndarray:
        """Return residues with unusual torsions; what a prediction is sure of is tried only where the map contradicts it."""
        return unusual_torsions(self._molecule, positions) & ~self._is_sure

    def _stretch_trials(self, positions: np.ndarray, changed: np.ndarray | None) -> list[StretchTrial]:
        """Return the places where a stretch may be shifted, those first that fit worst; with ``changed``, only near these."""
        badly = self._falls(positions)
        possible = []
        unusual = self._unusual(positions)
        for stretches in self._registers.candidates(badly, unusual):
            region = np.unique(np.concatenate([stretch.region for stretch in stretches]))
            if self._tools.is_fitted(region) and (changed is None or np.isin(region, changed).any()):
                possible.append(StretchTrial(self._molecule, positions, stretches, region))
        known = np.nan_to_num(badly)
        possible.sort(key=lambda trial: -float(known[trial.region].mean()))
        trials = []
        for trial in possible:
            moving = int(self._molecule.is_heavy[self._registers.atoms_of(trial.region)].sum())
            shifts = sum(len(stretch.shifts) for stretch in trial.stretches)
            if self._has_room(place_work(moving, len(trial.region), shifts)):
                trials.append(trial)
        self.changes.places_left += _more_left(self._left[1], possible, trials)
        return trials

    def _run(self, positions: np.ndarray, trials: Sequence[StretchTrial], stop: StopRequest) -> bool:
        """Run trials to their ends; return whether there was time."""
        under_way = dict(enumerate(trials))

        def told(number: int | None) -> None:
            under_way.pop(number, None)
            if under_way:
                first = _around(next(iter(under_way.values())).stretches)
                self._tell(first, len(trials) - len(under_way) + 1, len(trials))

        told(None)
        return self._workers.run(self._tools, positions, trials, stop, told) and not stop.requested

    def _tell(self, stretch: Stretch, number: int, total: int) -> None:
        self._progress(f"register: {self._named(stretch)} ({number} of {total})")

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


def _work_of_flip(trial: FlipTrial) -> float:
    return flip_work(len(trial.moving), len(trial.region), trial.n_turns)


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


def _more_left(left: set[bytes], possible: Sequence[_Trial], trials: Sequence[_Trial]) -> int:
    """Note the regions for which there was no room, without those that are tried; return by how many they are more."""
    before = len(left)
    left |= {each.region.tobytes() for each in possible}
    left -= {each.region.tobytes() for each in trials}
    return len(left) - before
