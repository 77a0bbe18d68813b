"""What a fit prints at its end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.progress import console_for_results
from ..base.stopwatch import PARTS, WITHIN, in_words
from ..base.wording import counted
from ..fitting.installed_extensions import extensions
from ..restraints.names import RELEASED_RESTRAINTS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def print_outcome(summary: dict[str, Any], folder: Path) -> None:
    """Print the table of a summary, its doubts, and where the results are."""
    from rich.text import Text

    from ..report.figures import pull_in_words

    console = console_for_results()
    if summary["interrupted"]:  # first, for those who read no further
        console.print(Text.assemble(("Interrupted:", "bold"), f" {summary['doubts'][0]}"))
    console.print(_outcome_table(summary))
    _print_changes(console, summary)
    for line in (line for extension in extensions() for line in extension.lines(summary)):
        console.print(line)
    console.print(
        f"{summary['ms_per_step']:.1f} ms a step, {summary['density_ms_per_step']:.2f} ms of it the density force; "
        f"{pull_in_words(summary)}"
    )
    console.print(f"{summary['wall_seconds']:.0f} s in all: {in_words(summary['seconds_by_part'])}")
    if summary.get("ms_by_force"):
        console.print(_times(summary))
    doubts = summary["doubts"][1 if summary["interrupted"] else 0 :]
    console.print(Text.assemble(("Verdict:", "bold"), f" {_verdict(summary, len(doubts))}"))
    for doubt in doubts:
        console.print(Text.assemble(("Doubt:", "bold"), f" {doubt}"))
    notes = counted(len(summary["notes"]), "note")
    console.print(
        f"results are in {folder}: open report.html in a browser; it and summary.json have all figures and {notes}"
    )


def _verdict(summary: dict[str, Any], n_doubts: int) -> str:
    """Return whether the fit improved the model, and how many doubts there are, in a sentence."""
    before, after = (f"{summary[f'cc_{stage}']:.3f}" for stage in ("initial", "final"))
    found = f"the model correlates with the map better than at the start (CC {before} to {after})"
    if summary["simulated"] is not None:
        placed = " placed" if summary["placement"] or summary.get("placing") else ""
        found = f"the model is kept as it was{placed} (CC {before})"
    elif summary["cc_final"] <= summary["cc_initial"]:
        found = f"the model correlates with the map no better than at the start (CC {before} to {after})"
    return f"{found}; {counted(n_doubts, 'doubt') if n_doubts else 'no doubts'}."


def _print_changes(console: Console, summary: dict[str, Any]) -> None:
    """Print what the fit changed of the chemistry, and where it fits worst."""
    from ..fitting.agreement import MOST_MARKED

    simulated = summary.get("simulated")
    made = simulated or summary
    console.print(", ".join(_counted_changes(summary["geometry_initial"], made)))
    worst = (
        f"{each['residue']} ({each['correlation']:.2f})" for each in summary["worst_residues"][:MOST_MARKED]
    )
    console.print(f"lowest correlations{'' if simulated is None else ' before'}: {', '.join(worst)}")
    _print_restraints(
        console, {name: len(each) for name, each in made["restraints_violated"].items() if each}
    )


def _print_restraints(console: Console, beyond: dict[str, int]) -> None:
    """Print how many restraints are far from their targets at the end: those meant to give way, and those that failed."""
    released = {name: count for name, count in beyond.items() if name in RELEASED_RESTRAINTS}
    for what, some in (
        ("restraints released on purpose, where the density contradicts them", released),
        ("restraints violated", {name: beyond[name] for name in beyond if name not in released}),
    ):
        if some:
            listed = ", ".join(f"{name} {count}" for name, count in some.items())
            console.print(f"{what}: {listed} (which: `restraints_violated` in summary.json)")


_GROUPS = (
    (
        "set-up",
        ("start_up", "reading", "symmetry", "phasing", "half_maps", "placement", "preparation"),
        ("completion", "system"),
    ),
    ("minimising", ("minimization",), ()),
    ("dynamics", ("dynamics",), ()),
    ("searches", ("searches",), ("register", "threading", "peptides", "side_chains", "settling")),
    ("final strength", ("final_strength",), ()),
    ("B factors, conformers", ("b_factors", "conformers"), ()),
    ("refinement", ("refinement",), ()),
    ("output", ("scoring", "writing", "pictures", "report"), ()),
)
"""The parts of a fit by what they are for, and what is printed of each that is counted within it."""


def _counted_changes(start: dict[str, Any], made: dict[str, Any]) -> list[str]:
    """Return how many peptides, centres and base pairs changed, of what the start has."""
    changes = [f"{len(made['inverted_centres'])} chiral centres inverted"]
    if start["twisted_count"] is not None:
        changes.insert(0, f"{len(made['peptide_flips'])} peptides changed between cis and trans")
    if start["base_pair_count"]:
        changes.append(f"{len(made['base_pairs_lost'])} of {start['base_pair_count']} base pairs opened")
    return changes


def _times(summary: dict[str, Any]) -> Table:
    """Return where the time went, in s, and what the forces of a step take."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("")
    table.add_column("", justify="right")
    table.add_column("")
    parts, within = summary["seconds_by_part"], summary["seconds_within"]
    known = {part for _, of, _ in _GROUPS for part in of}
    others = [(part, (part,), ()) for part in parts if part not in known]
    for name, of, told in (*_GROUPS[:-1], *others, _GROUPS[-1]):
        some = {part: parts[part] for part in of if part in parts}
        if not some:
            continue
        inside = [f"{PARTS.get(part, part)} {spent:.1f}" for part, spent in some.items() if len(some) > 1]
        inside += [f"{WITHIN[each]} {within[each]:.1f}" for each in told if each in within]
        if name == "dynamics":
            inside = [f"{force} {spent:.2f}" for force, spent in summary["ms_by_force"].items()]
            inside = [f"ms a step: {summary['ms_per_step']:.2f}; evaluated alone: {', '.join(inside)}"]
        table.add_row(name, f"{sum(some.values()):.1f} s", ", ".join(inside))
    compiling = ", ".join(
        f"{WITHIN[each]} {within[each]:.1f}" for each in ("compilation", "contexts") if each in within
    )
    table.add_row("of all this", "", compiling)
    return table


def _outcome_table(summary: dict[str, Any]) -> Table:
    from rich.table import Table

    from ..report.figures import figure_table

    figures = figure_table(summary)
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for heading in figures.headings:
        table.add_column(heading, justify="right")
    for name, values in figures.rows:
        table.add_row(name, *values)
    return table
