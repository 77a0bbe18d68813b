"""Residues of a model that are ligands with parameters from outside the force field, and their hydrogens."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from openmm import app

from ...base.errors import InputError, as_argument
from ...base.wording import listing, residue_label
from ..chemistry.elements import is_metal
from ..chemistry.residue_names import standard_residue_names
from ..force_fields import RIGID, check_ligands
from ..ligand_hydrogens import BuiltHydrogen, CompleteMolecule
from ..ligand_identity import handedness, unlike
from ..ligand_potentials import InternalPotential, PlacedPotential, PotentialParameters, gives_potentials
from ..ligands import LigandParameters, dictionary_smiles
from ..structures import Model
from .prepared import PreparationReport
from .work_residues import Link, WorkAtom, WorkResidue

Paths = Sequence[str | os.PathLike[str]] | str | os.PathLike[str]


@dataclass(frozen=True)
class LigandOptions:
    """The user's options for ligands, see `openmm_density.models.prepare`."""

    forcefield: str | None
    smiles: Mapping[str, str]
    dictionaries: Paths
    potentials: Mapping[str, InternalPotential]


class Parameters(Protocol):
    """A source of ligand parameters: `LigandParameters` or `PotentialParameters`."""

    @property
    def names(self) -> frozenset[str]:
        """The residue names that it knows."""
        ...

    def molecule(self, name: str) -> CompleteMolecule:
        """Return what the residues of a name are."""
        ...

    def hydrogens(
        self,
        name: str,
        label: str,
        elements: Sequence[str],
        bonds: Sequence[tuple[int, int]],
        positions: np.ndarray,
    ) -> list[BuiltHydrogen]:
        """Build the hydrogens of a ligand."""
        ...

    def add_to(
        self, forcefield: app.ForceField, residues: Sequence[tuple[str, app.topology.Residue]]
    ) -> None:
        """Add templates to a force field."""
        ...


@dataclass(frozen=True)
class Ligands:
    """Residues of a model with two or more atoms that its force field does not know by name."""

    free: list[app.topology.Residue]
    bound: list[app.topology.Residue]  # To other residues, metals excepted
    with_metal: list[app.topology.Residue]  # Of these, not in the others


def ligands_of(model: Model, forcefield: app.ForceField) -> Ligands:
    """Return the residues of a model that a force field does not know by name."""
    known = standard_residue_names() | forcefield._templates.keys()
    ties = {
        atom.residue.index
        for a, b in model.topology.bonds()
        if a.residue is not b.residue and not is_metal(a) and not is_metal(b)
        for atom in (a, b)
    }
    found = Ligands([], [], [])
    for residue in model.topology.residues():
        if residue.name in known or len(residue) < 2:
            continue
        if any(map(is_metal, residue.atoms())):
            found.with_metal.append(residue)
        else:
            (found.bound if residue.index in ties else found.free).append(residue)
    return found


def ligand_parameters(
    model: Model, forcefield: app.ForceField, options: LigandOptions, report: PreparationReport
) -> tuple[Parameters | None, frozenset[int]]:
    """Return the source of ligand parameters, and the residues that it describes."""
    check_ligands(options.forcefield, options.smiles)
    if options.forcefield in (None, RIGID):
        return None, frozenset()
    check_names(model, forcefield, options.smiles)
    ligands = ligands_of(model, forcefield)
    names = {residue.name for each in (ligands.free, ligands.bound, ligands.with_metal) for residue in each}
    parameters: Parameters
    if gives_potentials(options.forcefield):
        parameters = PotentialParameters(
            {name: each for name, each in options.potentials.items() if name in names}
        )
    else:
        smiles = {**dictionary_smiles(options.dictionaries), **options.smiles}
        present = {residue.name for residue in model.topology.residues()}
        known = standard_residue_names() | forcefield._templates.keys()
        parameters = LigandParameters(
            options.forcefield, {name: text for name, text in smiles.items() if name in present - known}
        )
    free = _described(model, parameters, ligands.free, report)
    bound = [residue for residue in ligands.bound if residue.name in parameters.names]
    if not free:
        _refuse(model, options.forcefield, bound)
    for residues, why in ((bound, "Bound to other residues"), (ligands.with_metal, "With a metal in them")):
        if residues:
            listed = listing([residue_label(residue) for residue in residues])
            report.sentences.append(f"{why}, so not parametrised as ligands: {listed}.")
    return parameters, frozenset(residue.index for residue in free)


def _described(
    model: Model,
    parameters: Parameters,
    residues: Sequence[app.topology.Residue],
    report: PreparationReport,
) -> list[app.topology.Residue]:
    """Return the residues that match their parameters; report others with the same names."""
    found, others, mirrored = [], [], []
    for residue in residues:
        if residue.name not in parameters.names:
            continue
        molecule = parameters.molecule(residue.name)
        # Bond and angle parameters hold for both mirror images, a potential does not.
        has_hand = isinstance(parameters, PotentialParameters)
        difference = unlike(molecule, residue, model.positions if has_hand else None)
        if difference:
            others.append(f"{residue_label(residue)} ({difference})")
            continue
        found.append(residue)
        if has_hand and handedness(molecule, residue, model.positions).is_mirror_image:
            mirrored.append(residue)
    if others and not found:
        raise InputError(
            f"no ligand in it is what its SMILES says: {listing(others)}",
            source=model.path,
            remedy="complete or correct the model, give the SMILES of what is in it, or keep ligands rigid",
        )
    if others:
        report.sentences.append(f"Kept rigid, as they are not what their SMILES says: {listing(others)}.")
    if mirrored:
        listed = listing([residue_label(residue) for residue in mirrored])
        report.sentences.append(
            f"Mirror images of the molecule of their SMILES, with the same potential: {listed}."
        )
    return found


def complete_ligands(
    parameters: Parameters, parametrised: frozenset[int], residues: list[WorkResidue], links: list[Link]
) -> None:
    """Add hydrogens to ligands that have only heavy atoms."""
    for k in sorted(parametrised):
        atoms = list(residues[k].atoms)
        place = {atom.name: index for index, atom in enumerate(atoms)}
        bonds = [(place[a[1]], place[b[1]]) for a, b in links if a[0] == b[0] == k]
        hydrogens = parameters.hydrogens(
            residues[k].name,
            residues[k].label,
            [atom.element.symbol for atom in atoms],
            bonds,
            np.array([atom.position for atom in atoms]),
        )
        for number, hydrogen in enumerate(hydrogens, start=1):
            name = f"H{number}" if f"H{number}" not in place else f"H{number}X"
            residues[k].atoms.append(WorkAtom(name, app.element.hydrogen, hydrogen.position))
            links.append(((k, atoms[hydrogen.parent].name), (k, name)))


def parametrise(
    parameters: Parameters | None,
    parametrised: frozenset[int],
    forcefield: app.ForceField,
    topology: app.Topology,
    report: PreparationReport,
) -> tuple[dict[int, str], list[PlacedPotential]]:
    """Add ligands to a force field; return the templates of those with potentials, by residue, and these."""
    if parameters is None:
        return {}, []
    chosen = [
        (residue_label(residue), residue) for residue in topology.residues() if residue.index in parametrised
    ]
    parameters.add_to(forcefield, chosen)
    if isinstance(parameters, PotentialParameters):
        report.ligand_potentials += [
            f"{label} ({parameters.version_of(residue.name)})" for label, residue in chosen
        ]
        return parameters.templates, parameters.placed
    report.ligands += [f"{label} ({parameters.version})" for label, _ in chosen]
    return {}, []


def check_names(model: Model, forcefield: app.ForceField, smiles: Mapping[str, str]) -> None:
    """Refuse SMILES of residues that are not in the model, or that the force field knows."""
    present = {residue.name for residue in model.topology.residues()}
    strangers = sorted(set(smiles) - present)
    if strangers:
        raise InputError(
            f"must name residues of {model.path}",
            argument="ligands",
            found=strangers[0],
            remedy="give SMILES of residues that are in it",
        )
    known = standard_residue_names() | forcefield._templates.keys()
    if known & smiles.keys():
        raise InputError(
            "must not name residues that the force field knows",
            argument="ligands",
            found=min(known & smiles.keys()),
            remedy="leave out its SMILES, or the file that describes it",
        )


def _refuse(model: Model, forcefield: str, bound: Sequence[app.topology.Residue]) -> None:
    """Raise an error, as there is nothing to parametrise."""
    why = (
        f"has {residue_label(bound[0])} bound to another residue" if bound else "has no unknown residue with "
    )
    if not bound:
        why += "a potential" if gives_potentials(forcefield) else "a SMILES"
    raise InputError(
        f"{as_argument('ligand_forcefield', forcefield)} has nothing to parametrise, as the model {why}",
        source=model.path,
        remedy="give the SMILES of a free ligand, or leave it out",
    )
