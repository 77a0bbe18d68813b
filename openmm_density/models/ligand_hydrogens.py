"""Hydrogens of a model's ligand, with the geometry of a conformer of its molecule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from ..base.errors import InputError
from .superposition import rotation_onto

if TYPE_CHECKING:
    import networkx

# Ways to match a molecule with the heavy atoms of a model; the one with the most similar bond lengths is used: a carboxylic
# acid has two, and its hydrogen belongs to the oxygen with the longer bond.
_MOST_WAYS = 1000


@dataclass(frozen=True)
class CompleteMolecule:
    """A molecule with all its hydrogens."""

    elements: Sequence[str]  # length n
    bonds: Sequence[tuple[int, int]]
    positions: np.ndarray  # (n, 3), of a conformer, in Å
    name: str  # Its origin in error messages, as in ``of the SMILES "CCO"``


@dataclass(frozen=True)
class BuiltHydrogen:
    """A hydrogen of a ligand: the index of its parent among the heavy atoms, and its position in Å."""

    parent: int
    position: np.ndarray


def built_hydrogens(
    molecule: CompleteMolecule,
    label: str,
    elements: Sequence[str],
    bonds: Sequence[tuple[int, int]],
    positions: np.ndarray,
) -> list[BuiltHydrogen]:
    """Build the hydrogens of a ligand. `positions` (N, 3) in Å."""
    atoms, conformer = molecule.elements, molecule.positions
    whole = graph_of(atoms, molecule.bonds)
    heavy = whole.subgraph([k for k, symbol in enumerate(atoms) if symbol != "H"])
    places = _most_similar(heavy, graph_of(elements, bonds), conformer, positions)
    if places is None:
        raise InputError(
            f"its {len(elements)} heavy atoms and their bonds are not the {len(heavy)} {molecule.name}",
            source=label,
            remedy="give that of what is in the model",
        )
    built = []
    for parent, place in sorted(places.items(), key=lambda pair: pair[1]):
        hydrogens = sorted(k for k in whole[parent] if atoms[k] == "H")
        neighbours = sorted(heavy[parent])
        if len(neighbours) > 2:
            vectors = _offsets(places, parent, neighbours, positions)
            outward = -(vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).sum(axis=0)
            length = np.linalg.norm(conformer[hydrogens] - conformer[parent], axis=1)
            outward = length[:, None] * outward / max(float(np.linalg.norm(outward)), 1e-6)
        else:
            if len(neighbours) == 1:
                neighbours += sorted(set(heavy[neighbours[0]]) - {parent})[:1]
            there = conformer[neighbours] - conformer[parent]
            here = _offsets(places, parent, neighbours, positions)
            outward = (conformer[hydrogens] - conformer[parent]) @ rotation_onto(there, here).T
        built += [BuiltHydrogen(place, positions[place] + each) for each in outward]
    return built


def graph_of(elements: Sequence[str], bonds: Sequence[tuple[int, int]]) -> networkx.Graph:
    """Return atoms and bonds as a graph whose nodes have an ``element``."""
    import networkx

    graph = networkx.Graph()
    graph.add_nodes_from((k, {"element": symbol.capitalize()}) for k, symbol in enumerate(elements))
    graph.add_edges_from(bonds)
    return graph


def same_atoms(one: networkx.Graph, other: networkx.Graph) -> Iterator[dict[int, int]]:
    """Yield the ways to match the atoms of two molecules with the same elements and bonds."""
    from networkx.algorithms.isomorphism import GraphMatcher

    matcher = GraphMatcher(one, other, node_match=lambda a, b: a["element"] == b["element"])
    yield from matcher.isomorphisms_iter()


def _most_similar(
    heavy: networkx.Graph, own: networkx.Graph, conformer: np.ndarray, positions: np.ndarray
) -> dict[int, int] | None:
    """Return the match of a molecule and a model's atoms with the most similar bond lengths; None without any."""
    ends = np.array(heavy.edges, dtype=np.int64).reshape(-1, 2)
    wanted = np.linalg.norm(conformer[ends[:, 0]] - conformer[ends[:, 1]], axis=1)

    def difference(places: Mapping[int, int]) -> float:
        there = np.array([(places[a], places[b]) for a, b in ends], dtype=np.int64).reshape(-1, 2)
        found = np.linalg.norm(positions[there[:, 0]] - positions[there[:, 1]], axis=1)
        # Rounded, so that the order of sums does not choose among equivalent matches.
        return round(float(np.square(found - wanted).sum()), 6)

    return min(islice(same_atoms(heavy, own), _MOST_WAYS), key=difference, default=None)


def _offsets(
    places: Mapping[int, int], parent: int, others: Sequence[int], positions: np.ndarray
) -> np.ndarray:
    return np.array([positions[places[k]] - positions[places[parent]] for k in others]).reshape(-1, 3)
