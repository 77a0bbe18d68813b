"""What several fits into one map agree on: how precise a fit is, residue by residue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mdtraj
import numpy as np
from openmm import app
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from ...base.errors import InputError
from ...base.units import ANGSTROM_PER_NANOMETER
from ...base.wording import counted, listing, residue_label
from ...models.chemistry.elements import is_hydrogen
from ...models.chemistry.residues import is_water, residue_kind
from ...models.structure_files import header_of, write_cif
from ...models.structures import Model

CC, R_FREE = "CC", "R-free"
NOT_FITTED, FITTED_INTO, ALL_COPIES, AMPLITUDES = (
    "with a map that it was not fitted into",
    "with the map that it was fitted into",
    "of all copies with the map that they were fitted into",
    "against amplitudes that it was not fitted to",
)


@dataclass(frozen=True)
class Ranking:
    """A figure of each of several models, by which one is better than another."""

    values: tuple[float, ...]  # NaN of a model that has none
    of: str = FITTED_INTO  # What the figure is of, in words that follow it
    # {"CC", "R-free"}, what it is called: of correlations the highest is the best, of R-free the lowest
    figure: str = CC

    @property
    def order(self) -> list[int]:
        """The places of the models, the best first; those without a figure last."""
        merits = np.array(self.values, dtype=float) * (-1.0 if self.figure == CC else 1.0)
        return [int(each) for each in np.argsort(np.where(np.isnan(merits), np.inf, merits), kind="stable")]

    @property
    def data(self) -> str:
        """What the models are of: a map, or a crystal."""
        return "map" if self.figure == CC else "crystal"

    def taken(self, places: Sequence[int]) -> Ranking:
        """Return that of some of the models, in another order."""
        return replace(self, values=tuple(self.values[place] for place in places))

    def in_words(self, place: int) -> str:
        """Return the figure of a model, as in ``CC of 0.912 with the map that it was fitted into``."""
        return f"{self.figure} of {self.values[place]:.3f} {self.of}"


AGREED = 1.0
"""Å: residues whose spread is smaller are where the fits agree."""
CLUSTER_REACH = 1.5
"""Å between the models of a cluster, on average."""
FEWEST_RESIDUES = 3
ENOUGH = 5
"""Models from which on the verdict does not warn that they are few: of places that are spread normally, the spread of two is off
by a factor of two or more for one atom in seven, that of five for one in two hundred."""
# In the B column, of residues that only one model has.
_UNKNOWN_SPREAD = 99.0
_TRACE = frozenset(("N", "CA", "C", "O", "P", "O5'", "C5'", "C4'", "C3'", "O3'", "C1'"))
_MOST_STRETCHES = 5


@dataclass(frozen=True)
class Consensus:
    """What several models in one map agree on.

    Attributes
    ----------
    names : list of str
        Of the models.
    best : int
        The model that agrees best with the map, by its place among them.
    residues : list of dict
        Of the best model: ``residue`` (its label), ``chain``, ``number``, ``kind``, ``spread`` (Å, the root mean square
        distance of its atoms from their mean positions over all models), ``spread_backbone`` (the same of the backbone) and
        ``models`` (how many have the residue).
    rmsd : np.ndarray, shape (M, M)
        Å, between the atoms that all models have, without superposition.
    clusters : list of list of int
        Models that are alike, the largest cluster first, in each the best first.
    verdict : str
        What to think of it, in words.
    """

    names: list[str]
    best: int
    residues: list[dict[str, Any]]
    rmsd: np.ndarray
    clusters: list[list[int]]
    verdict: str

    @property
    def median_spread(self) -> float:
        """Of the residues, in Å."""
        return float(np.median(_spreads(self.residues)))

    @property
    def agreed(self) -> float:
        """The part of the residues that agree within `AGREED`."""
        return float((_spreads(self.residues) < AGREED).mean())

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "models": self.names,
            "best": self.names[self.best],
            "median_spread": round(self.median_spread, 3),
            "agreed_part": round(self.agreed, 4),
            "clusters": [[self.names[each] for each in cluster] for cluster in self.clusters],
            "verdict": self.verdict,
            "rmsd": np.round(self.rmsd, 3).tolist(),
            "residues": self.residues,
        }


def consensus_of(
    models: Sequence[Model],
    names: Sequence[str],
    correlations: Sequence[float] | Ranking,
    is_free: bool = False,
) -> Consensus:
    """Return what several models in one map agree on.

    They are compared where they are, without superposition: all sit in one map. Atoms are the same by chain, number and name.

    Parameters
    ----------
    models : sequence of Model
        Two at least.
    names : sequence of str
        What they are called.
    correlations : sequence of float or Ranking
        Of each with the map, or better one that it was not fitted into; or another figure by which one is better.
    is_free : bool
        Whether it was not; a `Ranking` says so itself.

    Raises
    ------
    InputError
        If they have not enough residues in common.
    """
    if len(models) < 2:
        raise InputError(
            "a consensus needs at least two models", found=len(models), remedy="give more seeds or models"
        )
    ranking = correlations
    if not isinstance(ranking, Ranking):
        ranking = Ranking(tuple(ranking), NOT_FITTED if is_free else FITTED_INTO)
    best = ranking.order[0]
    tables = [_heavy_atoms(model) for model in models]
    for table in tables:
        _name_alike(table, tables[best], models[best].topology)
    residues = _residues(models[best].topology, tables)
    shared = set.intersection(*(set(table) for table in tables))
    if len({key[:3] for key in shared}) < FEWEST_RESIDUES:
        raise InputError(
            f"the models have {counted(len({key[:3] for key in shared}), 'residue')} in common by chain and number, of which "
            f"{FEWEST_RESIDUES} are needed",
            remedy="give models of one molecule with the same chains and numbers",
        )
    rmsd = _pairwise_rmsd(tables, sorted(shared))
    clusters = _clusters(rmsd, ranking)
    verdict = _verdict(names, residues, clusters, ranking, best)
    return Consensus(list(names), best, residues, rmsd, clusters, verdict)


def write_consensus(path: Path, model: Model, consensus: Consensus) -> None:
    """Write the best model with the spread of each residue, in Å, in the B column."""
    spread = {row["residue"]: row["spread"] for row in consensus.residues}
    values = [spread.get(residue_label(atom.residue)) for atom in model.topology.atoms()]
    b_factors = np.array([_UNKNOWN_SPREAD if value is None else value for value in values])
    write_cif(path, model.topology, model.positions, b_factors, header_of(model))


_Key = tuple[str, str, str, str]


def _heavy_atoms(model: Model) -> dict[_Key, np.ndarray]:
    """Return the positions of the atoms but hydrogens and water, by chain, number, insertion code and name."""
    return {
        (atom.residue.chain.id, atom.residue.id, atom.residue.insertionCode, atom.name): position
        for atom, position in zip(model.topology.atoms(), model.positions)
        if not (is_hydrogen(atom) or is_water(atom.residue.name))
    }


# Atoms that chemistry does not tell apart: which of them has which name says nothing.
_SAME = {
    "ARG": (("NH1", "NH2"),),
    "ASP": (("OD1", "OD2"),),
    "GLU": (("OE1", "OE2"),),
    **dict.fromkeys(("PHE", "TYR"), (("CD1", "CD2"), ("CE1", "CE2"))),
}


def _name_alike(
    table: dict[_Key, np.ndarray], best: Mapping[_Key, np.ndarray], topology: app.Topology
) -> None:
    """Exchange atoms that are the same by chemistry where they are then nearer to those of the best model."""
    for residue in topology.residues():
        where = (residue.chain.id, residue.id, residue.insertionCode)
        pairs = [tuple((*where, name) for name in pair) for pair in _SAME.get(residue.name, ())]
        keys = [key for pair in pairs for key in pair]
        if not keys or not all(key in table and key in best for key in keys):
            continue
        turned = [key for first, second in pairs for key in (second, first)]
        own, other, there = (
            np.array([source[key] for key in names])
            for source, names in ((table, keys), (table, turned), (best, keys))
        )
        if ((other - there) ** 2).sum() < ((own - there) ** 2).sum():
            table.update(zip(keys, other))


def _residues(topology: app.Topology, tables: Sequence[Mapping[_Key, np.ndarray]]) -> list[dict[str, Any]]:
    rows = []
    for residue in topology.residues():
        if is_water(residue.name):
            continue
        where = (residue.chain.id, residue.id, residue.insertionCode)
        names = [atom.name for atom in residue.atoms() if not is_hydrogen(atom)]
        present = [table for table in tables if any((*where, name) in table for name in names)]
        common = [name for name in names if all((*where, name) in table for table in present)]
        places = np.array([[table[(*where, name)] for name in common] for table in present])
        backbone = [number for number, name in enumerate(common) if name in _TRACE]
        rows.append(
            {
                "residue": residue_label(residue),
                "chain": residue.chain.id,
                "number": residue.id,
                "kind": residue_kind(residue),
                "spread": _spread(places),
                "spread_backbone": _spread(places[:, backbone]) if backbone else None,
                "models": len(present),
            }
        )
    return rows


def _spread(places: np.ndarray) -> float | None:
    """Return the root mean square distance from the mean of (models, atoms, 3) positions; None of one model alone."""
    if len(places) < 2 or not places.size:
        return None
    return round(float(np.sqrt(((places - places.mean(axis=0)) ** 2).sum(axis=2).mean())), 3)


def _pairwise_rmsd(tables: Sequence[Mapping[_Key, np.ndarray]], shared: Sequence[_Key]) -> np.ndarray:
    """Return the distances between all models in Å, by mdtraj, where they are."""
    places = np.array([[table[key] for key in shared] for table in tables]) / ANGSTROM_PER_NANOMETER
    topology = mdtraj.Topology()
    chain = topology.add_chain()
    for _ in shared:  # names make no difference to a distance
        topology.add_atom("CA", mdtraj.element.carbon, topology.add_residue("ALA", chain))
    # In float32: about their centre, lest a large origin costs digits.
    trajectory = mdtraj.Trajectory(places - places.mean(axis=(0, 1)), topology)
    rows = [mdtraj.rmsd(trajectory, trajectory, frame, superpose=False) for frame in range(len(tables))]
    rmsd = np.array(rows, dtype=np.float64) * ANGSTROM_PER_NANOMETER
    return (rmsd + rmsd.T) / 2 * (1 - np.eye(len(tables)))


def _clusters(rmsd: np.ndarray, ranking: Ranking) -> list[list[int]]:
    tree = linkage(squareform(rmsd, checks=False), method="average")
    numbers = fcluster(tree, CLUSTER_REACH, criterion="distance")
    order = ranking.order
    clusters = [[each for each in order if numbers[each] == number] for number in np.unique(numbers)]
    return sorted(clusters, key=lambda cluster: (-len(cluster), order.index(cluster[0])))


def _spreads(residues: Sequence[Mapping[str, Any]]) -> np.ndarray:
    return np.array([row["spread"] for row in residues if row["spread"] is not None])


def _verdict(
    names: Sequence[str],
    residues: Sequence[Mapping[str, Any]],
    clusters: Sequence[Sequence[int]],
    ranking: Ranking,
    best: int,
) -> str:
    spreads = _spreads(residues)
    agreed = spreads < AGREED
    few = len(names) < ENOUGH
    said = [
        f"{counted(len(names), 'model')} of one {ranking.data}: {100 * agreed.mean():.0f}% of {len(spreads)} residues agree "
        f"within {AGREED:g} Å (median spread {np.median(spreads):.2f} Å)."
    ]
    stretches = disagreeing(residues)
    if stretches:
        worst = sorted(stretches, key=lambda each: -each[2])[:_MOST_STRETCHES]
        named = [f"{_stretch(residues, first, last)} ({spread:.1f} Å)" for first, last, spread in worst]
        differ = "They differ" if few else "The map does not decide where these are"
        said.append(f"{differ}{' at' if few else ':'} {listing(named)}; do not build on them.")
    if len(clusters) == 1:
        said.append(f"{'Both' if len(names) == 2 else 'All'} ended in one place.")
    else:
        sizes = ", ".join(
            f"{len(each)} like {names[each[0]]} ({ranking.values[each[0]]:.3f})" for each in clusters[:4]
        )
        said.append(f"They end in {len(clusters)} different places: {sizes}; compare these by eye.")
    if few:
        why = "two have one difference, which" if len(names) == 2 else "so few"
        said.append(
            f"This rests on {len(names)} fits: {why} cannot show how far others would spread, nor that there is no other "
            f"place to end; give {ENOUGH} or more, from different models where there are some."
        )
    said.append(f"The best is {names[best]}, by its {ranking.in_words(best)}.")
    return " ".join(said)


def disagreeing(residues: Sequence[Mapping[str, Any]]) -> list[tuple[int, int, float]]:
    """Return stretches of residues on which models do not agree: the first, the last, and the largest spread in Å."""
    stretches: list[tuple[int, int, float]] = []
    for number, row in enumerate(residues):
        spread = row["spread"]
        if spread is None or spread < AGREED:
            continue
        chain = row["residue"].split()[0]
        if (
            stretches
            and stretches[-1][1] == number - 1
            and residues[number - 1]["residue"].split()[0] == chain
        ):
            first, _, largest = stretches[-1]
            stretches[-1] = (first, number, max(largest, spread))
        else:
            stretches.append((number, number, spread))
    return stretches


def _stretch(residues: Sequence[Mapping[str, Any]], first: int, last: int) -> str:
    begin = residues[first]["residue"]
    return begin if first == last else f"{begin} to {residues[last]['residue'].split()[-1]}"
