"""The atoms of a model, followed by those of further conformers, as one topology."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from openmm import app

from ..base.errors import InputError, as_argument, level_outside
from ..base.units import takes_units
from ..base.wording import counted
from .alternate_geometry import AlternateGeometry
from .alternates import moved_with_residues
from .chemistry.elements import openmm_element
from .chemistry.residue_names import name_tables
from .model import Model


@dataclass(frozen=True)
class FurtherConformers:
    """Atoms of further conformers of the residues of a topology of N atoms, residue by residue.

    Attributes
    ----------
    topology : openmm.app.Topology
        Of the N atoms.
    residues : np.ndarray of int, shape (K,)
        The residue in whose place each atom is.
    labels : tuple of str, length K
        Of the conformers.
    names, elements : tuple of str, length K
    originals : np.ndarray of int, shape (K,)
        The atom of the topology that is the same in the first conformer; -1 for none.
    alternates : np.ndarray of int, shape (K,)
        The index of each in a model's `Alternates`; -1 for one that was built.
    residue_names : tuple of str, length K
        Names of those that belong to another residue than the one they replace; else empty. By default none does.
    bonds : np.ndarray of int, shape (M, 2)
        The bonds of these, among all N + K atoms; the others have the bonds of the first conformer.
    """

    topology: app.Topology
    residues: np.ndarray
    labels: tuple[str, ...]
    names: tuple[str, ...]
    elements: tuple[str, ...]
    originals: np.ndarray
    alternates: np.ndarray
    residue_names: tuple[str, ...] | None = None
    bonds: np.ndarray = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def not_chosen(
        cls, model: Model, topology: app.Topology | None = None, prepared_index: np.ndarray | None = None
    ) -> FurtherConformers:
        """Return a model's conformers that were not chosen, for its own topology or the prepared one."""
        own, alternates = model.topology, model.alternates
        index = np.arange(own.getNumAtoms()) if prepared_index is None else prepared_index
        every = list((topology or own).atoms())
        by_name: list[dict[str, int]] = []
        places = np.zeros(own.getNumResidues(), dtype=np.int64)
        for residue in own.residues():
            atoms = {model.records[a.index].name: int(index[a.index]) for a in residue.atoms()}
            by_name.append({name: k for name, k in atoms.items() if 0 <= k < len(every)})
            places[residue.index] = next((every[k].residue.index for k in by_name[-1].values()), -1)
        order = np.concatenate([np.empty(0, dtype=np.int64), *alternates.conformers()])
        records = [alternates.records[k] for k in order]
        of_model = alternates.residues[order]
        names = _names_of_other_residues(model, order)
        bonds = np.empty((0, 2), dtype=np.int64)
        if any(names):
            count = len(every)
            numbers = np.append(np.where(index < count, index, -1), count + np.argsort(order))
            bonds = numbers[AlternateGeometry(model).bonds]
            is_other = np.append(np.zeros(count, dtype=bool), [bool(name) for name in names])
            bonds = bonds[((bonds >= 0) & (bonds < len(is_other))).all(axis=1)]
            bonds = bonds[is_other[bonds].any(axis=1)]
        return cls(
            topology or own,
            places[of_model],
            tuple(record.altloc for record in records),
            tuple(record.name for record in records),
            tuple(record.element for record in records),
            np.array(
                [by_name[k].get(record.name, -1) for k, record in zip(of_model, records)], dtype=np.int64
            ),
            order,
            names,
            bonds,
        )

    @cached_property
    def joined(self) -> app.Topology:
        """The topology of all N + K atoms: each conformer is a residue of its own, with the bonds of the first one."""
        joined = app.Topology()
        joined.setPeriodicBoxVectors(self.topology.getPeriodicBoxVectors())
        atoms: list[app.topology.Atom] = []
        for chain in self.topology.chains():
            new_chain = joined.addChain(chain.id)
            for residue in chain.residues():
                new = joined.addResidue(residue.name, new_chain, residue.id, residue.insertionCode)
                atoms += [joined.addAtom(atom.name, atom.element, new, atom.id) for atom in residue.atoms()]
        self._add_conformers(joined, atoms)
        for a, b in self.topology.bonds():
            joined.addBond(atoms[a.index], atoms[b.index])
        first = self.topology.getNumAtoms()
        numbers: dict[str, dict[int, int]] = {}
        names = self.residue_names or ("",) * len(self)
        for k, (label, original, other) in enumerate(zip(self.labels, self.originals.tolist(), names)):
            if original >= 0 and not other:
                numbers.setdefault(label, {})[original] = first + k
        for a, b in self.topology.bonds():
            for of_label in numbers.values():
                if a.index in of_label or b.index in of_label:
                    joined.addBond(
                        atoms[of_label.get(a.index, a.index)], atoms[of_label.get(b.index, b.index)]
                    )
        for i, j in self.bonds.tolist():
            joined.addBond(atoms[i], atoms[j])
        return joined

    def _add_conformers(self, joined: app.Topology, atoms: list[app.topology.Atom]) -> None:
        residues, before = list(self.topology.residues()), None
        others = self.residue_names or ("",) * len(self)
        for place, label, name, element, other in zip(
            self.residues.tolist(), self.labels, self.names, self.elements, others
        ):
            residue = residues[place]
            if before is None or residue.chain is not before[0].chain:
                chain = joined.addChain(residue.chain.id)
            if before is None or (residue, label, other) != before:
                new = joined.addResidue(other or residue.name, chain, residue.id, residue.insertionCode)
            before = residue, label, other
            atoms.append(joined.addAtom(name, openmm_element(element), new))

    def chains(self) -> list[np.ndarray]:
        """Return the atoms of each chain of the topology with those of its conformers, for values that a chain shares."""
        residues = list(self.topology.residues())
        of_atom = [atom.residue.chain.index for atom in self.topology.atoms()]
        numbers = np.array([*of_atom, *(residues[k].chain.index for k in self.residues.tolist())])
        return [np.flatnonzero(numbers == k) for k in np.unique(numbers)]


def _names_of_other_residues(model: Model, alternates: np.ndarray) -> tuple[str, ...]:
    """Return the residue names of alternates that belong to another residue than the one they replace, else ""."""
    fitted = []
    for residue in model.topology.residues():
        records = [model.records[atom.index] for atom in residue.atoms()]
        fitted.append(next((record for record in records if record.altloc), records[0]).residue)
    aliases, _ = name_tables()
    own = [(model.alternates.records[k], int(model.alternates.residues[k])) for k in alternates]
    return tuple(
        "" if record.residue == fitted[place] else aliases.get(record.residue_name, record.residue_name)
        for record, place in own
    )


@takes_units("positions")
@dataclass(frozen=True)
class PlacedConformers:
    """Further conformers of a model, with positions and occupancies.

    Attributes
    ----------
    others : FurtherConformers
    positions : np.ndarray, shape (K, 3)
        Å.
    occupancies : np.ndarray, shape (K,)
    """

    others: FurtherConformers
    positions: np.ndarray
    occupancies: np.ndarray

    @classmethod
    @takes_units("positions")
    def of_model(cls, model: Model, positions: np.ndarray | None = None) -> PlacedConformers | None:
        """Return the conformers of a model that were not chosen; None where there are none.

        Parameters
        ----------
        model : Model
        positions : np.ndarray, shape (N, 3), optional
            Positions of the model, in Å, with which they have moved; by default as read.
        """
        if not len(model.alternates):
            return None
        moved = model.alternates.positions if positions is None else moved_with_residues(model, positions)
        others = FurtherConformers.not_chosen(model)
        # Impossible occupancies count as the nearest possible ones.
        occupancies = np.clip(model.alternates.occupancies[others.alternates], 0.0, 1.0)
        return cls(others, moved[others.alternates], occupancies)


class AllConformers(NamedTuple):
    """The atoms of a model, followed by those of all its alternate conformers, as a map shows them.

    Attributes
    ----------
    topology : openmm.app.Topology
        Of N + K atoms.
    positions : np.ndarray, shape (N + K, 3)
        Å.
    occupancies : np.ndarray, shape (N + K,)
        From 0 to 1.
    """

    topology: app.Topology
    positions: np.ndarray
    occupancies: np.ndarray


def all_conformers(model: Model) -> AllConformers:
    """Return the atoms of all conformers of a model as read, hydrogens included.

    Impossible occupancies count as the nearest possible ones, with a warning.

    Raises
    ------
    InputError
        If no atom has an occupancy above 0.
    """
    topology, positions, occupancies = model.topology, model.positions, model.occupancies
    placed = PlacedConformers.of_model(model)
    if placed is not None:
        topology = placed.others.joined
        positions = np.concatenate([positions, placed.positions])
        occupancies = np.concatenate([occupancies, model.alternates.occupancies[placed.others.alternates]])
    possible = np.clip(np.nan_to_num(occupancies), 0.0, 1.0)
    if not possible.any():
        raise InputError(
            "no atom has an occupancy above 0, so there is no density",
            source=model.path,
            remedy=f"correct its occupancies, or count every atom whole ({as_argument('conformers', 'major')})",
        )
    odd = int((possible != occupancies).sum())
    if odd:
        warnings.warn(
            f"{model.path}: {counted(odd, 'atom')} with an occupancy below 0 or over 1, counted as 0 or 1",
            stacklevel=level_outside(),
        )
    return AllConformers(topology, positions, possible)
