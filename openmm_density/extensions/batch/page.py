"""``batch.html``: all fits in a table, their models in the map, and what they agree on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.page_blocks import (
    Block,
    Card,
    Command,
    Item,
    Items,
    Page,
    Plot,
    Residues,
    Section,
    Spot,
    Table,
    Text,
)
from ...base.wording import counted, residue_label
from ...maps.density_map import DensityMap
from ...models.chemistry.residues import is_water, residue_kind
from ...models.structures import Model
from ...report.citations import citations
from ...report.residue_plots import spread_figure
from ...report.shown_model import ShownModel
from ...report.structures import drawn_models
from ...report.surfaces import surfaces_of
from .consensus import AGREED, Consensus, Ranking, disagreeing

MOST_MODELS = 24
"""That are drawn, the best ones."""
LEAST_AGREED = 0.8
"""Of the residues: where fewer agree, the page is to be read with care."""
_COLORS = (
    "#1f6feb",
    "#d1495b",
    "#2b8a3e",
    "#f08c00",
    "#7048e8",
    "#0c8599",
    "#c2255c",
    "#5c940d",
    "#8b6f47",
    "#495057",
)


@dataclass(frozen=True)
class MapPage:
    """The fits into one map, as a page shows them."""

    file: str  # Of the page
    map: str  # The map's file
    verdict: str  # What to think of them
    names: Sequence[str]  # Of the models, the best first
    models: Sequence[Model]
    ranking: Ranking  # By which they are ordered
    consensus: Consensus | None  # Of all models of the map
    density_map: DensityMap | None  # As it was fitted
    resolution: float  # Å

    @property
    def is_doubtful(self) -> bool:
        """Whether the fits do not agree."""
        found = self.consensus
        return found is not None and (found.agreed < LEAST_AGREED or len(found.clusters) > 1)


def batch_page(pages: Sequence[MapPage], rows: Sequence[Mapping[str, Any]], command: str | None) -> Page:
    """Return the page of a batch: of its one map, or with a link to the page of each map."""
    if len(pages) == 1:
        return map_page(pages[0], rows, command)
    finished = sum(row["state"] == "finished" for row in rows)
    said = f"{finished} of {counted(len(rows), 'fit')} finished, into {counted(len(pages), 'map')} that have a page each."
    links = Table(
        "A page for each map",
        ["what its fits agree on"],
        [(Path(page.map).name, [page.verdict]) for page in pages],
        "map",
        [page.file for page in pages],
    )
    shown = [
        _shown_model(number, f"{Path(page.map).name}: {page.names[0]}", page.models[0], number)
        for number, page in enumerate(pages[:MOST_MODELS])
    ]
    sections = [Section("maps", "Maps", [links]), _fits(rows), _repeat(command)]
    data = {"residues": [], "structures": drawn_models(shown, []), "surfaces": None}
    doubtful = finished < len(rows) or any(page.is_doubtful for page in pages)
    cards = [Card("Fits", f"{finished} of {len(rows)}"), Card("Maps", str(len(pages)))]
    return Page(counted(len(rows), "fit"), "Fitted by openmm-density", said, doubtful, cards, sections, data)


def map_page(page: MapPage, rows: Sequence[Mapping[str, Any]], command: str | None) -> Page:
    """Return the page of all fits into one map."""
    residues = page.consensus.residues if page.consensus else _residues(page.models[0])
    shown = [
        _shown_model(number, f"{name} ({value:.3f})", model, _color(page, number))
        for number, (name, model, value) in enumerate(zip(page.names, page.models, page.ranking.values))
    ]
    surfaces = surfaces_of(page.density_map, shown, page.resolution)
    finished = sum(row["state"] == "finished" for row in rows)
    failed = len(rows) - finished
    missing = "" if not failed else f" {counted(failed, 'fit')} did not finish: the table says why."
    sections = [_agreement(page)] if page.consensus else []
    return Page(
        f"{counted(len(rows), 'fit')} into {Path(page.map).name}",
        f"Fitted by openmm-density at {page.resolution:g} Å",
        page.verdict + missing,
        page.is_doubtful or bool(failed),
        _cards(page, finished, len(rows)),
        [*sections, _fits(rows), _repeat(command)],
        {
            "residues": residues,
            "structures": drawn_models(shown, residues),
            "surfaces": None if surfaces is None else vars(surfaces),
        },
    )


def _cards(page: MapPage, finished: int, count: int) -> list[Card]:
    cards = [
        Card("Fits finished", f"{finished} of {count}"),
        Card(f"Best {page.ranking.figure}", f"{page.ranking.values[0]:.3f}", page.names[0]),
    ]
    if page.consensus is not None:
        found = page.consensus
        cards += [
            Card(f"Residues that agree within {AGREED:g} Å", f"{100 * found.agreed:.0f}%"),
            Card("Median spread", f"{found.median_spread:.2f} Å"),
            Card("Clusters", str(len(found.clusters))),
        ]
    return cards


def _agreement(page: MapPage) -> Section:
    found = page.consensus
    assert found is not None
    stretches = [
        Item(
            f"{found.residues[first]['residue']} to {found.residues[last]['residue']}: up to {spread:.1f} Å",
            [Spot("Show me", range(first, last + 1))],
        )
        for first, last, spread in sorted(disagreeing(found.residues), key=lambda each: -each[2])[:20]
    ]
    clusters = [
        (
            f"{number}: like {found.names[cluster[0]]}",
            [
                str(len(cluster)),
                ", ".join(found.names[each] for each in cluster[:8]) + (" …" if len(cluster) > 8 else ""),
            ],
        )
        for number, cluster in enumerate(found.clusters, start=1)
    ]
    blocks: list[Block] = [
        Text(
            "The spread of a residue is the root mean square distance of its atoms from their mean places in all models, which "
            "are not superposed: all sit in one map. It tells how precisely the map, and not the start or the noise, places a "
            "residue. That all models agree is no proof that they are right."
        ),
        Plot(
            "spread",
            "Spread of the models by residue (click on a residue to see it)",
            "The spread of all atoms and of the backbone of each residue, with a line where models count as agreeing.",
            spread_figure(found.residues, AGREED),
        ),
        Items("Where the models do not agree", stretches),
        Table("Clusters of models that are alike", ["models", "which"], clusters),
        Residues("All residues"),
    ]
    return Section("agreement", "What do the fits agree on?", blocks)


_FIGURES = (
    ("state", "state", ""),
    ("CC before", "cc_before", ".3f"),
    ("CC", "cc", ".3f"),
    ("CC of all copies", "cc_assembly", ".3f"),
    ("R-free before", "r_free_before", ".3f"),
    ("R-work", "r_work", ".3f"),
    ("R-free", "r_free", ".3f"),
    ("free CC", "cc_free", ".3f"),
    ("Q-score", "q_score", ".3f"),
    ("Cα RMSD (Å)", "ca_rmsd", ".2f"),
    ("Ramachandran outliers", "ramachandran_outliers", ""),
    ("rotamer outliers", "rotamer_outliers", ""),
    ("clashes", "clashes", ""),
    ("doubts", "doubts", ""),
    ("seed", "seed", ""),
    ("s", "wall_seconds", ".0f"),
    ("attempts", "attempts", ""),
    ("why not", "error", ""),
)
"""Headings of the table of fits, the columns of ``batch.csv`` that they show, and how."""


def _fits(rows: Sequence[Mapping[str, Any]]) -> Section:
    shown = [each for each in _FIGURES if any(row.get(each[1]) is not None for row in rows)]
    cells = [
        (
            row["name"],
            ["" if row.get(key) is None else format(row[key], form) for _, key, form in shown],
        )
        for row in rows
    ]
    links = [f"{row['folder']}/report.html" if row["state"] == "finished" else None for row in rows]
    table = Table(
        "Click on a heading to sort, on a fit for its report",
        [heading for heading, _, _ in shown],
        cells,
        "fit",
        links,
        is_sortable=True,
    )
    return Section("fits", "All fits", [table])


def _repeat(command: str | None) -> Section:
    blocks: list[Block] = [] if command is None else [Command(command)]
    cited = citations(("openmm", "mdtraj", "gemmi", "dask", "3dmol"))
    return Section(
        "cite", "How to cite and repeat it", [*blocks, Items("Please cite", [Item(each) for each in cited])]
    )


def _color(page: MapPage, number: int) -> int:
    """Return the place of a model's colour: by cluster, where there are several."""
    clusters = [] if page.consensus is None else page.consensus.clusters
    if len(clusters) < 2:
        return number
    return next(place for place, cluster in enumerate(clusters) if number in cluster)


def _shown_model(number: int, label: str, model: Model, color: int) -> ShownModel:
    shade = _COLORS[color % len(_COLORS)]
    return ShownModel(f"model-{number}", label, model.topology, model.positions, model.b_factors, shade)


def _residues(model: Model) -> list[dict[str, Any]]:
    return [
        {
            "residue": residue_label(residue),
            "chain": residue.chain.id,
            "number": residue.id,
            "kind": residue_kind(residue),
        }
        for residue in model.topology.residues()
        if not is_water(residue.name)
    ]
