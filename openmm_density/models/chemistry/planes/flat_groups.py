"""Flat groups of a bonded graph: conjugated rings, double bonds and trigonal centres."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Container, Iterable

import numpy as np

from .plane_set import SMALLEST_PLANE

NON_METALS = frozenset(["H", "B", "C", "N", "O", "F", "Si", "P", "S", "Cl", "Se", "Br", "I"])

# Half the length of a single bond between sp3 atoms, Å: clearly shorter bonds are conjugated.
_SINGLE_BOND_RADIUS = {"C": 0.77, "N": 0.70, "O": 0.66, "S": 1.05}

UNKNOWN_ORDER = 0.0

AROMATIC = 1.5


def ordered_pair(first: int, second: int) -> tuple[int, int]:
    """Return a bond as its two atoms, the smaller index first."""
    return (first, second) if first < second else (second, first)


class BondGraph:
    """A bonded graph in which to find conjugation.

    `elements`: symbols. `bonds`: pair of indices, smaller first, to order: 1, 1.5 for aromatic, 2, 3; 0 where it is not
    known. `handled`: trigonal atoms whose plane is found elsewhere (the backbone's carbonyl). `own`: how many atoms,
    the first ones, are the residue's; the others are neighbours of its neighbours. `coordinates` (copies, atoms, 3) in Å; lengths
    are medians over the copies.
    """

    def __init__(
        self,
        elements: tuple[str, ...],
        bonds: dict[tuple[int, int], float],
        handled: frozenset[int] = frozenset(),
        own: int | None = None,
        coordinates: np.ndarray | None = None,
    ) -> None:
        self.elements = elements
        self.handled = handled
        self.own = len(elements) if own is None else own
        self.coordinates = coordinates
        self.order = {
            bond: order for bond, order in bonds.items() if all(elements[atom] in NON_METALS for atom in bond)
        }
        self.neighbours: list[list[int]] = [[] for _ in elements]
        for a, b in sorted(self.order):
            self.neighbours[a].append(b)
            self.neighbours[b].append(a)
        heavy = [
            bond
            for bond in self.order
            if all(elements[atom] != "H" for atom in bond) and max(bond) < self.own
        ]
        self.has_orders = bool(heavy) and all(self.order[bond] > 0 for bond in heavy)
        self.has_hydrogens = any(
            elements[a] == "C" and any(elements[b] == "H" for b in self.neighbours[a])
            for a in range(self.own)
        )

    @property
    def is_determined(self) -> bool:
        """Whether orders, hydrogens or positions determine what is conjugated, where the heavy-atom graph does not."""
        return self.has_orders or self.has_hydrogens or self.coordinates is not None

    def flat_groups(self) -> list[tuple[frozenset[int], tuple[int, ...]]]:
        """Find (trigonal centres, members) of every flat group; none contains another."""
        found: dict[frozenset[int], frozenset[int]] = {}

        def add(centres: Iterable[int], more: Iterable[int] = ()) -> None:
            centres = frozenset(centres)
            if min(centres) < self.own and not centres & self.handled:
                members = centres.union(more, *(self.neighbours[centre] for centre in centres))
                found[members] = found.get(members, frozenset()) | centres

        for ring in self._flat_rings:
            add(ring)
        for bond in self._planar_bonds():
            add(bond)
        in_ring = frozenset().union(*self._flat_rings)
        for centre in self._trigonal - in_ring:
            substituted = [
                nitrogen
                for nitrogen in self.neighbours[centre]
                if self._is_acyl(centre) and nitrogen in self._conjugated_nitrogens - in_ring
            ]
            add([centre], [atom for nitrogen in substituted for atom in self.neighbours[nitrogen]])
        for nitrogen in range(self.own):
            if self.elements[nitrogen] == "N" and len(self._terminal_oxygens(nitrogen)) >= 2:
                add([nitrogen])
        groups = [
            (centres, tuple(sorted(members)))
            for members, centres in found.items()
            if len(members) >= SMALLEST_PLANE and not any(members < other for other in found)
        ]
        return sorted(groups, key=lambda group: group[1])

    @functools.cached_property
    def _trigonal(self) -> frozenset[int]:
        if self.has_orders:
            judge = self._is_trigonal_by_order
        elif self.has_hydrogens:
            judge = self._is_trigonal_by_count
        elif self.coordinates is not None:
            judge = self._is_trigonal_by_length
        else:
            judge = self._is_trigonal_for_certain
        return frozenset(
            atom
            for atom, element in enumerate(self.elements)
            if (element == "C" and judge(atom)) or (element == "B" and len(self.neighbours[atom]) == 3)
        )

    def _is_trigonal_by_order(self, carbon: int) -> bool:
        orders = [self.order[ordered_pair(carbon, other)] for other in self.neighbours[carbon]]
        return max(orders, default=0) in (1.5, 2.0) and orders.count(2.0) < 2

    def _is_trigonal_by_count(self, carbon: int) -> bool:
        """Return whether a carbon has three neighbours; a pyramid with long bonds is a tetrahedral carbon that lacks an atom."""
        if len(self.neighbours[carbon]) != 3:
            return False
        return (
            self.coordinates is None or self._height(carbon) < 0.35 or self._mean_shortening(carbon) > 0.055
        )

    def _mean_shortening(self, carbon: int) -> float:
        shortening = [
            self._shortening(carbon, other)
            for other in self.neighbours[carbon]
            if self.elements[other] in _SINGLE_BOND_RADIUS
        ]
        return float(np.mean(shortening)) if shortening else 0.0

    def _is_trigonal_by_length(self, carbon: int) -> bool:
        """Judge by the mean shortening of the bonds; the tip of a pyramid or a linear carbon is not trigonal."""
        neighbours = self.neighbours[carbon]
        if len(neighbours) > 3:
            return False
        if self._is_trigonal_for_certain(carbon):
            return True
        mean = self._mean_shortening(carbon)
        if len(neighbours) == 3:
            if any(self._shortening(carbon, oxygen) > 0.1 for oxygen in self._terminal_oxygens(carbon)):
                return self._height(carbon) < 0.4
            return mean > 0.055 and self._height(carbon) < 0.3
        if len(neighbours) == 2:
            return mean > 0.07 and self._angle(carbon) < 150.0
        return mean > 0.12

    def _is_trigonal_for_certain(self, carbon: int) -> bool:
        """Return whether the heavy atoms alone identify a carbon of a carboxylate, an amide or a guanidine."""
        if len(self.neighbours[carbon]) != 3:
            return False
        oxygens = len(self._terminal_oxygens(carbon))
        nitrogens = sum(self.elements[other] == "N" for other in self.neighbours[carbon])
        return oxygens >= 2 or (oxygens == 1 and nitrogens >= 1) or nitrogens == 3

    def _terminal_oxygens(self, atom: int) -> list[int]:
        return [
            o
            for o in self.neighbours[atom]
            if self.elements[o] in ("O", "S") and len(self.neighbours[o]) == 1
        ]

    def _is_acyl(self, carbon: int) -> bool:
        nitrogens = sum(self.elements[other] == "N" for other in self.neighbours[carbon])
        return bool(self._terminal_oxygens(carbon)) or nitrogens >= 2

    @functools.cached_property
    def _conjugated_nitrogens(self) -> frozenset[int]:
        """Return nitrogens conjugated with a trigonal carbon by lone pair or double bond, also through nitrogen."""
        candidates = {
            atom
            for atom, element in enumerate(self.elements)
            if element == "N" and len(self.neighbours[atom]) <= 3 and not self._is_pyramid(atom)
        }
        conjugated = {atom for atom in candidates if self._trigonal.intersection(self.neighbours[atom])}
        border = set(conjugated)
        while border:
            border = {
                other for atom in border for other in self.neighbours[atom] if other in candidates
            } - conjugated
            conjugated |= border
        return frozenset(conjugated)

    def _is_pyramid(self, atom: int) -> bool:
        heavy = [other for other in self.neighbours[atom] if self.elements[other] != "H"]
        if len(heavy) < 3 or len(self.neighbours[atom]) > 3 or self.coordinates is None:
            return False
        return self._height(atom) > 0.35

    @functools.cached_property
    def _flat_rings(self) -> list[frozenset[int]]:
        return [ring for ring in self._rings if self._is_flat(ring)]

    @functools.cached_property
    def _rings(self) -> list[frozenset[int]]:
        """Find the five- and six-membered rings: for each bond the shortest way round."""
        ways = (self._way_round(bond, 6, range(len(self.elements))) for bond in self.order)
        return list(dict.fromkeys(frozenset(way) for way in ways if len(way) >= 5))

    def _way_round(self, bond: tuple[int, int], longest: int, allowed: Container[int]) -> list[int]:
        """Return the smallest ring of allowed atoms through a bond, empty where it has more than ``longest``."""
        start, end = bond
        previous = {start: start}
        queue = deque([(start, 1)])
        while queue and end not in previous:
            atom, length = queue.popleft()
            if length == longest:
                break
            for other in self.neighbours[atom]:
                if other in allowed and other not in previous and (atom, other) != (start, end):
                    previous[other] = atom
                    queue.append((other, length + 1))
        if end not in previous:
            return []
        ring = [end]
        while ring[-1] != start:
            ring.append(previous[ring[-1]])
        return ring

    def _is_flat(self, ring: frozenset[int]) -> bool:
        """Return whether a ring is fully conjugated; six-membered rings with eight π electrons fold.

        Phenothiazine, dioxin and the middle ring of a reduced flavin have eight; uracil, quinones, quinolones
        and the oxidised flavin do not, because an exocyclic double bond takes its carbon's electron out.
        """
        electrons = 0
        for atom in ring:
            if atom in self._trigonal:
                electrons += not self._has_double_bond_out_of(ring, atom)
            elif atom in self._conjugated_nitrogens:
                electrons += 1 if len(self.neighbours[atom]) == 2 else 2
            elif self.elements[atom] in ("O", "S", "Se") and len(self.neighbours[atom]) == 2:
                electrons += 2
            else:
                return False
        return len(ring) == 5 or electrons < 8

    def _has_double_bond_out_of(self, ring: frozenset[int], atom: int) -> bool:
        """Return whether a ring atom has a double bond outside all rings; one in a fused ring can move."""
        return bool(self._terminal_oxygens(atom)) or any(
            self.order[ordered_pair(atom, other)] == 2.0
            and not any(other in found and atom in found for found in self._rings)
            for other in self.neighbours[atom]
            if other not in ring
        )

    def _planar_bonds(self) -> list[tuple[int, int]]:
        """Find the bonds outside flat rings, between carbons and nitrogens, about which nothing rotates."""
        able = self._conjugated_nitrogens.union(a for a in self._trigonal if self.elements[a] == "C")
        candidates = [
            bond
            for bond in self.order
            if able.issuperset(bond) and not any(ring.issuperset(bond) for ring in self._flat_rings)
        ]
        if self.has_orders:
            double = [bond for bond in candidates if self.order[bond] in (AROMATIC, 2.0)]
        elif self.has_hydrogens or self.coordinates is None:
            double = self._forced_double_bonds(candidates)
        else:
            double = [
                bond
                for bond in candidates
                if self._shortening(*bond) > 0.13 and not self._is_amide_bond(bond)
            ]
        # Between the rings of a porphyrin or corrole no bond is single, whatever a Kekulé formula shows.
        macrocyclic = [bond for bond in candidates if len(self._way_round(bond, 16, able)) >= 15]
        return list(dict.fromkeys([*double, *macrocyclic]))

    def _is_amide_bond(self, bond: tuple[int, int]) -> bool:
        return any(
            self.elements[nitrogen] == "N" and carbon in self._trigonal and self._is_acyl(carbon)
            for carbon, nitrogen in (bond, bond[::-1])
        )

    def _forced_double_bonds(self, candidates: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Place double bonds from the ends of a chain inward, where a trigonal atom has only one partner left."""
        in_ring = frozenset().union(*self._flat_rings)
        single = {
            atom
            for atom in range(len(self.elements))
            if atom in in_ring
            or (self.elements[atom] == "C" and self._is_acyl(atom))
            or (self.elements[atom] == "N" and len(self.neighbours[atom]) != 2)
        }
        partners: dict[int, set[int]] = {}
        for a, b in candidates:
            if a not in single and b not in single:
                partners.setdefault(a, set()).add(b)
                partners.setdefault(b, set()).add(a)
        double = []
        while ends := sorted(atom for atom, others in partners.items() if len(others) == 1):
            first, (second,) = ends[0], partners[ends[0]]
            double.append(ordered_pair(first, second))
            for atom in (first, second):
                for other in partners.pop(atom):
                    if other in partners:
                        partners[other].discard(atom)
        return double

    @functools.cached_property
    def _length(self) -> dict[tuple[int, int], float]:
        bonds = list(self.order)
        ends = self.coordinates[:, np.array(bonds)]
        lengths = np.median(np.linalg.norm(ends[:, :, 0] - ends[:, :, 1], axis=2), axis=0)
        return dict(zip(bonds, lengths.tolist(), strict=True))

    def _shortening(self, first: int, second: int) -> float:
        """Return by how many Å a bond is shorter than a single bond of sp3 atoms."""
        reference = sum(_SINGLE_BOND_RADIUS[self.elements[atom]] for atom in (first, second))
        return reference - self._length[ordered_pair(first, second)]

    def _height(self, atom: int) -> float:
        """Return the distance of an atom from the plane of its three neighbours."""
        a, b, c = np.moveaxis(self.coordinates[:, self.neighbours[atom]], 1, 0)
        normal = np.cross(b - a, c - a)
        area = np.linalg.norm(normal, axis=1)
        height = np.abs(np.einsum("ci,ci->c", self.coordinates[:, atom] - a, normal)) / np.maximum(area, 1e-9)
        return float(np.median(height))

    def _angle(self, atom: int) -> float:
        a, b = np.moveaxis(self.coordinates[:, self.neighbours[atom][:2]] - self.coordinates[:, [atom]], 1, 0)
        cosine = np.einsum("ci,ci->c", a, b) / np.maximum(
            np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1), 1e-9
        )
        return float(np.degrees(np.median(np.arccos(np.clip(cosine, -1.0, 1.0)))))
