"""What an earlier preparation built of a model, kept by a later one: the atoms that it lacked, and its protonation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from openmm import app

from ...chemistry.elements import is_hydrogen
from ...errors import InputError
from ..structures import Model
from .prepared import PreparationReport
from .work_residues import WorkAtom, WorkResidue

SAME_PLACE = 0.05
"""Å, within which an atom is where it was: files have three decimals."""


@dataclass(frozen=True)
class CompletedResidue:
    """What an earlier preparation built of a residue.

    Attributes
    ----------
    names : frozenset of str
        Of all its atoms.
    built : mapping of str to (Element, np.ndarray)
        Element and position (Å) of each atom that the model lacks; none where the residue is not where it was then.
    """

    names: frozenset[str] = frozenset()
    built: Mapping[str, tuple[app.element.Element, np.ndarray]] = field(default_factory=dict)


def completed_residues(
    model: Model, completed: Model | None, residues: Sequence[WorkResidue]
) -> list[CompletedResidue]:
    """Return what was built of each residue of a model before."""
    if completed is None:
        return [CompletedResidue()] * len(residues)
    before = list(completed.topology.residues())
    if [_place(each) for each in before] != [_place(each) for each in model.topology.residues()]:
        raise InputError(
            "it has other residues than the model that it is to complete",
            source=completed.path,
            remedy=f"give what a fit of {model.path.name} has written",
        )
    return [_completed(work, each, completed.positions) for work, each in zip(residues, before)]


def _place(residue: app.topology.Residue) -> tuple[str, str, str]:
    return residue.chain.id, residue.id, residue.insertionCode


def _completed(work: WorkResidue, before: app.topology.Residue, positions: np.ndarray) -> CompletedResidue:
    if work.name != before.name:  # of two residues at one place the other one is the major conformer now
        return CompletedResidue()
    atoms = {atom.name: atom for atom in before.atoms()}
    shared = [atom for atom in work.atoms if atom.name in atoms]
    shifts = [np.linalg.norm(atom.position - positions[atoms[atom.name].index]) for atom in shared]
    names = frozenset(atoms)
    if not shared or max(shifts) > SAME_PLACE:
        return CompletedResidue(names)
    lacking = {name: atom for name, atom in atoms.items() if work.find(name) is None}
    return CompletedResidue(
        names, {name: (atom.element, positions[atom.index]) for name, atom in lacking.items()}
    )


def add_heavy_atoms_of(
    completed: Sequence[CompletedResidue], residues: Sequence[WorkResidue], report: PreparationReport
) -> None:
    """Add the heavy atoms that were built before, and report them as built: the model lacks them."""
    for known, work in zip(completed, residues):
        for name, (element, position) in known.built.items():
            if element.atomic_number != 1:
                work.atoms.append(WorkAtom(name, element, position.copy()))
                report.added_heavy_atoms.setdefault(work.label, []).append(name)


def place_hydrogens_of(completed: Sequence[CompletedResidue], residues: Sequence[WorkResidue]) -> None:
    """Put the hydrogens that were built where they were before."""
    for known, work in zip(completed, residues):
        for atom in work.atoms:
            if atom.source < 0 and is_hydrogen(atom) and atom.name in known.built:
                atom.position = known.built[atom.name][1].copy()
