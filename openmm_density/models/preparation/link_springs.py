"""Pairs of atoms across a link to a residue without parameters: those that springs hold, and those whose spheres do not act."""

from __future__ import annotations

from collections.abc import Iterator

from openmm import app

from ..chemistry.elements import is_hydrogen

LINK_FORCE_CONSTANT = 1.0e5
"""kJ/mol/nm², of a bond between a rigid residue and its surroundings; a fifth for pairs one bond further."""


def link_pairs(
    i: int, j: int, bonded: dict[int, list[app.topology.Atom]]
) -> Iterator[tuple[int, int, float]]:
    """Yield the pairs one and two bonds apart across a link; hydrogens are excluded but not held."""
    yield i, j, LINK_FORCE_CONSTANT
    for near, far in ((i, j), (j, i)):
        for neighbour in bonded[near]:
            if neighbour.index != far:
                yield neighbour.index, far, 0.0 if is_hydrogen(neighbour) else LINK_FORCE_CONSTANT / 5


def three_apart(i: int, j: int, bonded: dict[int, list[app.topology.Atom]]) -> set[tuple[int, int]]:
    """Return the pairs three bonds apart across a link: their spheres, which no force field scales down, widen its angles."""
    around = {near: {atom.index for atom in bonded[near]} - {far} for near, far in ((i, j), (j, i))}
    found = {(first, last) for first in around[i] for last in around[j]}
    for near, far in ((i, j), (j, i)):
        found |= {(other.index, far) for neighbour in around[near] for other in bonded[neighbour]} - {
            (near, far)
        }
    return {(min(pair), max(pair)) for pair in found if pair[0] != pair[1]}
