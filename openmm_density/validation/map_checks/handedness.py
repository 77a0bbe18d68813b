"""Whether the map has the right handedness: the model fits only one of the map and its mirror image."""

from __future__ import annotations

from ...base.errors import as_argument
from .findings import Finding, MapChecks
from .place import RigidPlace
from .subject import Subject

CHECK = "handedness"

# What the model has in the mirror image, and how much more than in the map: in maps of 3 to 8 Å that are right, models that
# belong there or are 7 Å away have 0.15 to 0.7 less in the mirror image; there 0.44 at most.
LEAST_CORRELATION, LEAST_GAIN = 0.3, 0.1


def check_handedness(subject: Subject, places: tuple[RigidPlace, RigidPlace] | None) -> MapChecks:
    """Compare how well the rigid model fits the map and its mirror image.

    `places`: its best in the map and in the mirror image, see `openmm_density.validation.map_checks.place.best_places`;
    None where they were not searched for. Returns ``cc`` and ``cc_mirrored``: the model's correlation where it fits
    best in the map, and in its mirror image; None for the check where it was not made.
    """
    if places is None:
        return MapChecks({CHECK: None})
    cc, cc_mirrored = max(subject.cc, places[0].cc), places[1].cc
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
