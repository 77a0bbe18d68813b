"""Ideal values by the ideal coordinates of wwPDB component files, which have no restraints."""

from __future__ import annotations

import gemmi
import numpy as np

from ..ideal_geometry import angles_at, bond_angles
from ..planes.flat_groups import AROMATIC, BondGraph, ordered_pair
from .volumes import chiral_volumes

BOND_SIGMA, ANGLE_SIGMA, PLANE_SIGMA = 0.02, 2.5, 0.02
"""Å, degrees and Å: standard deviations, which component files do not have; about the largest of the monomer library."""

_STEREO = "pdbx_stereo_config"
_COORDINATES = tuple(f"pdbx_model_Cartn_{axis}_ideal" for axis in "xyz")
_ORDERS = {gemmi.BondType.Single: 1.0, gemmi.BondType.Double: 2.0, gemmi.BondType.Triple: 3.0}
_SIGNS = {True: gemmi.ChiralityType.Positive, False: gemmi.ChiralityType.Negative}


def restrain(component: gemmi.ChemComp, block: gemmi.cif.Block) -> bool:
    """Give a residue type the values of its ideal coordinates; return whether its block has these."""
    found = block.find("_chem_comp_atom.", ["atom_id", _STEREO, *_COORDINATES])
    rows = {row.str(0): list(row)[1:] for row in found}
    atoms = component.atoms
    places = np.array(
        [[gemmi.cif.as_number(text) for text in rows.get(atom.id, "????")[1:]] for atom in atoms]
    ).reshape(-1, 3)
    if not len(places) or not np.isfinite(places).all():
        return False
    number = {atom.id: k for k, atom in enumerate(atoms)}
    orders: dict[tuple[int, int], float] = {}
    for bond in component.rt.bonds:
        ends = ordered_pair(number[bond.id1.atom], number[bond.id2.atom])
        orders[ends] = AROMATIC if bond.aromatic else _ORDERS.get(bond.type, AROMATIC)
        bond.value, bond.esd = float(np.linalg.norm(places[ends[0]] - places[ends[1]])), BOND_SIGMA
    ids = [gemmi.Restraints.AtomId(1, atom.id) for atom in atoms]
    _add_angles(component.rt, ids, places, np.array(sorted(orders), dtype=np.int64).reshape(-1, 2))
    graph = BondGraph(tuple(atom.el.name for atom in atoms), orders)
    for _, members in graph.flat_groups():
        plane = gemmi.Restraints.Plane()
        plane.label, plane.esd = f"flat-{len(component.rt.planes)}", PLANE_SIGMA
        plane.ids = [ids[k] for k in members]
        component.rt.planes.append(plane)
    for k, atom in enumerate(atoms):
        heavy = [near for near in graph.neighbours[k] if not atoms[near].is_hydrogen()][:3]
        if rows[atom.id][0] in ("R", "S") and len(heavy) == 3:
            chiral = gemmi.Restraints.Chirality()
            chiral.id_ctr, chiral.id1, chiral.id2, chiral.id3 = (ids[n] for n in (k, *heavy))
            chiral.sign = _SIGNS[bool(chiral_volumes(places, np.array([[k, *heavy]]))[0] > 0)]
            component.rt.chirs.append(chiral)
    component.set_group(group_of(block.find_value("_chem_comp.type") or "", component))
    return True


def group_of(kind: str, component: gemmi.ChemComp) -> str:
    """Return the group of a residue type of a wwPDB kind, such as ``L-peptide linking``; it tells what links fit."""
    bonds = {frozenset((bond.id1.atom, bond.id2.atom)) for bond in component.rt.bonds}
    for word in ("RNA", "DNA"):
        if word in kind.upper():
            return word
    if "SACCHARIDE" in kind.upper():
        return "ketopyranose" if frozenset(("C2", "O6")) in bonds else "pyranose"
    if "PEPTIDE" not in kind.upper():
        return "NON-POLYMER"
    heavy = {atom.id for atom in component.atoms if not atom.is_hydrogen()}
    of_nitrogen = {atom for bond in bonds if "N" in bond for atom in bond} & heavy - {"N", "CA"}
    if not of_nitrogen:
        return "peptide"
    is_methyl = all(
        sum(len(bond & heavy) == 2 and atom in bond for bond in bonds) == 1 for atom in of_nitrogen
    )
    return "M-peptide" if is_methyl else "P-peptide"


def _add_angles(
    restraints: gemmi.Restraints, ids: list[gemmi.Restraints.AtomId], places: np.ndarray, bonds: np.ndarray
) -> None:
    triples = bond_angles(bonds)
    for atoms, value in zip(triples.tolist(), angles_at(places, triples).tolist()):
        angle = gemmi.Restraints.Angle()
        angle.id1, angle.id2, angle.id3 = (ids[k] for k in atoms)
        angle.value, angle.esd = value, ANGLE_SIGMA
        restraints.angles.append(angle)
