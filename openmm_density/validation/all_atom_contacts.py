"""The clashscore by MolProbity's definition: all-atom contacts, hydrogens among them, that overlap by 0.4 Å."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from typing import NamedTuple

import numpy as np
from openmm import app
from scipy.spatial import cKDTree

from ..maps.grids import checked_positions
from ..models.chemistry.contacts import CLASH_OVERLAP, HYDROGEN_BOND, ContactAtoms
from ..models.chemistry.elements import is_hydrogen
from ..models.chemistry.hydrogen_places import Site, Surroundings, ideal_directions
from ..models.chemistry.residues import is_water
from ..models.chemistry.topologies import bonded_pairs, hydrogen_mask

SALT_BRIDGE = 0.8
"""Å by which a polar hydrogen may overlap its acceptor where both are charged."""
DOTS = 24.0
"""On each Å² of an atom's surface: spread evenly these find what Probe's 16 do (at 16: up to an eighth fewer clashes)."""
LEAST_PRESENT = 0.1
"""Occupancy from which an atom counts."""
BOND_LENGTHS = {"C": 0.97, "N": 0.86, "O": 0.84, "S": 1.20}
"""Å, from the element to the centre of its hydrogen's electron cloud, which the radii go with (Deis et al. 2013)."""
FACE = 0.4
"""Cosine of the angle to a ring's normal within which its face takes a hydrogen."""
_CHARGED = {("ASP", "O"), ("GLU", "O"), ("ARG", "N"), ("LYS", "N"), ("HIS", "N"), ("HIP", "N"), ("HEM", "O")}


class Clash(NamedTuple):
    """Two atoms by their indices, and their overlap in Å."""

    first: int
    second: int
    overlap: float


@dataclass(frozen=True)
class AllAtomContacts:
    """Clashes of a model."""

    clashes: list[Clash]  # The worst first
    n_atoms: int  # Atoms that are there, hydrogens among them, without waters

    @property
    def clashscore(self) -> float | None:
        """Clashes for each 1000 atoms; None without atoms."""
        return 1000 * len(self.clashes) / self.n_atoms if self.n_atoms else None


def all_atom_contacts(
    topology: app.Topology, positions: np.ndarray, occupancies: np.ndarray | None = None
) -> AllAtomContacts:
    """Return the clashes of a model, see `AllAtoms.contacts`."""
    return AllAtoms(topology).contacts(positions, occupancies)


def contacts_of_prepared(
    topology: app.Topology,
    input_index: np.ndarray,
    positions: np.ndarray,
    occupancies: np.ndarray | None = None,
) -> AllAtomContacts:
    """Return the clashes of the atoms of the input, with hydrogens where ideal bonds and angles put them.

    Those of a force field have evaded what is near, and MolProbity builds its own, too (Reduce).

    `topology`, `input_index` of an `openmm_density.models.preparation.Prepared`; `positions` (N, 3) in Å; `occupancies` (M,) of
    the atoms of the input.
    """
    given = np.ones(int(input_index.max(initial=0)) + 1) if occupancies is None else np.asarray(occupancies)
    present = np.where(input_index >= 0, given[np.maximum(input_index, 0)], 0.0)
    for first, second in topology.bonds():
        for parent, child in ((first, second), (second, first)):
            if is_hydrogen(child):
                present[child.index] = present[parent.index]
    return all_atom_contacts(topology, RidingHydrogens(topology).at(positions), present)


class AllAtoms(ContactAtoms):
    """What of a topology tells its clashes, found once for many positions."""

    def __init__(self, topology: app.Topology) -> None:
        super().__init__(topology)
        shortened = [
            (index, parent, BOND_LENGTHS[self._symbols[parent]])
            for index, parent in enumerate(self._parents)
            if parent is not None and self._symbols[parent] in BOND_LENGTHS
        ]
        self._shortened = [np.array(column) for column in zip(*shortened)]

    def contacts(self, positions: np.ndarray, occupancies: np.ndarray | None = None) -> AllAtomContacts:
        """Return the clashes of a model with hydrogens by MolProbity's definition, which this follows and is not the program of.

        Two atoms clash where the dots of one's surface lie 0.4 Å or more inside the other (radii of Probe, with hydrogens at
        the centres of their electron clouds), unless three bonds or fewer part them, four where one is a hydrogen, or they
        make a hydrogen bond. A dot inside an atom that its own is bound to counts for nothing, and each dot for the atom it is
        deepest in. Waters are met by others, and not by each other (Word et al., J. Mol. Biol. 1999, 285, 1711-1733; Chen et
        al., Acta Cryst. 2010, D66, 12-21).

        `positions` (N, 3) in Å; `occupancies` (N,): those of 0.1 or less are not there.
        """
        places = checked_positions(positions, len(self._atoms)).copy()
        there = self._counted
        if occupancies is not None:
            there = there & (np.asarray(occupancies) > LEAST_PRESENT)
        self._shorten(places)
        deepest: dict[tuple[int, int], float] = defaultdict(float)
        for atom, others in self._partners(places, np.flatnonzero(there)).items():
            if self._waters[atom]:  # has no dots
                continue
            for other, overlap in self._overlaps(atom, others, places):
                pair = min(atom, other), max(atom, other)
                deepest[pair] = max(deepest[pair], overlap)
        clashes = [Clash(*pair, overlap) for pair, overlap in deepest.items() if overlap >= CLASH_OVERLAP]
        return AllAtomContacts(
            sorted(clashes, key=lambda clash: (-clash.overlap, clash)), int((there & ~self._waters).sum())
        )

    def _shorten(self, places: np.ndarray) -> None:
        """Put hydrogens where the centres of their electron clouds are; one in its parent's place stays there."""
        if self._shortened:
            hydrogens, parents, lengths = self._shortened
            bonds = places[hydrogens] - places[parents]
            apart = np.linalg.norm(bonds, axis=1)
            apart[apart == 0] = 1.0
            places[hydrogens] = places[parents] + bonds * lengths[:, None] / apart[:, None]

    def _partners(self, places: np.ndarray, there: np.ndarray) -> dict[int, list[int]]:
        """Return by each atom that is there those it overlaps, except waters with waters and what few bonds part from it."""
        found: dict[int, list[int]] = defaultdict(list)
        if not len(there):
            return found
        radii = self._radii
        pairs = there[
            cKDTree(places[there]).query_pairs(2 * radii.max() - CLASH_OVERLAP, output_type="ndarray")
        ]
        distances = np.linalg.norm(places[pairs[:, 0]] - places[pairs[:, 1]], axis=1)
        pairs = pairs[radii[pairs].sum(axis=1) - distances >= CLASH_OVERLAP]
        for first, second in pairs[~self._no_contacts(pairs)].tolist():
            found[first].append(second)
            found[second].append(first)
        return found

    def _around(self, atom: int, bonds: int) -> set[int]:
        """Return the atoms that so many bonds, or fewer, lead to."""
        found = reached = {atom}
        for _ in range(bonds):
            reached = {other for each in reached for other in self._bonded[each]} - found
            found = found | reached
        return found - {atom}

    def _may_overlap(self, first: int, second: int, places: np.ndarray) -> float:
        """Return by how much two atoms may overlap: 0 where they make no hydrogen bond."""
        for donor, acceptor in ((first, second), (second, first)):
            if self._gives(donor) and (self._takes(acceptor) or self._faces(donor, acceptor, places)):
                return SALT_BRIDGE if self._charged(donor) and self._charged(acceptor) else HYDROGEN_BOND
        return 0.0

    def _met_by_water(self, atom: int, other: int) -> bool:
        """Return whether the other one is a water, which turns a hydrogen to this atom."""
        return is_water(self._atoms[other].residue.name) and self._symbols[atom] in ("N", "O")

    def _faces(self, donor: int, acceptor: int, places: np.ndarray) -> bool:
        """Return whether a donor is above the face of an aromatic ring, which then takes its hydrogen."""
        ring = self._rings.get(acceptor)
        if ring is None:
            return False
        normal = np.cross(places[ring[2]] - places[ring[0]], places[ring[1]] - places[ring[0]])
        away = places[donor] - places[acceptor]
        return abs(normal @ away) > FACE * np.linalg.norm(normal) * np.linalg.norm(away)

    def _charged(self, atom: int) -> bool:
        parent = self._parents[atom]
        heavy = atom if parent is None else parent
        symbol = self._symbols[heavy]
        side = self._atoms[heavy].name not in ("N", "O")
        return (side and (self._atoms[heavy].residue.name, symbol) in _CHARGED) or self._atoms[
            heavy
        ].name == "OXT"

    def _overlaps(self, atom: int, others: list[int], places: np.ndarray) -> list[tuple[int, float]]:
        """Return how deep the dots of an atom lie in others, except those that make a hydrogen bond."""
        dots = places[atom] + self._radii[atom] * _sphere(int(4 * np.pi * self._radii[atom] ** 2 * DOTS))
        radii = self._radii
        depth = radii[others] - np.linalg.norm(dots[:, None] - places[others][None], axis=2)
        deep = depth.max(axis=1) >= CLASH_OVERLAP
        dots, depth = dots[deep], depth[deep]
        near = self._around(atom, 3)
        far = self._around(atom, 4) - near if len(dots) else ()
        inside = [*near, *(each for each in far if self._hydrogen[each] or self._hydrogen[atom])]
        hidden = (np.linalg.norm(dots[:, None] - places[inside][None], axis=2) < radii[inside]).any(axis=1)
        depth[hidden] = -np.inf
        deepest = depth.argmax(axis=1)
        found = []
        for k, other in enumerate(others):
            mine = depth[deepest == k, k]
            overlap = float(mine.max()) if len(mine) else -np.inf
            if overlap >= CLASH_OVERLAP and not (
                overlap <= HYDROGEN_BOND and self._met_by_water(atom, other)
            ):
                found.append((other, overlap - self._may_overlap(atom, other, places)))
        return found


@cache
def _sphere(n: int) -> np.ndarray:
    """Return n directions that are spread evenly, shape (n, 3)."""
    at = np.arange(n) + 0.5
    height, turn = 1 - 2 * at / n, np.pi * (1 + 5**0.5) * at
    ring = np.sqrt(1 - height**2)
    return np.stack([ring * np.cos(turn), ring * np.sin(turn), height], axis=1)


class RidingHydrogens:
    """The hydrogens of a topology that cannot turn on their parents, found once for many positions."""

    def __init__(self, topology: app.Topology) -> None:
        atoms = list(topology.atoms())
        light = hydrogen_mask(topology).tolist()
        heavy: dict[int, list[int]] = defaultdict(list)
        hydrogens: dict[int, list[int]] = defaultdict(list)
        for pair in bonded_pairs(topology).tolist():
            for own, other in (pair, pair[::-1]):
                (hydrogens if light[other] else heavy)[own].append(other)
        symbols = ["" if atom.element is None else atom.element.symbol for atom in atoms]
        degrees = np.array([len(heavy.get(k, ())) + len(hydrogens.get(k, ())) for k in range(len(atoms))])
        self._around = Surroundings(np.zeros((len(atoms), 3)), symbols, heavy, degrees)
        sites = [
            Site(parent, children, heavy[parent])
            for parent, children in hydrogens.items()
            if symbols[parent] and not light[parent]
        ]
        self._sites = _unturned(sites, self._around)

    def at(self, positions: np.ndarray) -> np.ndarray:
        """Return the positions with each such hydrogen at its ideal place, methyl groups staggered.

        Those of OH, SH, NH₃ and waters, which turn to what is around them, stay, as do those of parents without another
        neighbour; lengths of bonds stay too.

        `positions` (N, 3) in Å.
        """
        places = checked_positions(positions, len(self._around.symbols)).copy()
        around = self._around._replace(places=places)
        for members, directions in ideal_directions(self._sites, around):
            parents, children = (np.array([site[k] for site in members]) for k in (0, 1))
            bonds = places[children] - places[parents][:, None]
            lengths = np.linalg.norm(bonds, axis=2, keepdims=True)
            # Which is which their places say.
            orders = np.array([*permutations(range(children.shape[1]))])
            ways = directions[:, orders]
            best = np.einsum("nwci,nci->nw", np.nan_to_num(ways), bonds).argmax(axis=1)
            placed = places[parents][:, None] + ways[np.arange(len(members)), best] * lengths
            known = np.isfinite(placed).all(axis=(1, 2))
            places[children[known]] = placed[known]
        return places


def _unturned(sites: list[Site], around: Surroundings) -> list[Site]:
    """Return sites without those of amines and ammonium, whose hydrogens turn to what is around them."""
    return [
        site
        for site in sites
        if around.symbols[site.parent] == "C"
        or len(site.neighbours) != 1
        or (len(site.hydrogens) == 2 and around.is_flat(site))
    ]
