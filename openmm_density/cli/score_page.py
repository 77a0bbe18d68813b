"""The page of a model that is scored alone: how it fits its map, and how sane it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.page_blocks import (
    Block,
    Card,
    Command,
    Facts,
    Item,
    Items,
    Page,
    Plot,
    Residues,
    Section,
    Spot,
    Table,
)
from ..base.wording import counted
from ..maps.density_map import DensityMap
from ..report.citations import citations
from ..report.figures import GEOMETRY, crossing_in_words
from ..report.fit_plots import (
    FSC_OF_HALVES,
    GEOMETRY_TITLE,
    HALF_MAPS,
    clash_cards,
    fsc_figure,
    fsc_title,
    geometry_figure,
)
from ..report.places_to_look import outliers_of, places_to_look
from ..report.pucker_plot import nucleic_acid_cards, pucker_plot, pyranose_plot
from ..report.ramachandran_plot import ramachandran_figure
from ..report.residue_plots import agreement_figure, b_factor_figure, value_figure
from ..report.shown_model import ShownModel, residue_values, rows_by_label
from ..report.structures import drawn_models
from ..report.surfaces import surfaces_of
from ..validation.named_residues import ResidueFinder
from ..validation.q_score import usual_q


def score_page(
    model: ShownModel,
    density_map: DensityMap,
    report: Mapping[str, Any],
    names: tuple[str, str],
    warnings: Sequence[str],
    versions: Mapping[str, str | None],
    command: str,
    halves: Mapping[str, Any] | None = None,
) -> Page:
    """Return the page of a model alone."""
    rows = [
        {**row, "correlation_final": row["correlation"], "q_score_final": row["q_score"]}
        for row in report["residues"]
    ]
    residues = residue_values(rows, [model])
    surfaces = surfaces_of(density_map, [model], report["resolution"])
    finder = ResidueFinder(rows)
    return Page(
        f"{Path(names[0]).name} in {Path(names[1]).name}",
        f"Scored by openmm-density at {report['resolution']:g} Å, {counted(len(rows), 'residue')}",
        _verdict(report, warnings),
        bool(warnings),
        _cards(report, halves, usual_q(model.topology, report["resolution"])),
        [
            Section("does-it-fit", "Does it fit?", _does_it_fit(report, rows, finder, warnings, halves)),
            Section(
                "trust",
                "Can I trust it?",
                _can_it_be_trusted(model, report, rows, residues, finder, warnings),
            ),
            Section("cite", "How to cite and repeat it", _cite_and_repeat(versions, command)),
        ],
        {
            "residues": residues,
            "structures": drawn_models([model], rows),
            "surfaces": None if surfaces is None else vars(surfaces),
        },
    )


def _verdict(report: Mapping[str, Any], warnings: Sequence[str]) -> str:
    said = f"The model's correlation with the map is {report['cc_mask']:.3f}."
    if not warnings:
        return f"{said} Nothing that was checked speaks against it."
    return f"{said} {counted(len(warnings), 'warning')} below {'says' if len(warnings) == 1 else 'say'} what to look at."


def _cards(report: Mapping[str, Any], halves: Mapping[str, Any] | None, usual: float | None) -> list[Card]:
    geometry, q_score = report["geometry"], report["q_score"]
    cards = [
        Card("Correlation (CC mask)", f"{report['cc_mask']:.3f}"),
        Card(
            "Q-score of all atoms",
            "–" if q_score is None else f"{q_score:.3f}",
            "" if usual is None else f"{usual:.2f} is usual",
        ),
    ]
    if report["fsc_resolution"] is not None:
        at = f"{report['fsc_resolution']:.2f} Å"
        cards.append(Card("FSC of map and model 0.5 at", at if report["fsc_falls"] else f"above to {at}"))
    if halves is not None:
        said = crossing_in_words(halves["half_map_resolution"], halves["half_map_falls"])
        said = said if said == "nowhere" else f"{said}\N{NO-BREAK SPACE}Å"
        cards.append(Card("FSC of the half maps 0.143 at", said, "around the model"))
    if geometry["ramachandran_outlier_count"] is not None:
        of = f"of {geometry['ramachandran_count']}"
        cards.append(Card("Ramachandran outliers", str(geometry["ramachandran_outlier_count"]), of))
    return [*cards, *nucleic_acid_cards(geometry), *clash_cards(geometry)]


def _does_it_fit(
    report: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    finder: ResidueFinder,
    warnings: Sequence[str],
    halves: Mapping[str, Any] | None,
) -> list[Block]:
    curves = {"final": ("model", report["fsc"])}
    if halves is not None:
        curves[HALF_MAPS] = (HALF_MAPS, halves["half_map_fsc"])
    doubtful = [finder.named_in(warning) for warning in warnings]
    return [
        Plot(
            "agreement",
            "Agreement with the map by residue (click on a residue to see it)",
            "Correlation and Q-score of each residue; the table of residues has the same figures.",
            agreement_figure(rows, {"final": "model"}, doubtful),
        ),
        Plot(
            "fsc",
            fsc_title(halves is not None),
            f"Fourier shell correlation over resolution, with a line at 0.5{'' if halves is None else FSC_OF_HALVES}.",
            fsc_figure(curves),
        ),
    ]


def _can_it_be_trusted(
    model: ShownModel,
    report: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    residues: Sequence[Mapping[str, Any]],
    finder: ResidueFinder,
    warnings: Sequence[str],
) -> list[Block]:
    geometry = report["geometry"]
    figures = [
        (name, [format(geometry[key], form)]) for name, key, form in GEOMETRY if geometry[key] is not None
    ]
    return [
        Items("", [_warning(each, finder) for each in warnings], are_doubts=True),
        Table("Geometry", ["model"], figures),
        Plot(
            "geometry",
            GEOMETRY_TITLE,
            "Bars; the table above has the figures.",
            geometry_figure({"final": ("model", geometry)}),
        ),
        Plot(
            "ramachandran",
            "Ramachandran plot (click on a residue to see it)",
            "φ and ψ of each residue over the favoured and allowed regions of Lovell et al. 2003.",
            ramachandran_figure([model], rows_by_label(rows)),
        ),
        pucker_plot([model], rows_by_label(rows)),
        pyranose_plot([model], rows_by_label(rows)),
        Items("Where to look", places_to_look(outliers_of(geometry), finder)),
        Plot(
            "b-factors",
            "B factors, as they are in the model",
            "The mean B factor of each residue.",
            b_factor_figure(rows, [residue["b_factor"] for residue in residues]),
        ),
        Plot(
            "confidence",
            "Confidence of the prediction (pLDDT)",
            "How sure the prediction is of each residue.",
            value_figure(rows, "plddt", "pLDDT", "pLDDT (0 to 100)"),
        ),
        Residues("All residues, those that fit the map worst first"),
    ]


def _warning(sentence: str, finder: ResidueFinder) -> Item:
    rows = finder.named_in(sentence)
    return Item(sentence[:1].upper() + sentence[1:], [Spot("Show me" if rows else "Show me the model", rows)])


def _cite_and_repeat(versions: Mapping[str, str | None], command: str) -> list[Block]:
    return [
        Command(command),
        Facts([(name, version) for name, version in versions.items() if version]),
        Items(
            "Please cite", [Item(each) for each in citations(("q_score", "ramachandran", "gemmi", "3dmol"))]
        ),
    ]
