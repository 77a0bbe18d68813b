"""Whether a model's ligand is a given molecule: by heavy atoms and bonds, and by the handedness of its centres."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from openmm import app

from ..base.wording import listing
from .chemistry.elements import is_hydrogen
from .ligand_hydrogens import CompleteMolecule, graph_of, same_atoms

if TYPE_CHECKING:
    import networkx

# Matches of a molecule and a residue to try, to find the one with the most centres of equal handedness.
_MOST_WAYS = 1000
# Triple product of unit vectors to three neighbours: 0.77 in an ideal tetrahedron; a centre below this is flat.
_LEAST_TRIPLE_PRODUCT = 0.25
_NEIGHBORS = {"C": 4, "N": 4, "Si": 4, "P": 4, "S": 3}


@dataclass(frozen=True)
class HeavyAtoms:
    """The heavy atoms of a residue, and the bonds between them."""

    atoms: list[app.topology.Atom]
    bonds: list[tuple[int, int]]

    @classmethod
    def of(cls, residue: app.topology.Residue) -> HeavyAtoms:
        """Return those of a residue."""
        atoms = [atom for atom in residue.atoms() if atom.element is not None and not is_hydrogen(atom)]
        place = {atom.index: k for k, atom in enumerate(atoms)}
        pairs = [(a.index, b.index) for a, b in residue.internal_bonds()]
        return cls(atoms, [(place[a], place[b]) for a, b in pairs if a in place and b in place])

    def __len__(self) -> int:
        return len(self.atoms)

    @cached_property
    def graph(self) -> networkx.Graph:
        """Atoms by their number among these, and bonds."""
        return graph_of([atom.element.symbol for atom in self.atoms], self.bonds)


def heavy_graph(molecule: CompleteMolecule) -> networkx.Graph:
    """Return the heavy atoms of a molecule and their bonds, by the numbers of its atoms."""
    whole = graph_of(molecule.elements, molecule.bonds)
    return whole.subgraph([k for k, symbol in enumerate(molecule.elements) if symbol != "H"])


def is_of(molecule: CompleteMolecule, residue: app.topology.Residue) -> bool:
    """Return whether a residue has the heavy atoms and bonds of a molecule."""
    return next(_ways(molecule, HeavyAtoms.of(residue)), None) is not None


def is_part_of(molecule: CompleteMolecule, residue: app.topology.Residue) -> bool:
    """Return whether a residue is a molecule that lacks some of its heavy atoms."""
    from networkx.algorithms.isomorphism import GraphMatcher

    whole, own = heavy_graph(molecule), HeavyAtoms.of(residue)
    if not 0 < len(own) < len(whole):
        return False
    matcher = GraphMatcher(whole, own.graph, node_match=lambda a, b: a["element"] == b["element"])
    return matcher.subgraph_is_monomorphic()


@dataclass(frozen=True)
class Handedness:
    """How the chiral centres of a residue compare with those of a molecule."""

    other: list[str]  # The names of atoms with the opposite handedness to the molecule's
    is_mirror_image: bool  # Whether all of them are


def handedness(
    molecule: CompleteMolecule, residue: app.topology.Residue, positions: np.ndarray
) -> Handedness:
    """Compare a residue's chiral centres, at positions (N, 3) in Å, with its molecule's; a flat one counts for neither."""
    own = HeavyAtoms.of(residue)
    place = np.array([positions[atom.index] for atom in own.atoms]).reshape(-1, 3)
    heavy = heavy_graph(molecule)
    centres = _centres(molecule, heavy)
    best: tuple[int, list[int], int] | None = None
    for ways in islice(_ways(molecule, own), _MOST_WAYS):
        signs = [
            _hand(molecule.positions, centre, others)
            * _hand(place, ways[centre], [ways[each] for each in others])
            for centre, others in centres.items()
        ]
        wrong = [ways[centre] for centre, sign in zip(centres, signs) if sign < 0]
        right = sum(sign > 0 for sign in signs)
        found = min(len(wrong), right), wrong, right
        if best is None or (found[0], len(wrong)) < (best[0], len(best[1])):
            best = found
        if not wrong:
            break
    if best is None or not best[1]:
        return Handedness([], False)
    return Handedness([own.atoms[k].name for k in sorted(best[1])], best[2] == 0)


def unlike(molecule: CompleteMolecule, residue: app.topology.Residue, positions: np.ndarray | None) -> str:
    """Return how a residue differs from its molecule, as in ``lacks 3 of 20 heavy atoms``; empty where it does not.

    Its mirror image counts as the same. Other functions refuse what is not part of the molecule. `positions` (N, 3) of all
    atoms of its topology, in Å; without them handedness is not compared.
    """
    if is_part_of(molecule, residue):
        count = len(heavy_graph(molecule))
        return f"lacks {count - len(HeavyAtoms.of(residue))} of {count} heavy atoms"
    if positions is None:
        return ""
    found = handedness(molecule, residue, positions)
    if not found.other or found.is_mirror_image:
        return ""
    return f"has the other hand at {listing(found.other)}"


def _ways(molecule: CompleteMolecule, own: HeavyAtoms) -> Iterator[Mapping[int, int]]:
    heavy = heavy_graph(molecule)
    if len(heavy) == len(own):
        yield from same_atoms(heavy, own.graph)


def _centres(molecule: CompleteMolecule, heavy: networkx.Graph) -> dict[int, list[int]]:
    """Return the tetrahedral atoms with three heavy neighbours or more, and three of these, by their numbers."""
    degree = graph_of(molecule.elements, molecule.bonds).degree
    found = {}
    for atom in heavy:
        others = sorted(heavy[atom])[:3]
        needed = _NEIGHBORS.get(molecule.elements[atom].capitalize())
        is_centre = len(others) == 3 and needed is not None and degree[atom] >= needed
        if is_centre and _hand(molecule.positions, atom, others):
            found[atom] = others
    return found


def _hand(positions: np.ndarray, centre: int, others: Sequence[int]) -> int:
    """Return the handedness of a centre, 1 or -1; 0 where it is flat."""
    vectors = positions[list(others)] - positions[centre]
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    product = float(np.linalg.det(vectors / np.maximum(lengths, 1e-6)))
    return int(np.sign(product)) if abs(product) > _LEAST_TRIPLE_PRODUCT else 0
