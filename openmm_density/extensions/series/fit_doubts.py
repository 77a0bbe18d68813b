"""What the fits of a series doubt of themselves and note, volume by volume."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...base.wording import counted, listing
from ...fitting.output.doubt import KINDS
from .result import SeriesFrame


@dataclass(frozen=True)
class FitDoubt:
    """A doubt about the fit that was kept of a volume."""

    frame: int  # From 1
    kind: str  # One of `openmm_density.fitting.output.doubt.KINDS`
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
