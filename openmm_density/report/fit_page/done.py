"""The part of a fit's page that says what was done: protocol, strengths and notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...base.page_blocks import Block, Facts, Item, Items, Plot, Section, Table
from ...base.stopwatch import in_words
from ...base.wording import counted
from ..figures import pull_in_words
from ..fit_plots import progress_figure
from .contents import FitContents


def done_section(contents: FitContents) -> Section:
    """Return the section."""
    summary = contents.summary
    blocks: list[Block] = [
        Facts(list(_facts(summary))),
        Table(
            "Stages (strengths in kJ/mol per fitted atom)",
            ["steps", "resolution (Å)", "strength", "converged"],
            [
                (
                    stage["name"],
                    [
                        str(stage["steps"]),
                        f"{stage['resolution']:.4g}",
                        f"{stage['strength']:.3g}",
                        "yes" if stage["converged"] else "",
                    ],
                )
                for stage in summary["stages"]
            ],
        ),
        *_strengths_of_half_maps(summary["half_maps"]),
        Plot(
            "progress",
            "How the fit went",
            "Correlation and similarity, distance to the reference where there is one, strength and temperature over the steps "
            "of the fit; stages are shaded in turn.",
            progress_figure(contents.log, summary["stages"]),
        ),
        *_ligands(summary.get("ligand_potentials") or ()),
        Items("Notes", [Item(note) for note in summary["notes"]]),
    ]
    return Section("done", "What was done?", blocks)


def _ligands(ligands: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    """Yield a table of the ligands that have a potential of their own, where there are some."""
    if not ligands:
        return
    yield Table(
        "Ligands with a potential of their own (strain above the relaxed molecule in kJ/mol, before and after the fit)",
        ["potential", "before", "after", "looks", "not known", "held back"],
        [
            (
                ligand["residue"],
                [
                    ligand["potential"],
                    f"{ligand['strain_initial']:.0f}",
                    f"{ligand['strain_final']:.0f}",
                    *(str(ligand[name]) for name in ("looks", "unknown", "held_times")),
                ],
            )
            for ligand in ligands
        ],
    )


def _facts(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "protocol", f"{summary['protocol']}, {summary['steps']} of {summary['steps_planned']} steps"
    yield "strength", pull_in_words(summary)
    yield "similarity", summary["similarity"]
    yield "force field", ", ".join(summary["forcefield"])
    yield "solvent", summary["solvent"]
    yield "platform", f"{summary['platform']} ({summary['force_backend']})"
    voxels = " × ".join(f"{size:.3g}" for size in summary["map_voxel_size"])
    yield "voxels of the map", f"{voxels} Å"
    corrections = {
        name: value
        for name, value in (summary.get("map_corrections") or {}).items()
        if value not in (None, False)
    }
    if corrections:
        yield (
            "corrections of the map",
            ", ".join(
                name.replace("_", " ") if value is True else f"{name.replace('_', ' ')} {value}"
                for name, value in corrections.items()
            ),
        )
    if summary["placement"] is not None:
        yield "placed", f"as a rigid body, by {summary['placement']['moved_by']:.1f} Å"
    if summary["blow_ups"]:
        yield "instabilities", f"{counted(summary['blow_ups'], 'time')} rolled back"
    spent = in_words(summary["seconds_by_part"])
    yield "time", f"{summary['wall_seconds']:.0f} s" + (f": {spent}" if spent else "")


def _strengths_of_half_maps(scan: Mapping[str, Any] | None) -> Iterator[Block]:
    """Yield the table of strengths that one half map was fitted with, if any were."""
    if scan is not None:
        rows = zip(scan["strengths"], scan["work"], scan["free"])
        yield Table(
            "Correlation after fits into one half map, by strength (kJ/mol per fitted atom)",
            ["with this half", "with the other", "chosen"],
            [
                (
                    f"{strength:g}",
                    [f"{work:.3f}", f"{free:.3f}", "yes" if strength == scan["chosen"] else ""],
                )
                for strength, work, free in rows
            ],
        )
