"""What refined B factors are, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FAR_FROM_UNIFORM = 0.2
"""By this part the mean of refined B factors may differ from the best uniform one."""
LOW_CC = 0.6
"""Of a model where it belongs, with the best uniform B factor, the correlation is above it (.75 and more on the maps tried)."""
_OF = {"atom": "each atom", "residue": "each residue", "group": "each chain"}
_BEFORE_AMPLITUDES = "before they were refined against the amplitudes, "


def b_factors_in_words(refined: Mapping[str, Any], of_amplitudes: bool = False) -> str:
    """Return what refined B factors are, and how much better the model agrees with the map by them."""
    least, largest, mean = (refined[name] for name in ("least_b", "largest_b", "mean_b"))
    when = _BEFORE_AMPLITUDES if of_amplitudes else ""
    said = (
        f"A B factor of {_OF[refined['level']]} was refined, from {least:.0f} to {largest:.0f} Å² with a mean of "
        f"{mean:.0f} ± {refined['mean_b_deviation']:.0f} Å²: {when}the correlation of the model's density with the map went from "
        f"{refined['cc_uniform']:.3f} with the best uniform one ({refined['uniform_b']:.0f} Å²) to {refined['cc']:.3f}."
    )
    if abs(mean / refined["uniform_b"] - 1) > FAR_FROM_UNIFORM:
        said += (
            " Their mean is far from the uniform one: at this resolution the map hardly tells the level of B factors, only which "
            "are larger than others, and the true deviations are larger than those given."
        )
    if refined["cc_given"] is not None:
        said += f" With those of the input it is {refined['cc_given']:.3f}."
    if refined["half_maps"] is None and not of_amplitudes:
        said += " Half maps (--half-map) would tell whether this is a fit of noise."
    if refined["cc_uniform"] < LOW_CC:
        said = (
            "The model may not be where the map has it, or of another conformation: with the best uniform B factor the "
            f"correlation is {refined['cc_uniform']:.3f}, and B factors then tell where the model is wrong. {said}"
        )
    return " ".join([said, *refined["notes"]])
