"""R factors, whole and by shells of resolution, and tables of them on a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rich.table import Table

_MOST_SHELLS = 10


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
    measured: np.ndarray, calculated: np.ndarray, free: np.ndarray, inverse_d2: np.ndarray
) -> RFactors:
    """Return R factors of amplitudes on the same scale. `measured`, `calculated` (N,); `free` bool (N,); `inverse_d2` (N,)."""
    order = np.argsort(-1 / inverse_d2, kind="stable")
    parts = np.array_split(order, int(np.clip(len(order) // 100, 1, _MOST_SHELLS)))
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


def cycles_table(cycles: Sequence[Mapping[str, Any]], best: int) -> Table:
    """Return R factors by cycle, the best one marked."""
    table = _table("cycle", "R-work", "R-free", "CC (map)", "s", "")
    for cycle in cycles:
        name = "start" if cycle["number"] == 0 else str(cycle["number"])
        cc = "" if cycle["cc_map"] is None else f"{cycle['cc_map']:.3f}"
        mark = "best" if cycle["number"] == best else ""
        seconds = f"{cycle['seconds']:.0f}" if cycle["number"] else ""
        table.add_row(name, _number(cycle["r_work"]), _number(cycle["r_free"]), cc, seconds, mark)
    return table


def shells_table(shells: Sequence[Mapping[str, Any]]) -> Table:
    """Return R factors and correlations of amplitudes by shells of resolution."""
    table = _table("resolution (Å)", "work", "free", "R-work", "R-free", "CC work", "CC free")
    for shell in shells:
        table.add_row(
            f"{shell['coarsest']:.2f} - {shell['finest']:.2f}",
            str(shell["n_work"]),
            str(shell["n_free"]),
            *(_number(shell[name]) for name in ("r_work", "r_free", "cc_work", "cc_free")),
        )
    return table


def r_free_in_words(r_free: float, error: float | None) -> str:
    """Return R-free, and how much of it may be chance."""
    return f"R-free {r_free:.4f}" + ("" if error is None else f" ± {error:.3f}")


def _table(*headings: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
