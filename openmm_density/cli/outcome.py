"""What a fit prints at its end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..stopwatch import PARTS, WITHIN, in_words
from .console import console_for_results

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ..fitting.output.agreement import Matched

_GEOMETRY = (
    ("bond RMSD (Å)", "bond_rmsd", ".3f"),
    ("angle RMSD (°)", "angle_rmsd", ".2f"),
    ("clashes per 1000 atoms", "clashscore", ".1f"),
    ("Ramachandran outliers", "ramachandran_outlier_count", "d"),
    ("rotamer outliers", "rotamer_outlier_count", "d"),
    ("twisted peptides", "twisted_count", "d"),
    ("wrong-handed Cα", "wrong_alpha_count", "d"),
)


def print_outcome(summary: dict[str, Any], folder: Path) -> None:
    """Print the table of a summary, its doubts, and where the results are."""
    from rich.text import Text

    console = console_for_results()
    if summary["interrupted"]:  # first, for those who read no further
        console.print(Text.assemble(("Interrupted:", "bold"), f" {summary['doubts'][0]}"))
    console.print(_OutcomeTable(summary).table)
    _print_changes(console, summary)
    console.print(
        f"{summary['ms_per_step']:.1f} ms a step, {summary['density_ms_per_step']:.2f} ms of it the density force; "
        f"{_pull_in_words(summary)}"
    )
    console.print(f"{summary['wall_seconds']:.0f} s in all: {in_words(summary['seconds_by_part'])}")
    if summary.get("ms_by_force"):
        console.print(_times(summary))
    for note in summary["notes"]:
        console.print(Text.assemble(("Note:", "bold"), f" {note}"))
    for doubt in summary["doubts"][1 if summary["interrupted"] else 0 :]:
        console.print(Text.assemble(("Doubt:", "bold"), f" {doubt}"))
    console.print(
        f"results are in {folder}: see overview.png (the fit), residues.png (where to doubt it) and summary.json"
    )


def _pull_in_words(summary: dict[str, Any]) -> str:
    """Return the strength on the way and at the end, and what set the latter."""
    from ..fitting.final_strength import BOUND_WORDS
    from ..wording import listing

    full, final, search = (summary[key] for key in ("strength", "final_strength", "final_strength_search"))
    said = f"k = {full:.1f} kJ/mol per fitted atom"
    if search is None:
        return said if final == full else f"{said}, {final:.1f} at the end"
    if search["limited_by"]:
        spoilt = listing([BOUND_WORDS[name] for name in search["limited_by"]])
        return f"{said}, {final:.1f} at the end: more spoils {spoilt}"
    because = "more is not in the half maps" if search["most"] < full else "the geometry bears it"
    return f"{said}, {final:.1f} at the end: {because}"


def _print_changes(console: Console, summary: dict[str, Any]) -> None:
    """Print what the fit changed of the chemistry, where it fits worst, and what was rebuilt."""
    from ..fitting.output.agreement import MOST_MARKED
    from ..fitting.output.exchanges import exchanged_in_words
    from ..fitting.rebuilding.changes import rebuilt_in_words

    simulated = summary.get("simulated")
    made = simulated or summary
    turned = len(made["peptide_flips"]), len(made["inverted_centres"])
    console.print(f"{turned[0]} peptides flipped, {turned[1]} chiral centres inverted")
    worst = (
        f"{each['residue']} ({each['correlation']:.2f})" for each in summary["worst_residues"][:MOST_MARKED]
    )
    console.print(f"lowest correlations{'' if simulated is None else ' before'}: {', '.join(worst)}")
    rebuilt = rebuilt_in_words(summary["rebuilding"])
    if rebuilt is not None:
        console.print(f"rebuilt{'' if simulated is None else ' in after.*'}: {rebuilt}")
    exchanged = exchanged_in_words(summary["exchange"])
    if exchanged is not None:
        console.print(f"exchanged: {exchanged}")
    violated = {name: len(each) for name, each in made["restraints_violated"].items() if each}
    if violated:
        console.print(f"restraints violated: {', '.join(f'{name} {n}' for name, n in violated.items())}")


_GROUPS = (
    ("set-up", ("start_up", "reading", "half_maps", "placement", "preparation"), ()),
    ("minimising", ("minimization",), ()),
    ("dynamics", ("dynamics",), ()),
    ("searches", ("searches",), ("register", "matching", "side_chains", "settling")),
    ("final strength", ("final_strength",), ()),
    ("output", ("scoring", "writing", "pictures"), ()),
)
"""The parts of a fit by what they are for, and what is told of each that is counted within it."""


def _times(summary: dict[str, Any]) -> Table:
    """Return where the time went, in s, and what the forces of a step take."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("")
    table.add_column("", justify="right")
    table.add_column("")
    parts, within = summary["seconds_by_part"], summary["seconds_within"]
    for name, of, told in _GROUPS:
        some = {part: parts[part] for part in of if part in parts}
        if not some:
            continue
        inside = [f"{WITHIN[each]} {within[each]:.1f}" for each in told if each in within]
        if not inside and len(some) > 1:
            inside = [f"{PARTS[part]} {spent:.1f}" for part, spent in some.items()]
        if name == "dynamics":
            inside = [f"{force} {spent:.2f}" for force, spent in summary["ms_by_force"].items()]
            inside = [f"ms a step: {summary['ms_per_step']:.2f}; evaluated alone: {', '.join(inside)}"]
        table.add_row(name, f"{sum(some.values()):.1f} s", ", ".join(inside))
    compiling = ", ".join(
        f"{WITHIN[each]} {within[each]:.1f}" for each in ("compilation", "contexts") if each in within
    )
    table.add_row("of all this", "", compiling)
    return table


class _OutcomeTable:
    """The figures of a summary before, relaxed, after, and of the reference where there is one.

    Where the model was kept as it was, "after" is what the simulation made of it.
    """

    def __init__(self, summary: dict[str, Any]) -> None:
        from rich.table import Table

        self._summary, self._simulated = summary, summary.get("simulated")
        self.table: Table = Table(box=None, pad_edge=False)
        self.table.add_column("")
        after = "so far" if summary["interrupted"] else "after"
        before = "before" if self._simulated is None else "before (kept)"
        columns = (before, "relaxed", after, *(["reference"] if summary["reference"] else []))
        self._n_columns = len(columns)
        for heading in columns:
            self.table.add_column(heading, justify="right")
        self._add_agreement()
        self._add_planarity()
        self._add_geometry()

    def _row(self, name: str, form: str, *values: float | str | None) -> None:
        shown = values[: self._n_columns]
        self.table.add_row(name, *("" if value is None else format(value, form) for value in shown))

    def _count(self, name: str, form: str, *values: float | None) -> None:
        self._row(name, "", *("–" if value is None else format(value, form) for value in values))

    def _after(self, key: str) -> Any:
        return self._summary[f"{key}_final"] if self._simulated is None else self._simulated[key]

    def _compare(self, name: str, form: str, key: str) -> None:
        before, reference = self._summary[f"{key}_initial"], self._summary.get(f"{key}_reference")
        self._row(name, form, before, None, self._after(key), reference)

    def _add_agreement(self) -> None:
        from ..fitting.output.agreement import Matched

        summary = self._summary
        self._compare("correlation (CC mask)", ".3f", "cc")
        self._compare("Q-score", ".3f", "q_score")
        stages: tuple[Callable[[str], Any], ...] = (
            lambda key: summary[f"{key}_initial"],
            self._after,
            lambda key: summary[f"{key}_reference"],
        )
        crossings = [_crossing(of("fsc_resolution"), of("fsc_falls")) for of in stages]
        self._row("FSC with the model 0.5 at (Å)", "", crossings[0], None, *crossings[1:])
        self._compare(f"similarity ({summary['similarity']})", ".3f", "similarity")
        if summary["ca_rmsd_final"] is not None:
            self._compare(_distance(Matched(**summary["ca_rmsd_of"])), ".2f", "ca_rmsd")

    def _add_planarity(self) -> None:
        self._compare("deviation from planarity (Å)", ".3f", "planarity_rms")
        self._compare("  of the worst atom (Å)", ".3f", "planarity_worst")
        flat = [self._summary["flat_ligands_initial"], None, self._after("flat_ligands")]
        flat.append(self._summary["flat_ligands_reference"])
        bent = [max((each["rms"] for each in ligands or ()), default=None) for ligands in flat]
        if bent[0] is not None:
            self._row("  of the most bent ligand, RMS (Å)", ".3f", *bent)

    def _add_geometry(self) -> None:
        summary = self._summary
        geometry = [summary["geometry_initial"], summary["geometry_relaxed"], self._after("geometry")]
        geometry.append(summary["geometry_reference"] or {})
        for label, key, form in _GEOMETRY:
            self._count(label, form, *(figures.get(key) for figures in geometry))
        if summary["mate_contacts_final"] is not None:
            stages = ("initial", "relaxed", "final", "reference")
            mates = [summary.get(f"mate_contacts_{stage}") for stage in stages]
            mates[2] = self._after("mate_contacts")
            self._count("clashes with crystal mates", "d", *mates)


def _distance(matched: Matched) -> str:
    """Return the name of the distance to the reference: its atoms, and of how many residues where it is not all."""
    said = f"{matched.rmsd} to the reference (Å)"
    if matched.matched < matched.residues:
        said += f", of {matched.matched} of {matched.residues} residues"
    return said


def _crossing(resolution: float | None, falls: bool | None) -> str | None:
    """Return where a curve falls, or that it does not; None without one."""
    if falls is None:
        return None
    if resolution is None:
        return "nowhere"
    return f"{resolution:.2f}" if falls else f"above to {resolution:.2f}"
