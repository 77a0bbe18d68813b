"""The page of a fit: did it fit, can it be trusted, what was done, and how to cite and repeat it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...base.page_blocks import (
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
    Text,
)
from ...base.wording import counted
from ...fitting.installed_extensions import extensions
from ...validation.named_residues import LocatedDoubt, ResidueFinder, doubts_in
from ..citations import citations
from ..figures import crossing_in_words, figure_table
from ..fit_plots import (
    FSC_OF_HALVES,
    GEOMETRY_TITLE,
    HALF_MAPS,
    clash_cards,
    fsc_figure,
    fsc_title,
    geometry_figure,
)
from ..places_to_look import outliers_of, places_to_look
from ..pucker_plot import nucleic_acid_cards, pucker_plot, pyranose_plot
from ..ramachandran_plot import ramachandran_figure
from ..residue_plots import agreement_figure
from ..shown_model import COPIES, residue_values, rows_by_label
from ..structures import drawn_models
from ..surfaces import surfaces_of
from .contents import FitContents, assembly_card
from .crystal import crystal_cards, crystal_section, crystal_verdict
from .done import done_section

_STAGES = {"initial": "before", "final": "after", "reference": "reference"}


def fit_page(contents: FitContents) -> Page:
    """Return the page of a fit."""
    summary = contents.summary
    residues = residue_values(summary["residues"], contents.models)
    doubts = doubts_in(summary)
    picture = contents.folder / "overview.png"
    trajectory = contents.folder / "trajectory.dcd"
    # A folder holds a part of the map.
    whole = summary.get("map_mean"), summary.get("map_sd")
    surfaces = surfaces_of(contents.density_map, contents.models, summary["resolution"], *whole)
    return Page(
        f"{', '.join(Path(path).name for path in summary.get('given', [summary['model']]))} in {Path(summary['map']).name}",
        f"Fitted by openmm-density at {summary['resolution']:.4g} Å, {counted(summary['n_fitted_atoms'], 'atom')} of "
        f"{counted(len(residues), 'residue')} into the density",
        _verdict(summary, doubts),
        bool(doubts),
        _cards(summary),
        [
            *([] if (amplitudes := crystal_section(summary)) is None else [amplitudes]),
            _did_it_fit(contents, doubts),
            _can_it_be_trusted(contents, doubts, residues),
            *(section for extension in extensions() for section in extension.sections(summary)),
            done_section(contents),
            _cite_and_repeat(summary),
        ],
        {
            "residues": residues,
            "structures": drawn_models(
                contents.models, summary["residues"], trajectory if trajectory.is_file() else None
            ),
            "surfaces": None if surfaces is None else vars(surfaces),
        },
        picture.read_bytes() if picture.is_file() else None,
    )


def _verdict(summary: Mapping[str, Any], doubts: Sequence[LocatedDoubt]) -> str:
    """Return what came of the fit, in a sentence or two."""
    simulated = summary.get("simulated")
    cc = simulated["cc"] if simulated else summary["cc_final"]
    change = f"the correlation with the map went from {summary['cc_initial']:.3f} to {cc:.3f}"
    if summary["cc_reference"] is not None:
        change += f" (that of the reference is {summary['cc_reference']:.3f})"
    if summary.get("crystal"):
        begun = crystal_verdict(summary)
    elif summary["interrupted"]:
        begun = f"Interrupted at step {summary['steps']} of {summary['steps_planned']}: {change} so far."
    elif simulated:
        begun = f"The fit did not improve the model, which is kept as it was: {change}."
    else:
        begun = f"The model was fitted: {change}."
    if not doubts:
        return f"{begun} Nothing that was checked speaks against it."
    one = len(doubts) == 1
    return f"{begun} {counted(len(doubts), 'doubt')} below {'says' if one else 'say'} what to look at."


def _cards(summary: Mapping[str, Any]) -> list[Card]:
    """Return the figures that matter most, of the model that was kept."""
    made = {name.removesuffix("_final"): value for name, value in summary.items() if name.endswith("_final")}
    cards = [
        Card("Correlation (CC mask)", _number(made["cc"]), _others(summary, "cc", _number)),
        Card("Q-score of all atoms", _number(made["q_score"]), _others(summary, "q_score", _number)),
        Card(
            "FSC of map and model 0.5 at",
            _angstrom(crossing_in_words(made["fsc_resolution"], made["fsc_falls"])),
            _others(summary, ("fsc_resolution", "fsc_falls"), lambda *of: _angstrom(crossing_in_words(*of))),
        ),
    ]
    cards[:0] = crystal_cards(summary)
    if (of_all := assembly_card(summary)) is not None:
        cards.insert(1, of_all)
    halves = summary["half_maps"] or {}
    if halves.get("fsc"):
        said = _angstrom(crossing_in_words(halves["fsc_resolution"], halves["fsc_falls"]))
        cards.append(Card("FSC of the half maps 0.143 at", said, "around the model"))
    if made["ca_rmsd"] is not None:
        cards.append(
            Card(
                "Distance to the reference",
                f"{made['ca_rmsd']:.2f} Å",
                _others(summary, "ca_rmsd", lambda rmsd: f"{rmsd:.2f} Å"),
            )
        )
    outliers, count = (made["geometry"][f"ramachandran_{name}"] for name in ("outlier_count", "count"))
    if outliers is not None:
        cards.append(Card("Ramachandran outliers", str(outliers), f"of {count}"))
    return [*cards, *nucleic_acid_cards(made["geometry"]), *clash_cards(made["geometry"])]


def _others(summary: Mapping[str, Any], keys: str | Sequence[str], said: Callable[..., str]) -> str:
    """Return a figure of the other models: of that before, or after where that before was kept, and of the reference."""
    keys = [keys] if isinstance(keys, str) else keys
    simulated = summary.get("simulated")
    found = {"before": [summary.get(f"{key}_initial") for key in keys]}
    if simulated:
        found = {"kept as it was; after": [simulated[key] for key in keys]}
    if summary["reference"] and "ca_rmsd" not in keys:
        found["reference"] = [summary.get(f"{key}_reference") for key in keys]
    return ", ".join(f"{name} {said(*values)}" for name, values in found.items())


def _number(value: float | None) -> str:
    return "–" if value is None else format(value, ".3f")


def _angstrom(said: str | None) -> str:
    return "–" if said is None else said if said == "nowhere" else f"{said}\N{NO-BREAK SPACE}Å"


def _did_it_fit(contents: FitContents, doubts: Sequence[LocatedDoubt]) -> Section:
    summary = contents.summary
    figures = figure_table(summary)
    stages = _stages(summary)
    curves = {stage: (label, summary.get(f"fsc_{stage}")) for stage, label in stages.items()}
    halves = (summary["half_maps"] or {}).get("fsc")
    doubtful = [place.rows for doubt in doubts for place in doubt.places]
    blocks: list[Block] = [
        _without_empty_columns(Table("Agreement with the map", figures.headings, figures.agreement)),
        *(Text(sentence) for sentence in contents.missing),
        Plot(
            "agreement",
            "Agreement with the map by residue (click on a residue to see it)",
            "Correlation and Q-score of each residue before and after the fit and in the reference; doubted stretches are "
            "shaded, a green bar above marks what was rebuilt. The table of residues has the same figures.",
            agreement_figure(summary["residues"], stages, doubtful),
        ),
        Plot(
            "fsc",
            fsc_title(bool(halves)),
            "Fourier shell correlation over resolution, before and after the fit and of the reference, with a line at 0.5"
            f"{FSC_OF_HALVES if halves else ''}.",
            fsc_figure(curves | {HALF_MAPS: (HALF_MAPS, halves)}),
        ),
    ]
    return Section("did-it-fit", "Did it fit?", blocks)


def _without_empty_columns(table: Table) -> Table:
    kept = [
        i for i in range(len(table.headings)) if any(cells[i] for _, cells in table.rows if i < len(cells))
    ]
    rows = [(name, [cells[i] if i < len(cells) else "" for i in kept]) for name, cells in table.rows]
    return Table(table.caption, [table.headings[i] for i in kept], rows)


def _stages(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return what the figures of each stage are of, by the endings of their names."""
    if summary.get("simulated"):  # all figures by residue are then of what was kept
        return {"final": "before (kept)", **({"reference": "reference"} if summary["reference"] else {})}
    stages = dict(_STAGES)
    if summary["interrupted"]:
        stages["final"] = "so far"
    if not summary["reference"]:
        del stages["reference"]
    return stages


def _can_it_be_trusted(
    contents: FitContents, doubts: Sequence[LocatedDoubt], residues: Sequence[Mapping[str, Any]]
) -> Section:
    summary = contents.summary
    figures = figure_table(summary)
    simulated = summary.get("simulated")
    after = simulated["geometry"] if simulated else summary["geometry_final"]
    reports = {
        "initial": (figures.headings[0], summary["geometry_initial"]),
        "relaxed": ("relaxed", summary["geometry_relaxed"]),
        "final": (figures.headings[2], after),
        "reference": ("reference", summary["geometry_reference"]),
    }
    models = [each for each in contents.models if each.key != COPIES]
    rows = rows_by_label(summary["residues"])
    blocks: list[Block] = [
        Items("", [_doubt_item(doubt) for doubt in doubts], are_doubts=True)
        if doubts
        else Text(
            "Nothing that was checked speaks against this fit. That is no proof: look at the model in its map as well."
        ),
        Table(
            "Geometry: “relaxed” is the model minimised without the map", figures.headings, figures.geometry
        ),
        Plot(
            "geometry",
            GEOMETRY_TITLE,
            "Bars of bond and angle deviations, clashes, Ramachandran and rotamer outliers; the table above has the figures.",
            geometry_figure(reports),
        ),
        Plot(
            "ramachandran",
            "Ramachandran plot (click on a residue to see it; names in the legend switch models on and off)",
            "φ and ψ of each residue over the favoured and allowed regions of Lovell et al. 2003; outliers are listed below.",
            ramachandran_figure(models, rows),
        ),
        pucker_plot(models, rows),
        pyranose_plot(models, rows),
        Items("Where to look", _places_to_look(summary, after)),
        *(block for extension in extensions() for block in extension.blocks(summary, residues)),
        Residues("All residues, those that fit the map worst first"),
    ]
    return Section("trust", "Can I trust it?", blocks)


def _doubt_item(doubt: LocatedDoubt) -> Item:
    spots = [Spot(f"Show {place.label}", place.rows) for place in doubt.places[:10]]
    section = "geometry" if doubt.kind == "geometry" or doubt.sentence.startswith("the geometry") else None
    sentence = doubt.sentence[:1].upper() + doubt.sentence[1:]
    return Item(sentence, spots or [Spot("Show me the model")], section)


def _places_to_look(summary: Mapping[str, Any], geometry: Mapping[str, Any]) -> list[Item]:
    """Return the residues that stand out by one measure or another, each with a button."""
    finder = ResidueFinder(summary["residues"])
    deviations = [atoms for atoms in (geometry["worst_bond_atoms"], geometry["worst_angle_atoms"]) if atoms]
    lists = {
        "Lowest correlations": [each["residue"] for each in summary["worst_residues"]],
        **outliers_of(geometry),
        "Largest deviations of a bond and of an angle": deviations,
    }
    return places_to_look(lists, finder)


def _cite_and_repeat(summary: Mapping[str, Any]) -> Section:
    command = summary.get("command")
    versions = [(name, version) for name, version in summary["versions"].items() if version]
    took_part = ["openmm", *summary["forcefield"], "q_score", "ramachandran", "gemmi", "mdtraj", "3dmol"]
    same = (
        "The same command with --platform CPU --threads 1 and the same versions gives the same bits; otherwise noise differs a "
        "little."
    )
    blocks: list[Block] = [
        Command(command or _command_from(summary)),
        Text(
            same
            if command
            else f"The command as far as the summary tells: further options are not in it. {same}"
        ),
        Facts([("seed", str(summary["seed"])), *versions]),
        Items("Please cite", [Item(each) for each in citations(took_part)]),
    ]
    return Section("cite", "How to cite and repeat it", blocks)


def _command_from(summary: Mapping[str, Any]) -> str:
    """Return a command that repeats a fit as far as its summary tells."""
    words = [
        "openmm-density",
        "fit",
        summary["model"],
        summary["map"],
        "--resolution",
        f"{summary['resolution']:g}",
    ]
    words += [
        "--protocol",
        "protocol.toml",
        "--seed",
        str(summary["seed"]),
        "--platform",
        summary["platform"],
    ]
    if summary["reference"]:
        words += ["--reference", summary["reference"]]
    return shlex.join([*words, "--output", "again"])
