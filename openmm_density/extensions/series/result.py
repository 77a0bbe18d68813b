"""What a series ends with: a model of each volume, and what they say as a path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from openmm import app

from ...base.errors import InputError
from ...base.wording import counted, listing
from ...fitting.doubt import KINDS
from ...maps.density_map import DensityMap
from ...maps.model_density import MASK_RADIUS
from ...models.chemistry.backbone import atoms_by_name, chains, trace_atom
from ...models.model import Model
from ...models.rigid_domains import DomainMotion, domain_motions, rigid_domains
from ...models.structures import read_model
from ...models.superposition import superposition
from ...validation.stretches import runs_of
from .frame_fit import FrameFit, better_fit, faults
from .internal_coordinates import InternalCoordinate
from .settings import SeriesSettings, SeriesStart


@dataclass(frozen=True)
class SeriesFrame:
    """One volume with its fits."""

    number: int  # From 1
    map: Path
    fits: tuple[FrameFit, ...]
    kept: FrameFit  # The one that stays
    # The Cα RMSD between the kept model and the best one that came from another side, in Å, where there is one
    passes_differ: float | None = None
    other: FrameFit | None = None  # That one

    @property
    def faults(self) -> int:
        """Clashes, outliers, twisted peptides and wrong centres of the kept model."""
        return faults(self.kept.summary["geometry_final"])


@dataclass(frozen=True)
class SeriesPath:
    """The models as a path."""

    # `steps`, `steps_in_place` (F − 1,): the Cα RMSD between neighbours in Å, superposed and where they are.
    steps: np.ndarray
    steps_in_place: np.ndarray
    from_first: np.ndarray  # (F,), the Cα RMSD to the first model, superposed, in Å
    # length F, 1 − the correlation of neighbouring volumes around the models
    volume_changes: list[float | None]
    # `jumps`, `volume_jumps`: which steps of the models and of the volumes are far above the others, from 0.
    jumps: list[int]
    volume_jumps: list[int]
    domains: np.ndarray  # int (R,), the rigid domain of each residue, from 0
    domain_stretches: list[list[str]]  # What the residues of each domain are called
    motions: list[DomainMotion]
    coordinates: list[tuple[InternalCoordinate, np.ndarray]]  # With their values, shape (F,)


_LEAST_CORRELATION = 0.01


@dataclass(frozen=True)
class SeriesResult:
    """What a series ends with.

    Attributes
    ----------
    settings : SeriesSettings
    start : SeriesStart
    frames : list of SeriesFrame
    model : Model
        The fitted model of the first volume, whose atoms all have.
    positions : np.ndarray, shape (F, N, 3)
        Of the kept models, in Å.
    trace : Trace
    path : SeriesPath
    notes, doubts : list of str
    """

    settings: SeriesSettings
    start: SeriesStart
    frames: list[SeriesFrame]
    model: Model
    positions: np.ndarray
    trace: Trace
    path: SeriesPath
    notes: list[str]
    doubts: list[str]

    @classmethod
    def of(
        cls,
        settings: SeriesSettings,
        start: SeriesStart,
        fits: Sequence[FrameFit],
        coordinates: Sequence[InternalCoordinate] = (),
        notes: Sequence[str] = (),
        doubts: Sequence[str] = (),
    ) -> SeriesResult:
        """Return the result of all fits of a series.

        Parameters
        ----------
        settings : SeriesSettings
        start : SeriesStart
        fits : sequence of FrameFit
        coordinates : sequence of InternalCoordinate
            To follow along the path.
        notes, doubts : sequence of str
            What is known before.
        """
        numbers = range(1, len(settings.maps) + 1)
        kept = [better_fit([fit for fit in fits if fit.step.frame == number]) for number in numbers]
        models = [read_model(fit.model) for fit in kept]
        _check_same_atoms(models, kept)
        positions, topology = np.array([model.positions for model in models]), models[0].topology
        trace = Trace.of(topology)
        frames = [
            _frame(
                number, settings, [fit for fit in fits if fit.step.frame == number], kept[number - 1], trace
            )
            for number in numbers
        ]
        path = _path(settings, topology, positions, trace, coordinates)
        found = doubts_about_path(frames, path, positions[:, trace.atoms], trace, settings.resolution)
        result = cls(
            settings, start, frames, models[0], positions, trace, path, list(notes), [*doubts, *found]
        )
        return result


def _check_same_atoms(models: Sequence[Model], fits: Sequence[FrameFit]) -> None:
    def names(model: Model) -> list[tuple[str, str, str]]:
        return [(each.residue.chain.id, each.residue.id, each.name) for each in model.topology.atoms()]

    first = names(models[0])
    for model, fit in zip(models, fits):
        if names(model) != first:
            raise InputError(
                "the model has other atoms than that of the first volume",
                source=fit.model,
                remedy="start the series again in another folder",
            )


def _frame(
    number: int, settings: SeriesSettings, fits: Sequence[FrameFit], kept: FrameFit, trace: Trace
) -> SeriesFrame:
    others = [fit for fit in fits if fit.step.source != kept.step.source]
    other = better_fit(others) if others else None
    differ = None
    if other is not None:
        pair = [read_model(fit.model).positions[trace.atoms] for fit in (kept, other)]
        differ = rmsd(*pair)
    return SeriesFrame(number, Path(settings.maps[number - 1]), tuple(fits), kept, differ, other)


def _path(
    settings: SeriesSettings,
    topology: app.Topology,
    positions: np.ndarray,
    trace: Trace,
    coordinates: Sequence[InternalCoordinate],
) -> SeriesPath:
    traces = positions[:, trace.atoms]
    steps = steps_between(traces)
    changes = _volume_changes(settings, traces)
    known = np.array([np.nan if each is None else each for each in changes])
    domains = rigid_domains(traces, trace.chains)
    stretches = [trace.stretches(domains == number) for number in range(int(domains.max(initial=0)) + 1)]
    return SeriesPath(
        steps,
        steps_between(traces, superposed=False),
        np.array([rmsd(frame, traces[0]) for frame in traces]),
        changes,
        jumps_among(steps, SMALLEST_PART * settings.resolution),
        jumps_among(_distances(known)) if np.isfinite(known).all() else [],
        domains,
        stretches,
        domain_motions(traces, domains, stretches),
        [(each, each.values(topology, positions)) for each in coordinates],
    )


def _distances(changes: np.ndarray) -> np.ndarray:
    """Return how far volumes are from each other by 1 − their correlations, which level off at 1 and therefore tell no jump."""
    return -np.log(np.clip(1.0 - changes, _LEAST_CORRELATION, 1.0))


def _volume_changes(settings: SeriesSettings, traces: np.ndarray) -> list[float | None]:
    corrections = settings.map_corrections()
    changes: list[float | None] = []
    before: DensityMap | None = None
    for number in range(1, len(traces) + 1):
        now = corrections.apply(settings.read_map(number))
        if before is not None:
            changes.append(change_of_volumes(before, now, traces[number - 2 : number]))
        before = now
    return changes


def frame_values(result: SeriesResult) -> list[dict[str, Any]]:
    """Return the figures of each volume, as tables and ``series.json`` have them; None where there is none."""
    path = result.path
    rows = []
    for frame in result.frames:
        at = frame.number - 1
        geometry = frame.kept.summary["geometry_final"]
        rows.append(
            {
                "frame": frame.number,
                "map": frame.map.name,
                "folder": frame.kept.folder.name,
                "from": frame.kept.step.source,
                "way": frame.kept.step.way(result.start.frame),
                "protocol": frame.kept.summary["protocol"],
                "cc": frame.kept.cc,
                "cc_free": frame.kept.cc_free,
                "rmsd_to_previous": None if at == 0 else float(path.steps[at - 1]),
                "rmsd_to_previous_in_place": None if at == 0 else float(path.steps_in_place[at - 1]),
                "rmsd_to_first": float(path.from_first[at]),
                "volume_change": None if at == 0 else path.volume_changes[at - 1],
                "passes_differ": frame.passes_differ,
                "cc_of_other_pass": None if frame.other is None else frame.other.score,
                "faults": frame.faults,
                "clashscore": geometry["clashscore"],
                "ramachandran_outliers": geometry["ramachandran_outlier_count"],
                "rotamer_outliers": geometry["rotamer_outlier_count"],
                "doubts": len(frame.kept.summary["doubts"]),
                **{each.label: float(values[at]) for each, values in path.coordinates},
                **{f"domain {each.domain} angle": each.angle_from_first[at] for each in path.motions},
            }
        )
    return rows


DECIDED = 0.02
"""By which one fit of a volume correlates better than another where the volume tells which is right."""
FAR_BELOW = 0.1
"""Below the median correlation of the series."""


def doubts_about_path(
    frames: Sequence[SeriesFrame], path: SeriesPath, traces: np.ndarray, trace: Trace, resolution: float
) -> list[str]:
    """Return a sentence on each thing that speaks against the path. `traces` (F, R, 3) in Å; `resolution` in Å."""
    return [
        *(_jump(number, frames, path, traces, trace) for number in path.jumps),
        *(_unfollowed(number, frames, path) for number in path.volume_jumps if number not in path.jumps),
        *_disagreements(frames, path, resolution),
        *_badly_fitted(frames),
    ]


def _jump(
    number: int, frames: Sequence[SeriesFrame], path: SeriesPath, traces: np.ndarray, trace: Trace
) -> str:
    step, others = path.steps[number], np.median(np.delete(path.steps, number))
    where = moved_most(trace, traces[number], traces[number + 1])
    said = (
        f"Between volumes {number + 1} and {number + 2} the model jumps by {step:.1f} Å (Cα RMSD), {step / others:.0f} times the "
        f"median of the other steps, most of all {listing(where, 4)}"
    )
    change = path.volume_changes[number]
    if number in path.volume_jumps:
        median = np.median(np.delete(np.array(path.volume_changes, dtype=float), number))
        said += (
            f"; so do the volumes (1 − CC {change:.3f}, {change / median:.0f} times the others' median), so that the jump is in "
            "the data"
        )
    elif change is not None:
        said += f"; the volumes do not (1 − CC {change:.3f}, as others do), so that one of the two fits may be wrong"
    return f"{said}: the series shows no states in between, and the film's way there is no path."


def _unfollowed(number: int, frames: Sequence[SeriesFrame], path: SeriesPath) -> str:
    change = path.volume_changes[number]
    low = min(frames[number : number + 2], key=lambda frame: frame.kept.score)
    return (
        f"Volumes {number + 1} and {number + 2} differ far more than other neighbours (1 − CC {change:.3f}), and the models "
        f"do not (Cα RMSD {path.steps[number]:.1f} Å): check whether that of volume {low.number} (CC {low.kept.score:.3f}) "
        "follows its map."
    )


def _disagreements(frames: Sequence[SeriesFrame], path: SeriesPath, resolution: float) -> list[str]:
    usual = float(np.median(path.steps)) if len(path.steps) else 0.0
    found = []
    for frame in frames:
        other = frame.other
        if frame.passes_differ is None or other is None:
            continue
        if frame.passes_differ <= max(SMALLEST_PART * resolution, usual):
            continue
        said = (
            f"The two passes disagree at volume {frame.number}: the models that come from volume {_from(frame.kept)} and from "
            f"{_from(other)} are {frame.passes_differ:.1f} Å apart (Cα RMSD)"
        )
        scores = f"CC {frame.kept.score:.3f} and {other.score:.3f}"
        if frame.kept.score - other.score > DECIDED:
            said += f"; the volume decides for the first ({scores}), the other has not found its way"
        else:
            said += f"; the volume does not decide between them ({scores}): the path here depends on where it came from"
        found.append(f"{said}.")
    return found


def _from(fit: FrameFit) -> str:
    source = fit.step.source
    return "the start" if source is None else str(source)


def _badly_fitted(frames: Sequence[SeriesFrame]) -> list[str]:
    median = float(np.median([frame.kept.score for frame in frames]))
    return [
        f"Volume {frame.number} is fitted far worse than the others (CC {frame.kept.score:.3f}, their median is {median:.3f})."
        for frame in frames
        if frame.kept.score < median - FAR_BELOW
    ]


FAR_ABOVE = 3.0
"""Times the median of the other steps from which on a step is a jump."""
SMALLEST_PART = 0.2
"""Of the resolution: a smaller step is none, whatever the others are, as fits of one volume differ by nearly so much."""
_MOST_RESIDUES = 12


@dataclass(frozen=True)
class Trace:
    """One atom of each residue of the polymers."""

    atoms: np.ndarray  # int (R,), Cα or C1'
    labels: tuple[tuple[str, str], ...]  # The chain and the number of each residue
    chains: tuple[np.ndarray, ...]  # int, the residues of each chain, by their places among the R

    @classmethod
    def of(cls, topology: app.Topology) -> Trace:
        """Return that of a topology."""
        residues = atoms_by_name(topology)
        found = chains(residues)
        order = np.sort(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)
        place = {int(index): number for number, index in enumerate(order)}
        named = [residues[index].residue for index in order]
        return cls(
            np.array([trace_atom(residues[index]) for index in order], dtype=np.int64),
            tuple((each.chain.id or "", f"{each.id}{each.insertionCode.strip()}") for each in named),
            tuple(np.array([place[int(index)] for index in chain]) for chain in found),
        )

    def stretches(self, members: np.ndarray) -> list[str]:
        """Return what some residues are called, neighbours together, as in ``A 30-59``."""
        found = []
        for chain in self.chains:
            for begin, end in runs_of(members[chain]):
                name, first = self.labels[chain[begin]]
                last = self.labels[chain[end]][1]
                found.append(f"{name} {first}-{last}".strip() if first != last else f"{name} {first}".strip())
        return found


def rmsd(one: np.ndarray, other: np.ndarray, superposed: bool = True) -> float:
    """Return the root mean square deviation of points (R, 3) from others, where they are or superposed."""
    if superposed:
        rotation, shift = superposition(one, other)
        one = one @ rotation.T + shift
    return float(np.sqrt(((one - other) ** 2).sum(axis=1).mean()))


def steps_between(traces: np.ndarray, superposed: bool = True) -> np.ndarray:
    """Return the RMSD between each frame and the one before, in Å; shape (F − 1,)."""
    return np.array([rmsd(b, a, superposed) for a, b in pairwise(traces)])


def jumps_among(steps: np.ndarray, smallest: float = 0.0) -> list[int]:
    """Return the places of steps (F − 1,), of models in Å or of volumes as 1 − CC, that are far above the others."""
    found = []
    for number, step in enumerate(steps):
        others = np.delete(steps, number)
        if len(others) and step >= smallest and step > FAR_ABOVE * np.median(others):
            found.append(number)
    return found


def change_of_volumes(one: DensityMap, other: DensityMap, positions: Sequence[np.ndarray]) -> float | None:
    """Return 1 − the correlation of two volumes, on any grids, around atoms (n, 3) in Å; None where they do not overlap."""
    mask = one.mask_around(np.concatenate(list(positions)), MASK_RADIUS)
    places = np.argwhere(mask)[:, ::-1]
    if not len(places):
        return None
    points = one.origin + places @ one.matrix.T
    values, others = one.data[mask].astype(np.float64), other.value_at(points)
    known = np.isfinite(others)
    if known.sum() < 2 or values[known].std() == 0 or others[known].std() == 0:
        return None
    return float(1.0 - np.corrcoef(values[known], others[known])[0, 1])


def moved_most(trace: Trace, one: np.ndarray, other: np.ndarray) -> list[str]:
    """Return the stretches (traces (R, 3) in Å) that move by half of the farthest residue's way, the rest superposed."""
    still = np.ones(len(one), dtype=bool)
    # What stays is found in turns: the moving part would pull the superposition along.
    for _ in range(5):
        rotation, shift = superposition(one[still], other[still])
        away = np.linalg.norm(one @ rotation.T + shift - other, axis=1)
        still = away <= np.median(away) if (away > np.median(away)).any() else still
    return trace.stretches(away >= 0.5 * away.max())[:_MOST_RESIDUES]


@dataclass(frozen=True)
class FitDoubt:
    """A doubt about the fit that was kept of a volume."""

    frame: int  # From 1
    kind: str  # One of `openmm_density.fitting.doubt.KINDS`
    sentence: str


def fit_doubts(frames: Sequence[SeriesFrame]) -> list[FitDoubt]:
    """Return the doubts about the fits that were kept, in the order of the volumes."""
    return [
        FitDoubt(frame.number, each["kind"], each["sentence"])
        for frame in frames
        for each in frame.kept.summary["located_doubts"]
    ]


@dataclass(frozen=True)
class FitNote:
    """A note on the fits that were kept of some volumes."""

    frames: tuple[int, ...]  # From 1
    sentence: str

    def in_words(self, n_frames: int) -> str:
        """Return the sentence with its volumes before it."""
        volumes = "volume" if len(self.frames) == 1 else "volumes"
        which = f"{volumes} {listing([*map(str, self.frames)], 12)}"
        return f"{'all volumes' if len(self.frames) == n_frames else which}: {self.sentence}"


def fit_notes(frames: Sequence[SeriesFrame]) -> list[FitNote]:
    """Return the notes on the fits that were kept, each once, in their order in the first volume that has it."""
    found: dict[str, list[int]] = {}
    for frame in frames:
        for sentence in dict.fromkeys(frame.kept.summary["notes"]):
            found.setdefault(sentence, []).append(frame.number)
    return [FitNote(tuple(numbers), sentence) for sentence, numbers in found.items()]


def fit_doubts_in_words(doubts: Sequence[FitDoubt]) -> str | None:
    """Return which kinds of doubts there are about the fits of which volumes, in a sentence; None where there are none."""
    if not doubts:
        return None
    kinds = dict.fromkeys(each.kind for each in doubts)
    said = []
    for kind in kinds:
        numbers = [*dict.fromkeys(str(each.frame) for each in doubts if each.kind == kind)]
        volumes = "volume" if len(numbers) == 1 else "volumes"
        said.append(f"{KINDS.get(kind, kind)} ({volumes} {listing(numbers, 12)})")
    return f"{counted(len(doubts), 'doubt')} about single fits: {'; '.join(said)}."
