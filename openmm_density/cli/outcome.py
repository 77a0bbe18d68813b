"""What a fit prints at its end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..stopwatch import in_words
from .console import console_for_results

if TYPE_CHECKING:
    from ..fitting.output.agreement import Matched


def print_outcome(summary: dict[str, Any], folder: Path) -> None:
    """Print the table of a summary, what is to be doubted, and where the results are."""
    from rich.table import Table
    from rich.text import Text

    from ..fitting.output.agreement import TOLD, Matched
    from ..fitting.rebuilding.changes import rebuilt_in_words

    table = Table(box=None, pad_edge=False)
    table.add_column("")
    after = "so far" if summary["interrupted"] else "after"
    simulated = summary.get("simulated")
    before = "before" if simulated is None else "before (kept)"
    columns = (before, "relaxed", after, *(["reference"] if summary["reference"] else []))
    for heading in columns:
        table.add_column(heading, justify="right")

    def row(name: str, form: str, *values: float | str | None) -> None:
        shown = values[: len(columns)]
        table.add_row(name, *("" if value is None else format(value, form) for value in shown))

    def count(name: str, form: str, *values: float | None) -> None:
        row(name, "", *("–" if value is None else format(value, form) for value in values))

    def afterwards(key: str) -> Any:
        return summary[f"{key}_final"] if simulated is None else simulated[key]

    def compare(name: str, form: str, key: str) -> None:
        row(
            name,
            form,
            summary[f"{key}_initial"],
            None,
            afterwards(key),
            summary.get(f"{key}_reference"),
        )

    compare("correlation (CC mask)", ".3f", "cc")
    compare("Q-score", ".3f", "q_score")
    crossings = [
        _crossing(*(of(f"fsc_{part}") for part in ("resolution", "falls")))
        for of in (lambda key: summary[f"{key}_initial"], afterwards, lambda key: summary[f"{key}_reference"])
    ]
    row("FSC with the model 0.5 at (Å)", "", crossings[0], None, *crossings[1:])
    compare(f"{summary['similarity']} in the energy", ".3f", "similarity")
    if summary["ca_rmsd_final"] is not None:
        compare(_distance(Matched(**summary["ca_rmsd_of"])), ".2f", "ca_rmsd")
    compare("deviation from planarity (Å)", ".3f", "planarity_rms")
    compare("  of the worst atom (Å)", ".3f", "planarity_worst")
    flat = (
        summary["flat_ligands_initial"],
        None,
        afterwards("flat_ligands"),
        summary["flat_ligands_reference"],
    )
    bent = [max((each["rms"] for each in ligands or ()), default=None) for ligands in flat]
    if bent[0] is not None:
        row("  of the most bent ligand, RMS (Å)", ".3f", *bent)
    geometry = [summary["geometry_initial"], summary["geometry_relaxed"], afterwards("geometry")]
    geometry.append(summary["geometry_reference"] or {})
    for label, key, form in (
        ("bond RMSD (Å)", "bond_rmsd", ".3f"),
        ("angle RMSD (°)", "angle_rmsd", ".2f"),
        ("clashes per 1000 atoms", "clashscore", ".1f"),
        ("Ramachandran outliers", "ramachandran_outlier_count", "d"),
        ("rotamer outliers", "rotamer_outlier_count", "d"),
        ("twisted peptides", "twisted_count", "d"),
        ("wrong-handed Cα", "wrong_alpha_count", "d"),
    ):
        count(label, form, *(figures.get(key) for figures in geometry))
    if summary["mate_contacts_final"] is not None:
        mates = [
            summary.get(f"mate_contacts_{stage}") for stage in ("initial", "relaxed", "final", "reference")
        ]
        mates[2] = afterwards("mate_contacts")
        count("clashes with crystal mates", "d", *mates)
    console = console_for_results()
    if summary["interrupted"]:  # whoever reads no further knows
        console.print(Text.assemble(("Interrupted:", "bold"), f" {summary['doubts'][0]}"))
    console.print(table)
    made = simulated or summary
    turned = len(made["peptide_flips"]), len(made["inverted_centres"])
    console.print(f"{turned[0]} peptides flipped, {turned[1]} chiral centres inverted")
    worst = (f"{each['residue']} ({each['correlation']:.2f})" for each in summary["worst_residues"][:TOLD])
    console.print(f"lowest correlations{'' if simulated is None else ' before'}: {', '.join(worst)}")
    rebuilt = rebuilt_in_words(summary["rebuilding"])
    if rebuilt is not None:
        console.print(f"rebuilt{'' if simulated is None else ' in after.*'}: {rebuilt}")
    violated = {name: len(each) for name, each in made["restraints_violated"].items() if each}
    if violated:
        console.print(f"restraints violated: {', '.join(f'{name} {n}' for name, n in violated.items())}")
    console.print(
        f"{summary['ms_per_step']:.1f} ms a step, {summary['density_ms_per_step']:.2f} of it the density force; "
        f"k = {summary['strength']:.1f} kJ/mol per fitted atom"
    )
    console.print(f"{summary['wall_seconds']:.0f} s in all: {in_words(summary['seconds_by_part'])}")
    for note in summary["notes"]:
        console.print(Text.assemble(("Note:", "bold"), f" {note}"))
    for doubt in summary["doubts"][1 if summary["interrupted"] else 0 :]:
        console.print(Text.assemble(("Doubt:", "bold"), f" {doubt}"))
    console.print(
        f"results are in {folder}: see overview.png (the fit), residues.png (where to doubt it) and summary.json"
    )


def _distance(matched: Matched) -> str:
    """Call the distance to the reference by its atoms, and say so where it is of some residues only."""
    said = f"{matched.rmsd} to the reference (Å)"
    if matched.matched < matched.residues:
        said += f", of {matched.matched} of {matched.residues} residues"
    return said


def _crossing(resolution: float | None, falls: bool | None) -> str | None:
    """Say where a curve falls, or that it does not; None without one."""
    if falls is None:
        return None
    if resolution is None:
        return "nowhere"
    return f"{resolution:.2f}" if falls else f"above to {resolution:.2f}"
