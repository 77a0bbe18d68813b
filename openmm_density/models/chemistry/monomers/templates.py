"""`Template`: the ideal values of one residue type or one link, by atom names, and how modifications change them."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import gemmi

Atom = tuple[int, str]
"""An atom of a link: 1 or 2 for its residue, and the name. Atoms of a residue type belong to residue 1."""
Table = dict[tuple[Atom, ...], tuple[float, float]]
"""Values and standard deviations by atoms; lengths in Å, angles in degrees."""

_ADDED, _DELETED = ord("a"), ord("d")
_KINDS = ("bonds", "angles", "torsions")


@dataclass
class Template:
    """Ideal values by atoms; which atoms are hydrogens, the signs of chiral volumes, and planes by label with σ in Å."""

    atoms: dict[Atom, bool] = field(default_factory=dict)
    bonds: Table = field(default_factory=dict)
    angles: Table = field(default_factory=dict)
    torsions: Table = field(default_factory=dict)
    chirals: dict[tuple[Atom, ...], float] = field(default_factory=dict)
    planes: dict[str, tuple[float, tuple[Atom, ...]]] = field(default_factory=dict)

    @classmethod
    def of_component(cls, component: gemmi.ChemComp) -> Template:
        """Return the template of a residue type's dictionary entry."""
        template = cls.of_restraints(component.rt)
        # Torsions within residues are what a fit has to find.
        template.torsions = {}
        template.atoms = {(1, atom.id): atom.is_hydrogen() for atom in component.atoms}
        return template

    def hydrogens(self) -> dict[str, list[str]]:
        """Return the names of hydrogens by the names of the atoms that carry them."""
        found: dict[str, list[str]] = {}
        for first, second in self.bonds:
            for atom, carrier in ((first, second), (second, first)):
                if self.atoms.get(atom):
                    found.setdefault(carrier[1], []).append(atom[1])
        return found

    @classmethod
    def of_restraints(cls, restraints: gemmi.Restraints) -> Template:
        """Return the template of a residue type's or a link's restraints; of torsions only ω."""
        template = cls()
        for kind in _KINDS:
            for key, _, term in _rows(restraints, kind):
                getattr(template, kind)[key] = _value(term)
        template.chirals = _chirals(restraints)
        for plane in restraints.planes:
            template.planes[plane.label] = plane.esd, tuple((atom.comp, atom.atom) for atom in plane.ids)
        return template

    def modified(self, change: gemmi.ChemMod) -> Template:
        """Return the template with a modification applied: atoms and values added, changed and deleted."""
        result = copy.deepcopy(self)
        for atom in change.atom_mods:
            if atom.func == _ADDED:
                result.atoms[1, atom.new_id] = atom.el.is_hydrogen
        for kind in ("bonds", "angles"):
            table = getattr(result, kind)
            for key, function, term in _rows(change.rt, kind, side=1):
                if function == _DELETED:
                    table.pop(key, None)
                else:
                    old = table.get(key, (math.nan, math.nan))
                    table[key] = tuple(b if math.isfinite(b) else a for a, b in zip(old, _value(term)))
        for plane in change.rt.planes:
            sigma, members = result.planes.get(plane.label, (plane.esd, ()))
            gone = {(1, atom.atom) for atom in plane.ids if atom.comp == _DELETED}
            new = [(1, atom.atom) for atom in plane.ids if atom.comp != _DELETED]
            kept = (atom for atom in dict.fromkeys((*members, *new)) if atom not in gone)
            result.planes[plane.label] = sigma, tuple(kept)
        return result._without({(1, atom.old_id) for atom in change.atom_mods if atom.func == _DELETED})

    def mirrored(self) -> Template:
        """Return the template of the mirror image."""
        return replace(self, chirals={atoms: -sign for atoms, sign in self.chirals.items()})

    def _without(self, deleted: set[Atom]) -> Template:
        for atom in deleted:
            self.atoms.pop(atom, None)
        for table in (self.bonds, self.angles, self.chirals):
            for key in [key for key in table if deleted.intersection(key)]:
                del table[key]
        for label, (sigma, members) in self.planes.items():
            self.planes[label] = sigma, tuple(atom for atom in members if atom not in deleted)
        return self


def bond_key(first: Any, second: Any) -> tuple[Any, Any]:
    """Return the atoms of a bond in the order used as its key."""
    return (first, second) if first <= second else (second, first)


def angle_key(first: Any, vertex: Any, last: Any) -> tuple[Any, Any, Any]:
    """Return the atoms of an angle in the order used as its key."""
    return (first, vertex, last) if first <= last else (last, vertex, first)


def _rows(
    restraints: gemmi.Restraints, kind: str, side: int | None = None
) -> Iterator[tuple[tuple[Atom, ...], int, Any]]:
    """Yield key, residue (or a modification's action) and term of bonds, angles or ω torsions."""
    for term in getattr(restraints, kind):
        ids = [getattr(term, f"id{k}") for k in range(1, 5) if hasattr(term, f"id{k}")]
        if kind == "torsions" and not (term.label.startswith("omega") and len({i.comp for i in ids}) == 2):
            continue
        atoms = [(side or atom.comp, atom.atom) for atom in ids]
        key = {2: bond_key, 3: angle_key}.get(len(atoms), lambda *four: four)(*atoms)
        yield key, ids[0].comp, term


def _value(term: Any) -> tuple[float, float]:
    """Return value and σ; bond lengths are between nuclei, as in force fields, which differ only for hydrogens."""
    nuclei = getattr(term, "value_nucleus", math.nan), getattr(term, "esd_nucleus", math.nan)
    return nuclei if all(map(math.isfinite, nuclei)) else (term.value, term.esd)


def _chirals(restraints: gemmi.Restraints) -> dict[tuple[Atom, ...], float]:
    signs = {gemmi.ChiralityType.Positive: 1.0, gemmi.ChiralityType.Negative: -1.0}
    return {
        tuple((i.comp, i.atom) for i in (term.id_ctr, term.id1, term.id2, term.id3)): signs[term.sign]
        for term in restraints.chirs
        if term.sign in signs
    }
