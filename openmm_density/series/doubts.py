"""What speaks against the models of a series as a path: jumps, passes that disagree, volumes that are fitted badly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..wording import listing
from .frame_fit import FrameFit
from .frames import SeriesFrame, SeriesPath
from .path import SMALLEST_PART, Trace, moved_most

DECIDED = 0.02
"""By which one fit of a volume correlates better than another where the volume tells which is right."""
FAR_BELOW = 0.1
"""Below the median correlation of the series."""


def doubts_about(
    frames: Sequence[SeriesFrame], path: SeriesPath, traces: np.ndarray, trace: Trace, resolution: float
) -> list[str]:
    """Return a sentence on each thing that speaks against the path.

    Parameters
    ----------
    traces : np.ndarray, shape (F, R, 3)
        Å.
    resolution : float
        Å.
    """
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
        f"do not (Cα RMSD {path.steps[number]:.1f} Å): look whether that of volume {low.number} (CC {low.kept.score:.3f}) "
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
