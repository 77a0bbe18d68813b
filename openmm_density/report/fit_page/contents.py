"""What the report of a fit is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from openmm import app

from ...base.page_blocks import Card
from ...fitting.fit_result import FitResult
from ...fitting.flexible_fit import FlexibleFit
from ...maps.density_map import DensityMap
from ..shown_model import COPIES, ShownModel
from ..structures import TRACE


@dataclass(frozen=True)
class FitContents:
    """What the report of a fit is made from."""

    folder: Path  # With the trajectory and the pictures, as far as there are any
    summary: Mapping[str, Any]  # As ``summary.json`` has it
    # After, which comes first, before, the reference, and copies by symmetry, as far as they are there
    models: Sequence[ShownModel]
    log: Sequence[Mapping[str, Any]]  # The rows of ``log.csv``, numbers as such
    density_map: DensityMap | None = None  # Corrected as for the fit
    # A sentence for each thing that was not found, as where the files of an earlier fit have moved
    missing: Sequence[str] = ()


def contents_of(folder: Path, fit: FlexibleFit, result: FitResult, summary: Mapping[str, Any]) -> FitContents:
    """Return what the report of a fit just ended is made from: all else in its folder, and what the simulation made."""
    prepared, reference = result.prepared, fit.reference
    after, before = labels(summary)
    models = [
        ShownModel("after", after, prepared.topology, result.final, prepared.b_factors),
        ShownModel("before", before, prepared.topology, result.initial, fit.prepared.b_factors),
    ]
    if reference is not None:
        models.append(ShownModel("reference", "reference", reference.topology, reference.positions))
    copies = shown_copies(summary, models[0])
    models += [] if copies is None else [copies]
    log = [asdict(row) for row in result.rows]
    return FitContents(folder, summary, models, log, fit.density_map)


def labels(summary: Mapping[str, Any]) -> tuple[str, str]:
    """Return what the models after and before a fit are called."""
    if summary.get("simulated"):
        return "after (not kept)", "before (kept)"
    return ("so far" if summary["interrupted"] else "after"), "before"


def shown_copies(summary: Mapping[str, Any], unit: ShownModel) -> ShownModel | None:
    """Return all copies of a unit but itself, of each the backbone; None for a fit without symmetry."""
    told = summary.get("assembly")
    if not told:
        return None
    rotations, translations = (np.array(told[name])[1:] for name in ("rotations", "translations"))
    atoms = [atom for atom in unit.topology.atoms() if atom.name in TRACE]
    topology = app.Topology()
    for _ in rotations:
        _add_copy(topology, unit.topology)
    own = unit.positions[[atom.index for atom in atoms]]
    positions = np.einsum("gij,nj->gni", rotations, own) + translations[:, None]
    return ShownModel(COPIES, f"copies by {told['symmetry']}", topology, positions.reshape(-1, 3))


def _add_copy(topology: app.Topology, unit: app.Topology) -> None:
    """Add the backbone of a unit to a topology, with its bonds."""
    made: dict[int, app.topology.Atom] = {}
    for chain in unit.chains():
        copy = None
        for residue in chain.residues():
            atoms = [atom for atom in residue.atoms() if atom.name in TRACE]
            if not atoms:
                continue
            copy = copy or topology.addChain(chain.id)
            its = topology.addResidue(residue.name, copy, residue.id, residue.insertionCode)
            for atom in atoms:
                made[atom.index] = topology.addAtom(atom.name, atom.element, its)
    for a, b in unit.bonds():
        if a.index in made and b.index in made:
            topology.addBond(made[a.index], made[b.index])


def assembly_card(summary: Mapping[str, Any]) -> Card | None:
    """Return the correlation of the whole assembly beside that of its unit; None for a fit without symmetry."""
    told = summary.get("assembly")
    if not told:
        return None
    return Card(
        f"Correlation of all {told['copies']} copies",
        f"{told['cc_final']:.3f}",
        f"before {told['cc_initial']:.3f}; {told['symmetry']}, other figures are of the unit",
    )
