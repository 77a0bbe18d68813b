"""Anomalies in a file's atoms: impossible values, duplicate atoms, conformers that share nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np

from ..base.errors import InputError
from ..base.wording import counted, listing, residue_label
from .chemistry.elements import UNKNOWN
from .chemistry.residue_names import standard_residue_names
from .chemistry.stereocentres import d_amino_acids
from .conformers import ReadResidue
from .model import Model

SHOWN = 3
"""The number of atoms that a sentence names."""


def check_twice(path: Path, residues: Sequence[ReadResidue]) -> None:
    """Refuse residues with only some atoms duplicated; one duplicated as a whole, as waters are, is two residues."""
    for residue, following in pairwise(residues):
        same = (residue.chain, residue.number, residue.insertion_code, residue.segment, residue.name) == (
            *(following.chain, following.number, following.insertion_code, following.segment),
            following.name,
        )
        if not same or following.after_gap or residue.name in ("HOH", "WAT", "DOD"):
            continue
        first, second = ({atom.name for atom in each.atoms} for each in (residue, following))
        twice = [atom.name for atom in following.atoms if atom.name in first]
        if twice and first != second:
            name = f"{residue.chain} {residue.name} {residue.number}{residue.insertion_code}"
            raise InputError(
                f"atom {' '.join(name.split())} {twice[0]} is there twice without labels of alternate locations",
                source=path,
                remedy="remove one, or label them",
            )


def check_occupancies(model: Model) -> None:
    """Refuse a model with impossible occupancies, where they count."""
    values = np.append(model.occupancies, model.alternates.occupancies)
    records = [*model.records, *model.alternates.records]
    wrong = [
        f"{record.describe()} {value:g}"
        for record, value in zip(records, values)
        if not -1e-6 <= value <= 1 + 1e-6
    ]
    if wrong:
        raise InputError(
            "occupancies must be from 0 to 1",
            source=model.path,
            found=listing(wrong, SHOWN),
            remedy="correct these in the model",
        )
    sums: dict[tuple[object, ...], float] = defaultdict(float)
    times: Counter[tuple[object, ...]] = Counter()
    for record, value in zip(records, values):
        if record.altloc:
            atom = record.chain, record.residue_number, record.insertion_code, record.name
            # A label that repeats belongs to another chain with the same id.
            labelled = (*atom, record.altloc)
            sums[(*atom, times[labelled])] += value
            times[labelled] += 1
    # Rounded occupancies of several conformers may add up to a little over 1.
    over = [
        f"{' '.join(map(str, (chain, number)))}{code} {name} {value:.2f}"
        for (chain, number, code, name, _), value in sums.items()
        if value > 1.025
    ]
    if over:
        raise InputError(
            "occupancies of an atom's conformers must add up to 1 at most",
            source=model.path,
            found=listing(over, SHOWN),
            remedy="correct these in the model",
        )


def check_b_factors(model: Model) -> None:
    """Refuse a model with impossible B factors, where they count; if all are 0, the model has no B factors."""
    heavy = np.array([record.element not in ("H", "D") for record in model.records])
    wrong = (model.b_factors < 0) | (heavy & (model.b_factors == 0) & bool(model.b_factors[heavy].any()))
    if wrong.any():
        atoms = [f"{model.records[k].describe()} {model.b_factors[k]:g}" for k in np.flatnonzero(wrong)]
        raise InputError(
            "its B factors must be above 0",
            source=model.path,
            found=listing(atoms, SHOWN),
            remedy="correct these in the model, or refine them (openmm-density b-factors)",
        )


def notes_on_atoms(model: Model) -> list[str]:
    """Return a sentence on each kind of impossible value, and on each residue whose conformers share nothing."""
    occupancies = np.append(model.occupancies, model.alternates.occupancies)
    b_factors = np.append(model.b_factors, model.alternates.b_factors)
    records = [*model.records, *model.alternates.records]

    def named(which: np.ndarray, values: np.ndarray) -> str:
        atoms = [f"{records[k].describe()} {values[k]:g}" for k in np.flatnonzero(which)]
        return f"{counted(len(atoms), 'atom')} ({listing(atoms, SHOWN)})"

    notes = []
    # Rounded occupancies of three or more conformers may add up to a little over 1.
    impossible = (occupancies > 1.005) | (occupancies < 0)
    if impossible.any():
        notes.append(
            f"Occupancies over 1 or below 0, of {named(impossible, occupancies)}, are written as they are; the fit counts every "
            "atom in full."
        )
    # Hydrogens are often written with zeros.
    heavy = np.array([record.element not in ("H", "D") for record in records])
    absent = heavy & (occupancies == 0)
    if absent.any() and not absent[heavy].all():
        notes.append(
            f"Occupancies of 0, of {named(absent, occupancies)}, are written as they are; the fit counts every atom in full."
        )
    unknown = [record.describe() for record in records if record.element == UNKNOWN]
    if unknown:
        notes.append(
            f"{counted(len(unknown), 'atom')} of no known element ({listing(unknown, SHOWN)}) "
            f"{'counts' if len(unknown) == 1 else 'count'} as nitrogen here; the written model keeps the unknown element."
        )
    negative = b_factors < 0
    if negative.any():
        notes.append(
            f"B factors below 0, of {named(negative, b_factors)}, are written as they are unless they are refined."
        )
    zero = heavy & (b_factors == 0)
    if zero.any() and not zero[heavy].all():
        notes.append(
            f"B factors of 0, of {named(zero, b_factors)}, are written as they are unless they are refined."
        )
    return notes + _mirrored_residues(model) + _unrelated_conformers(model)


def _mirrored_residues(model: Model) -> list[str]:
    """Return a sentence on amino acids with the D configuration and the names of L-amino acids."""
    is_d = d_amino_acids(model.topology, model.positions)
    residues = list(model.topology.residues())
    named = [
        residue_label(residues[k]) for k in is_d if is_d[k] and residues[k].name in standard_residue_names()
    ]
    if not named:
        return []
    have = "has" if len(named) == 1 else "have"
    return [
        f"{counted(len(named), 'residue')} with the name of an L-amino acid {have} D chirality, which is kept: "
        f"{listing(named)}: rename what is D (DAL, DLE …), correct what is not."
    ]


def _unrelated_conformers(model: Model) -> list[str]:
    """Return a sentence on each residue whose conformers have no atom in common."""
    if not any(record.altloc for record in model.records):
        return []
    names: dict[int, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for atom, record in zip(model.topology.atoms(), model.records):
        if record.altloc:
            names[atom.residue.index][record.altloc].add(record.name)
    fitted = {residue: set(labels) for residue, labels in names.items()}
    for residue, record in zip(model.alternates.residues, model.alternates.records):
        if record.altloc in fitted.get(int(residue), ()):
            names[int(residue)][record.altloc].add(record.name)
    first_atoms = {atom.residue.index: record for atom, record in zip(model.topology.atoms(), model.records)}
    notes = []
    for residue, labels in fitted.items():
        for one, other in combinations(sorted(labels), 2):
            if not names[residue][one] & names[residue][other]:
                what = first_atoms[residue].describe().rsplit(" ", 1)[0]
                notes.append(
                    f"The conformers {one} and {other} of {what} have no atom in common: both are fitted as one conformer."
                )
    return notes
