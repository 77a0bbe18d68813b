"""Hydrogens: which a residue needs, those that are built, and those of the input that are kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence, Set
from typing import Any

import numpy as np
import openmm
from openmm import app, unit

from ..chemistry.elements import is_hydrogen, is_metal
from ..chemistry.residue_names import standard_residue_names
from ..structures import Model
from .prepared import PreparationReport
from .work_residues import Link, WorkAtom, WorkResidue, opposite, positions_of, topology_of

# Å.
_N_H = 1.01


def find_variants(
    model: Model, residues: list[WorkResidue], links: list[Link], known: Sequence[Set[str]]
) -> list[str | None]:
    """Return the protonation state of each residue that the input or a bond decides; None leaves it to the pH."""
    variants: list[str | None] = [None] * len(residues)
    metals: dict[int, set[str]] = defaultdict(set)
    bonds: dict[int, set[str]] = defaultdict(set)
    for (a, name_a), (b, name_b) in links:
        if a == b:
            continue
        bonds[a].add(name_a)
        bonds[b].add(name_b)
        for (own, own_name), (other, other_name) in (((a, name_a), (b, name_b)), ((b, name_b), (a, name_a))):
            if is_metal(residues[other].find(other_name)):
                metals[own].add(own_name)
    for k, residue in enumerate(model.topology.residues()):
        names = {atom.name for atom in residue.atoms()} | known[k]
        has_hydrogens = any(is_hydrogen(atom) for atom in residue.atoms())
        original = model.records[next(residue.atoms()).index].residue_name
        if residue.name == "HIS":
            if metals[k] & {"NE2", "ND1"}:
                variants[k] = {("NE2",): "HID", ("ND1",): "HIE"}.get(
                    tuple(sorted(metals[k] & {"NE2", "ND1"})), "HIN"
                )
            elif names & {"HD1", "HE2"}:
                variants[k] = "HIP" if {"HD1", "HE2"} <= names else ("HID" if "HD1" in names else "HIE")
            else:
                variants[k] = {"HSD": "HID", "HSE": "HIE", "HSP": "HIP"}.get(
                    original, original if original in ("HID", "HIE", "HIP") else None
                )
        elif residue.name == "ASP":
            if "HD2" in names or (original == "ASH" and not has_hydrogens):
                variants[k] = "ASH"
        elif residue.name == "GLU":
            if "HE2" in names or (original == "GLH" and not has_hydrogens):
                variants[k] = "GLH"
        elif residue.name == "LYS":
            stripped = {"HZ1", "HZ2"} <= names and "HZ3" not in names
            if "NZ" in bonds[k] or stripped or original == "LYN":
                variants[k] = "LYN"
        elif residue.name == "CYS" and "SG" in metals[k] | bonds[k]:
            variants[k] = "CYX"
    return variants


def add_hydrogens(
    residues: list[WorkResidue],
    links: list[Link],
    variants: list[str | None],
    ph: float,
    platform: openmm.Platform,
) -> None:
    """Add to residues the hydrogens of their protonation states."""
    # Modeller refuses a histidine without its ring; pdbfixer could not complete it, so leave it alone.
    hidden = {}
    for k, residue in enumerate(residues):
        if residue.name == "HIS" and (residue.find("ND1") is None or residue.find("NE2") is None):
            hidden[k], residue.name = residue.name, "HIS*"
            variants[k] = None
    topology, _ = topology_of(residues, links)
    modeller = app.Modeller(topology, positions_of(residues))
    modeller.addHydrogens(None, pH=ph, variants=variants, platform=platform)
    placed = modeller.positions.value_in_unit(unit.angstrom)
    for work, residue in zip(residues, modeller.topology.residues(), strict=True):
        old = {atom.name: atom for atom in work.atoms}
        work.atoms = [
            old.get(atom.name) or WorkAtom(atom.name, atom.element, np.array(placed[atom.index]))
            for atom in residue.atoms()
        ]
        # Modeller caps the first nucleotide of a chain even where a phosphate already sits on its O5'.
        if work.find("P") is not None:
            work.atoms = [atom for atom in work.atoms if atom.name != "HO5'"]
    for k, name in hidden.items():
        residues[k].name = name


def remove_replaced_hydrogens(residues: list[WorkResidue], links: list[Link]) -> None:
    """Remove the hydrogens that a bond to another residue replaces: of a backbone's N all but an amide's, of other atoms one."""
    standard = standard_residue_names()
    for first, second in links:
        if first[0] == second[0]:
            continue
        for (own, name), (other, other_name) in ((first, second), (second, first)):
            if residues[own].name not in standard:
                continue
            parent, partner = residues[own].find(name), residues[other].find(other_name)
            if is_metal(partner) or is_metal(parent):
                continue
            if name == "N" and residues[own].find("CA") is not None:
                _make_amide(residues[own], partner)
                continue
            hydrogens = [
                atom
                for atom in residues[own].atoms
                if is_hydrogen(atom) and np.linalg.norm(atom.position - parent.position) < 1.5
            ]
            if hydrogens:
                nearest = min(hydrogens, key=lambda atom: np.linalg.norm(atom.position - partner.position))
                residues[own].atoms.remove(nearest)


def _make_amide(residue: WorkResidue, partner: WorkAtom) -> None:
    """Leave an amino acid whose N is bound to another residue one hydrogen there, in the plane of the amide; proline none."""
    extra = {"H2", "H3", "H"} if residue.name == "PRO" else {"H2", "H3"}
    residue.atoms = [atom for atom in residue.atoms if atom.name not in extra]
    hydrogen = residue.find("H")
    if hydrogen is not None:
        nitrogen, alpha = residue.find("N").position, residue.find("CA").position
        hydrogen.position = opposite(nitrogen, [alpha, partner.position], _N_H)


def keep_input_hydrogens(
    model: Model, residues: list[WorkResidue], parametrised: frozenset[int], report: PreparationReport
) -> None:
    """Match the input's hydrogens with the built ones, by name, then by parent; the built ones take the input's positions."""
    standard = standard_residue_names()
    for work, residue in zip(residues, model.topology.residues(), strict=True):
        if work.name not in standard and residue.index not in parametrised:
            continue
        given = [atom for atom in residue.atoms() if is_hydrogen(atom)]
        built = {atom.name: atom for atom in work.atoms if is_hydrogen(atom)}
        heavy = [atom for atom in work.atoms if not is_hydrogen(atom)]
        places = np.array([atom.position for atom in heavy])

        def parent(position: np.ndarray, places: np.ndarray = places) -> int:
            return int(np.argmin(np.linalg.norm(places - position, axis=1)))

        if not given or not heavy:
            report.dropped_hydrogens += [model.records[atom.index].describe() for atom in given]
            continue
        matches: list[tuple[Any, WorkAtom]] = []
        left = []
        for atom in given:
            twin = built.get(atom.name)
            if twin is not None and parent(twin.position) == parent(model.positions[atom.index]):
                matches.append((atom, built.pop(atom.name)))
            else:
                left.append(atom)
        for atom in left:
            own = parent(model.positions[atom.index])
            rivals = [twin for twin in built.values() if parent(twin.position) == own]
            if rivals:
                position = model.positions[atom.index]
                twin = min(rivals, key=lambda rival: np.linalg.norm(rival.position - position))
                matches.append((atom, built.pop(twin.name)))
            else:
                report.dropped_hydrogens.append(model.records[atom.index].describe())
        for atom, twin in matches:
            twin.source = atom.index
            position = model.positions[atom.index]
            if 0.7 < np.linalg.norm(position - places[parent(position)]) < 1.6:
                twin.position = position
