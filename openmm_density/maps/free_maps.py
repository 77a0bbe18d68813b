"""Free maps: whether another map can test a model that was fitted into a map."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.errors import InputError
from .map_agreement import agreement_inside, is_same_map

if TYPE_CHECKING:
    from .density_map import DensityMap

REFUSED, DOUBTED = 0.2, 0.6
"""Correlations inside the map's density, see `agreement_inside`, below which a free map is refused, or doubted. Half maps have .9
and more, with noise of as much as the density's standard deviation .75, of twice as much .24 to .5; maps of other molecules
0 to .25, so that some of them are only doubted, of another conformation of the same molecule .4, and moved by as much as the
resolution .1 to .5."""
_REMEDY = (
    "give another map of the same molecule in the same place, such as the half map that was not fitted into"
)


def check_free_map(free_map: DensityMap, density_map: DensityMap, resolution: float) -> str | None:
    """Refuse a free map that cannot test what is fitted into a map (resolution in Å); return a sentence where it is doubtful."""
    if is_same_map(free_map, density_map):
        raise InputError("the free map is the map that is fitted into, and not free", remedy=_REMEDY)
    agreement = agreement_inside(free_map, density_map, resolution)
    if agreement is None:
        raise InputError(
            "the free map has no density where the map has it: its box is another, or it is empty",
            remedy=_REMEDY,
        )
    if agreement < -REFUSED:
        raise InputError(
            f"the contrast of the free map is inverted beside the map's (inside the density they correlate by {agreement:.2f})",
            remedy="write it with its sign changed",
        )
    if agreement < REFUSED:
        raise InputError(
            f"the free map is not of what the map is of, or not in its place: inside the map's density they must correlate by "
            f"{REFUSED} or more",
            found=f"{agreement:.2f}",
            remedy=_REMEDY,
        )
    if agreement < DOUBTED:
        return (
            f"The free map agrees poorly with the map (inside its density they correlate by {agreement:.2f}; half maps by .7 or "
            "more): it may be of another conformation or a little out of place, or noise outweighs what it tests."
        )
    return None
