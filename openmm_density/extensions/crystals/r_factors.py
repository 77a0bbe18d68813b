"""R factors, whole and by shells of resolution."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Shell:
    """A shell of resolution."""

    coarsest: float  # `coarsest`, `finest` in Å.
    finest: float
    n_work: int  # `n_work`, `n_free`: reflections.
    n_free: int
    r_work: float | None
    r_free: float | None  # None without free reflections
    # `cc_work`, `cc_free`: Pearson correlations of measured and calculated amplitudes; None of fewer than three.
    cc_work: float | None
    cc_free: float | None


@dataclass(frozen=True)
class RFactors:
    """R factors: Σ|F_o - k F_c| / Σ F_o.

    Attributes
    ----------
    r_work : float
        Of the reflections that take part in the fit.
    r_free : float, optional
        Of those that are held out; None where there are none.
    n_work, n_free : int
    shells : list of Shell
        From coarse to fine, with as many reflections each.
    """

    r_work: float
    r_free: float | None
    n_work: int
    n_free: int
    shells: list[Shell]

    @property
    def r_free_error(self) -> float | None:
        """What R-free is off by chance, as `error_of_r_free` says; None without free reflections."""
        return error_of_r_free(self.r_free, self.n_free)

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists."""
        return asdict(self)


def r_factors(
    measured: np.ndarray, calculated: np.ndarray, free: np.ndarray, inverse_d2: np.ndarray, n_shells: int = 10
) -> RFactors:
    """Return R factors of amplitudes on the same scale. `measured`, `calculated` (N,); `free` bool (N,); `inverse_d2` (N,)."""
    order = np.argsort(-1 / inverse_d2, kind="stable")
    parts = np.array_split(order, int(np.clip(len(order) // 100, 1, n_shells)))
    shells = []
    for part in parts:
        work, held_out = part[~free[part]], part[free[part]]
        shells.append(
            Shell(
                float(inverse_d2[part].min() ** -0.5),
                float(inverse_d2[part].max() ** -0.5),
                len(work),
                len(held_out),
                _r(measured[work], calculated[work]),
                _r(measured[held_out], calculated[held_out]),
                _cc(measured[work], calculated[work]),
                _cc(measured[held_out], calculated[held_out]),
            )
        )
    return RFactors(
        _r(measured[~free], calculated[~free]) or 0.0,
        _r(measured[free], calculated[free]),
        int((~free).sum()),
        int(free.sum()),
        shells,
    )


def error_of_r_free(r_free: float | None, n_free: int) -> float | None:
    """Return R-free/√n, the standard deviation among random free sets of as many reflections (Brünger 1997); None without any."""
    return r_free / math.sqrt(n_free) if r_free is not None and n_free else None


def _r(measured: np.ndarray, calculated: np.ndarray) -> float | None:
    return float(np.abs(measured - calculated).sum() / measured.sum()) if len(measured) else None


def _cc(measured: np.ndarray, calculated: np.ndarray) -> float | None:
    if len(measured) < 3 or not (np.ptp(measured) and np.ptp(calculated)):
        return None
    return float(np.corrcoef(measured, calculated)[0, 1])
