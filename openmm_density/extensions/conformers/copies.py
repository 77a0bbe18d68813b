"""Which alternate conformers of a prepared model can be fitted, and the copies of atoms that they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from openmm import app
from scipy.spatial import cKDTree

from ...base.wording import listing, residue_label
from ...models.alternates import motions_with_residues
from ...models.chemistry.elements import is_hydrogen
from ...models.chemistry.topologies import hydrogen_mask
from ...models.conformer_topology import FurtherConformers
from ...models.merging import CopiedParticles
from ...models.preparation import Prepared
from ...models.superposition import superposition

EXCLUSION_REACH = 8.0
"""Å up to which atoms of different conformers do not see each other, as in the System of one conformer."""
_BONDS_TO_GUIDES = 4
_LEAST_SHARE, _LEAST_APART = 0.05, 0.01


@dataclass(frozen=True)
class ConformerGroup:
    """Residues bonded to each other in which the same conformers alternate; mostly one."""

    name: str  # Of the first, as in ``A LYS 45``
    chosen: str  # The label of the conformer that is the model's own
    labels: tuple[str, ...]  # Of its copies
    atoms: np.ndarray  # int, of the topology, those that each of the labels has a copy of


@dataclass(frozen=True)
class ConformerCopies:
    """The K copies (`others`) behind the N atoms of a prepared model that its alternate conformers are, in `groups`.

    `group_of_copy` int (K,); `shares`: of each group the occupancies of its conformers, whose sum is 1, by label; `left`: a
    sentence on each reason why some are not fitted.
    """

    others: FurtherConformers
    groups: list[ConformerGroup]
    group_of_copy: np.ndarray
    shares: list[dict[str, float]]
    left: list[str]

    def __len__(self) -> int:
        return len(self.others)

    @property
    def n_atoms(self) -> int:
        """N, without the copies."""
        return self.others.topology.getNumAtoms()

    def occupancies(self) -> np.ndarray:
        """Return the occupancy of all N + K atoms, 1 of those that do not alternate."""
        result = np.ones(self.n_atoms + len(self))
        for k, (original, label) in enumerate(zip(self.others.originals, self.others.labels)):
            share = self.shares[self.group_of_copy[k]][label]
            result[self.n_atoms + k] = share
            result[original] -= share
        return np.clip(result, 0.0, 1.0)

    def with_shares(self, shares: list[dict[str, float]]) -> ConformerCopies:
        """Return the same with other occupancies."""
        return replace(self, shares=shares)

    def with_only(self, groups: Sequence[int]) -> ConformerCopies:
        """Return those of some groups, by their numbers."""
        kept = np.flatnonzero(np.isin(self.group_of_copy, groups))
        others = self.others
        numbers = {group: number for number, group in enumerate(groups)}
        return replace(
            self,
            others=FurtherConformers(
                others.topology,
                others.residues[kept],
                tuple(others.labels[k] for k in kept),
                tuple(others.names[k] for k in kept),
                tuple(others.elements[k] for k in kept),
                others.originals[kept],
                others.alternates[kept],
            ),
            groups=[self.groups[k] for k in groups],
            group_of_copy=np.array([numbers[int(self.group_of_copy[k])] for k in kept], dtype=np.int64),
            shares=[self.shares[k] for k in groups],
        )

    def members(self, group: int, label: str) -> np.ndarray:
        """Return the atoms, from 0 to N + K, of a conformer of a group."""
        if label == self.groups[group].chosen:
            return self.groups[group].atoms
        mine = (self.group_of_copy == group) & (np.array(self.others.labels) == label)
        return self.n_atoms + np.flatnonzero(mine)

    def near(self, positions: np.ndarray, reach: float) -> np.ndarray:
        """Return which of all atoms (N + K) are of residues within a reach of a conformer, at positions (N + K, 3), both in Å."""
        residues = np.array([atom.residue.index for atom in self.others.joined.atoms()])
        alternating = np.concatenate([self.others.originals, self.n_atoms + np.arange(len(self))])
        distances, _ = cKDTree(positions[alternating]).query(positions, distance_upper_bound=reach)
        return np.isin(residues, residues[np.isfinite(distances)])

    def positions_of(self, positions: np.ndarray, label: str) -> np.ndarray:
        """Return positions (N, 3) of the model with the atoms of a label where it has them, of those of all (N + K, 3)."""
        result = positions[: self.n_atoms].copy()
        mine = np.flatnonzero(np.array(self.others.labels) == label)
        result[self.others.originals[mine]] = positions[self.n_atoms + mine]
        return result

    def copied(self, labels: Sequence[str], positions: np.ndarray) -> CopiedParticles:
        """Return what is copied of a System, for the labels (N) of its atoms and the positions (N + K, 3) of all, in Å."""
        every = np.array([*labels, *self.others.labels])
        marked = np.flatnonzero(every != "")
        near = marked[cKDTree(positions[marked]).query_pairs(EXCLUSION_REACH, output_type="ndarray")]
        near = near[(near >= self.n_atoms).any(axis=1)]
        apart = {tuple(sorted(pair)) for pair in near[every[near[:, 0]] != every[near[:, 1]]].tolist()}
        for number, group in enumerate(self.groups):
            members = [self.members(number, label) for label in (group.chosen, *group.labels)]
            for k, one in enumerate(members):
                for other in members[k + 1 :]:
                    apart |= {(min(a, b), max(a, b)) for a in one.tolist() for b in other.tolist()}
        return CopiedParticles(
            self.others.originals,
            self.others.labels,
            self.occupancies(),
            np.array(sorted(apart), dtype=np.int64).reshape(-1, 2),
        )


def conformer_copies(prepared: Prepared) -> ConformerCopies:
    """Return the alternate conformers of a prepared model that can be fitted, as copies of its atoms."""
    found = _Finder(prepared)
    return found.copies()


class _Finder:
    """Look at each alternate conformer of a model."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared, self._model = prepared, prepared.model
        self._atoms = list(prepared.topology.atoms())
        self._bonded: dict[int, list[int]] = defaultdict(list)
        for a, b in prepared.topology.bonds():
            self._bonded[a.index].append(b.index)
            self._bonded[b.index].append(a.index)
        held = [*prepared.rigid, *(np.asarray(each.atoms) for each in prepared.potentials)]
        self._held = {int(atom) for each in held for atom in each}
        self._reasons: dict[str, list[str]] = defaultdict(list)
        self._names: set[str] = set()

    def copies(self) -> ConformerCopies:
        """Return those that can be fitted."""
        alternates = self._model.alternates
        found: dict[tuple[int, str], dict[int, int]] = {}
        for members in alternates.conformers():
            copied = self._copied(members)
            if copied:
                residue = self._atoms[next(iter(copied))].residue
                found[residue.index, alternates.records[members[0]].altloc] = copied
        groups = self._groups(found)
        originals, sources, labels, numbers = [], [], [], []
        for number, (group, residues) in enumerate(groups):
            for residue in residues:
                for label in group.labels:
                    copied = found[residue, label]
                    originals += copied.keys()
                    sources += copied.values()
                    labels += [label] * len(copied)
                    numbers += [number] * len(copied)
        atoms = [self._atoms[k] for k in originals]
        others = FurtherConformers(
            self._prepared.topology,
            np.array([atom.residue.index for atom in atoms], dtype=np.int64),
            tuple(labels),
            tuple(atom.name for atom in atoms),
            tuple(atom.element.symbol for atom in atoms),
            np.array(originals, dtype=np.int64),
            np.array(sources, dtype=np.int64),
        )
        left = [f"{reason}: {listing(names)}." for reason, names in self._reasons.items()]
        only = [group for group, _ in groups]
        numbers = np.array(numbers, dtype=np.int64)
        shares = [self._shares(k, group, numbers, others) for k, group in enumerate(only)]
        return ConformerCopies(others, only, numbers, shares, left)

    def _copied(self, members: np.ndarray) -> dict[int, int] | None:
        """Return the prepared atoms that a conformer has a copy of, each with its alternate; None where it cannot be fitted."""
        alternates, index = self._model.alternates, self._prepared.prepared_index
        records = [alternates.records[k] for k in members]
        residue = list(self._model.topology.residues())[int(alternates.residues[members[0]])]
        own = {self._model.records[atom.index].name: atom for atom in residue.atoms()}
        name = f"{residue_label(residue)} {records[0].altloc}"
        first = self._model.records[next(residue.atoms()).index]
        if records[0].residue_name != first.residue_name:
            return self._refused("is another residue than the fitted one", name)
        of_name = {record.name: int(k) for record, k in zip(records, members)}
        heavy = [record.name for record in records if record.element not in ("H", "D")]
        if not heavy or any(each not in own or index[own[each].index] < 0 for each in heavy):
            return self._refused("has atoms that the fitted one lacks", name)
        copied = {int(index[own[each].index]): of_name[each] for each in heavy}
        if self._held & copied.keys():
            return self._refused("is of a residue that is kept rigid or has a potential of its own", name)
        if not all(self._model.records[own[each].index].altloc for each in heavy):
            return self._refused("is of a residue whose fitted conformer has no label", name)
        in_input = {int(index[atom.index]): label for label, atom in own.items()}
        # Where a neighbour alternates, so do an atom's own hydrogens, as those of CB with the torsion about CA-CB.
        around = {k for atom in copied for k in self._bonded[atom] if not is_hydrogen(self._atoms[k])}
        for atom in [*copied, *sorted(around - copied.keys())]:
            for bound in self._bonded[atom]:
                if is_hydrogen(self._atoms[bound]) and bound not in copied:
                    copied[bound] = of_name.get(in_input.get(bound, ""), -1)
        return copied

    def _refused(self, reason: str, name: str) -> None:
        self._reasons[f"An alternate conformer that {reason} follows the fitted one rigidly"].append(name)

    def _groups(self, found: dict[tuple[int, str], dict[int, int]]) -> list[tuple[ConformerGroup, list[int]]]:
        """Return groups of residues whose copies are bonded to each other, with the residues of each."""
        copied: dict[int, set[int]] = defaultdict(set)
        for (residue, _), atoms in found.items():
            copied[residue] |= atoms.keys()
        joined = {residue: residue for residue in copied}

        def root(residue: int) -> int:
            while joined[residue] != residue:
                residue = joined[residue]
            return residue

        for residue, atoms in copied.items():
            for atom in atoms:
                for other in self._bonded[atom]:
                    neighbour = self._atoms[other].residue.index
                    if neighbour != residue and other in copied.get(neighbour, ()):
                        joined[max(root(residue), root(neighbour))] = min(root(residue), root(neighbour))
        members: dict[int, list[int]] = defaultdict(list)
        for residue in sorted(copied):
            members[root(residue)].append(residue)
        groups = (self._group(residues, found) for residues in members.values())
        return [group for group in groups if group is not None]

    def _group(
        self, residues: list[int], found: dict[tuple[int, str], dict[int, int]]
    ) -> tuple[ConformerGroup, list[int]] | None:
        labels = [tuple(label for each, label in found if each == residue) for residue in residues]
        # Without a label are hydrogens that are copied because what is around them alternates.
        chosen = {
            self._label(atom)
            for residue in residues
            for label in labels[0]
            for atom in found.get((residue, label), {})
        } - {""}
        name = residue_label(self._atoms[next(iter(found[residues[0], labels[0][0]]))].residue)
        if len(set(map(frozenset, labels))) > 1 or len(chosen) > 1 or chosen & set(labels[0]):
            self._refused("is bonded to residues with other labels", name)
            return None
        shared = [
            set.intersection(*(set(found[residue, label]) for label in labels[0])) for residue in residues
        ]
        atoms = np.array(sorted(set().union(*shared)), dtype=np.int64)
        (label,) = chosen
        if not any(self._label(atom) == label for atom in atoms.tolist()):
            self._refused("has no atom in common with another one of its residue", name)
            return None
        # Chains may have the same name, as copies in an assembly.
        name = name if name not in self._names else f"{name} ({residues[0]})"
        self._names.add(name)
        return ConformerGroup(name, label, labels[0], atoms), residues

    def _label(self, atom: int) -> str:
        """Return the label of the conformer that a prepared atom is of, empty for none and for one that was built."""
        given = self._prepared.input_index[atom]
        return self._model.records[given].altloc if given >= 0 else ""

    def _shares(
        self, number: int, group: ConformerGroup, numbers: np.ndarray, others: FurtherConformers
    ) -> dict[str, float]:
        """Return the file's occupancies of a group's conformers, with the sum 1."""
        labelled = [k for k in group.atoms.tolist() if self._label(k) == group.chosen]
        given = self._prepared.input_index[labelled]
        shares = {group.chosen: float(self._model.occupancies[given].mean())}
        for label in group.labels:
            mine = (numbers == number) & (np.array(others.labels) == label) & (others.alternates >= 0)
            shares[label] = float(self._model.alternates.occupancies[others.alternates[mine]].mean())
        shares = {label: max(value, _LEAST_SHARE) for label, value in shares.items()}
        return {label: value / sum(shares.values()) for label, value in shares.items()}


def where_given(prepared: Prepared, copies: ConformerCopies, positions: np.ndarray) -> np.ndarray:
    """Return positions (N + K, 3) of model (N, 3) and conformers in Å, which stand to their residues as they were given."""
    model, others, n = prepared.model, copies.others, copies.n_atoms
    result = np.concatenate([positions, positions[others.originals]])
    placed = np.zeros(len(result), dtype=bool)
    copy_of = {source: k for k, source in enumerate(others.alternates.tolist()) if source >= 0}
    for members, rotation, shift in motions_with_residues(model, prepared.input_positions(positions)):
        for source in members.tolist():
            if source not in copy_of:
                continue
            k = copy_of[source]
            original = int(others.originals[k])
            given = model.positions[prepared.input_index[original]]
            result[n + k] = model.alternates.positions[source] @ rotation.T + shift
            result[original] = given @ rotation.T + shift
            placed[[n + k, original]] = True
    _place_hydrogens(copies, positions, result, placed)
    # What is in one place exactly has forces in some implicit solvents that are no numbers.
    for k, original in enumerate(others.originals.tolist()):
        if np.linalg.norm(result[n + k] - result[original]) < _LEAST_APART:
            result[n + k] += _LEAST_APART * np.array([1.0, -1.0, 1.0])
    return result


def _place_hydrogens(
    copies: ConformerCopies, positions: np.ndarray, result: np.ndarray, placed: np.ndarray
) -> None:
    """Put hydrogens that are not placed yet beside the heavy atoms around, as they are in the model's positions (N, 3)."""
    others, n = copies.others, copies.n_atoms
    bonded: dict[int, set[int]] = defaultdict(set)
    for a, b in others.topology.bonds():
        bonded[a.index].add(b.index)
        bonded[b.index].add(a.index)
    is_light = hydrogen_mask(others.topology).tolist()
    numbering: dict[str, dict[int, int]] = {"": {int(k): int(k) for k in others.originals}}
    for k, (label, original) in enumerate(zip(others.labels, others.originals.tolist())):
        numbering.setdefault(label, {})[original] = n + k
    for numbers in numbering.values():
        for original, own in numbers.items():
            if not is_light[original] or placed[own]:
                continue
            near, guides = {original}, []
            for _ in range(_BONDS_TO_GUIDES):
                near |= {k for each in near for k in bonded[each]}
                guides = [k for k in sorted(near) if not is_light[k]]
                if len(guides) >= 3:
                    break
            rotation, shift = superposition(positions[guides], result[[numbers.get(k, k) for k in guides]])
            result[own] = positions[original] @ rotation.T + shift


def heavy_atoms(topology: app.Topology, atoms: np.ndarray) -> np.ndarray:
    """Return those of some atoms that are no hydrogens."""
    every = list(topology.atoms())
    return np.array([k for k in atoms.tolist() if not is_hydrogen(every[k])], dtype=np.int64)
