"""Bonds and angles of a topology, and their usual values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from openmm import app

from .topologies import bonded_pairs, hydrogen_mask

IDEAL_VALUE_FILES = ("protein.ff14SB.xml", "DNA.OL15.xml", "RNA.OL3.xml")
"""OpenMM's Amber force field files, whose bond and angle terms give the ideal values."""

_HISTIDINE_RING = frozenset({"CG", "ND1", "CE1", "NE2", "CD2"})
# Degrees within it, and from its atoms to others: means of its three protonations (Engh and Huber 2001), 2° from each.
_WITHIN_RING, _OUT_OF_RING = 108.0, {"ND1": 122.5, "CD2": 130.0}


@dataclass(frozen=True)
class _Ideals:
    """Atom types of the residues, and the ideal values of bonds (Å) and angles (degrees) between them."""

    types: dict[str, dict[str, str]]
    bonds: dict[tuple[str, str], float]
    angles: dict[tuple[str, str, str], float]


@lru_cache(maxsize=1)
def _ideals() -> _Ideals:
    types: dict[str, dict[str, str]] = {}
    bonds: dict[tuple[str, str], float] = {}
    angles: dict[tuple[str, str, str], float] = {}
    for file in IDEAL_VALUE_FILES:
        root = ElementTree.parse(Path(app.__file__).parent / "data" / "amber14" / file).getroot()
        for residue in root.find("Residues"):
            types[residue.attrib["name"]] = {
                atom.attrib["name"]: _plain(atom.attrib["type"]) for atom in residue.iter("Atom")
            }
        for term in root.find("HarmonicBondForce"):
            ends = tuple(_plain(term.attrib[f"type{k}"]) for k in (1, 2))
            bonds[ends] = bonds[ends[::-1]] = 10.0 * float(term.attrib["length"])
        for term in root.find("HarmonicAngleForce"):
            ends = tuple(_plain(term.attrib[f"type{k}"]) for k in (1, 2, 3))
            angles[ends] = angles[ends[::-1]] = float(np.degrees(float(term.attrib["angle"])))
    return _Ideals(types, bonds, angles)


def _plain(name: str) -> str:
    """Return Amber's own name of a type, which proteins, DNA and RNA share, so that bonds between these have values."""
    return name.partition("-")[2]


def heavy_bonds(topology: app.Topology) -> np.ndarray:
    """Return the bonds between atoms that are not hydrogen, shape (B, 2)."""
    heavy = ~hydrogen_mask(topology)
    bonds = bonded_pairs(topology)
    return bonds[heavy[bonds].all(axis=1)]


def bond_angles(bonds: np.ndarray) -> np.ndarray:
    """Return the triples of atoms of which the second is bonded to the first and the last, shape (A, 3)."""
    if not len(bonds):
        return np.empty((0, 3), dtype=np.int64)
    ends = np.concatenate([bonds, bonds[:, ::-1]])
    ends = ends[np.lexsort((ends[:, 1], ends[:, 0]))]
    centres, starts, counts = np.unique(ends[:, 0], return_index=True, return_counts=True)
    found = []
    for count in np.unique(counts[counts > 1]):
        chosen = counts == count
        around = ends[:, 1][starts[chosen, None] + np.arange(count)]
        first, last = np.triu_indices(count, 1)
        middle = np.broadcast_to(centres[chosen, None], (len(around), len(first)))
        found.append(np.stack([around[:, first], middle, around[:, last]], axis=-1).reshape(-1, 3))
    return np.concatenate(found) if found else np.empty((0, 3), dtype=np.int64)


def angles_at(positions: np.ndarray, triples: np.ndarray) -> np.ndarray:
    """Return angles in degrees, shape (A,)."""
    u = positions[triples[:, 0]] - positions[triples[:, 1]]
    v = positions[triples[:, 2]] - positions[triples[:, 1]]
    sine = np.linalg.norm(np.cross(u, v), axis=1)
    return np.degrees(np.arctan2(sine, np.einsum("ij,ij->i", u, v)))


def lengths_of(positions: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return distances between the atoms of pairs, shape (P,)."""
    return np.linalg.norm(positions[pairs[:, 0]] - positions[pairs[:, 1]], axis=1)


def ideal_values(
    topology: app.Topology, bonds: np.ndarray, angles: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return Amber's ideal lengths (Å) and angles (degrees); nan where it has none.

    Values for a type are the same in proteins, DNA and RNA, so that bonds between these have them too. Angles at the
    atoms of histidine's ring are those of a five-membered ring: Amber's are 120°. `bonds` int (B, 2): all bonds of heavy
    atoms: those between residues tell what the end of a chain is; `angles` int (A, 3).
    """
    known, types = _ideals(), _amber_types(topology, bonds)
    atoms = list(topology.atoms())
    lengths = [known.bonds.get((types[i], types[j]), np.nan) for i, j in bonds.tolist()]
    degrees = [
        _histidine_angle({atoms[i].name, atoms[j].name, atoms[k].name})
        if atoms[j].name in _HISTIDINE_RING and atoms[j].residue.name == "HIS"
        else known.angles.get((types[i], types[j], types[k]), np.nan)
        for i, j, k in angles.tolist()
    ]
    return np.array(lengths, dtype=np.float64), np.array(degrees, dtype=np.float64)


def _histidine_angle(names: set[str]) -> float:
    """Return the ideal angle at an atom of histidine's ring; nan where the atom outside the ring is not CB."""
    if names <= _HISTIDINE_RING:
        return _WITHIN_RING
    return next((angle for name, angle in _OUT_OF_RING.items() if names == {"CB", "CG", name}), np.nan)


def _amber_types(topology: app.Topology, bonds: np.ndarray) -> list[str]:
    """Return the Amber type of each atom; empty where the tables have none."""
    residues = np.array([atom.residue.index for atom in topology.atoms()], dtype=np.int64)
    joined = set(bonds[residues[bonds[:, 0]] != residues[bonds[:, 1]]].ravel().tolist())
    known = _ideals().types
    types = [""] * len(residues)
    for residue in topology.residues():
        names = {atom.name: atom.index for atom in residue.atoms()}
        name = residue.name
        if name == "HIS":
            # With no hydrogens the protonation is unknown: the doubly protonated ring lies between.
            name = {(True, False): "HID", (False, True): "HIE"}.get(("HD1" in names, "HE2" in names), "HIP")
        elif name == "CYS" and names.get("SG") in joined:
            name = "CYX"
        if "OXT" in names and "C" + name in known:
            name = "C" + name
        elif "N" in names and names["N"] not in joined and "N" + name in known and "CA" in names:
            name = "N" + name
        table = known.get(name, {})
        for atom_name, index in names.items():
            types[index] = table.get(atom_name, "")
    return types
