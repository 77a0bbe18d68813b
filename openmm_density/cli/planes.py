"""``openmm-density planes``: list what is flat in a model, and how flat it is."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from ..base.plugins import defer_torch
from ..base.progress import console_for_results
from .arguments import add_dictionary, check_files
from .startup import loading

if TYPE_CHECKING:
    from .arguments import Commands


def add_parser(commands: Commands) -> None:
    """Add what ``planes`` takes."""
    parser = commands.add_parser(
        "planes",
        help="list the flat groups of a model and how flat they are",
        description="Print what is flat in MODEL, by residue type, and how far its atoms are from their planes, the worst first.",
    )
    parser.add_argument("model", metavar="MODEL", help="PDB or mmCIF, .gz or not")
    add_dictionary(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Print the planes; return the exit status."""
    check_files([options.model], dictionaries=options.dictionary)
    defer_torch()
    with loading():
        from ..models.chemistry.planes import find_planes, planarity_report
        from ..models.structures import read_model
        from ..validation.flatness import flat_ligands

    model = read_model(options.model)
    planes = find_planes(model.topology, model.positions, dictionaries=options.dictionary)
    report = planarity_report(model.topology, planes, model.positions)
    ligands = flat_ligands(model.topology, planes, model.positions)
    if options.json:
        found = {**report.as_dict(), "flat_ligands": [ligand.as_dict() for ligand in ligands]}
        print(json.dumps(found, indent=2))
        return 0
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("residue", "group", "planes", "RMS (Å)", "worst (Å)", "where"):
        table.add_column(
            heading, justify="right" if heading in ("planes", "RMS (Å)", "worst (Å)") else "left"
        )
    for row in report.rows:
        table.add_row(
            row.residue_name,
            row.kind,
            str(row.n_planes),
            f"{row.rms:.3f}",
            f"{row.worst:.3f}",
            row.worst_atom,
        )
    console = console_for_results()
    console.print(table)
    console.print(f"{report.n_planes} planes, RMS {report.rms:.3f} Å, worst {report.worst:.3f} Å")
    for ligand in ligands:
        console.print(
            f"{ligand.residue}: {ligand.n_atoms} atoms in one conjugated system, RMS {ligand.rms:.3f} Å, "
            f"worst {ligand.worst:.3f} Å ({ligand.worst_atom})"
        )
    for label in report.dropped:
        console.print(f"too few atoms present: {label}")
    for label in report.undetermined:
        console.print(f"cannot be told without a dictionary: {label}")
    return 0
