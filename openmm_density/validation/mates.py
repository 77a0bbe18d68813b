"""Contacts of a model with its copies, in the crystal or by the operators of an assembly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import gemmi
import numpy as np
from scipy.spatial import cKDTree

from ..models.chemistry.contacts import CLASH_OVERLAP, HYDROGEN_BOND_ALLOWANCE, contact_radii
from ..models.chemistry.elements import is_hydrogen, is_metal
from ..models.structures import Model
from ..models.symmetry_operators import SPECIAL_POSITION, SymmetryOperators

WORSE = 0.3
"""Å by which a pair that was too near before came nearer."""

# Å by which the distances of a pair within the model and to a copy differ at least.
_DIFFERENT = 1e-3
# Sum of the occupancies of two atoms that are alternatives of one another.
_LARGEST_SHARED_OCCUPANCY = 1.0 + 1e-3


@dataclass(frozen=True)
class MateContact:
    """Two atoms of which one is too near to a copy of the other."""

    first: int  # `first`, `second`: atoms of the model; the same for an atom and a copy of its own.
    second: int
    distance: float  # Å


def clashes_with_mates(
    model: Model, positions: np.ndarray, operators: SymmetryOperators | None = None
) -> list[MateContact] | None:
    """Find the clashes of a model with its copies by the symmetry and the translations of its crystal, or by operators.

    Pairs count as in `openmm_density.validation.geometry.GeometryReport.clash_count`: heavy atoms whose van der Waals spheres
    overlap by more than 0.4 Å (0.8 Å between N, O, F and S), no metals. Not counted are atoms that the input has on a special
    position, with their own copies; atoms that are alternatives by their occupancies; and bonds to copies that the file names.
    `positions` (N, 3) of its atoms, in Å. `operators` of an assembly, in place of the crystal that the model's file names;
    those of a crystal are its space group. Returns the nearest first, each pair once, with its nearest copy; None where the
    model has no crystal, and there are no operators.
    """
    near_copies: Callable[[list[int], np.ndarray, float], dict[tuple[int, int], float]]
    if operators is None and (model.cell is None or not model.space_group):
        return None
    if operators is None or operators.cell is not None:
        cell = model.cell if operators is None else operators.cell
        group = model.space_group if operators is None else operators.space_group
        near_copies = partial(_near_copies, cell, group)
    else:
        near_copies = partial(_near_in_assembly, operators)
    atoms = list(model.topology.atoms())
    heavy = [a.index for a in atoms if a.element is not None and not is_hydrogen(a) and not is_metal(a)]
    radii, polar = contact_radii(model.topology)
    farthest = 2 * float(radii[heavy].max(initial=0.0)) - CLASH_OVERLAP
    special = {
        first for first, second in near_copies(heavy, model.positions, SPECIAL_POSITION) if first == second
    }
    linked = {tuple(sorted((link.first, link.second))) for link in model.links if link.symmetry}
    occupancies = model.occupancies
    found = []
    for (i, j), distance in near_copies(heavy, positions, farthest).items():
        limit = radii[i] + radii[j] - CLASH_OVERLAP - HYDROGEN_BOND_ALLOWANCE * (polar[i] and polar[j])
        alternatives = (
            max(occupancies[[i, j]]) < 1 and occupancies[i] + occupancies[j] <= _LARGEST_SHARED_OCCUPANCY
        )
        if distance < limit and not alternatives and (i, j) not in linked and not (i == j and i in special):
            found.append(MateContact(i, j, distance))
    return sorted(found, key=lambda contact: contact.distance)


@dataclass(frozen=True)
class WorseMateContact:
    """A contact with a copy that a model did not have, or not so near."""

    atoms: str  # As in ``A MET 1 CE - A MET 1 CE``, the second in the copy
    separation_initial: float | None  # Å; None where there was no contact
    separation_final: float  # Å


def worse_mate_contacts(
    model: Model, before: list[MateContact], after: list[MateContact]
) -> list[WorseMateContact]:
    """Return the contacts after that were none before, or are nearer by more than `WORSE`, the nearest first."""
    known = {(contact.first, contact.second): contact.distance for contact in before}
    worse = []
    for contact in after:
        distance = known.get((contact.first, contact.second))
        if distance is None or distance - contact.distance > WORSE:
            names = (model.records[k].describe() for k in (contact.first, contact.second))
            worse.append(WorseMateContact(" - ".join(names), distance, contact.distance))
    return worse


def _near_in_assembly(
    operators: SymmetryOperators, chosen: list[int], positions: np.ndarray, reach: float
) -> dict[tuple[int, int], float]:
    """Return the pairs of some atoms (the lower number first) that come near by an operator, and the least distance of each."""
    unit = cKDTree(positions[chosen])
    near: dict[tuple[int, int], float] = {}
    for copy in operators.expanded(positions[chosen])[1:]:
        found = unit.sparse_distance_matrix(cKDTree(copy), reach, output_type="coo_matrix")
        for i, j, distance in zip(found.row, found.col, found.data):
            pair = (min(chosen[i], chosen[j]), max(chosen[i], chosen[j]))
            near[pair] = min(float(distance), near.get(pair, np.inf))
    return near


def _near_copies(
    cell: tuple[float, ...], space_group: str, chosen: list[int], positions: np.ndarray, reach: float
) -> dict[tuple[int, int], float]:
    """Return the pairs of some atoms (the lower number first) that come near by a copy, and the least distance of each."""
    crystal = gemmi.Structure()
    crystal.cell, crystal.spacegroup_hm = gemmi.UnitCell(*cell), space_group
    residue = gemmi.Residue()
    for index in chosen:
        atom = gemmi.Atom()
        atom.pos, atom.serial = gemmi.Position(*positions[index]), index
        residue.add_atom(atom)
    chain = gemmi.Chain("A")
    chain.add_residue(residue)
    copied = gemmi.Model(1)
    copied.add_chain(chain)
    crystal.add_model(copied)
    crystal.setup_cell_images()
    search = gemmi.ContactSearch(reach)
    search.ignore, search.special_pos_cutoff_sq = gemmi.ContactSearch.Ignore.Nothing, 0.0
    near: dict[tuple[int, int], float] = {}
    cells = gemmi.NeighborSearch(crystal[0], crystal.cell, max(reach, 1.0)).populate()
    for contact in search.find_contacts(cells):
        pair = tuple(sorted((contact.partner1.atom.serial, contact.partner2.atom.serial)))
        within = float(np.linalg.norm(positions[pair[0]] - positions[pair[1]]))
        if contact.image_idx or abs(within - contact.dist) > _DIFFERENT:
            near[pair] = min(contact.dist, near.get(pair, np.inf))
    return near
