"""Tables of R factors on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table


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
