"""The figures of a summary, in words and as a table: before, relaxed, after, and of the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..base.wording import listing
from ..fitting.agreement import Matched
from ..fitting.final_strength import BOUND_WORDS

GEOMETRY = (
    ("bond RMSD (Å)", "bond_rmsd", ".3f"),
    ("angle RMSD (°)", "angle_rmsd", ".2f"),
    ("bond RMSZ", "bond_rmsz", ".2f"),
    ("angle RMSZ", "angle_rmsz", ".2f"),
    ("bonds #|Z|>5", "bond_outlier_count", "d"),
    ("angles #|Z|>5", "angle_outlier_count", "d"),
    ("clashscore", "clashscore", ".1f"),
    ("Ramachandran outliers", "ramachandran_outlier_count", "d"),
    ("rotamer outliers", "rotamer_outlier_count", "d"),
    ("Cβ deviations > 0.25 Å", "c_beta_outlier_count", "d"),
    ("twisted peptides", "twisted_count", "d"),
    ("wrong-handed Cα", "wrong_alpha_count", "d"),
    ("sugar pucker outliers", "pucker_outlier_count", "d"),
    ("suite outliers", "suite_outlier_count", "d"),
    ("mean suiteness", "mean_suiteness", ".2f"),
    ("base pairs", "base_pair_count", "d"),
    ("unusual sugar rings", "pyranose_outlier_count", "d"),
)
"""What tables tell of the geometry: its name, the key of a report, and how it is written."""


@dataclass(frozen=True)
class FigureTable:
    """A table of figures."""

    headings: list[str]  # Of the columns of figures
    # `agreement`, `geometry`: rows: what each is, and its figures as text, empty where there is none. Those of the
    # agreement with the map, and with the reference, come first.
    agreement: list[tuple[str, list[str]]] = field(default_factory=list)
    geometry: list[tuple[str, list[str]]] = field(default_factory=list)

    @property
    def rows(self) -> list[tuple[str, list[str]]]:
        """All of them."""
        return [*self.agreement, *self.geometry]


def figure_table(summary: Mapping[str, Any]) -> FigureTable:
    """Return a summary's figures before, relaxed, after (what the simulation made, also of a kept model) and of the reference."""
    return _Figures(summary).table


def pull_in_words(summary: Mapping[str, Any]) -> str:
    """Return the strength on the way and at the end, and what set the latter."""
    full, final, search = (summary[key] for key in ("strength", "final_strength", "final_strength_search"))
    said = f"k = {full:.1f} kJ/mol per fitted atom"
    if search is None:
        return said if final == full else f"{said}, {final:.1f} at the end"
    if search["limited_by"]:
        spoilt = listing([BOUND_WORDS[name] for name in search["limited_by"]])
        return f"{said}, {final:.1f} at the end: more spoils {spoilt}"
    halves = summary["half_maps"]
    because = (
        "the half maps support no more"
        if halves is not None and search["most"] == halves["chosen"]
        else "the geometry stays within its limits"
    )
    return f"{said}, {final:.1f} at the end: {because}"


class _Figures:
    def __init__(self, summary: Mapping[str, Any]) -> None:
        self._summary, self._simulated = summary, summary.get("simulated")
        after = "so far" if summary["interrupted"] else "after"
        before = "before" if self._simulated is None else "before (kept)"
        self.table = FigureTable([before, "relaxed", after, *(["reference"] if summary["reference"] else [])])
        self._rows = self.table.agreement
        self._add_agreement()
        self._rows = self.table.geometry
        self._add_planarity()
        self._add_geometry()

    def _row(self, name: str, form: str, *values: float | str | None) -> None:
        shown = values[: len(self.table.headings)]
        self._rows.append((name, ["" if value is None else format(value, form) for value in shown]))

    def _count(self, name: str, form: str, *values: float | None) -> None:
        self._row(name, "", *("–" if value is None else format(value, form) for value in values))

    def _after(self, key: str) -> Any:
        return self._summary[f"{key}_final"] if self._simulated is None else self._simulated[key]

    def _compare(self, name: str, form: str, key: str) -> None:
        before, reference = self._summary[f"{key}_initial"], self._summary.get(f"{key}_reference")
        self._row(name, form, before, None, self._after(key), reference)

    def _add_agreement(self) -> None:
        summary = self._summary
        self._compare("correlation (CC mask)", ".3f", "cc")
        if self._after("cc_bases") is not None:
            self._compare("  of the bases", ".3f", "cc_bases")
            self._compare("  of sugars and phosphates", ".3f", "cc_backbone")
        usual = summary.get("q_score_usual")
        said = "" if usual is None else f" ({usual:.2f} is usual)"
        self._compare(f"Q-score of all atoms{said}", ".3f", "q_score")
        if self._after("cc_bases") is not None:
            self._compare("  of the bases", ".3f", "q_score_bases")
            self._compare("  of sugars and phosphates", ".3f", "q_score_backbone")
        stages: tuple[Callable[[str], Any], ...] = (
            lambda key: summary[f"{key}_initial"],
            self._after,
            lambda key: summary[f"{key}_reference"],
        )
        crossings = [crossing_in_words(of("fsc_resolution"), of("fsc_falls")) for of in stages]
        self._row("FSC of map and model 0.5 at (Å)", "", crossings[0], None, *crossings[1:])
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
        for label, key, form in GEOMETRY:
            values = [figures.get(key) for figures in geometry]
            # Proteins have no base pairs, and those of a reference alone say nothing of a fit.
            if any(value is not None for value in values[:-1]):
                self._count(label, form, *values)
        if summary["mate_contacts_final"] is not None:
            stages = ("initial", "relaxed", "final", "reference")
            mates = [summary.get(f"mate_contacts_{stage}") for stage in stages]
            mates[2] = self._after("mate_contacts")
            self._count("clashes with symmetry mates", "d", *mates)


def _distance(matched: Matched) -> str:
    """Return the name of the distance to the reference: its atoms, and of how many residues where it is not all."""
    said = f"{matched.rmsd} to the reference (Å)"
    if matched.matched < matched.residues:
        said += f", of {matched.matched} of {matched.residues} residues"
    return said


def crossing_in_words(resolution: float | None, falls: bool | None) -> str | None:
    """Return where a Fourier shell correlation falls, in Å, or that it does not; None without one."""
    if falls is None:
        return None
    if resolution is None:
        return "nowhere"
    return f"{resolution:.2f}" if falls else f"above to {resolution:.2f}"
