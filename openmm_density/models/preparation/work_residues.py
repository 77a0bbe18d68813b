"""The residues of a model during preparation: atoms with positions, links between them, and a topology of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import gemmi
import numpy as np
import openmm
from openmm import app, unit

from ...base.errors import InputError
from ...base.wording import named_atoms, residue_label
from ..chemistry.elements import is_hydrogen, is_metal, openmm_element
from ..chemistry.residue_names import is_standard_polymer, standard_residue_names
from ..structures import (
    BACKBONE_BONDS,
    NEIGHBOUR_BACKBONE_BOND,
    Model,
    polymer_element,
)
from .prepared import PreparationReport

# The chemically nearest residue that force fields know, where shape and protonation are the same.
SUBSTITUTIONS = {"MSE": ("MET", {"SE": "SD"})}


LONGEST_BOND = 100.0
"""Å; a longer bond is an error in the coordinates that minimisation does not correct."""


SAME_PLACE = 0.05
"""Å below which two atoms are duplicates."""


@dataclass
class WorkAtom:
    """An atom; `source` is its number in the input, -1 if it was built."""

    name: str
    element: app.element.Element
    position: np.ndarray
    source: int = -1


@dataclass
class WorkResidue:
    """A residue whose atoms may still change."""

    name: str
    chain: int
    chain_id: str
    id: str
    insertion_code: str
    atoms: list[WorkAtom]

    @property
    def label(self) -> str:
        """Its name in messages."""
        return " ".join(f"{self.chain_id} {self.name} {self.id}{self.insertion_code}".split())

    def find(self, name: str) -> WorkAtom | None:
        """Return the atom of a name, if there is one."""
        return next((atom for atom in self.atoms if atom.name == name), None)


# Two atoms, each as the index of its residue and its name.
Link = tuple[tuple[int, str], tuple[int, str]]


def work_residues_of(
    model: Model, parametrised: frozenset[int], report: PreparationReport
) -> tuple[list[WorkResidue], list[Link]]:
    """Return residues without the hydrogens that will be rebuilt, and the bonds between residues."""
    standard = standard_residue_names()
    residues: list[WorkResidue] = []
    place: dict[int, tuple[int, str]] = {}
    for residue in model.topology.residues():
        name, renamed = SUBSTITUTIONS.get(residue.name, (residue.name, {}))
        work = WorkResidue(
            name, residue.chain.index, residue.chain.id, residue.id, residue.insertionCode, atoms=[]
        )
        if name != residue.name:
            report.substitutions.append(f"{residue_label(residue)} as {name}")
        for atom in residue.atoms():
            if (name in standard or residue.index in parametrised) and is_hydrogen(atom):
                continue
            atom_name = renamed.get(atom.name, atom.name)
            element = atom.element or app.element.carbon
            if atom.name in renamed:
                element = openmm_element(polymer_element(atom_name))
            work.atoms.append(WorkAtom(atom_name, element, model.positions[atom.index], atom.index))
            place[atom.index] = (len(residues), atom_name)
        residues.append(work)
    links: list[Link] = []
    for a, b in model.topology.bonds():
        if a.index in place and b.index in place:
            first, second = place[a.index], place[b.index]
            inside = first[0] == second[0]
            if inside and residues[first[0]].name in standard:
                continue
            if not inside and _is_standard_bond(residues, first, second):
                continue
            links.append((first, second))
    joined = {frozenset((a[0], b[0])) for a, b in links}
    chains = list(model.topology.chains())
    for chain, following in pairwise(chains):
        if following.id != chain.id:
            continue
        last, first = list(chain.residues())[-1], next(following.residues())
        are_polymers = is_standard_polymer(last.name) and is_standard_polymer(first.name)
        if are_polymers and frozenset((last.index, first.index)) not in joined:
            report.chain_breaks.append(f"{residue_label(last)} | {residue_label(first)}")
    return residues, links


def _is_standard_bond(residues: list[WorkResidue], a: tuple[int, str], b: tuple[int, str]) -> bool:
    """Return whether createStandardBonds will make this bond between neighbours."""
    if a[0] > b[0]:
        a, b = b, a
    return (
        b[0] == a[0] + 1 and residues[a[0]].chain == residues[b[0]].chain and (a[1], b[1]) in BACKBONE_BONDS
    )


def check_model_positions(model: Model) -> None:
    """Refuse a model with an atom without position or far from a bonded one, or with duplicate residues."""
    nowhere = np.flatnonzero(~np.isfinite(model.positions).all(axis=1))
    if len(nowhere):
        raise InputError(
            f"positions of {named_atoms(model.topology, nowhere)} are not numbers",
            source=model.path,
            remedy="correct them",
        )
    for first, second in pairwise(model.topology.residues()):
        if first.name == second.name and first.id == second.id and len(first) == len(second) > 1:
            places = (model.positions[[atom.index for atom in each.atoms()]] for each in (first, second))
            if np.allclose(*places, atol=SAME_PLACE):
                raise InputError(
                    f"{residue_label(first)} is there twice, at the same place",
                    source=model.path,
                    remedy="remove one",
                )
    bonds = [(a, b) for a, b in model.topology.bonds() if a.residue is b.residue]
    if not bonds:
        return
    pairs = np.array([(a.index, b.index) for a, b in bonds])
    lengths = np.linalg.norm(model.positions[pairs[:, 0]] - model.positions[pairs[:, 1]], axis=1)
    worst = int(np.argmax(lengths))
    if lengths[worst] > LONGEST_BOND:
        a, b = bonds[worst]
        raise InputError(
            f"{residue_label(a.residue)} has {a.name} and {b.name}, which are bonded, {lengths[worst]:.0f} Å "
            "apart",
            source=model.path,
            remedy="correct or remove one",
        )


def check_backbone(model: Model, residues: list[WorkResidue]) -> None:
    """Raise an error for a model that is only a backbone trace."""
    amino = [residue for residue in residues if gemmi.find_tabulated_residue(residue.name).is_amino_acid()]
    bare = sum(residue.find("N") is None or residue.find("C") is None for residue in amino)
    if amino and bare > len(amino) / 2:
        raise InputError(
            f"{bare} of {len(amino)} amino acids lack backbone atoms, as in a Cα trace or where single atoms were cut out",
            source=model.path,
            remedy="build the full backbone first, or cut whole residues",
        )


def topology_of(residues: list[WorkResidue], links: list[Link]) -> tuple[app.Topology, list[tuple[int, int]]]:
    """Return the topology and, separately, the bonds to metals of other residues."""
    topology = app.Topology()
    chain, number = None, None
    named: list[dict[str, app.topology.Atom]] = []
    for residue in residues:
        if chain is None or residue.chain != number:
            chain, number = topology.addChain(residue.chain_id), residue.chain
        new = topology.addResidue(residue.name, chain, residue.id, residue.insertion_code)
        named.append({atom.name: topology.addAtom(atom.name, atom.element, new) for atom in residue.atoms})
    topology.createStandardBonds()
    bonded = {(a.index, b.index) for a, b in topology.bonds()}

    def is_bonded(a: app.topology.Atom, b: app.topology.Atom) -> bool:
        return (a.index, b.index) in bonded or (b.index, a.index) in bonded

    # Backbone bonds to non-standard residues: createStandardBonds makes only those between standard ones.
    for k, (here, there) in enumerate(pairwise(named)):
        if residues[k].chain == residues[k + 1].chain:
            for tail, head in BACKBONE_BONDS:
                ends = here.get(tail), there.get(head)
                if None not in ends and not is_bonded(*ends):
                    near = np.linalg.norm(
                        residues[k].find(tail).position - residues[k + 1].find(head).position
                    )
                    if near < NEIGHBOUR_BACKBONE_BOND:
                        topology.addBond(*ends)
                        bonded.add((ends[0].index, ends[1].index))
    coordination = []
    for first, second in links:
        a, b = named[first[0]][first[1]], named[second[0]][second[1]]
        if is_bonded(a, b):
            continue
        bonded.add((a.index, b.index))
        if first[0] != second[0] and (is_metal(a) or is_metal(b)):
            coordination.append((a.index, b.index))
        else:
            topology.addBond(a, b)
    return topology, coordination


def bound_atoms(residues: list[WorkResidue], links: list[Link]) -> set[tuple[int, str]]:
    """Return the atoms bonded to other residues by links outside the chain, metals excepted."""
    return {
        end
        for link in links
        if link[0][0] != link[1][0] and not any(is_metal(residues[k].find(name)) for k, name in link)
        for end in link
    }


def opposite(place: np.ndarray, neighbours: Sequence[np.ndarray], length: float) -> np.ndarray:
    """Return a position at a distance from another, in the plane of its two neighbours and at equal angles to them."""
    arms = np.array(neighbours) - place
    arms /= np.maximum(np.linalg.norm(arms, axis=1, keepdims=True), 1e-6)
    direction = -arms.sum(axis=0)
    if np.linalg.norm(direction) < 1e-3:  # collinear with them
        direction = np.cross(arms[0], np.eye(3)[np.argmin(np.abs(arms[0]))])
    return place + length * direction / np.linalg.norm(direction)


def positions_of(residues: list[WorkResidue]) -> unit.Quantity:
    """Return the atoms' positions with a unit."""
    return [
        openmm.Vec3(*(atom.position / 10.0)) for residue in residues for atom in residue.atoms
    ] * unit.nanometer


def b_factors_of(model: Model, residues: list[WorkResidue]) -> np.ndarray:
    """Return the atoms' B factors in Å²; built ones take that of the nearest atom of their residue."""
    result = []
    for residue in residues:
        index = np.array([atom.source for atom in residue.atoms], dtype=np.int64)
        built = index < 0
        if built.any():
            given = [atom for atom in residue.atoms if atom.source >= 0]
            sources = [atom for atom in given if not is_hydrogen(atom)] or given
            if sources:
                to = np.array([atom.position for atom in sources])
                places = np.array([atom.position for atom, lacks in zip(residue.atoms, built) if lacks])
                nearest = np.linalg.norm(to - places[:, None], axis=2).argmin(axis=1)
                index[built] = np.array([atom.source for atom in sources])[nearest]
        result.append(np.where(index < 0, 0.0, model.b_factors[index]))
    return np.concatenate(result)
