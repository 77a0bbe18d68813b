"""The part of a fit's page on measured amplitudes: R factors by cycle and by shells of resolution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...base.page_blocks import Card, Facts, Plot, Section, Table
from ...base.wording import counted
from ..colors import AFTER, REFERENCE


def crystal_section(summary: Mapping[str, Any]) -> Section | None:
    """Return the section; None of a fit to a map."""
    found = summary.get("crystal")
    if not found:
        return None
    best = "the start, kept" if found["best_cycle"] == 0 else f"cycle {found['best_cycle']}"
    error = "" if found.get("r_free_error") is None else f" ± {found['r_free_error']:.3f}"
    facts = [
        ("R-work, R-free", f"{found['r_work']:.4f}, {found['r_free']:.4f}{error} ({best})"),
        ("at the start", f"{found['r_work_initial']:.4f}, {found['r_free_initial']:.4f}"),
        ("reflections", f"{found['n_work']} work, {found['n_free']} free, to {found['resolution']:.2f} Å"),
        ("completeness", f"{found['completeness']:.1%}"),
        ("crystal", f"{found['space_group']}; {' '.join(f'{each:.2f}' for each in found['cell'])}"),
        ("bulk solvent", f"{found['solvent_density']:.2f} e/Å³, B {found['solvent_b']:.0f} Å²"),
    ]
    shells = [
        (
            f"{shell['coarsest']:.2f} - {shell['finest']:.2f} Å",
            [
                str(shell["n_work"]),
                str(shell["n_free"]),
                *("" if shell[name] is None else f"{shell[name]:.3f}" for name in _OF_SHELL),
            ],
        )
        for shell in found["shells"]
    ]
    headings = ["work", "free", "R-work", "R-free", "CC work", "CC free"]
    return Section(
        "crystal",
        "What do the amplitudes say?",
        [
            Facts(facts),
            Plot(
                "cycles",
                "R factors by cycle",
                "R-work and R-free at the start (0) and after each cycle; free reflections have no part in the fit.",
                cycles_figure(found["cycles"]),
            ),
            Table(
                "By cycle (CC: with the map that it was fitted to, of the phases before it)",
                ["R-work", "R-free", "CC (mask)", "s", ""],
                _cycle_rows(found),
                "cycle",
            ),
            Table("By shells of resolution", headings, shells, "resolution"),
        ],
    )


def crystal_verdict(summary: Mapping[str, Any]) -> str:
    """Return what came of the cycles, in a sentence."""
    found = summary["crystal"]
    fitted = found["cycles"][1:]
    done = counted(len(fitted), "cycle")
    factors = (
        f"R-work from {found['r_work_initial']:.4f} to {found['r_work']:.4f}, R-free from {found['r_free_initial']:.4f} to "
        f"{found['r_free']:.4f}"
    )
    begun = f"Interrupted after {done}" if summary["interrupted"] else f"Fitted in {done}"
    if found["best_cycle"]:
        return f"{begun}, of which cycle {found['best_cycle']} is the result: {factors}."
    least = min(cycle["r_free"] for cycle in fitted)
    return (
        f"{begun}, none of which has a lower R-free than the start ({found['r_free_initial']:.4f}, at best {least:.4f}): the "
        "model is kept as it was."
    )


def crystal_cards(summary: Mapping[str, Any]) -> list[Card]:
    """Return the R factors of the result; nothing of a fit to a map."""
    found = summary.get("crystal")
    if not found:
        return []
    return [
        Card(name, f"{found[key]:.4f}", f"before {found[f'{key}_initial']:.4f}")
        for name, key in (("R-free", "r_free"), ("R-work", "r_work"))
    ]


def _cycle_rows(found: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    return [
        (
            str(cycle["number"] or "start"),
            [
                f"{cycle['r_work']:.4f}",
                f"{cycle['r_free']:.4f}",
                "" if cycle["cc_map"] is None else f"{cycle['cc_map']:.3f}",
                f"{cycle['seconds']:.0f}" if cycle.get("seconds") else "",
                "the result" if cycle["number"] == found["best_cycle"] else "",
            ],
        )
        for cycle in found["cycles"]
    ]


_OF_SHELL = ("r_work", "r_free", "cc_work", "cc_free")


def cycles_figure(cycles: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return R-work and R-free over the cycles, as plotly draws them."""
    numbers = [cycle["number"] for cycle in cycles]
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": name,
            "x": numbers,
            "y": [cycle[key] for cycle in cycles],
            "line": {"color": color, "width": 1.6},
            "hovertemplate": f"cycle %{{x}}: {name} %{{y:.4f}}<extra></extra>",
        }
        for key, name, color in (("r_work", "R-work", AFTER), ("r_free", "R-free", REFERENCE))
    ]
    layout = {
        "xaxis": {"title": {"text": "cycle"}, "dtick": 1},
        "yaxis": {"title": {"text": "R"}},
        "hovermode": "x",
    }
    return {"data": data, "layout": layout}
