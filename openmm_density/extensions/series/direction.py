"""One direction of a series: out from the first volume to an end, and back, each fit from the better model of its neighbour."""

from __future__ import annotations

from collections.abc import Callable

from .choice import better_fit
from .frame_fit import FrameFit, FrameFits
from .steps import steps_of_direction

Finished = Callable[[FrameFit], None]
"""Called with each fit that is finished."""


def carry_out(
    fits: FrameFits, first: FrameFit, direction: str, finished: Finished = lambda _: None
) -> list[FrameFit]:
    """Return the fits of one direction, in their order."""
    of_frame: dict[int, list[FrameFit]] = {first.step.frame: [first]}
    made = []
    n_frames = len(fits.settings.maps)
    for step in steps_of_direction(first.step.frame, n_frames, direction):
        neighbour = better_fit(of_frame[step.source])
        for fit in fits.from_neighbour(step, neighbour):
            of_frame.setdefault(step.frame, []).append(fit)
            made.append(fit)
            finished(fit)
    return made
