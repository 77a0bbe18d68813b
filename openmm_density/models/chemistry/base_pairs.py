"""Base pairs of nucleic acids: which bases are joined by hydrogen bonds between their edges, and lie in one plane."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from openmm import app
from scipy.spatial import cKDTree

from .backbone import named_atom_table
from .ideal_geometry import lengths_of

LONGEST_BOND = 4.0
"""Å up to which heavy atoms form a hydrogen bond; in starting models such bonds are stretched."""

# Between the planes of paired bases, and between a hydrogen bond and these: propeller and buckle of real pairs reach 30°.
_LARGEST_TILT = np.radians(50.0)
_LARGEST_ELEVATION = np.radians(45.0)
_LARGEST_STAGGER = 2.2  # Å between the planes

_RING = ("N1", "C2", "N3", "C4", "C5", "C6")
_NAMES = (*_RING, "C1'", "O2'", "N9", "N2", "N4", "N6", "N7", "O2", "O4", "O6")
_GIVES, _TAKES, _BOTH = 1, 2, 3
_ALWAYS = {
    **dict.fromkeys(("N2", "N4", "N6"), _GIVES),
    **dict.fromkeys(("N7", "O2", "O4", "O6"), _TAKES),
    "O2'": _BOTH,
}
# The edge that an atom lies on, in purines and pyrimidines; atoms on a corner of two edges do not determine one.
_EDGES = (
    {"N1": "W", "N7": "H", "N3": "S", "O2'": "S"},
    {"N3": "W", "N1": "W", "O2'": "S"},
)
_COMPLEMENTARY = {
    ("A", "U"): (("N6", "O4"), ("N1", "N3")),
    ("G", "C"): (("O6", "N4"), ("N1", "N3"), ("N2", "O2")),
    ("G", "U"): (("O6", "N3"), ("N1", "O2")),
}
"""The hydrogen bonds of pairs of the Watson-Crick edges."""
# Å up to which all bonds of a pair are there, however tilted it is, and from N1 of a purine to N3 of a pyrimidine where a helix
# may go on: of 332 pairs of seven models, starts off by 1 to 3.7 Å have 301 by the limits above, 315 with these. And residues
# from one base of a pair to the other across the loop of a hairpin.
_BONDED, _FACING, _SHORTEST_LOOP = 3.5, 4.5, 5


@dataclass(frozen=True)
class BasePairs:
    """The base pairs of a model, and the hydrogen bonds that hold them."""

    residues: np.ndarray  # int (P, 2), indices of the residues, the first the lower
    families: tuple[
        str, ...
    ]  # (P,), Leontis-Westhof families: cis or trans and the edges, as in ``cWW`` and ``tWH``
    bonds: np.ndarray  # int (H, 2), atoms; that of the first residue first
    owners: np.ndarray  # int (H,), the pair of each bond
    lengths: np.ndarray  # (H,), Å

    def labels(self, residues: Sequence[str]) -> list[str]:
        """Name the pairs, as in ``A G 1 - A C 72 (cWW)``, by the names of all residues."""
        return [
            f"{residues[a]} - {residues[b]} ({family})"
            for (a, b), family in zip(self.residues.tolist(), self.families)
        ]


@dataclass(frozen=True)
class _PolarAtoms:
    """The atoms of bases that can form hydrogen bonds, and O2'."""

    atoms: np.ndarray  # int (A,)
    bases: np.ndarray  # int (A,), the bases that they belong to
    roles: np.ndarray  # int (A,), `_GIVES`, `_TAKES` or `_BOTH`
    edges: np.ndarray  # (A,), "W", "H", "S", or "" on the corner of two


class Bases:
    """A model's bases, int (B,) residues with a ring's six atoms and C1', and by name their `atoms`, -1 for none."""

    def __init__(self, topology: app.Topology) -> None:
        table = named_atom_table(topology, _NAMES)
        whole = (table[:, [_NAMES.index(name) for name in (*_RING, "C1'")]] >= 0).all(axis=1)
        self.residues = np.flatnonzero(whole)
        self.atoms = dict(zip(_NAMES, table[whole].T))
        self._chains = np.array([residue.chain.index for residue in topology.residues()], dtype=np.int64)

    def _can_meet(self, first: Any, second: Any) -> Any:
        """Return whether residues are not nearer in one chain than the loop of a hairpin allows."""
        return (self._chains[first] != self._chains[second]) | (second - first >= _SHORTEST_LOOP)

    @property
    def kinds(self) -> np.ndarray:
        """A, C, G or U of each base, (B,), also of those of DNA."""
        return np.where(
            self.purine, np.where(self.atoms["O6"] >= 0, "G", "A"), np.where(self.atoms["N4"] >= 0, "C", "U")
        )

    def mismatched(self, found: BasePairs) -> np.ndarray:
        """Return the residues int (M, 2) that face each other between two pairs of a helix but cannot pair."""
        base = dict(zip(self.residues.tolist(), self.kinds.tolist()))
        pairs = {(a, b) for a, b in found.residues.tolist()}
        facing = [(a + 1, b - 1) for a, b in sorted(pairs) if (a + 2, b - 2) in pairs and a + 1 < b - 1]
        return np.array(
            [
                pair
                for pair in facing
                if pair not in pairs and not _complement(*(base.get(each, "") for each in pair))
            ],
            dtype=np.int64,
        ).reshape(-1, 2)

    def pairs_to_hold(self, positions: np.ndarray) -> BasePairs:
        """Return the base pairs of a start, and those that heat or a bend hides in it. `positions` (N, 3) in Å.

        Besides those of `find_base_pairs` they are complementary bases with all bonds, however tilted, or that face each other
        where a helix goes on, with bonds that may be open. Pairs in a helix that their sequence forbids, whose bonds all are
        long, are left out.
        """
        found = self._allowed(self.pairs(positions))
        hidden = self._hidden(found, positions)
        bonds, owners = self._complementary(np.searchsorted(self.residues, hidden))
        return BasePairs(
            np.concatenate([found.residues, hidden]),
            (*found.families, *["cWW"] * len(hidden)),
            np.concatenate([found.bonds, bonds]),
            np.concatenate([found.owners, len(found.residues) + owners]),
            np.concatenate([found.lengths, lengths_of(positions, bonds)]),
        )

    def _allowed(self, found: BasePairs) -> BasePairs:
        """Return the pairs without those between two others that cannot pair by their sequence and have only long bonds."""
        base = dict(zip(self.residues.tolist(), self.kinds.tolist()))
        pairs = [tuple(pair) for pair in found.residues.tolist()]
        present = set(pairs)
        shortest = np.full(len(pairs), np.inf)
        np.minimum.at(shortest, found.owners, found.lengths)
        forbidden = [
            length > _BONDED
            and not _complement(base[a], base[b])
            and {(a - 1, b + 1), (a + 1, b - 1)} <= present
            for (a, b), length in zip(pairs, shortest.tolist())
        ]
        kept = ~np.array(forbidden, dtype=bool)
        of_kept = kept[found.owners]
        return BasePairs(
            found.residues[kept],
            tuple(family for family, keep in zip(found.families, kept.tolist()) if keep),
            found.bonds[of_kept],
            (np.cumsum(kept) - 1)[found.owners[of_kept]],
            found.lengths[of_kept],
        )

    def bonded(self, positions: np.ndarray) -> np.ndarray:
        """Return complementary residues with all bonds of a Watson-Crick or wobble pair, however tilted, int (P, 2)."""
        edges = positions[self._edges]
        rows = np.sort(cKDTree(edges).query_pairs(_FACING, output_type="ndarray"), axis=1)
        bonds, owners = self._complementary(rows)
        counts, intact = (
            np.bincount(owners[chosen], minlength=len(rows))
            for chosen in (slice(None), lengths_of(positions, bonds) < _BONDED)
        )
        found = self.residues[rows[(counts > 0) & (intact == counts)]]
        return found[self._can_meet(*found.T)]

    @property
    def _edges(self) -> np.ndarray:
        """The middle atoms of the Watson-Crick edges, int (B,)."""
        return np.where(self.purine, self.atoms["N1"], self.atoms["N3"])

    def _complementary(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the hydrogen bonds, int (H, 2), of complementary bases among pairs of bases int (P, 2), and whose they are."""
        bonds, owners = [], []
        for number, (pair, kinds) in enumerate(zip(rows.tolist(), self.kinds[rows].tolist())):
            for names in _complement(*kinds):
                bonds.append([self.atoms[name][row] for name, row in zip(names, pair)])
                owners.append(number)
        return np.array(bonds, dtype=np.int64).reshape(-1, 2), np.array(owners, dtype=np.int64)

    def _hidden(self, found: BasePairs, positions: np.ndarray) -> np.ndarray:
        """Return complementary residues without a partner: with all bonds, or facing where a helix goes on; int (P, 2)."""
        base = dict(zip(self.residues.tolist(), self.kinds.tolist()))
        middle = dict(zip(self.residues.tolist(), positions[self._edges]))
        paired = set(found.residues.ravel().tolist())
        ends = [tuple(p) for p, family in zip(found.residues.tolist(), found.families) if family == "cWW"]
        ends = [pair for pair in ends if _complement(*(base[each] for each in pair))]
        hidden = []

        def hold(pair: tuple[int, int]) -> None:
            if not paired.intersection(pair):
                paired.update(pair)
                hidden.append(pair)
                ends.append(pair)

        for pair in self.bonded(positions).tolist():
            hold(tuple(pair))
        while ends:
            a, b = ends.pop()
            for pair in ((a - 1, b + 1), (a + 1, b - 1)):
                if not all(each in base for each in pair) or pair[0] >= pair[1] or not self._can_meet(*pair):
                    continue
                apart = np.linalg.norm(middle[pair[0]] - middle[pair[1]])
                if apart < _FACING and _complement(*(base[each] for each in pair)):
                    hold(pair)
        return np.array(sorted(hidden), dtype=np.int64).reshape(-1, 2)

    def among(self, chosen: np.ndarray) -> Bases:
        """Return some of them, bool (B,)."""
        part = copy.copy(self)
        part.residues = self.residues[chosen]
        part.atoms = {name: atoms[chosen] for name, atoms in self.atoms.items()}
        return part

    @property
    def rings(self) -> np.ndarray:
        """The six-membered rings, int (B, 6)."""
        return np.stack([self.atoms[name] for name in _RING], axis=1)

    @property
    def purine(self) -> np.ndarray:
        """Whether each base is a purine, by its N9, bool (B,)."""
        return self.atoms["N9"] >= 0

    def glycosidic(self, positions: np.ndarray) -> np.ndarray:
        """Return the atom bonded to C1', int (B,): N9, N1, or C5 as in pseudouridine. `positions` (N, 3) in Å."""
        candidates = np.stack([self.atoms[name] for name in ("N1", "C5")])
        lengths = np.linalg.norm(positions[candidates] - positions[self.atoms["C1'"]], axis=2)
        return np.where(self.purine, self.atoms["N9"], np.where(lengths[0] > 2.0, *candidates[::-1]))

    def frames(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return centres and normals of the rings, both (B, 3). `positions` (N, 3) in Å."""
        rings = positions[self.rings]
        centres = rings.mean(axis=1)
        return centres, np.linalg.svd(rings - centres[:, None])[2][:, 2]

    def polar(self, positions: np.ndarray) -> _PolarAtoms:
        """Return all atoms that can form hydrogen bonds. `positions` (N, 3) in Å."""
        free_n1 = self.glycosidic(positions) != self.atoms["N1"]
        keto = self.atoms["O6"] >= 0
        roles = {name: np.full(len(self.residues), role) for name, role in _ALWAYS.items()}
        # N1 of adenine is an acceptor, that of guanine and pseudouridine a donor; that of other pyrimidines carries the sugar.
        roles["N1"] = np.where(self.purine, np.where(keto, _GIVES, _TAKES), np.where(free_n1, _GIVES, 0))
        roles["N3"] = np.where(self.purine | (self.atoms["N4"] >= 0), _TAKES, _GIVES)
        found = []
        for name, role in roles.items():
            there = np.flatnonzero((self.atoms[name] >= 0) & (role > 0))
            edges = np.where(self.purine[there], *(edges.get(name, "") for edges in _EDGES))
            found.append((self.atoms[name][there], there, role[there], edges))
        return _PolarAtoms(*(np.concatenate(column) for column in zip(*found)))

    def pairs(self, positions: np.ndarray) -> BasePairs:
        """Return the base pairs at some positions, see `find_base_pairs`. `positions` (N, 3) in Å."""
        if len(self.residues) < 2:
            none = np.zeros((0, 2), dtype=np.int64)
            return BasePairs(none, (), none, none[:, 0], np.zeros(0))
        polar = self.polar(positions)
        near = _hydrogen_bonds(self, polar, positions)
        bonds = polar.atoms[near]
        lengths = np.linalg.norm(positions[bonds[:, 1]] - positions[bonds[:, 0]], axis=1)
        keys = polar.bases[near] @ np.array([len(self.residues), 1])
        # The partner's neighbour is hardly farther than the partner: a bond must be the shortest of one of its atoms.
        order = np.lexsort((lengths, keys))
        shortest = [
            np.unique(np.stack([keys, near[:, side]])[:, order], axis=1, return_index=True)[1]
            for side in (0, 1)
        ]
        order = order[np.unique(np.concatenate(shortest))]
        found, which, counts = np.unique(keys[order], return_inverse=True, return_counts=True)
        enough = counts >= 2
        order, which = order[enough[which]], (np.cumsum(enough) - 1)[which[enough[which]]]
        pairs = np.stack(np.divmod(found[enough], len(self.residues)), axis=1)
        families = _families(self, positions, pairs, bonds[order], polar.edges[near[order]], which)
        return BasePairs(self.residues[pairs], families, bonds[order], which, lengths[order])


def find_base_pairs(topology: app.Topology, positions: np.ndarray) -> BasePairs:
    """Return the base pairs of a model: two bases near one plane with at least two hydrogen bonds between their edges.

    Watson-Crick and wobble pairs, and pairs by all other edges (N. B. Leontis and E. Westhof, RNA 7, 499 (2001)). Hydrogens
    are not needed: names identify donors and acceptors. O2' is part of the sugar edge; C-H does not count. A base
    may be in several pairs. `positions` (N, 3) in Å.
    """
    return Bases(topology).pairs(positions)


def _complement(first: str, second: str) -> tuple[tuple[str, str], ...]:
    """Return the hydrogen bonds of the Watson-Crick edges of two kinds of bases, the first one's atoms first."""
    straight = _COMPLEMENTARY.get((first, second), ())
    return straight or tuple((a, b) for b, a in _COMPLEMENTARY.get((second, first), ()))


def _hydrogen_bonds(bases: Bases, polar: _PolarAtoms, positions: np.ndarray) -> np.ndarray:
    """Return donors and acceptors close together in the planes of both bases, int (H, 2), the earlier base's atom first."""
    near = cKDTree(positions[polar.atoms]).query_pairs(LONGEST_BOND, output_type="ndarray")
    owners = polar.bases[near]
    near = np.where((owners[:, 0] > owners[:, 1])[:, None], near[:, ::-1], near)
    first, second = polar.bases[near].T
    centres, normals = bases.frames(positions)
    across = positions[polar.atoms[near[:, 1]]] - positions[polar.atoms[near[:, 0]]]
    between = centres[second] - centres[first]
    elevations, staggers = (
        [np.abs(np.einsum("ij,ij->i", arm, normals[each])) for each in (first, second)]
        for arm in (across, between)
    )
    roles = polar.roles[near]
    keep = (
        (first != second)
        & (roles[:, 0] | roles[:, 1] == _BOTH)
        & ~(roles == _BOTH).all(axis=1)  # not between two sugars
        & (np.abs(np.einsum("ij,ij->i", normals[first], normals[second])) > np.cos(_LARGEST_TILT))
        & (np.maximum(*elevations) < np.sin(_LARGEST_ELEVATION) * np.linalg.norm(across, axis=1))
        & (np.mean(staggers, axis=0) < _LARGEST_STAGGER)
    )
    return near[keep]


def _families(
    bases: Bases,
    positions: np.ndarray,
    pairs: np.ndarray,
    bonds: np.ndarray,
    edges: np.ndarray,
    owners: np.ndarray,
) -> tuple[str, ...]:
    """Name the families of pairs: the edge of most of a base's bonded atoms, and whether both sugars are on one side."""
    counts = np.maximum(np.bincount(owners, minlength=len(pairs)), 1)[:, None]
    middles, names = [], []
    for side in (0, 1):
        total = np.zeros((len(pairs), 3))
        np.add.at(total, owners, positions[bonds[:, side]])
        middles.append(total / counts)
        votes = np.stack(
            [np.bincount(owners[edges[:, side] == edge], minlength=len(pairs)) for edge in "WHS"]
        )
        names.append(np.array(list("WHS"))[votes.argmax(axis=0)])
    # Across the bonds, in the mean plane of both bases.
    first, second = bases.frames(positions)[1][pairs].transpose(1, 0, 2)
    normal = first + np.sign(np.einsum("ij,ij->i", first, second))[:, None] * second
    sideways = np.cross(middles[1] - middles[0], normal)
    glycosidic = positions[bases.atoms["C1'"]] - positions[bases.glycosidic(positions)]
    is_cis = (
        np.prod([np.einsum("ij,ij->i", glycosidic[pairs[:, side]], sideways) for side in (0, 1)], axis=0) > 0
    )
    return tuple(
        f"{'c' if cis else 't'}{a}{b}"
        for cis, a, b in zip(is_cis.tolist(), *(each.tolist() for each in names))
    )
