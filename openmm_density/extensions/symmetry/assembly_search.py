"""Finds the symmetry of what is fitted: its operators, from the word of a user, a model, its file and the map."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from ...base.errors import InputError
from ...maps import DensityMap
from ...maps.moved_maps import map_agreement
from ...models.assembly import AssemblySymmetry, clashes_with_copies
from ...models.model import Model
from ...models.predicted_errors import read_unit
from ...models.symmetry_operators import SymmetryOperators
from .assembly_file import write_unit
from .axes_in_map import LEAST_AGREEMENT, find_in_map
from .chains import FoundSymmetry, copies_of, find_in_chains
from .file_operators import operators_of_file
from .groups import point_group
from .helices import HelixPlace, find_helix_in_map
from .helix_in_chains import find_helix_in_chains
from .words import SymmetryWord

_LEAST_INSIDE = 0.5
# Cyclic groups that are looked for in a map, and by how much a larger one may agree worse than the best.
_TRIED_CYCLIC, _AS_GOOD = range(2, 9), 0.05
# By the number of their rotations, and the axis that each of them has.
_POLYHEDRA, _OF_ALL_POLYHEDRA = ("T", "O", "I"), 2

Progress = Callable[[int, int], None]
"""Called with how many of the symmetries that are tried were, and of how many."""


def find_assembly(
    word: SymmetryWord,
    model: Model,
    density_map: DensityMap,
    unit_path: str | os.PathLike[str],
    progress: Progress | None = None,
) -> tuple[Model, AssemblySymmetry]:
    """Return the unit of a model and the operators that make its assembly in a map.

    Axes are taken from the model's chains where it holds copies, else from the operators in its file, and where the map does not
    agree with either, or there are none, from the map.

    Parameters
    ----------
    word : SymmetryWord
        From `parse_symmetry`.
    model : Model
        Of one unit or all copies.
    density_map : DensityMap
    unit_path : path-like
        An mmCIF file, written where the model holds more than its unit.
    progress : callable, optional
        See `Progress`; told while the map is searched, which takes seconds for each symmetry.

    Raises
    ------
    InputError
        If the chains have another symmetry, the map has not that of the word, or holds fewer copies.
    """
    found = _in_chains(word, model)
    name, source, matrices = str(word), "map", None
    units: tuple[tuple[str, ...], ...] = ()
    unit, rmsd = model, None
    if found is not None:
        symmetry, helix = found
        name, source, units, rmsd = _name_of(symmetry, helix), "chains", symmetry.units, symmetry.rmsd
        write_unit(model.path, units[0], unit_path)
        unit = read_unit(model, unit_path)
        matrices = symmetry.rotations, symmetry.translations
        if helix is not None:
            matrices = _of_helix(helix, unit, density_map)
    elif (of_file := _of_file(word, model)) is not None and word.group in ("auto", _group_of(of_file[0])):
        name, source, matrices = _group_of(of_file[0]), "file", of_file
    if matrices is None or not map_agreement(density_map, *matrices).mean >= LEAST_AGREEMENT:
        source = "map"
        name, matrices = _in_map(_asked(word, found), unit, density_map, progress or (lambda *_: None))
    if not name.startswith("helical"):
        _check_room(name, unit, matrices, density_map)
    operators = SymmetryOperators.from_matrices(*matrices)
    correlations = map_agreement(density_map, *matrices).correlations
    n_clashes = clashes_with_copies(unit.topology, unit.positions, operators)
    return unit, AssemblySymmetry(name, operators, source, units, rmsd, correlations, n_clashes)


def _in_chains(word: SymmetryWord, model: Model) -> tuple[FoundSymmetry, HelixPlace | None] | None:
    """Return the symmetry of a model's copies; None where it is one unit."""
    kinds = copies_of(model.topology)
    if not kinds or len(kinds[0]) == 1:
        return None
    if word.group == "helical":
        found, place = find_helix_in_chains(model)
        off = abs(abs(place.rise) - abs(word.rise)), abs(abs(place.twist) - abs(word.twist))
        if off[0] > 0.1 * abs(word.rise) + 0.1 or off[1] > 2.0:
            raise InputError(
                f"has copies on a helix of {abs(place.rise):.2f} Å and {abs(place.twist):.2f} degrees",
                source=model.path,
                remedy=f"give that one in place of {word}, or give a model of one unit",
            )
        return found, place
    if word.group == "auto":
        try:
            return find_in_chains(model), None
        except InputError as no_point_group:
            try:
                return find_helix_in_chains(model)
            except InputError:
                raise no_point_group from None
    found = find_in_chains(model)
    if found.group != word.group:
        raise InputError(
            f"has chains in the symmetry {found.group}, {found.rmsd:.1f} Å off it",
            source=model.path,
            remedy=f"give {found.group} in place of {word}, or give a model of one unit",
        )
    return found, None


def _of_file(word: SymmetryWord, model: Model) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the operators of a model's file; None where it has none, or such as are not of the unit and the map can tell."""
    try:
        return operators_of_file(model.path)
    except InputError:
        if word.group == "auto":
            raise
        return None


def _asked(word: SymmetryWord, found: tuple[FoundSymmetry, HelixPlace | None] | None) -> SymmetryWord:
    """Return what is looked for in a map: what the chains have, where no word says it."""
    if word.group != "auto" or found is None:
        return word
    symmetry, helix = found
    if helix is None:
        return SymmetryWord(symmetry.group)
    return SymmetryWord("helical", helix.rise, helix.twist)


def _name_of(symmetry: FoundSymmetry, helix: HelixPlace | None) -> str:
    return symmetry.group if helix is None else f"helical:{helix.rise:.3f},{helix.twist:.3f}"


def _of_helix(helix: HelixPlace, unit: Model, density_map: DensityMap) -> tuple[np.ndarray, np.ndarray]:
    return helix.operators(*helix.copies_inside(density_map, unit.positions))


def _group_of(rotations: np.ndarray) -> str:
    """Return the name of the point group of some rotations, by their number and angles; empty for none."""
    cosines = np.sort(np.trace(rotations, axis1=1, axis2=2))
    n = len(rotations)
    for name in (f"C{n}", *([f"D{n // 2}"] if n % 2 == 0 and n > 2 else []), "T", "O", "I"):
        traces = np.trace(point_group(name), axis1=1, axis2=2)
        if len(traces) == n and np.abs(np.sort(traces) - cosines).max() < 0.05:
            return name
    return f"{n} operators"


def _in_map(
    word: SymmetryWord, unit: Model, density_map: DensityMap, tell: Progress
) -> tuple[str, tuple[np.ndarray, np.ndarray]]:
    """Return the symmetry of a map and its operators."""
    total = len(_TRIED_CYCLIC) + 1 + len(_POLYHEDRA) if word.group == "auto" else 1
    tell(0, total)
    if word.group == "helical":
        place, _ = find_helix_in_map(density_map, word.rise, word.twist)
        return f"helical:{place.rise:.3f},{place.twist:.3f}", _of_helix(place, unit, density_map)
    if word.group != "auto":
        found = find_in_map(density_map, word.group)
        return word.group, (found.rotations, found.translations)
    tried = {}
    for done, n in enumerate(_TRIED_CYCLIC, start=1):
        with suppress(InputError):
            tried[f"C{n}"] = find_in_map(density_map, f"C{n}")
        tell(done, total)
    if not tried:
        raise InputError(
            "found no symmetry in the map: it does not agree with copies of itself about any axis of 2 to 8 fold",
            argument="symmetry",
            remedy="give the symmetry, such as D3 or helical:1.41,22.03, or leave it out",
        )
    best = max(each.mean for each in tried.values())
    group = max(
        (name for name in tried if tried[name].mean >= best - _AS_GOOD), key=lambda name: int(name[1:])
    )
    # Groups that hold the ring, the largest first; those of polyhedra have twofold axes along some box edge or other.
    larger = [f"D{group[1:]}"] + ([*_POLYHEDRA] if f"C{_OF_ALL_POLYHEDRA}" in tried else [])
    for left, name in zip(range(len(larger), 0, -1), reversed(larger)):
        tell(total - left, total)
        try:
            found = find_in_map(density_map, name)
        except InputError:
            continue
        if found.mean >= best - _AS_GOOD:
            return name, (found.rotations, found.translations)
    return group, (tried[group].rotations, tried[group].translations)


def _check_room(
    name: str, unit: Model, matrices: tuple[np.ndarray, np.ndarray], density_map: DensityMap
) -> None:
    """Refuse a group some copies of which lie outside of the map, where the unit itself lies in it."""
    upper = np.asarray(density_map.size) - 1
    inside = []
    for rotation, shift in zip(*matrices):
        index = density_map.to_index(unit.positions @ rotation.T + shift)
        inside.append(((index >= 0) & (index <= upper)).all(axis=1).mean())
    held = sum(part >= _LEAST_INSIDE for part in inside)
    if inside[0] >= _LEAST_INSIDE and held < len(inside):
        raise InputError(
            f"the map holds {held} of the {len(inside)} copies of {name}",
            remedy="give the whole map, or name a symmetry of the part that it shows",
        )
