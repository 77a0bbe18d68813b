"""What became worse in the geometry of a model, whatever the cause: each bond, angle, centre, plane, ion, ligand and contact.

Nothing here knows what was restrained. Bonds are those of the file, of chemistry, and whatever was as near as a bond before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import gemmi
import numpy as np
from openmm import app
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree

from ..base.wording import atom_label
from ..models.chemistry.contacts import within_bonds
from ..models.chemistry.ideal_geometry import angles_at, bond_angles, heavy_bonds, ideal_values, lengths_of
from ..models.chemistry.metal_sites import USUAL, is_measured_donor, target_distance
from ..models.chemistry.planes import PlaneSet
from ..models.chemistry.residues import is_d_amino_acid, is_water
from ..models.chemistry.stereocentres import chiral_centres
from ..models.chemistry.topologies import hydrogen_mask
from ..models.superposition import superposition

WORSE_BOND, WORSE_ANGLE = 0.2, 18.0
"""Å and degrees by which a bond or an angle may leave what is usual. No fit of a good model into a good map comes near: the worst
of some thousands of angles is 13° from its ideal value."""
WORSE_METAL = 0.5
"""The same of the distance of a metal, in Å."""
SHORTEST, LONGEST = 0.77, 0.25
"""A bond is at least this part of the sum of the covalent radii (triple bonds), and at most so many Å longer."""
LONGEST_OF_METAL = 0.6
"""The same of a metal's."""
NARROWEST, WIDEST = 90.0, 140.0
"""Degrees between which an angle without an ideal value is usual."""
TYPICAL = (100.0, 135.0)
"""Degrees between which nearly all such angles are: one that comes from without these to within them became no worse."""
NEAR_BOND = 0.2
"""Å by which two atoms as near as a bond are farther apart than the sum of their covalent radii at most."""
CLASHING = 2.2
"""Å; no two heavy atoms that are more than two bonds apart are nearer."""
NEARER = 0.4
"""Å by which two atoms have to be nearer than before for a new contact, or farther apart for a bond that is lost."""
STEEPEST, STEEP, FLAT = 0.77, 0.4, 0.2
"""Product of the directions to three neighbours in a tetrahedron, from which on it is that of a centre, and up to which flat; it
is positive where that of `chiral_centres` is by nature."""
FLATNESS, WORSE_FLATNESS = 0.1, 0.1
"""Å from their plane, as root mean square, that atoms of a plane usually have at most, and by how much more they may have."""
SHELL = 6.0
"""Å around an ion of the atoms that tell where it belongs."""
FEWEST = 3
"""Of these, at least."""
STRAYED = 1.5
"""Å by which an ion may move beside these, or the atoms of a molecule as root mean square."""
FEWEST_AROUND = 8
"""Heavy atoms around a molecule, at least."""

_NONE = frozenset({-1})
_FOUR_NEIGHBOURS = frozenset({"C", "Si", "P", "S", "B"})


class Worse(NamedTuple):
    """A bond, angle, centre, plane, distance or contact that became worse."""

    kind: str  # "bond", "angle", "centre", "plane", "metal", "molecule", "contact" or "apart"; of written files "element"
    # As in ``A HIS 57B CA``; with its label, that of an alternate conformer: ``A HIS 57B CA.B``
    atoms: tuple[str, ...]
    before: float | None  # Å, degrees, or the product of directions; None with an atom that was built
    after: float
    usual: tuple[float, float]  # The range of what is usual

    def as_dict(self) -> dict[str, Any]:
        """Return plain strings and numbers; None for a range that is open upwards."""
        return {
            "kind": self.kind,
            "atoms": " - ".join(self.atoms),
            "initial": None if self.before is None else round(self.before, 3),
            "final": round(self.after, 3),
            "usual": [round(value, 3) if np.isfinite(value) else None for value in self.usual],
        }


@dataclass
class LocalGeometry:
    """The bonds, angles, centres, planes and contacts of a model as it was, to compare with those that it has later."""

    topology: app.Topology  # With bonds
    positions: np.ndarray  # (N, 3), before, in Å
    # bool (N,), atoms that were built, which are compared with what is usual alone
    built: np.ndarray | None = None
    bonds: Iterable[tuple[int, int]] = ()  # What is bonded beside the bonds of the topology, as by the file
    planes: PlaneSet = field(default_factory=lambda: PlaneSet(()))  # What is flat
    # The conformer that each atom belongs to; those of different ones do not meet
    labels: Sequence[str] | None = None

    def __post_init__(self) -> None:
        """Find what there is to compare."""
        self._atoms = list(self.topology.atoms())
        n = len(self._atoms)
        if self.built is None:
            self.built = np.zeros(n, dtype=bool)
        codes = {label: k for k, label in enumerate(sorted({"", *(self.labels or ())}))}
        self._label = np.array([codes[each] for each in self.labels or [""] * n], dtype=np.int64)
        symbols = [None if atom.element is None else atom.element.symbol for atom in self._atoms]
        radii = {each: 0.77 if each is None else gemmi.Element(each).covalent_r for each in set(symbols)}
        self._radii = np.array([radii[each] for each in symbols], dtype=np.float64)
        metals = {each for each in set(symbols) if each is not None and gemmi.Element(each).is_metal}
        self._metal = np.array([each in metals for each in symbols], dtype=bool)
        self._heavy = ~hydrogen_mask(self.topology)
        waters = {residue.index for residue in self.topology.residues() if is_water(residue.name)}
        self._water = np.array([atom.residue.index in waters for atom in self._atoms], dtype=bool)
        self._binds = np.array([each not in (None, "C") for each in symbols], dtype=bool)
        self._tetrahedral = np.array([each in _FOUR_NEIGHBOURS for each in symbols], dtype=bool)
        listed = np.array(list(self.bonds), dtype=np.int64).reshape(-1, 2)
        listed = listed[self._heavy[listed].all(axis=1)]
        bonds = np.unique(np.sort(np.concatenate([heavy_bonds(self.topology), listed]), axis=1), axis=0)
        bonds = bonds[self._may_meet(bonds[:, 0], bonds[:, 1])]
        of_metal = self._metal[bonds].any(axis=1)
        self._bonds, self._coordination = bonds[~of_metal], bonds[of_metal]
        angles = bond_angles(self._bonds)
        self._angles = angles[self._may_meet(angles[:, 0], angles[:, 2])]
        self._ideal_lengths, self._ideal_angles = ideal_values(self.topology, self._bonds, self._angles)

    def worse(self, positions: np.ndarray) -> list[Worse]:
        """Return what is worse in other positions (Å), kind by kind, the worst first, and any bond that no molecule has."""
        return [
            *self._bonds_of(positions),
            *self._angles_of(positions),
            *self._centres_of(positions),
            *self._planes_of(positions),
            *self._metals_of(positions),
            *self._molecules_of(positions),
            *self._contacts_of(positions),
        ]

    def _before(self, members: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return values before, nan where an atom of them was built since."""
        return np.where(self.built[members].any(axis=1), np.nan, values)

    def _bonds_of(self, positions: np.ndarray) -> list[Worse]:
        pairs, ideal = self._bonds, self._ideal_lengths
        radii = self._radii[pairs].sum(axis=1)
        low = np.where(np.isfinite(ideal), ideal, SHORTEST * radii)
        high = np.where(np.isfinite(ideal), ideal, radii + LONGEST)
        before, after = self._before(pairs, lengths_of(self.positions, pairs)), lengths_of(positions, pairs)
        impossible = (after < SHORTEST * radii - WORSE_BOND / 2) | (after > radii + LONGEST + WORSE_BOND / 2)
        return self._told("bond", pairs, before, after, (low, high), WORSE_BOND, impossible)

    def _angles_of(self, positions: np.ndarray) -> list[Worse]:
        triples, ideal = self._angles, self._ideal_angles
        low = np.where(np.isfinite(ideal), ideal, NARROWEST)
        high = np.where(np.isfinite(ideal), ideal, WIDEST)
        before = self._before(triples, angles_at(self.positions, triples))
        after = angles_at(positions, triples)
        is_typical = [(values > TYPICAL[0]) & (values < TYPICAL[1]) for values in (before, after)]
        chosen = np.isfinite(ideal) | ~np.isfinite(before) | is_typical[0] | ~is_typical[1]
        usual = low[chosen], high[chosen]
        return self._told("angle", triples[chosen], before[chosen], after[chosen], usual, WORSE_ANGLE)

    def _centres_of(self, positions: np.ndarray) -> list[Worse]:
        """Tell tetrahedral atoms that were inverted or are flat."""
        members, natural = self._centres
        before, after = (_steepness(each, members) for each in (self.positions, positions))
        has_hand = (np.abs(before) > STEEP) & ~self.built[members].any(axis=1)
        hand = np.where(has_hand, np.sign(before), natural)
        worse = np.flatnonzero((hand != 0) & (hand * after < FLAT))
        return [
            Worse(
                "centre",
                (self._name(members[k, 0]),),
                float(before[k]) if has_hand[k] else None,
                float(after[k]),
                (hand[k] * STEEPEST,) * 2,
            )
            for k in worse[np.argsort((hand * after)[worse], kind="stable")]
        ]

    @cached_property
    def _centres(self) -> tuple[np.ndarray, np.ndarray]:
        """Atoms that may be centres with three neighbours, and the sign of those of amino acids and nucleotides, else 0."""
        triples = self._angles[self._tetrahedral[self._angles[:, 1]]]
        triples = triples[np.lexsort((triples[:, 2], triples[:, 0], triples[:, 1]))]
        _, first, counts = np.unique(triples[:, 1], return_index=True, return_counts=True)
        # The first two angles are those of the first neighbour with the second and with the third.
        first = first[counts >= 3]
        others = np.stack([triples[first, k] for k in (1, 0, 2)] + [triples[first + 1, 2]], axis=1)
        known = chiral_centres(self.topology)
        flat = {
            atom
            for plane in self.planes.planes
            for atom in plane.atoms
            if self._neighbours.get(atom, _NONE) <= set(plane.atoms)
        }
        left_out = np.array(sorted({*known[:, 0].tolist(), *flat}), dtype=np.int64)
        others = others[~np.isin(others[:, 0], left_out)]
        is_d = [
            self._atoms[k].name == "CA" and is_d_amino_acid(self._atoms[k].residue.name)
            for k in known[:, 0].tolist()
        ]
        natural = np.append(np.where(is_d, -1.0, 1.0), np.zeros(len(others)))
        return np.concatenate([known, others]), natural

    @cached_property
    def _neighbours(self) -> dict[int, set[int]]:
        """The heavy atoms that each is bonded to."""
        found: dict[int, set[int]] = defaultdict(set)
        for i, j in self._bonds.tolist():
            found[i].add(j)
            found[j].add(i)
        return found

    def _planes_of(self, positions: np.ndarray) -> list[Worse]:
        found = []
        before, after = (self.planes.deviations(each) for each in (self.positions, positions))
        built = [bool(self.built[list(plane.atoms)].any()) for plane in self.planes.planes]
        start = np.where(built, 0.0, before.rms)
        for k in np.argsort(start - after.rms, kind="stable"):
            if after.rms[k] - max(start[k], FLATNESS) > WORSE_FLATNESS:
                plane = self.planes.planes[k]
                first = None if built[k] else float(before.rms[k])
                named = (f"{plane.residue} {self._atoms[after.worst_atom[k]].name}",)
                found.append(Worse("plane", named, first, float(after.rms[k]), (0.0, FLATNESS)))
        return found

    def _metals_of(self, positions: np.ndarray) -> list[Worse]:
        """Tell distances of metals that changed, what came near them that was not, and ions that strayed from their place."""
        pairs = self._coordination
        radii = self._radii[pairs].sum(axis=1)
        low, high = SHORTEST * radii, radii + LONGEST_OF_METAL
        before, after = self._before(pairs, lengths_of(self.positions, pairs)), lengths_of(positions, pairs)
        # A file may name what a water is too far from to be bound to.
        too_long = (after > high + WORSE_METAL / 2) & ~self._water[pairs].any(axis=1)
        found = self._told("metal", pairs, before, after, (low, high), WORSE_METAL, too_long)
        ions = np.flatnonzero(self._metal)
        others = np.flatnonzero(self._heavy & ~self._metal & ~self._water)
        if not len(ions) or not len(others):
            return found
        tree, known = cKDTree(self.positions[others]), {tuple(pair) for pair in pairs.tolist()}
        for ion, around in zip(ions, tree.query_ball_point(self.positions[ions], SHELL)):
            around = others[around]
            if len(around) < FEWEST:
                continue
            apart = np.linalg.norm(self.positions[around] - self.positions[ion], axis=1)
            now = np.linalg.norm(positions[around] - positions[ion], axis=1)
            nearest = self._radii[around] + self._radii[ion] + LONGEST_OF_METAL
            changed = self._binds[around] & ((now < nearest) != (apart < nearest))
            for k in np.flatnonzero(changed & (np.abs(now - apart) > WORSE_METAL)):
                pair = min(ion, around[k]), max(ion, around[k])
                if pair not in known and self._may_meet(*pair):
                    if self._is_bound_better(ion, around[k], apart[k] - nearest[k], now[k]):
                        continue
                    usual = (0.0, nearest[k]) if apart[k] < nearest[k] else (nearest[k], np.inf)
                    found.append(self._of_pair("metal", pair, apart[k], now[k], usual))
            rotation, shift = superposition(self.positions[around], positions[around])
            strayed = float(np.linalg.norm(positions[ion] - self.positions[ion] @ rotation.T - shift))
            if strayed > STRAYED:
                found.append(Worse("metal", (self._name(ion),), 0.0, strayed, (0.0, STRAYED)))
        return found

    def _is_bound_better(self, ion: int, other: int, beyond: float, now: float) -> bool:
        """Return whether an ion binds an atom as usual that was hardly too far away for it, as in a model from a poor map."""
        metal, donor = self._atoms[ion], self._atoms[other]
        if not (0 <= beyond < WORSE_METAL and is_measured_donor(donor)):
            return False
        return USUAL[0] <= now - target_distance(metal, donor) <= USUAL[1]

    def _molecules_of(self, positions: np.ndarray) -> list[Worse]:
        """Tell residues bonded to no other that turned or moved beside their surroundings; like atoms may change places."""
        residue = np.array([atom.residue.index for atom in self._atoms], dtype=np.int64)
        bound = residue[self._bonds[residue[self._bonds[:, 0]] != residue[self._bonds[:, 1]]]]
        own = self._heavy & ~self._water & ~self._metal & ~self.built & ~np.isin(residue, bound)
        own &= np.bincount(residue[own], minlength=residue.max(initial=0) + 1)[residue] > 1
        others = np.flatnonzero(self._heavy & ~self._water & ~self._metal & ~own)
        if not own.any() or not len(others):
            return []
        tree, found = cKDTree(self.positions[others]), []
        for each in np.unique(residue[own]):
            atoms = np.flatnonzero(own & (residue == each))
            near = {k for nearby in tree.query_ball_point(self.positions[atoms], SHELL) for k in nearby}
            if len(near) < FEWEST_AROUND:
                continue
            around = others[sorted(near)]
            rotation, shift = superposition(self.positions[around], positions[around])
            apart = np.linalg.norm(
                (self.positions[atoms] @ rotation.T + shift)[:, None] - positions[atoms], axis=2
            )
            unlike = self._radii[atoms][:, None] != self._radii[atoms]
            moved = apart[linear_sum_assignment(np.where(unlike, np.inf, apart**2))]
            strayed = float(np.sqrt((moved**2).mean()))
            if strayed > STRAYED:
                farthest = self._name(atoms[int(np.argmax(moved))])
                found.append(Worse("molecule", (farthest,), 0.0, strayed, (0.0, STRAYED)))
        return found

    def _contacts_of(self, positions: np.ndarray) -> list[Worse]:
        """Tell atoms as near as a bond, or that clash as they did not, and those that were as near as a bond and are apart."""
        near = np.concatenate([self._near(each) for each in (self.positions, positions)])
        pairs = np.unique(np.sort(near, axis=1), axis=0)
        pairs = pairs[self._may_meet(pairs[:, 0], pairs[:, 1])]
        pairs = pairs[~within_bonds(self._bonds, pairs, len(self._atoms), most=2)]
        before, after = self._before(pairs, lengths_of(self.positions, pairs)), lengths_of(positions, pairs)
        bonded = self._radii[pairs].sum(axis=1) + NEAR_BOND
        water = self._water[pairs].any(axis=1)
        new = (after < CLASHING) & ~(before < after + NEARER)
        was_bonded = (before < bonded) & (before > bonded - 2 * NEAR_BOND) & ~water
        # The bonds within a conformer that was not chosen are not all known, where it is another residue.
        of_conformer = (self._label[pairs] > 0).any(axis=1)
        fused = (after < bonded) & ~water & ~(was_bonded & of_conformer)
        lost = was_bonded & (after > bonded + NEARER)
        found = [
            self._of_pair("contact", pairs[k], before[k], after[k], (CLASHING, np.inf))
            for k in np.flatnonzero(new | fused)
        ]
        return found + [
            self._of_pair("apart", pairs[k], before[k], after[k], (0.0, bonded[k]))
            for k in np.flatnonzero(lost)
        ]

    def _near(self, positions: np.ndarray) -> np.ndarray:
        """Return the pairs of heavy atoms but metals that are nearer than such may be."""
        chosen = np.flatnonzero(self._heavy & ~self._metal)
        pairs = cKDTree(positions[chosen]).query_pairs(CLASHING, output_type="ndarray")
        return chosen[pairs]

    def _may_meet(self, i: Any, j: Any) -> Any:
        """Return whether atoms are of one conformer, or one of them is of all."""
        first, second = self._label[i], self._label[j]
        return (first == second) | (first == 0) | (second == 0)

    def _told(
        self,
        kind: str,
        members: np.ndarray,
        before: np.ndarray,
        after: np.ndarray,
        usual: tuple[np.ndarray, np.ndarray],
        margin: float,
        impossible: np.ndarray | None = None,
    ) -> list[Worse]:
        """Return what is farther from its usual range than before by more than a margin, and what is impossible anyway."""
        low, high = usual
        within = (before >= low) & (before <= high)
        least, most = (np.where(within, before, each) for each in usual)
        first, last = (_beyond(each, least, most) for each in (before, after))
        growth = last - np.nan_to_num(first)
        bad = growth > margin
        if impossible is not None:
            bad |= impossible
        order = np.flatnonzero(bad)[np.argsort(-last[bad], kind="stable")]
        return [
            Worse(
                kind,
                tuple(self._name(atom) for atom in members[k]),
                float(before[k]) if np.isfinite(before[k]) else None,
                float(after[k]),
                (float(low[k]), float(high[k])),
            )
            for k in order
        ]

    def _of_pair(
        self, kind: str, pair: Sequence[int], before: float, after: float, usual: tuple[float, float]
    ) -> Worse:
        first = float(before) if np.isfinite(before) else None
        return Worse(kind, tuple(self._name(atom) for atom in pair), first, float(after), usual)

    def _name(self, index: int) -> str:
        label = "" if self.labels is None else self.labels[index]
        return atom_label(self._atoms[index]) + (f".{label}" if label else "")


def _beyond(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return by how much values are out of a range."""
    return np.maximum(np.maximum(low - values, values - high), 0.0)


def _steepness(positions: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Return the products of the directions from centres to three neighbours: 0.77 or −0.77 in a tetrahedron, 0 where flat."""
    arms = positions[members[:, 1:]] - positions[members[:, :1]]
    arms /= np.maximum(np.linalg.norm(arms, axis=2, keepdims=True), 1e-6)
    return np.linalg.det(arms)
