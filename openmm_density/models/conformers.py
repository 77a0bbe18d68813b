"""Choose a conformer for each residue of a file, the same one for residues whose alternates touch."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import gemmi
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from .chemistry.residues import is_water

JOINED, APART = 2.0, 2.2
"""Å up to which atoms with one label join residues, and from which atoms with different labels can be present together."""


@dataclass(frozen=True)
class AlternateAtom:
    """An atom of a conformer that was not chosen, of a residue of a chain of the file.

    It follows the given number of atoms, less one, of the residue that has it and, where its residue alternates with
    another one, takes the place of that host.
    """

    atom: gemmi.Atom
    residue: gemmi.Residue
    chain: str
    after: int
    host: ReadResidue | None = None


@dataclass
class ReadResidue:
    """One residue during reading: the file's names, the chosen conformer, and the atoms of the others.

    Each atom has its source, a residue of the file, which has another name where an atom without a label belongs to several; and
    its part, a number that ascends in the order of the file.
    """

    name: str
    standard_name: str
    chain: str
    number: int
    insertion_code: str
    segment: str
    subchain: str
    hetero: bool
    after_gap: bool
    atoms: list[gemmi.Atom]
    sources: list[gemmi.Residue]
    atom_names: list[str] = field(default_factory=list, init=False)
    elements: list[str] = field(default_factory=list, init=False)
    alternates: list[AlternateAtom] = field(default_factory=list, init=False)
    parts: list[int] = field(default_factory=list, init=False)
    whole: ReadResidue | None = field(default=None, init=False)

    def position(self, name: str) -> np.ndarray | None:
        """Return the position of the atom with a name in Å, if there is one."""
        for atom, atom_name in zip(self.atoms, self.atom_names):
            if atom_name == name:
                return np.array(atom.pos.tolist())
        return None


@dataclass
class _Place:
    """The residue of a chain at one number, or the residues that alternate there, and the chosen label."""

    chain: str
    first_of_chain: bool
    residues: list[gemmi.Residue]
    shares: dict[str, float] = field(default_factory=dict)
    label: str = ""
    stays: bool = False
    host: int | None = None

    def __post_init__(self) -> None:
        occupancies: dict[str, list[float]] = defaultdict(list)
        for residue in self.residues:
            for atom in residue:
                if atom.has_altloc():
                    occupancies[atom.altloc].append(atom.occ)
        self.shares = {label: float(np.mean(each)) for label, each in occupancies.items()}
        self.label = max(self.shares, key=lambda label: self.shares[label], default="")

    def takes(self, residue: gemmi.Residue) -> bool:
        """Return whether a residue of another name alternates with those at this place."""
        last, labels = self.residues[-1], {atom.altloc for atom in residue}
        return (
            residue.seqid == last.seqid
            and residue.segment == last.segment
            and all(residue.name != each.name for each in self.residues)
            and bool(self.shares)
            and "\0" not in labels
            and not labels & self.shares.keys()
        )

    @property
    def is_whole(self) -> bool:
        """Whether all its atoms are present under a single label."""
        return len(self.shares) == 1 and all(atom.has_altloc() for each in self.residues for atom in each)

    @property
    def chosen(self) -> gemmi.Residue:
        """The residue that has the chosen label."""
        return next(
            (each for each in self.residues if any(atom.altloc == self.label for atom in each)),
            self.residues[0],
        )


def kept_residues(model: gemmi.Model) -> list[ReadResidue]:
    """Choose conformers; return the residues in the file's order, each with the atoms of the conformers that were not chosen.

    A conformer is the set of atoms with one label at one residue number, even where residues there have several names; an atom
    without a label belongs to each. Where labelled atoms of different residues are bonded or too close to be present together,
    one label is chosen for all: the one with the highest occupancy, the first of the file where they are equal. A residue that
    cannot be present with those is an alternate of the one whose place it takes.
    """
    places = _places(model)
    _choose(places)
    kept: list[ReadResidue] = []
    of_place: dict[int, ReadResidue] = {}
    waiting: list[tuple[_Place, ReadResidue | None]] = []
    for number, place in enumerate(places):
        if place.host is not None:
            waiting.append((place, kept[-1] if kept else None))
            continue
        residues = _read(place)
        for count, residue in enumerate(residues, start=len(kept)):
            residue.parts = [count] * len(residue.atoms)
        of_place[number] = residues[0]
        kept += residues
    for place, before in waiting:
        holder = before or kept[0]
        after = -1 if before is None else len(before.atoms) - 1
        holder.alternates += [
            AlternateAtom(atom, residue, place.chain, after, of_place[_host(places, place.host)])
            for residue in place.residues
            for atom in residue
        ]
    return kept


def _host(places: list[_Place], number: int) -> int:
    """Return the place that stays, for one that may itself alternate with another."""
    while (host := places[number].host) is not None:
        number = host
    return number


def _places(model: gemmi.Model) -> list[_Place]:
    places: list[_Place] = []
    for chain in model:
        first = True
        for residue in chain:
            if not len(residue):
                continue
            if not first and places[-1].takes(residue):
                places[-1].residues.append(residue)
                places[-1].__post_init__()
            else:
                places.append(_Place(chain.name.strip(), first, [residue]))
            first = False
    return places


def _choose(places: list[_Place]) -> None:
    """Choose one label for places that touch, and find those that alternate with others."""
    rows = [
        (number, atom.altloc, atom.pos.tolist())
        for number, place in enumerate(places)
        if place.shares
        for residue in place.residues
        for atom in residue
        if atom.has_altloc() and not atom.is_hydrogen()
    ]
    if not rows:
        return
    numbers, labels = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    positions = np.array([row[2] for row in rows])
    first, second = cKDTree(positions).query_pairs(APART, output_type="ndarray").T
    distances = np.linalg.norm(positions[first] - positions[second], axis=1)
    same = labels[first] == labels[second]
    meets = (numbers[first] != numbers[second]) & (~same | (distances < JOINED))
    first, second, same, distances = (each[meets] for each in (first, second, same, distances))
    ends = numbers[first], numbers[second]
    graph = coo_array((np.ones(len(first)), ends), shape=(len(places), len(places)))
    _, parts = connected_components(graph, directed=False)
    members: dict[int, list[_Place]] = defaultdict(list)
    for number in np.unique(np.concatenate(ends)).tolist():
        members[parts[number]].append(places[number])
    for part in members.values():
        label = _best_label(part)
        for place in part:
            if label in place.shares:
                place.label, place.stays = label, True
    _give_way(places, [*zip(*(each.tolist() for each in (*ends, labels[first], labels[second], distances)))])


def _best_label(part: list[_Place]) -> str:
    """Return the label with most atoms in places that touch, weighted by occupancy."""
    weights: dict[str, float] = defaultdict(float)
    for place in part:
        for label, share in place.shares.items():
            weights[label] += share * max(
                sum(atom.altloc == label for atom in residue) for residue in place.residues
            )
    return max(weights, key=lambda label: round(weights[label], 6))


def _give_way(places: list[_Place], meetings: list[tuple[int, int, str, str, float]]) -> None:
    """Find the places that alternate with those of the chosen label where they touch; waters, without bonds, stay."""
    joined: dict[int, set[int]] = defaultdict(set)
    rivals: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for a, b, label, other, distance in meetings:
        if places[a].label != label or places[b].label != other:
            continue
        if label == other:
            joined[a].add(b)
            joined[b].add(a)
        elif not any(is_water(places[each].chosen.name) for each in (a, b)):
            rivals[a].append((distance, b))
            rivals[b].append((distance, a))
    yielding = [k for k in rivals if places[k].is_whole and not places[k].stays]
    for number in sorted(yielding, key=lambda k: (_weight(places[k]), -k)):
        standing = [(d, other) for d, other in rivals[number] if places[other].host is None]
        if places[number].host is not None or not standing:
            continue
        # Residues bonded to it under its label are present only with it.
        host, leaving = min(standing)[1], [number]
        for each in leaving:
            places[each].host = host
            leaving += [k for k in joined[each] if k not in leaving and places[k].is_whole]


def _weight(place: _Place) -> float:
    return round(place.shares[place.label] * sum(len(residue) for residue in place.residues), 6)


def _read(place: _Place) -> list[ReadResidue]:
    """Return the residues of a place with the atoms of the conformers that were not chosen."""
    best = place.chosen
    keys = _chosen_keys(best, place.label)
    chosen: list[tuple[gemmi.Atom, gemmi.Residue]] = []
    others: list[AlternateAtom] = []
    for residue in place.residues:
        for atom in residue:
            if not atom.has_altloc() or (residue is best and (atom.name, atom.altloc) in keys):
                chosen.append((atom, residue))
            else:
                others.append(AlternateAtom(atom, residue, place.chain, len(chosen) - 1))
    # A name that repeats without an altloc is another residue with the same number, as
    # in water boxes whose numbers ran out.
    parts = _split_at_repeated_name(chosen)
    kept = [
        ReadResidue(
            name=best.name,
            standard_name=best.name,
            chain=place.chain,
            number=best.seqid.num if best.seqid.num is not None else 0,
            insertion_code=best.seqid.icode.strip(),
            segment=best.segment.strip(),
            subchain=best.subchain,
            hetero=best.het_flag == "H",
            after_gap=place.first_of_chain and number == 0,
            atoms=[atom for atom, _ in part],
            sources=[residue for _, residue in part],
        )
        for number, part in enumerate(parts)
    ]
    # Conformers of several residues with one number belong to the first.
    last = len(parts[0]) - 1
    kept[0].alternates = [
        AlternateAtom(each.atom, each.residue, each.chain, min(each.after, last)) for each in others
    ]
    return kept


def _chosen_keys(residue: gemmi.Residue, chosen: str) -> set[tuple[str, str]]:
    """Return the names and labels of the atoms to keep, of those that have a label."""
    best: dict[str, gemmi.Atom] = {}
    for atom in residue:
        if not atom.has_altloc():
            continue
        rival = best.get(atom.name)
        if rival is None or (atom.altloc == chosen, atom.occ) > (rival.altloc == chosen, rival.occ):
            best[atom.name] = atom
    # gemmi gives a new Python object at each iteration: identity is the (name, altloc) pair.
    return {(atom.name, atom.altloc) for atom in best.values()}


def _split_at_repeated_name(
    atoms: list[tuple[gemmi.Atom, gemmi.Residue]],
) -> list[list[tuple[gemmi.Atom, gemmi.Residue]]]:
    parts: list[list[tuple[gemmi.Atom, gemmi.Residue]]] = [[]]
    names: set[str] = set()
    for atom, residue in atoms:
        if atom.name in names:
            parts.append([])
            names = set()
        names.add(atom.name)
        parts[-1].append((atom, residue))
    return parts
