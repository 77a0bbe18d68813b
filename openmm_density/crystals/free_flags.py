"""Free flags: which reflections are held out, by the conventions of the programs that set them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..errors import InputError, as_argument
from ..wording import listing

MADE_FRACTION = 0.05
"""Of the reflections that are held out where flags are made."""
LARGEST_FRACTION = 0.35
"""With more of them held out than this, flags are not believed."""


def free_reflections(flags: np.ndarray, path: Path, label: str) -> tuple[np.ndarray, str]:
    """Return which reflections are free, and a sentence on how their flags are read.

    CCP4 numbers the sets from 0 and holds out set 0; Phenix, CNS and SHELX hold out 1 (SHELX -1) and keep 0. Where there are
    two values, the less frequent one is taken to be the free one.

    Parameters
    ----------
    flags : np.ndarray, shape (N,)
        Whole numbers.
    path : Path
    label : str
        Of the column, for messages.

    Returns
    -------
    free : np.ndarray of bool, shape (N,)
    sentence : str

    Raises
    ------
    InputError
        If all flags are alike, or no value is that of a small part.
    """
    values, counts = np.unique(flags, return_counts=True)
    if len(values) < 2:
        raise InputError(
            f"all its free flags ({label}) are alike, so that none is held out",
            source=path,
            remedy=f"choose another column with {as_argument('free_flags')}, or make some with "
            f"{as_argument('make_free_flags', True)}",
        )
    value = values[np.argmin(counts)] if len(values) == 2 else 0
    free = flags == value
    if not 0 < free.mean() <= LARGEST_FRACTION:
        raise InputError(
            f"its free flags ({label}) hold out {free.mean():.0%} of the reflections if {value:g} means free",
            source=path,
            found=f"values {listing([f'{each:g}' for each in values], 8)}",
            remedy=f"choose another column with {as_argument('free_flags')}",
        )
    return free, f"{label} = {value:g} is read as free: {free.sum()} of {len(free)} reflections."


def made_flags(hkl: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return which reflections are to be free, chosen at random by their indices: any order of them gives the same.

    Parameters
    ----------
    hkl : np.ndarray of int, shape (N, 3)
        Unique under the symmetry.
    seed : int
    """
    order = np.lexsort(hkl.T[::-1])
    free = np.zeros(len(hkl), dtype=bool)
    chosen = np.random.default_rng(seed).permutation(len(hkl))[: max(round(MADE_FRACTION * len(hkl)), 1)]
    free[order[chosen]] = True
    return free
