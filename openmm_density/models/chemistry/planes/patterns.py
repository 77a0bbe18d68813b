"""The flat groups that all residues with the same atoms have in common, from a dictionary or the tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ....base.errors import InputError
from .dictionaries import HAEMS, Component
from .flat_groups import BondGraph, ordered_pair
from .plane_set import SMALLEST_PLANE
from .residue_tables import (
    ACYL_MEMBERS,
    AMINE_CAPS,
    AMINO_ACIDS,
    BACKBONE,
    CHARMM_ACETYL,
    GROUPS,
    PROLINES,
    TERMINUS_MEMBERS,
    canonical_name,
)


@dataclass(frozen=True)
class _Group:
    """Flat atoms of one residue in local indices; an atom of another residue bonded to a trigonal one (`centres`) is flat too."""

    kind: str
    atoms: tuple[int, ...]
    centres: frozenset[int] = frozenset()
    sigmas: tuple[float | None, ...] | None = None


@dataclass(frozen=True)
class Pattern:
    """What all residues with the same name and the same atom names have in common, in local atom indices.

    ``groups`` is None where neither a table nor a dictionary knows the residue. ``acyl``, ``amine`` and
    ``terminus`` hold, per alternate, the residue's atoms in the peptide group after it, in the one before it, and
    in a C-terminus.
    """

    kind: str
    groups: tuple[_Group, ...] | None
    acyl: tuple[tuple[int, ...], ...] = ()
    amine: tuple[tuple[int, ...], ...] = ()
    terminus: tuple[tuple[int, ...], ...] = ()
    carbon: int | None = None
    nitrogen: int | None = None


def occurrences_by_name(atoms: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Return the atoms of each name: the alternate locations of one atom."""
    occurrences: dict[str, list[int]] = {}
    for name, atom in atoms:
        occurrences.setdefault(name, []).append(atom)
    return occurrences


def alternate_atoms(occurrences: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Return the atoms of each alternate: for the k-th, the k-th occurrence of every atom, or the last where there are fewer."""
    count = max((len(indices) for indices in occurrences), default=0)
    return tuple(tuple(indices[min(k, len(indices) - 1)] for indices in occurrences) for k in range(count))


def find_pattern(name: str, atom_names: tuple[str, ...], component: Component | None) -> Pattern:
    """Find the pattern of residues with this name and these atoms, from a dictionary where there is one."""
    occurrences = occurrences_by_name(
        (canonical_name(atom_name), index) for index, atom_name in enumerate(atom_names)
    )

    def present(members: Iterable[str]) -> list[list[int]]:
        return [occurrences[member] for member in members if member in occurrences]

    is_residue = {"CA", "C", "N"} <= occurrences.keys() or (name in AMINO_ACIDS and "C" in occurrences)
    kind = "side chain" if is_residue else "base" if {"C1'", "C3'", "C4'"} <= occurrences.keys() else "ligand"
    groups: list[_Group] | None = None
    if component is not None and (component.is_restraint or name not in GROUPS):
        _check_fit(component, name, atom_names)
    elif name in HAEMS and not _unknown_atoms(HAEMS[name], atom_names):
        component = HAEMS[name]
    else:
        component = None
    if component is not None:
        groups = _dictionary_groups(component, kind, atom_names, is_residue)
    elif name in GROUPS:
        rows = GROUPS[name]
        if is_residue and {"CAY", "CY"} <= occurrences.keys():
            rows = (*rows, CHARMM_ACETYL)
        groups = []
        for row_kind, members in rows:
            # The symbol of an ion may be the name of a nucleotide (I, U, IN).
            if row_kind == "base" and len(atom_names) == 1:
                continue
            for atoms in alternate_atoms(present(canonical_name(member) for member in members)) or ((),):
                centres = [
                    a
                    for a in atoms
                    if atom_names[a][0] in "CN" and canonical_name(atom_names[a]) != members[0]
                ]
                groups.append(_Group(row_kind, atoms, frozenset(centres)))

    acyl = amine = terminus = ()
    carbon = nitrogen = None
    if "C" in occurrences and (is_residue or name in ("ACE", "FOR")):
        carbon = occurrences["C"][0]
        carbonyl = present((*ACYL_MEMBERS, "H") if name == "FOR" else ACYL_MEMBERS)
        acyl = alternate_atoms(carbonyl)
        amidated = ("HT1", "HT2") if "NT" in occurrences else ()
        terminus = alternate_atoms([*carbonyl, *present(TERMINUS_MEMBERS), *present(amidated)])
    if "N" in occurrences and (is_residue or "CA" in occurrences or name in AMINE_CAPS):
        nitrogen = occurrences["N"][0]
        substituents = AMINE_CAPS.get(name, ("CA", "H", "HN", "CN"))
        amine = alternate_atoms(present(("N", *substituents, *(("CD",) if name in PROLINES else ()))))
    return Pattern(kind, None if groups is None else tuple(groups), acyl, amine, terminus, carbon, nitrogen)


def _unknown_atoms(component: Component, atom_names: tuple[str, ...]) -> list[str]:
    """Return the heavy atoms of a residue that its component lacks, if they are the majority."""
    known = component.elements.keys() | {atom for bond in component.bonds for atom in bond}
    heavy = [atom for atom in atom_names if canonical_name(atom)[:1] != "H"]
    unknown = [atom for atom in heavy if atom not in known]
    return unknown if known and 2 * len(unknown) > len(heavy) else []


def _check_fit(component: Component, name: str, atom_names: tuple[str, ...]) -> None:
    if unknown := _unknown_atoms(component, atom_names):
        raise InputError(
            f"its {name} lacks atoms that the model's {name} has",
            source=component.source,
            found=f"no {', '.join(unknown[:5])}",
            remedy="give the dictionary that the model was built with",
        )


def _dictionary_groups(
    component: Component, kind: str, atom_names: tuple[str, ...], is_residue: bool
) -> list[_Group]:
    """Return a dictionary's planes in a residue, except those of the backbone, which follow from the bonds between residues."""
    occurrences = occurrences_by_name((atom_name, index) for index, atom_name in enumerate(atom_names))
    if component.is_restraint:
        named = [(members, frozenset()) for members in component.planes.values()]
    else:
        names = tuple(dict.fromkeys(atom for bond in component.bonds for atom in bond))
        number = {atom: index for index, atom in enumerate(names)}
        molecule = BondGraph(
            tuple(component.element(atom) for atom in names),
            {ordered_pair(number[a], number[b]): order for (a, b), order in component.bonds.items()},
            frozenset({number["C"]} if is_residue and "C" in number else ()),
        )
        named = [
            ([(names[atom], None) for atom in atoms], frozenset(names[atom] for atom in centres))
            for centres, atoms in molecule.flat_groups()
        ]
    groups = []
    for members, centres in named:
        if is_residue and {canonical_name(atom) for atom, _ in members} <= BACKBONE:
            continue
        present = [(atom, sigma) for atom, sigma in members if atom in occurrences]
        absent = {atom for atom, _ in members if atom not in occurrences}
        if len(present) < SMALLEST_PLANE and all(component.element(atom) == "H" for atom in absent):
            continue
        sigmas = tuple(sigma for _, sigma in present)
        for atoms in alternate_atoms([occurrences[atom] for atom, _ in present]) or ((),):
            groups.append(
                _Group(
                    kind,
                    atoms,
                    frozenset(a for a in atoms if atom_names[a] in centres),
                    sigmas if any(sigmas) else None,
                )
            )
    return groups
