"""Ideal shapes, from a monomer library or dictionaries, of residues that the force field does not know; torsions stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from openmm import app
from scipy.sparse import coo_matrix, identity, vstack
from scipy.sparse.linalg import spsolve

from ...base.wording import listing, residue_label
from ..chemistry.ideal_geometry import bond_angles
from ..chemistry.monomers.terms import GeometryTerms, IdealTerms, find_terms
from ..chemistry.monomers.volumes import places_of
from ..chemistry.topologies import bonded_pairs, hydrogen_mask, part_of_topology

BAD_BOND, BAD_ANGLE = 0.2, 15.0
"""Å and degrees from the ideal value beyond which a bond or an angle of the input is reported as corrected."""
ANCHOR = 0.2
"""Å; standard deviation of a restraint to the present positions, which keeps torsions without ideal values."""

_UNKNOWN = {2: 0.02, 3: np.radians(2.0)}  # σ in Å and radians of bonds and angles that stay as they are
_STEPS, _LONGEST_STEP, _CONVERGED = 40, 0.3, 1e-4  # the last two in Å
_STEP = 1e-4  # Å, of differences


@dataclass(frozen=True)
class IdealShapes:
    """Ideal positions of the atoms of rigid residues.

    `places`: by atom in Å, for residues with known ideal geometry; `mended`: the atoms of bad bonds and angles in the input,
    and `n_mended` the number of these by residue label; `link_lengths`: ideal distances in Å of atoms of two
    residues, in ascending order, one and two bonds apart; `sentences`: on residues that differ from the library.
    """

    places: dict[int, np.ndarray] = field(default_factory=dict)
    mended: frozenset[int] = frozenset()
    n_mended: dict[str, int] = field(default_factory=dict)
    link_lengths: dict[tuple[int, int], float] = field(default_factory=dict)
    sentences: list[str] = field(default_factory=list)


def ideal_shapes(
    topology: app.Topology, positions: np.ndarray, rigid: Sequence[np.ndarray], dictionaries: Any = ()
) -> IdealShapes:
    """Find the ideal shapes of rigid residues, each given by its atoms, at positions (N, 3) in Å."""
    is_rigid = np.zeros(len(positions), dtype=bool)
    is_rigid[[index for atoms in rigid if len(atoms) > 1 for index in atoms]] = True
    owner = np.array([atom.residue.index for atom in topology.atoms()], dtype=np.int64)
    bonds = bonded_pairs(topology)
    index = np.flatnonzero(np.isin(owner, owner[bonds[is_rigid[bonds].any(axis=1)]]))
    if not len(index):
        return IdealShapes()
    part, start, owner = part_of_topology(topology, index, bonds), positions[index], owner[index]
    terms = find_terms(part, start, dictionaries=dictionaries)
    labels = [residue_label(residue) for residue in topology.residues()]
    left_out = {*terms.unknown, *terms.contradicted}
    moves = is_rigid[index] & ~np.isin([labels[k] for k in owner], list(left_out))
    known = [_inside(kind, owner, moves) for kind in (terms.bonds, terms.angles, terms.volumes)]
    heavy = ~hydrogen_mask(part)
    bad = [
        atoms
        for kind, limit in ((known[0], BAD_BOND), (known[1], np.radians(BAD_ANGLE)))
        for atoms in kind.atoms[
            (np.abs(kind.measured(start) - kind.values) > limit) & heavy[kind.atoms].all(axis=1)
        ]
    ]
    planes = [
        (np.array(plane.atoms), plane.sigma)
        for plane in terms.planes.planes
        if moves[list(plane.atoms)].all() and len(set(owner[list(plane.atoms)])) == 1
    ]
    places = _relaxed(start, [*known, *_as_they_are(part, start, owner, moves, known)], planes)
    own = {labels[k] for k in owner[is_rigid[index]]}
    return IdealShapes(
        {int(index[k]): places[k] for k in np.flatnonzero(moves)},
        frozenset(int(index[k]) for atoms in bad for k in atoms),
        dict(Counter(labels[owner[atoms[0]]] for atoms in bad)),
        _link_lengths(terms, owner, index),
        [
            f"{sentence}: {listing(named)}."
            for sentence, which in (
                (
                    "These residues have other bonds or atoms than those of their name in the monomer library or a dictionary, "
                    "and keep the shape that they have",
                    terms.contradicted,
                ),
                (
                    "No monomer library or dictionary has ideal geometry of these residues, which keep the shape that they have. "
                    "Give a restraint dictionary or wwPDB component file of them",
                    terms.unknown,
                ),
            )
            if (named := [label for label in which if label in own])
        ],
    )


def _inside(kind: IdealTerms, owner: np.ndarray, moves: np.ndarray) -> IdealTerms:
    """Return the terms within moving residues."""
    kept = moves[kind.atoms].all(axis=1) & (owner[kind.atoms] == owner[kind.atoms[:, :1]]).all(axis=1)
    return type(kind)(kind.atoms[kept], kind.values[kept], kind.sigmas[kept])


def _as_they_are(
    part: app.Topology, start: np.ndarray, owner: np.ndarray, moves: np.ndarray, known: Sequence[IdealTerms]
) -> list[IdealTerms]:
    """Return the bonds and angles within residues without ideal values, held at their present values."""
    bonds = bonded_pairs(part)
    found = []
    for atoms, of_library in zip((bonds, bond_angles(bonds)), known):
        sigmas = np.full(len(atoms), _UNKNOWN[atoms.shape[1]])
        own = _inside(IdealTerms(atoms, np.zeros(len(atoms)), sigmas), owner, moves)
        own = replace(own, values=own.measured(start))
        lacking = places_of(of_library.atoms, own.atoms, len(start)) < 0
        found.append(IdealTerms(own.atoms[lacking], own.values[lacking], own.sigmas[lacking]))
    return found


def _relaxed(
    start: np.ndarray, kinds: Sequence[IdealTerms], planes: Sequence[tuple[np.ndarray, Any]]
) -> np.ndarray:
    """Return the positions near the start that fit all terms best, in standard deviations, by the Gauss-Newton method."""
    positions = start.copy()
    n, groups = start.size, _of_one_size(planes)
    in_planes = np.concatenate([np.empty(0, dtype=np.int64), *(atoms for atoms, _ in planes)])
    of_rows = [*(kind.atoms for kind in kinds), in_planes[:, None]]
    firsts = np.cumsum([0, *map(len, of_rows)])
    rows = np.concatenate(
        [np.repeat(first + np.arange(len(each)), 3 * each.shape[1]) for first, each in zip(firsts, of_rows)]
    )
    columns = np.concatenate([(3 * each[:, :, None] + np.arange(3)).ravel() for each in of_rows])
    flat, normals = np.empty(len(in_planes)), np.empty((len(in_planes), 3))
    for _ in range(_STEPS):
        for members, atoms, sigmas in groups:
            around = positions[atoms] - positions[atoms].mean(axis=1, keepdims=True)
            normal = np.linalg.svd(around, full_matrices=False)[2][:, 2]
            flat[members] = (around @ normal[:, :, None])[:, :, 0] / sigmas
            normals[members] = normal[:, None] / sigmas[:, :, None]
        gradients = [_gradients(kind, positions) / kind.sigmas[:, None, None] for kind in kinds]
        residuals = [(positions - start).ravel() / ANCHOR, *(kind.z(positions) for kind in kinds), flat]
        entries = np.concatenate([each.ravel() for each in (*gradients, normals)])
        terms = coo_matrix((entries, (rows, columns)), (firsts[-1], n))
        jacobian = vstack([identity(n) / ANCHOR, terms]).tocsc()
        step = spsolve((jacobian.T @ jacobian).tocsc(), -jacobian.T @ np.concatenate(residuals)).reshape(
            -1, 3
        )
        longest = float(np.abs(step).max())
        positions += step * min(1.0, _LONGEST_STEP / max(longest, _CONVERGED))
        if longest < _CONVERGED:
            break
    return positions


def _of_one_size(
    planes: Sequence[tuple[np.ndarray, Any]],
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return for each size of planes their numbers among the atoms of all planes, these atoms and their σ, (P, n) each."""
    firsts = np.cumsum([0, *(len(atoms) for atoms, _ in planes)])
    groups = []
    for size in dict.fromkeys(len(atoms) for atoms, _ in planes):
        own = [k for k, (atoms, _) in enumerate(planes) if len(atoms) == size]
        sigmas = np.array([np.broadcast_to(planes[k][1], size) for k in own])
        groups.append((firsts[own][:, None] + np.arange(size), np.array([planes[k][0] for k in own]), sigmas))
    return groups


def _gradients(kind: IdealTerms, positions: np.ndarray) -> np.ndarray:
    """Return the derivatives (T, n, 3) of terms (T,) of n atoms each, by finite differences."""
    size = kind.atoms.shape[1]
    own = replace(kind, atoms=np.arange(kind.atoms.size).reshape(-1, size))
    places = positions[kind.atoms].reshape(-1, 3)
    found = np.empty((*kind.atoms.shape, 3))
    for k in range(size):
        for axis in range(3):
            ends = []
            for step in (_STEP, -_STEP):
                moved = places.copy()
                moved[k::size, axis] += step
                ends.append(own.measured(moved))
            found[:, k, axis] = (ends[0] - ends[1]) / (2 * _STEP)
    return found


def _link_lengths(terms: GeometryTerms, owner: np.ndarray, index: np.ndarray) -> dict[tuple[int, int], float]:
    """Return the ideal distances of atoms of two residues one and two bonds apart."""
    pairs, lengths = terms.bonds.atoms, terms.bonds.values
    triples = terms.angles.atoms
    sides = [places_of(pairs, triples[:, ends], len(owner)) for ends in ([0, 1], [1, 2])]
    both = (sides[0] >= 0) & (sides[1] >= 0)
    a, b = (lengths[side[both]] for side in sides)
    across = np.sqrt(a**2 + b**2 - 2 * a * b * np.cos(terms.angles.values[both]))
    atoms = np.concatenate([triples[both][:, [0, 2]], pairs])
    found = np.concatenate([across, lengths])
    of_link = owner[atoms[:, 0]] != owner[atoms[:, 1]]
    keys = np.sort(index[atoms[of_link]], axis=1)
    return dict(zip(map(tuple, keys.tolist()), found[of_link].tolist()))
