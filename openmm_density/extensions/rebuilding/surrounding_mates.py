"""The symmetry mates around a unit as fixed atoms behind its own, so that searches see them as they see other chains."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from openmm import app
from scipy.spatial import cKDTree

from ...energies.contact_images import contact_images
from ...energies.mate_contacts import LONGEST_LINK, with_inverses
from ...models.chemistry.elements import is_hydrogen
from ...models.symmetry_operators import SPECIAL_POSITION, SymmetryOperators

REACH = 12.0
"""Å between heavy atoms of the unit and a mate's residue up to which it is present: a long side chain and what it touches."""


class SurroundingMates:
    """The residues of a unit's images that are in reach of it, whose places follow from the unit's.

    A search moves a few residues of the unit at a time; its mates are fixed meanwhile, where the unit as it is puts them.

    `topology` of the N atoms of the unit; `positions` (N, 3) in Å, by which the residues are chosen; `links`: atoms of
    which one is bonded to a copy of the other. Attributes: `topology` of the unit, and behind it the mates' residues;
    `start` (N, 3) as given; `n_own`: atoms of the unit; `n_copies` of the assembly, or in the cell; `originals` int
    (M,): the atom of the unit that each mate's atom is a copy of.
    """

    def __init__(
        self,
        topology: app.Topology,
        positions: np.ndarray,
        operators: SymmetryOperators,
        links: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.start = positions
        closed = with_inverses(operators)
        self.n_own, self.n_copies = len(positions), len(operators)
        self._images, _ = contact_images(closed, positions, REACH)
        chosen = _in_reach(topology, positions, self._images)
        atoms_of = [[atom.index for atom in residue.atoms()] for residue in topology.residues()]
        originals = [atom for _, residue in chosen for atom in atoms_of[residue]]
        numbers = [image for image, residue in chosen for _ in atoms_of[residue]]
        self.originals = np.array(originals, dtype=np.int64)
        self._image_of = np.array(numbers, dtype=np.int64)
        self.topology = _extended(topology, chosen)
        self._add_links(positions, links)

    def around(self, positions: np.ndarray) -> np.ndarray:
        """Return the positions (N, 3) of the unit in Å, and behind them those of its mates, shape (N + M, 3)."""
        own = positions[self.originals]
        images = self._images[self._image_of]
        moved = np.einsum("mij,mj->mi", images[:, :, :3], own) + images[:, :, 3]
        return np.concatenate([positions, moved])

    def _add_links(self, positions: np.ndarray, links: Sequence[tuple[int, int]]) -> None:
        """Bond atoms of the unit to a mate's where a link says so: neither side chain then turns."""
        atoms = list(self.topology.atoms())
        everywhere = self.around(positions)
        for first, second in links:
            for own, copied in {(first, second), (second, first)}:
                there = self.n_own + np.flatnonzero(self.originals == copied)
                far = np.linalg.norm(everywhere[there] - everywhere[own], axis=1)
                for place in there[far < LONGEST_LINK].tolist():
                    self.topology.addBond(atoms[own], atoms[place])


def _in_reach(topology: app.Topology, positions: np.ndarray, images: np.ndarray) -> list[tuple[int, int]]:
    """Return images and residues in reach, one image after the other, without what lies on its own original."""
    heavy = np.array([atom.index for atom in topology.atoms() if not is_hydrogen(atom)], dtype=np.int64)
    residues = np.array([atom.residue.index for atom in topology.atoms()], dtype=np.int64)[heavy]
    own = positions[heavy]
    tree = cKDTree(own)
    found = []
    for number, image in enumerate(images):
        moved = own @ image[:, :3].T + image[:, 3]
        near = np.isfinite(tree.query(moved, distance_upper_bound=REACH)[0])
        same = np.linalg.norm(moved - own, axis=1) < SPECIAL_POSITION
        for residue in np.setdiff1d(residues[near], residues[same]).tolist():
            found.append((number, residue))
    return found


def _extended(topology: app.Topology, chosen: Sequence[tuple[int, int]]) -> app.Topology:
    """Return a topology with copies of some of its residues, those of each image bonded as the originals are."""
    extended = app.Topology()
    residues = list(topology.residues())
    places: dict[tuple[int, int], app.topology.Atom] = {}

    def add(image: int, residue: app.topology.Residue, chain: app.topology.Chain) -> None:
        copy = extended.addResidue(residue.name, chain, residue.id, residue.insertionCode)
        for atom in residue.atoms():
            places[image, atom.index] = extended.addAtom(atom.name, atom.element, copy)

    for own in topology.chains():
        chain = extended.addChain(own.id)
        for residue in own.residues():
            add(-1, residue, chain)
    last = None
    for image, number in chosen:
        residue = residues[number]
        if last != (image, residue.chain.index):
            last, chain = (image, residue.chain.index), extended.addChain(residue.chain.id)
        add(image, residue, chain)
    images = [-1, *sorted({image for image, _ in chosen})]
    for a, b in topology.bonds():
        for image in images:
            first, second = places.get((image, a.index)), places.get((image, b.index))
            if first is not None and second is not None:
                extended.addBond(first, second)
    return extended
