"""Free flags: which reflections are held out, by the conventions of the programs that set them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...base.errors import InputError, as_argument
from ...base.wording import listing

MADE_FRACTION = 0.05
"""Of the reflections that are held out where flags are made."""
LARGEST_FRACTION = 0.35
"""With more of them held out than this, flags are not believed."""


def free_reflections(
    flags: np.ndarray, path: Path, label: str, value: int | None = None
) -> tuple[np.ndarray, str]:
    """Return which reflections are free, and a sentence on how their flags are read.

    Phenix, X-PLOR and CNS hold out 1 and keep 0, SHELX holds out -1 and keeps 1: where there are two values, the less frequent
    one is taken to be the free one. CCP4 numbers sets from 0 and holds out 0: of more values that is taken, else the lowest.

    `flags` (N,): whole numbers. Returns `free` bool (N,); `sentence`.
    """
    values, counts = np.unique(flags, return_counts=True)
    if len(values) < 2:
        raise InputError(
            f"all its free flags ({label}) are alike, so that none is held out",
            source=path,
            remedy=f"choose another column with {as_argument('free_flags')}, or make some with "
            f"{as_argument('make_free_flags', True)}",
        )
    meant = value
    if meant is None:
        meant = values[np.argmin(counts)] if len(values) == 2 else 0 if 0 in values else values[0]
    free = flags == meant
    if not 0 < free.mean() <= LARGEST_FRACTION:
        raise InputError(
            f"its free flags ({label}) hold out {free.mean():.0%} of the reflections if {meant:g} means free",
            source=path,
            found=f"values {listing([f'{each:g}' for each in values], 8)}",
            remedy=f"give the one that means free with {as_argument('free_value')}, or choose another column with "
            f"{as_argument('free_flags')}",
        )
    why = "" if value is not None else f" ({_convention(values, float(meant))})"
    return free, f"{label} = {meant:g} is read as free{why}: {free.sum()} of {len(free)} reflections."


def _convention(values: np.ndarray, meant: float) -> str:
    """Return by which convention a value is taken to mean free, and what takes another."""
    if meant == -1:
        return "as SHELX has it"
    if len(values) > 2 and meant != 0:
        return f"the lowest of {len(values)} sets, of which CCP4's would be 0; {as_argument('free_value')} takes another"
    if len(values) > 2 or meant == 0:
        return "as CCP4 and REFMAC have it"
    if meant == 1:
        return "as Phenix and CNS have it"
    return f"the less frequent value; {as_argument('free_value')} takes the other"


def made_flags(hkl: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return which reflections (N, 3), unique under the symmetry, are free: random by their indices, whatever their order."""
    order = np.lexsort(hkl.T[::-1])
    free = np.zeros(len(hkl), dtype=bool)
    chosen = np.random.default_rng(seed).permutation(len(hkl))[: max(round(MADE_FRACTION * len(hkl)), 1)]
    free[order[chosen]] = True
    return free
