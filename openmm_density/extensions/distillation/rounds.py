"""From a molecule to its potential: rounds of labels, training, and dynamics that finds what the students do not know."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.errors import InputError, SimulationError
from ...base.units import takes_units
from .accuracy import FORCE_LIMIT, Accuracy, disagreement
from .extra import imported
from .geometries import Soundness, Springs, conformers, dynamics, normal_mode_displacements, relaxed
from .labels import Labeller
from .molecule import PURPOSE, ligand_of, read_molecule
from .potential_file import STUDENTS, LigandPotential

if TYPE_CHECKING:
    from rdkit.Chem import Mol

    from .students import Committee, TrainingData

Progress = Callable[[int, int, str], None]
"""Called with what is done of how much, and what is being done."""


@takes_units(cutoff="nm")
@dataclass(frozen=True)
class DistillationSettings:
    """How much is spent on a potential; the default brings most ligands of 20 to 50 atoms within the limit.

    Attributes
    ----------
    features, layers, n_radial, cutoff
        Of `PaiNNNetwork`; the cut-off in nm.
    n_conformers : int
        That RDKit is asked for.
    n_first, n_added : int
        Geometries that are labelled before the first training, and in each round the ones on which the students disagree most.
    n_held_out : int
        Geometries at 300 K that are labelled in each round to measure errors; where these are too large they are learned too.
    first_steps, steps : int
        Of training, in the first and in each other round.
    batch : int
        Geometries of a step.
    most_rounds : int
        After the first.
    """

    features: int = 32
    layers: int = 3
    n_radial: int = 12
    cutoff: float = 0.5
    n_conformers: int = 8
    n_first: int = 320
    n_added: int = 96
    n_held_out: int = 48
    first_steps: int = 1000
    steps: int = 500
    batch: int = 4
    most_rounds: int = 5

    @property
    def network(self) -> dict[str, Any]:
        """The arguments of `PaiNNNetwork` except the elements."""
        return {name: getattr(self, name) for name in ("features", "layers", "n_radial", "cutoff")}


RATE = 1e-2
"""The highest rate of learning, in the first round; half of it in the others."""
TEMPERATURE = 300.0
"""K, at which errors are measured."""
HOT = (500.0, 700.0, 850.0, 1000.0)
"""K, at which students look for what they do not know."""
# A round ends the distillation where its errors are so much below the limit that another sample would be as well.
_MARGIN = 0.9
_WALKERS = 16
_HOT_STEPS, _HOT_EVERY = 160, 8
_COLD_BEGINNING, _COLD_STEPS = 80, 200
_SPRING_STEPS, _SPRING_EVERY = 400, 40
_RELAXING_STEPS = 200


@dataclass
class Round:
    """What was known after a round of training."""

    n_geometries: int  # Learned
    n_put_aside: int  # So far: the teacher did not converge, or bonds were broken
    # Copies of the ligand that did not stay whole in the students' dynamics at 300 K; where there are any, it is not
    # done
    n_broken: int
    loss: float  # Of training, at its end
    accuracy: Accuracy  # On geometries that were not learned then


@dataclass
class Distillation:
    """A potential, and how it came about.

    Attributes
    ----------
    potential : LigandPotential
    rounds : list of Round
    curves : list of list of (int, float)
        Of each student: steps, and the loss there.
    n_labels : int
        Geometries that the teacher has labelled in this run; others were kept from one before.
    springs : str
        The force field that drew the first geometries.
    settings : DistillationSettings
    seed : int
    """

    potential: LigandPotential
    rounds: list[Round] = field(default_factory=list)
    curves: list[list[tuple[int, float]]] = field(default_factory=list)
    n_labels: int = 0
    springs: str = ""
    settings: DistillationSettings = field(default_factory=DistillationSettings)
    seed: int = 0


def distill(
    source: str | os.PathLike[str],
    *,
    smiles: str | None = None,
    dictionaries: Sequence[str | os.PathLike[str]] = (),
    residue: str | None = None,
    solvent: str | None = None,
    labels: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    seed: int = 0,
    settings: DistillationSettings | None = None,
    progress: Progress | None = None,
) -> Distillation:
    """Learn the potential of a ligand from GFN2-xTB.

    The same arguments give the same potential on one machine, whatever ``threads`` is.

    Parameters
    ----------
    source, smiles, dictionaries, residue
        The ligand, as for `openmm_density.extensions.distillation.molecule.read_molecule`.
    solvent : str, optional
        Implicit (ALPB); vacuum by default.
    labels : path-like, optional
        A file in which the teacher's answers are kept: an interrupted run goes on from them.
    threads : int, optional
        All processors of this machine by default.
    seed : int
        Of conformers, dynamics, weights.
    settings : DistillationSettings, optional
    progress : callable, optional

    Raises
    ------
    InputError
        If the ligand cannot be read or is ambiguous, an argument is wrong, or a package is missing.
    SimulationError
        If the teacher has no answer for most of the first geometries.
    """
    threads = len(os.sched_getaffinity(0)) if threads is None else threads
    for value, name in ((threads, "threads"), (seed + 1, "seed")):
        if value < 1:
            raise InputError(
                "must be 1 or more" if name == "threads" else "must be 0 or more",
                argument=name,
                found=value - (name == "seed"),
                remedy="correct it",
            )
    molecule = read_molecule(source, smiles=smiles, dictionaries=dictionaries, residue=residue)
    # Needed at the end, to keep what minutes were spent on.
    imported("safetensors", PURPOSE)
    labeller = Labeller(ligand_of(molecule), solvent, labels, threads)
    run = DistillationRun(molecule, labeller, settings or DistillationSettings(), seed, threads, progress)
    return run.distilled()


class DistillationRun:
    """One distillation. `molecule` with hydrogens and one set of positions; `labeller`: the teacher."""

    def __init__(
        self,
        molecule: Mol,
        labeller: Labeller,
        settings: DistillationSettings,
        seed: int = 0,
        threads: int = 1,
        progress: Progress | None = None,
    ) -> None:
        self._molecule, self._ligand = molecule, ligand_of(molecule)
        self._labeller, self._settings, self._seed = labeller, settings, seed
        self._threads = threads
        self._tell = progress or (lambda done, total, doing: None)
        self._is_sound = Soundness(self._ligand)
        self._n_aside = self._n_broken = 0

    def distilled(self) -> Distillation:
        """Run it all."""
        from .students import Committee, Student

        self._tell(0, 1, "conformers")
        starts = conformers(self._molecule, self._settings.n_conformers, self._seed + 1)
        self._starts = starts[self._is_sound(starts)]
        if not len(self._starts):
            raise SimulationError("no conformer of the ligand is whole: give a file that has its positions.")
        self._springs = Springs(self._molecule)
        data = self._first_data()
        students = [
            Student(self._ligand, data, self._settings.network, 1000 * self._seed + number)
            for number in range(STUDENTS)
        ]
        committee = Committee(students, self._threads)
        rounds: list[Round] = []
        for number in range(self._settings.most_rounds + 1):
            loss = self._trained(committee, data, number)
            held_out = self._held_out(committee, number)
            accuracy = self._accuracy(committee, held_out)
            rounds.append(Round(len(data), self._n_aside, self._n_broken, loss, accuracy))
            self._tell(1, 1, f"forces off by {accuracy.force_mae:.2f} kcal/mol/Å")
            if number == self._settings.most_rounds:
                break
            # The hot geometries are to be known as well before it may be done: none were looked for before the second round.
            if number and not self._n_broken and accuracy.force_mae <= _MARGIN * FORCE_LIMIT:
                break
            data = data.joined(held_out).joined(self._unknown(committee, number + 1))
        potential = self._potential(committee, rounds[-1].accuracy)
        curves = [student.curve for student in committee.students]
        n_labels = self._labeller.n_computed
        return Distillation(
            potential, rounds, curves, n_labels, self._springs.name, self._settings, self._seed
        )

    def _labelled(self, positions: np.ndarray, doing: str) -> TrainingData:
        """Return the geometries that the teacher has an answer for, and the answers."""
        from .students import TrainingData

        labels = self._labeller(positions, lambda done: self._tell(done, len(positions), doing))
        usable = labels.usable
        self._n_aside += int((~usable).sum())
        return TrainingData(positions[usable], labels.energies[usable], labels.forces[usable])

    def _first_data(self) -> TrainingData:
        """Return labelled geometries of the springs: three quarters of dynamics, and the rest along normal modes."""
        n_modes = self._settings.n_first // 4
        per_walker = _SPRING_STEPS // _SPRING_EVERY
        n_walkers = -(-(self._settings.n_first - n_modes) // per_walker)
        temperatures = np.resize((TEMPERATURE, *HOT), n_walkers)
        start = np.resize(self._starts, (n_walkers, *self._starts.shape[1:]))
        self._tell(0, 1, "first geometries")
        found, _ = dynamics(
            self._springs.forces,
            start,
            temperatures,
            _SPRING_STEPS,
            _SPRING_EVERY,
            self._seed + 2,
            self._is_sound,
        )
        around = np.array_split(np.arange(n_modes), min(3, len(self._starts)))
        modes = [
            normal_mode_displacements(
                self._springs,
                self._starts[k],
                np.resize((TEMPERATURE, *HOT[:2]), len(some)),
                self._seed + 3 + k,
            )
            for k, some in enumerate(around)
            if len(some)
        ]
        positions = np.concatenate([found[: self._settings.n_first - n_modes], *modes])
        sound = self._is_sound(positions)
        self._n_aside += int((~sound).sum())
        data = self._labelled(positions[sound], "labels")
        if len(data) < max(4, self._settings.n_first // 2):
            raise SimulationError(
                f"the teacher has an answer for {len(data)} of {self._settings.n_first} geometries only: "
                "check the charge and the hydrogens of the ligand."
            )
        return data

    def _trained(self, committee: Committee, data: TrainingData, number: int) -> float:
        n_steps = self._settings.steps if number else self._settings.first_steps
        total = n_steps * len(committee.students)
        most = self._settings.most_rounds + 1
        doing = f"training {number + 1} of {f'2 to {most}' if number < 2 < most else most}"
        batch = min(self._settings.batch, len(data))
        rate = RATE / 2 if number else RATE
        return committee.learn(
            data, n_steps, rate, batch, lambda done: done % 10 or self._tell(done, total, doing)
        )

    def _unknown(self, committee: Committee, number: int) -> TrainingData:
        """Return labelled geometries of hot dynamics by one student, those on which all of them disagree most."""
        self._tell(0, 1, "looking for unknown geometries")
        generator = np.random.default_rng(self._seed + 100 + number)
        start = self._starts[generator.integers(len(self._starts), size=_WALKERS)]
        temperatures = np.resize(HOT, _WALKERS)
        forces = committee.forces_of(number % len(committee.students))
        found, walkers = dynamics(
            forces, start, temperatures, _HOT_STEPS, _HOT_EVERY, self._seed + 200 + number, self._is_sound
        )
        if len(found) < self._settings.n_added:
            # Students that know next to nothing break all bonds at once.
            more, others = self._sprung(self._settings.n_added, temperatures, self._seed + 500 + number)
            found, walkers = np.concatenate([found, more]), np.concatenate([walkers, others])
        apart = disagreement(committee.evaluate(found)[1])
        chosen: list[int] = []
        per_walker = np.zeros(_WALKERS, dtype=int)
        for k in np.argsort(-apart, kind="stable"):
            # Geometries of one walker are alike.
            if per_walker[walkers[k]] < -(-2 * self._settings.n_added // _WALKERS):
                per_walker[walkers[k]] += 1
                chosen.append(int(k))
        return self._labelled(found[chosen[: self._settings.n_added]], "labels of unknown geometries")

    def _held_out(self, committee: Committee, number: int) -> TrainingData:
        """Return labelled geometries of the students' own dynamics at 300 K, none of which was learned."""
        self._tell(0, 1, "geometries at 300 K")
        generator = np.random.default_rng(self._seed + 300 + number)
        n_walkers = min(_WALKERS, self._settings.n_held_out)
        per_walker = -(-self._settings.n_held_out // n_walkers)
        every = (_COLD_STEPS - _COLD_BEGINNING) // per_walker
        begun = _COLD_BEGINNING // every * every
        start = self._starts[generator.integers(len(self._starts), size=n_walkers)]
        found, walkers = dynamics(
            committee.forces_of((number + 1) % len(committee.students)),
            start,
            np.full(n_walkers, TEMPERATURE),
            begun + per_walker * every,
            every,
            self._seed + 400 + number,
            self._is_sound,
        )
        last = [k for k in range(len(found)) if (walkers[k:] == walkers[k]).sum() <= per_walker]
        found = found[last]
        whole = np.bincount(walkers, minlength=n_walkers) == begun // every + per_walker
        self._n_broken = int((~whole).sum())
        if self._n_broken:
            missing = max(self._settings.n_held_out - len(found), 1)
            more, _ = self._sprung(missing, np.full(n_walkers, TEMPERATURE), self._seed + 600 + number)
            found = np.concatenate([found, more])
        data = self._labelled(found, "labels at 300 K")
        if not len(data):
            raise SimulationError(
                f"the teacher has an answer for none of the {len(found)} geometries at {TEMPERATURE:.0f} K by which errors are "
                "measured: check the charge and the hydrogens of the ligand."
            )
        return data

    def _sprung(self, count: int, temperatures: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return so many geometries of the springs' dynamics, the last ones, and the walker that each is of."""
        start = np.resize(self._starts, (len(temperatures), *self._starts.shape[1:]))
        per_walker = -(-count // len(temperatures))
        found, walkers = dynamics(
            self._springs.forces,
            start,
            temperatures,
            _SPRING_STEPS,
            _SPRING_STEPS // per_walker,
            seed,
            self._is_sound,
        )
        return found[-count:], walkers[-count:]

    def _accuracy(self, committee: Committee, held_out: TrainingData) -> Accuracy:
        energies, forces = committee.evaluate(held_out.positions)
        return Accuracy.of(TEMPERATURE, energies, forces, held_out.energies, held_out.forces)

    def _potential(self, committee: Committee, accuracy: Accuracy) -> LigandPotential:
        """Return what is kept, with the lowest of the relaxed conformers and the teacher's charges there."""
        from ... import __version__

        self._tell(0, 1, "relaxed geometry")
        found = relaxed(committee.mean_forces, self._starts, _RELAXING_STEPS)
        found = found[self._is_sound(found)] if self._is_sound(found).any() else self._starts
        labels = self._labeller(found)
        if not labels.usable.any():
            raise SimulationError("the teacher has no answer for the relaxed ligand: check its charge.")
        lowest = int(np.nanargmin(np.where(labels.usable, labels.energies, np.nan)))
        return LigandPotential(
            ligand=replace(self._ligand, positions=found[lowest]),
            charges=labels.charges[lowest],
            students=tuple(student.averaged.tensors() for student in committee.students),
            network=committee.students[0].averaged.settings,
            teacher=self._labeller.teacher,
            accuracy=accuracy,
            temperatures=(TEMPERATURE, HOT[-1]),
            done=accuracy.is_within_limit and not self._n_broken,
            created_by=f"openmm-density {__version__}",
        )
