"""Whether atoms of different residues at bond distance can be bonded, by elements, valences, angles and components."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import gemmi
import numpy as np
from openmm import app

from .chemistry.elements import covalent_radius, is_hydrogen
from .chemistry.residue_names import is_standard_polymer

# The most bonds that an atom can have, hydrogens included; more for sulphur with oxygen.
VALENCES = {"H": 1, "B": 4, "C": 4, "N": 4, "O": 2, "Si": 4, "P": 5, "S": 2, "Se": 2}
# Angles (degrees) between a new bond and existing ones at its ends: a mere contact comes from any direction.
SMALLEST_ANGLE, LARGEST_ANGLE = 82.0, 160.0
# Å: a carbon and an oxygen closer than this share a double bond; an atom closer than this to the plane of its neighbours is flat.
CARBONYL_BOND = 1.30
FLAT = 0.15
# Å that the atom of a new bond may be out of the plane of a carbonyl group.
OUT_OF_PLANE = 0.8

_NUCLEOPHILES = {
    "CYS": ("SG",),
    "LYS": ("NZ",),
    "SER": ("OG",),
    "THR": ("OG1",),
    "TYR": ("OH",),
    "HIS": ("ND1", "NE2"),
    "ASP": ("OD1", "OD2"),
    "GLU": ("OE1", "OE2"),
    "ASN": ("ND2",),
    "GLN": ("NE2",),
    "ARG": ("NH1", "NH2"),
    "TRP": ("CD1",),
}
"""Atoms of standard amino acids with covalent links in known structures; besides, the nitrogen of a free terminus."""

# Carbons of aromatic side chains with covalent links, as in galactose oxidase, tyrosinase, catalase-peroxidase and
# amatoxins; and how much their bonds (Å) and angles (degrees) may deviate: nothing else distinguishes them from a contact.
_AROMATIC_CARBONS = {"TYR": ("CE1", "CE2"), "TRP": ("CD1", "CH2"), "HIS": ("CE1", "CD2")}
_AROMATIC_PARTNERS = {"CYS": ("SG",), "MET": ("SD",), "HIS": ("ND1", "NE2"), "TYR": ("OH", "CE1", "CE2")}
AROMATIC_SLACK = 0.15
AROMATIC_ANGLES = (105.0, 145.0)

# Those of nucleotides: sugars and phosphates.
_NUCLEOTIDE_NUCLEOPHILES = frozenset({"O2'", "O3'", "O5'", "OP1", "OP2", "O1P", "O2P"})


class LinkChemistry:
    """Decide which contacts between residues can be bonds.

    Without a record in the file a bond is made only where chemistry is known to make it: of a sugar's anomeric carbon with O, N
    or S; of an acyl group's carbon that lacks its third neighbour with O, N or S, at the end of a peptide also with a methyl or
    methylene; of phosphorus, boron or a sulphonyl that lacks a neighbour with O, N or S; of two sulphurs; of
    certain atoms of side chains with an aromatic carbon of another; and of a reactive atom
    of a protein, such as cysteine's SG or lysine's NZ, with a ligand's carbon that has a valence left, is not flat among three
    neighbours, and belongs to no additive of the crystallisation (gemmi's table of residues). In each case both ends need a free
    valence, hydrogens of the file counted, and angles to their other bonds as bonds have them.

    `positions` (N, 3) in Å. `bonded`: the atoms that each is bonded to; it is read at each call, so it may grow.
    """

    def __init__(
        self, atoms: Sequence[app.topology.Atom], positions: np.ndarray, bonded: Mapping[int, set[int]]
    ) -> None:
        self._atoms, self._positions, self._bonded = atoms, positions, bonded

    def explains(self, i: int, j: int) -> bool:
        """Return whether two atoms of different residues at bond distance can be bonded."""
        if any(self._has_full_valence(k) for k in (i, j)) or not (
            self._angles_fit(i, j) and self._angles_fit(j, i)
        ):
            return False
        return (
            self._attacks(i, j)
            or self._attacks(j, i)
            or self._is_disulphide(i, j)
            or self._is_on_ring(i, j)
            or self._is_on_ring(j, i)
        )

    def _attacks(self, i: int, j: int) -> bool:
        """Return whether i can be the nucleophile that is bound to j."""
        symbol = self._symbol(j)
        if self._symbol(i) == symbol == "C":
            return self._atoms[j].name == "C" and len(self._heavy(i)) <= 1 and self._is_acyl(j, i)
        if not self._is_nucleophile(i):
            return False
        if symbol in ("P", "B") or self._is_sulphonyl(j):
            return len(self._heavy(j)) <= 3 and self._symbol(i) in ("O", "N", "S")
        if symbol != "C":
            return False
        if self._is_anomeric(j):
            return True
        if self._atoms[i].name == "CD1":  # of tryptophan, to which only sugars are bound
            return False
        return self._is_acyl(j, i) or self._is_adduct(j, i)

    def _is_nucleophile(self, k: int) -> bool:
        """Return whether an atom is a nucleophile: O, N or S with a free valence, in a residue where it is reactive."""
        atom = self._atoms[k]
        symbol, neighbours = self._symbol(k), len(self._heavy(k))
        if is_standard_polymer(atom.residue.name):
            if atom.name == "N":
                return neighbours <= (2 if atom.residue.name == "PRO" else 1)
            names = _NUCLEOPHILES.get(atom.residue.name, ())
            return atom.name in names or atom.name in _NUCLEOTIDE_NUCLEOPHILES
        if symbol == "O":
            return neighbours <= 1 and not self._is_carbonyl_oxygen(k)
        if symbol == "N":
            return neighbours <= 2
        return symbol in ("S", "Se") and neighbours <= 1

    def _is_anomeric(self, k: int) -> bool:
        """Return whether a carbon is a sugar's anomeric one, bound to the ring's oxygen and to no other."""
        oxygens = [n for n in self._heavy(k) if self._symbol(n) == "O"]
        if len(oxygens) != 1 or len(self._heavy(k)) > 3:
            return False
        across = [n for n in self._heavy(oxygens[0]) if n != k and self._symbol(n) == "C"]
        residue = self._atoms[k].residue
        return bool(across) and all(self._atoms[n].residue is residue for n in across) and self._ring(k)

    def _ring(self, k: int) -> bool:
        """Return whether an atom is in a ring of five or six."""
        paths = [[k, n] for n in self._heavy(k)]
        for _ in range(5):
            paths = [[*path, n] for path in paths for n in self._heavy(path[-1]) if n != path[-2]]
            if any(path[-1] == k and len(path) in (6, 7) for path in paths):
                return True
            paths = [path for path in paths if path[-1] not in path[:-1]]
        return False

    def _is_acyl(self, k: int, new: int) -> bool:
        """Return whether a carbon is that of a C=O group with two neighbours, and a third atom is in their plane."""
        neighbours = self._heavy(k)
        return any(self._is_carbonyl_oxygen(n) for n in neighbours) and self._completes_plane(k, new)

    def _completes_plane(self, k: int, new: int) -> bool:
        """Return whether an atom has two neighbours and a third one would lie in their plane."""
        neighbours = self._heavy(k)
        if len(neighbours) != 2:
            return False
        arms = self._positions[neighbours] - self._positions[k]
        normal = np.cross(*arms)
        length = np.linalg.norm(normal)
        return bool(
            length > 0 and abs((self._positions[new] - self._positions[k]) @ normal) / length < OUT_OF_PLANE
        )

    def _is_on_ring(self, i: int, j: int) -> bool:
        """Return whether i can be bound to j, an aromatic carbon of a side chain."""
        a, b = self._atoms[i], self._atoms[j]
        names = _AROMATIC_PARTNERS.get(a.residue.name, ()), _AROMATIC_CARBONS.get(b.residue.name, ())
        if a.name not in names[0] or b.name not in names[1] or not self._completes_plane(j, i):
            return False
        ideal = covalent_radius(a) + covalent_radius(b)
        low, high = AROMATIC_ANGLES
        return abs(self._length(i, j) - ideal) < AROMATIC_SLACK and all(
            low < angle < high for angle in self._angles(j, i)
        )

    def _is_adduct(self, k: int, new: int) -> bool:
        """Return whether a carbon of a ligand can be bound to a reactive atom of a polymer."""
        own, other = self._atoms[k].residue, self._atoms[new].residue
        if not is_standard_polymer(other.name) or is_standard_polymer(own.name):
            return False
        if gemmi.find_tabulated_residue(own.name).kind == gemmi.ResidueKind.BUF:
            return False
        neighbours = self._heavy(k)
        if len(neighbours) == 3:
            arms = self._positions[neighbours] - self._positions[k]
            normal = np.cross(arms[1] - arms[0], arms[2] - arms[0])
            height = abs(arms[0] @ normal) / max(float(np.linalg.norm(normal)), 1e-9)
            return height > FLAT
        return len(neighbours) <= 2

    def _is_disulphide(self, i: int, j: int) -> bool:
        sulphurs = all(self._symbol(k) in ("S", "Se") and len(self._heavy(k)) <= 1 for k in (i, j))
        names = all(
            not is_standard_polymer(self._atoms[k].residue.name) or self._atoms[k].name == "SG"
            for k in (i, j)
        )
        return sulphurs and names

    def _is_sulphonyl(self, k: int) -> bool:
        return self._symbol(k) == "S" and sum(self._symbol(n) == "O" for n in self._heavy(k)) >= 2

    def _is_carbonyl_oxygen(self, k: int) -> bool:
        neighbours = self._heavy(k)
        return (
            self._symbol(k) == "O"
            and len(neighbours) == 1
            and self._symbol(neighbours[0]) == "C"
            and self._length(k, neighbours[0]) < CARBONYL_BOND
        )

    def _has_full_valence(self, k: int) -> bool:
        symbol = self._symbol(k)
        if self._atoms[k].residue.name == "MET":  # a sulphonium ion
            return len(self._bonded[k]) >= (3 if symbol == "S" else VALENCES.get(symbol, 8))
        if symbol == "S" and any(self._symbol(n) == "O" for n in self._bonded[k]):
            return len(self._bonded[k]) >= 4
        return len(self._bonded[k]) >= VALENCES.get(symbol, 8)

    def _angles_fit(self, k: int, new: int) -> bool:
        return all(SMALLEST_ANGLE < angle < LARGEST_ANGLE for angle in self._angles(k, new))

    def _angles(self, k: int, new: int) -> list[float]:
        """Return the angles (degrees) at an atom between a new neighbour and those that it has."""
        arms = self._positions[self._heavy(k)] - self._positions[k]
        towards = self._positions[new] - self._positions[k]
        cosines = arms @ towards / (np.linalg.norm(arms, axis=1) * np.linalg.norm(towards))
        return np.degrees(np.arccos(np.clip(cosines, -1, 1))).tolist()

    def _heavy(self, k: int) -> list[int]:
        return sorted(n for n in self._bonded[k] if not is_hydrogen(self._atoms[n]))

    def _symbol(self, k: int) -> str:
        element = self._atoms[k].element
        return "" if element is None else element.symbol

    def _length(self, i: int, j: int) -> float:
        return float(np.linalg.norm(self._positions[i] - self._positions[j]))
