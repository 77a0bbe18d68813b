"""The part of a fit's page on measured amplitudes: R factors by cycle and by shells of resolution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....html_report.blocks import Facts, Plot, Section, Table
from ....html_report.colors import AFTER, REFERENCE


def crystal_section(summary: Mapping[str, Any]) -> Section | None:
    """Return the section; None of a fit to a map.

    Parameters
    ----------
    summary : mapping
    """
    found = summary.get("crystal")
    if not found:
        return None
    best = "the start, kept" if found["best_cycle"] == 0 else f"cycle {found['best_cycle']}"
    facts = [
        ("R-work, R-free", f"{found['r_work']:.4f}, {found['r_free']:.4f} ({best})"),
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
            Table("By shells of resolution", headings, shells, "resolution"),
        ],
    )


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
