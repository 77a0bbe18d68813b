"""The copies of a unit as the page shows them, and the figures of its assembly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from openmm import app

from ....report.blocks import Card
from ....report.shown_model import COPIES, ShownModel
from ....report.structures import TRACE


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
