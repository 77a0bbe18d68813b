"""The Q-score: how much the map around each atom looks like that of a well-resolved atom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import gemmi
import numpy as np
from scipy.spatial import cKDTree

from ..base.errors import InputError
from ..base.units import checked_length, takes_units
from ..maps.grids import checked_positions
from ..models.chemistry.elements import is_hydrogen
from ..models.chemistry.residues import residue_kind

if TYPE_CHECKING:
    from openmm.app import Topology

    from ..maps.density_map import DensityMap

SIGMA = 0.4
"""Å: width of the reference Gaussian on EMDB's validation pages. The publication has 0.6, which scores about 0.1 higher."""
RADII = 0.1 * np.arange(1, 21)
"""Å: the shells around an atom; its own position is one more."""
POINTS_PER_SHELL = 8
EXPECTED = {
    ("protein", 0.6): (-0.1775, 1.1192),
    ("protein", 0.4): (-0.1866, 1.1242),
    ("nucleotide", 0.6): (-0.1377, 0.9973),
    ("nucleotide", 0.4): (-0.1465, 0.9436),
}
"""Slope (1/Å) and intercept of the Q-score of well-fitted models against the resolution, by what they are and σ (Å)."""

# A point belongs to an atom if no other is nearer to it than this part of its distance from the atom. The publication says nearer
# to the atom than to any other; the program behind its values leaves this margin, which lowers scores by 0.04.
_MARGIN = 0.9
# Where neighbours leave fewer than 8 points of a shell, it is sampled with 2 points more, up to this many times.
_TRIES = 50
_ATOMS_AT_ONCE = 512


class QScores(NamedTuple):
    """Q-scores of one set of positions.

    Attributes
    ----------
    mean : float
        Over all atoms that have one; NaN where none has.
    residues : np.ndarray of float64, shape (n_residues,)
        Means over the atoms of each residue; NaN where none has one.
    atoms : np.ndarray of float64, shape (N,)
        NaN for hydrogens and for atoms outside the map; 0 where the map does not vary.
    """

    mean: float
    residues: np.ndarray
    atoms: np.ndarray


def q_scores(density_map: DensityMap, topology: Topology, positions: Any, *, sigma: Any = SIGMA) -> QScores:
    """Return the Q-score of every non-hydrogen atom, and its means over residues and model.

    The map is interpolated (trilinearly) at the atom and on shells of 0.1, 0.2 … 2.0 Å, at 8 or more points on each that are
    nearer to the atom than to any other, and correlated about the mean with exp(−½ (r/σ)²). (The publication's A exp(…) + B,
    with A and B from the map's mean and standard deviation, has the same correlation.) Shells on which neighbours leave no 8
    points are left out. Points lie on a spiral that is the same for every atom, so that a model always scores the same; turning
    it with its map changes single atoms by about 0.05, and residues by 0.02.

    Parameters
    ----------
    positions : Quantity or array_like, shape (N, 3)
        Cartesian positions in Å.
    sigma : float or Quantity
        σ in Å: 0.4 as on EMDB's validation pages, 0.6 as published.

    References
    ----------
    G. Pintilie et al., Nat. Methods 17, 328 (2020).
    """
    return scores_of_atoms(topology, atom_q_scores(density_map, topology, positions, sigma=sigma))


def atom_q_scores(
    density_map: DensityMap,
    topology: Topology,
    positions: Any,
    part: int = 0,
    parts: int = 1,
    sigma: Any = SIGMA,
) -> np.ndarray:
    """Return `q_scores` of atoms, shape (N,), or those of a part: of so many `parts`, which may be found side by side."""
    sigma = checked_length(sigma, "sigma", zero=False)
    positions = checked_positions(positions, topology.getNumAtoms(), topology)
    elements = [atom.element for atom in topology.atoms()]
    heavy = np.array(
        [k for k, each in enumerate(elements) if each is not None and each.atomic_number > 1], dtype=np.int64
    )
    if not len(heavy):
        raise InputError(
            "the model has no non-hydrogen atom, and only those have a Q-score",
            remedy="give a model that has some",
        )
    scores = np.full(len(elements), np.nan)
    firsts = range(0, len(heavy), _ATOMS_AT_ONCE)[part::parts]
    scores[heavy] = _correlations(density_map, positions[heavy], sigma, firsts)
    return scores


def scores_of_atoms(topology: Topology, scores: np.ndarray) -> QScores:
    """Return `q_scores` of those of atoms, shape (N,)."""
    residue_of_atom = np.array([atom.residue.index for atom in topology.atoms()], dtype=np.int64)
    known = np.isfinite(scores)
    n_residues = topology.getNumResidues()
    count = np.bincount(residue_of_atom[known], minlength=n_residues)
    total = np.bincount(residue_of_atom[known], scores[known], n_residues)
    residues = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return QScores(float(scores[known].mean()) if known.any() else float("nan"), residues, scores)


@takes_units("resolution", "sigma")
def expected_q(resolution: Any, kind: str = "protein", *, sigma: float = SIGMA) -> float:
    """Return the mean Q-score that models have on average in maps of a resolution.

    The lines of the program MapQ, which are those of the publication for σ = 0.6 Å. What EMDB calls Q_relative is something else:
    the rank among all its entries.

    Parameters
    ----------
    resolution : float or Quantity
        Å.
    kind : {"protein", "nucleotide"}
    sigma : float
        0.6 or 0.4 Å.

    Raises
    ------
    InputError
        If no line is known for them.

    References
    ----------
    G. Pintilie et al., Nat. Methods 17, 328 (2020).
    """
    known = EXPECTED.get((kind, sigma))
    if known is None:
        raise InputError(
            "expected Q-scores are known for protein and nucleotide with a sigma of 0.6 or 0.4 Å",
            found=f"{kind}, {sigma:g} Å",
            remedy="give one of these",
        )
    slope, intercept = known
    return intercept + slope * checked_length(resolution, "resolution", zero=False)


def usual_q(topology: Topology, resolution: float) -> float | None:
    """Return `expected_q` of a model, over the non-hydrogen atoms of its polymers; None without these, and where it is below 0.

    `resolution` in Å.
    """
    counts: Counter[str] = Counter()
    for residue in topology.residues():
        if residue_kind(residue) == "polymer":
            is_nucleic = gemmi.find_tabulated_residue(residue.name).is_nucleic_acid()
            counts["nucleotide" if is_nucleic else "protein"] += sum(
                not is_hydrogen(a) for a in residue.atoms()
            )
    if not counts.total():
        return None
    # Beyond some 6 Å the line leads below 0, which no average is.
    mean = sum(number * expected_q(resolution, kind) for kind, number in counts.items()) / counts.total()
    return mean if mean > 0 else None


def _correlations(
    density_map: DensityMap, positions: np.ndarray, sigma: float, firsts: Sequence[int]
) -> np.ndarray:
    """Correlate the map with the reference Gaussian around positions: those at hand from each first one on, NaN for others."""
    n = len(positions)
    # Of the values v of the map and g of the Gaussian: 1, v, v², g, g², v g. The map's value at the atom is taken off first, or a
    # large constant in the map would drown what varies.
    sums = np.zeros((6, n))
    centre = density_map.value_at(positions)

    def add(first: int, atoms: np.ndarray, values: np.ndarray, gaussian: np.ndarray) -> None:
        known = np.isfinite(values)
        atoms, values, gaussian = atoms[known], values[known] - centre[atoms[known]], gaussian[known]
        products = (None, values, values**2, gaussian, gaussian**2, values * gaussian)
        for row, weights in zip(sums[:, first : first + _ATOMS_AT_ONCE], products):
            row += np.bincount(atoms - first, weights, len(row))

    gaussian = np.exp(-0.5 * (RADII / sigma) ** 2)
    for first in firsts:
        every = np.repeat(np.arange(first, min(first + _ATOMS_AT_ONCE, n)), POINTS_PER_SHELL)
        add(first, every, centre[every], np.ones(len(every)))
    for first, atoms, shells, points in _own_points(positions, firsts):
        add(first, atoms, density_map.value_at(points), gaussian[shells])

    count, v, vv, g, gg, vg = sums
    with np.errstate(invalid="ignore", divide="ignore"):
        variances = (vv - v**2 / count) * (gg - g**2 / count)
        scores = (vg - v * g / count) / np.sqrt(variances)
    varies = vv - v**2 / np.maximum(count, 1) > 1e-12 * centre**2
    known = np.isfinite(centre) & np.isin(np.arange(n) // _ATOMS_AT_ONCE, np.array(firsts) // _ATOMS_AT_ONCE)
    return np.where(known, np.where(varies, scores, 0.0), np.nan)


def _own_points(
    positions: np.ndarray, firsts: Sequence[int]
) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the points of shells that belong to their atom: the first of the atoms at hand, atoms, shells and points (P, 3)."""
    inverse, begins = _neighbours(positions)
    for first in firsts:
        pending = np.arange(first, min(first + _ATOMS_AT_ONCE, len(positions)))
        filled = np.zeros(len(pending), dtype=np.int64)
        for attempt in range(_TRIES):
            directions = _spiral(POINTS_PER_SHELL + 2 * attempt)
            reach = _reach(inverse, begins, pending, directions)
            # Reach falls with the radius alone: a shell has 8 points of its own where the eighth-longest reach is beyond it.
            eighth = np.partition(reach, -POINTS_PER_SHELL, axis=1)[:, -POINTS_PER_SHELL]
            now = np.searchsorted(RADII, eighth, side="right")
            shells = np.arange(len(RADII))
            rows, shells = np.nonzero((shells >= filled[:, None]) & (shells < now[:, None]))
            points, which = np.nonzero(reach[rows] >= RADII[shells][:, None])
            atoms, shells = pending[rows[points]], shells[points]
            yield first, atoms, shells, positions[atoms] + RADII[shells][:, None] * directions[which]
            filled = np.maximum(filled, now)
            unfilled = filled < len(RADII)
            pending, filled = pending[unfilled], filled[unfilled]
            if not len(pending):
                break


def _neighbours(positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return **d**/d² and 0.19/d² of the vectors **d** from each position to those that may own points around it.

    Before those of each, which may be none, there are zeros. Returned beside them: where those of each begin.
    """
    pairs = cKDTree(positions).query_pairs((1 + _MARGIN) * RADII[-1], output_type="ndarray")
    pairs = np.concatenate([pairs, pairs[:, ::-1]])
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    begins = np.append(0, np.cumsum(np.bincount(pairs[:, 0], minlength=len(positions)) + 1))
    away = positions[pairs[:, 1]] - positions[pairs[:, 0]]
    inverse = np.zeros((begins[-1], 4))
    with np.errstate(invalid="ignore", divide="ignore"):
        scaled = np.insert(away, 3, 1 - _MARGIN**2, axis=1) / (away**2).sum(axis=1)[:, None]
    inverse[np.arange(len(pairs)) + pairs[:, 0] + 1] = scaled
    return inverse, begins


def _reach(inverse: np.ndarray, begins: np.ndarray, atoms: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Return how far from each atom its points belong to it along each direction, shape (atoms, directions).

    Along **u** a point at radius r is at |r **u** − **d**| from a neighbour at **d**, which first falls below 0.9 r at the
    smaller root of (1 − 0.81) r² − 2 r **u**·**d** + d² = 0, and never where there is none. Its inverse is that of the nearest
    neighbour where it is the greatest.
    """
    count = begins[atoms + 1] - begins[atoms]
    rows = np.cumsum(count) - count
    own = inverse[np.arange(count.sum()) + np.repeat(begins[atoms] - rows, count)]
    along = own[:, :3] @ directions.T
    root = along * along
    root -= own[:, 3:]
    with np.errstate(invalid="ignore"):
        np.sqrt(root, out=root)
    root += along
    # What is no number, or behind the atom, is 0: without end.
    nearest = np.maximum.reduceat(np.fmax(root, 0.0, out=root), rows, axis=0)
    with np.errstate(divide="ignore"):
        return 1 / nearest


@lru_cache(maxsize=_TRIES)
def _spiral(n: int) -> np.ndarray:
    """Spread n points evenly over the unit sphere (Saff and Kuijlaars, Math. Intelligencer 19, 5 (1997), eq. 8); shape (n, 3)."""
    height = np.linspace(-1, 1, n)
    turn = np.zeros(n)
    turn[1:-1] = np.cumsum(3.6 / np.sqrt(n * (1 - height[1:-1] ** 2)))
    width = np.sqrt(1 - height**2)
    return np.stack([width * np.cos(turn), width * np.sin(turn), height], axis=1)
