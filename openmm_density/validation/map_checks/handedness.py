"""Whether the map has the right handedness: the model fits only one of the map and its mirror image."""

from __future__ import annotations

from ...errors import as_argument
from .findings import Finding, MapChecks
from .place import best_place, searched_map
from .subject import Subject

CHECK = "handedness"

# What the model has in the mirror image, and how much more than in the map: in maps of 3 to 8 Å that are right, models that
# belong there or are 7 Å away have 0.15 to 0.7 less in the mirror image; there 0.44 at most.
LEAST_CORRELATION, LEAST_GAIN = 0.3, 0.1


def check_handedness(subject: Subject, best: float | None) -> MapChecks:
    """Place the model, rigid, in the mirror image of the map, and compare.

    Looked for only where the model fits badly, in a map of 8 Å or finer that is no crystal's, whose handedness is known.

    Parameters
    ----------
    subject : Subject
    best : float or None
        Its correlation in its best place in the map.

    Returns
    -------
    MapChecks
        ``cc`` and ``cc_mirrored``: the model's correlation where it fits best in the map, and in its mirror image; None for the
        check where it was not made.
    """
    density_map = searched_map(subject)
    if density_map is None:
        return MapChecks({CHECK: None})
    cc = subject.cc if best is None else max(subject.cc, best)
    _, _, cc_mirrored = best_place(subject, density_map.mirrored())
    figures = {"cc": cc, "cc_mirrored": cc_mirrored}
    if cc_mirrored < max(LEAST_CORRELATION, cc + LEAST_GAIN):
        return MapChecks({CHECK: figures})
    mirrored = Finding(
        CHECK,
        f"the map looks mirrored: the model, rigid, fits its mirror image better (CC {cc_mirrored:.2f}, in the map {cc:.2f} at "
        "best)",
        remedy=f"check its handedness, and pass {as_argument('mirror', True)} if it is wrong, or leave that out if it was given",
    )
    return MapChecks({CHECK: figures}, [mirrored])
