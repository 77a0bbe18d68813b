"""Which volume is fitted from which neighbour's model: out from the first one in both directions, and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

UP, DOWN = "up", "down"
DIRECTIONS = (UP, DOWN)


@dataclass(frozen=True)
class Step:
    """One fit of a series."""

    frame: int  # The volume that is fitted, from 1
    source: int | None = None  # The volume whose model it starts from; None where it starts from the user's
    # {"first", "next"}, whether it has the protocol of the first volume or that of the others
    course: str = "next"

    @property
    def folder(self) -> str:
        """The name of its folder."""
        start = "model" if self.source is None else f"{self.source:02d}"
        again = "_again" if self.source is not None and self.course == "first" else ""
        return f"frame_{self.frame:02d}_from_{start}{again}"

    def way(self, start: int) -> str:
        """Return on which way of a series that began at a volume the fit was made: "first", "out" or "back"."""
        if self.source is None:
            return "first"
        return "out" if abs(self.frame - start) > abs(self.source - start) else "back"

    @property
    def again(self) -> Step:
        """The same with the protocol of the first volume."""
        return Step(self.frame, self.source, "first")


def steps_of_direction(start: int, n_frames: int, direction: str) -> Iterator[Step]:
    """Yield the steps of one direction: from the first volume to the end of the series, and back to it."""
    end, one = (n_frames, 1) if direction == UP else (1, -1)
    for frame in range(start + one, end + one, one):
        yield Step(frame, frame - one)
    for frame in range(end - one, start - one, -one):
        if start != end:
            yield Step(frame, frame + one)
