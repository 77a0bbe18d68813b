"""Operators that the file of a model tells: its biological assembly."""

from __future__ import annotations

import os

import gemmi
import numpy as np

from ...base.errors import InputError

# Operators closer than this, in matrix elements and Å, are one.
_SAME = 1e-3


def operators_of_file(path: str | os.PathLike[str]) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the operators of a model's assembly, as ``_pdbx_struct_oper_list`` or REMARK 350 (BIOMT) tells it.

    Of several assemblies the one of most copies is taken.

    Parameters
    ----------
    path : path-like
        A PDB or mmCIF file.

    Returns
    -------
    rotations, translations : np.ndarray, shapes (n, 3, 3) and (n, 3)
        Å, the identity first; None where the file tells of no copies.

    Raises
    ------
    InputError
        If its operators are applied to a part of the chains only, so that they make no copies of one unit.
    """
    structure = gemmi.read_structure(os.fspath(path), format=gemmi.CoorFormat.Detect)
    structure.setup_entities()
    best: tuple[np.ndarray, np.ndarray] | None = None
    for assembly in structure.assemblies:
        found = [_unique(generator) for generator in assembly.generators]
        if not found or max(len(rotations) for rotations, _ in found) < 2:
            continue
        first = found[0]
        if any(not _are_same(first, each) for each in found[1:]):
            raise InputError(
                f"has assembly {assembly.name}, whose operators differ from chain to chain",
                source=path,
                found=" and ".join(str(len(rotations)) for rotations, _ in found),
                remedy="give a model of the unit, and give the symmetry, such as C4",
            )
        left_out = _left_out(structure, assembly)
        if left_out:
            raise InputError(
                f"has assembly {assembly.name}, whose operators make copies of a part of its chains",
                source=path,
                found=f"chain {' and '.join(left_out)} left out",
                remedy="give a model of the chains that the operators copy, or give the symmetry, such as C4",
            )
        if best is None or len(first[0]) > len(best[0]):
            best = first
    return best


def _left_out(structure: gemmi.Structure, assembly: gemmi.Assembly) -> list[str]:
    """Return the polymer chains of a model that are in no part of an assembly."""
    chains = {name for generator in assembly.generators for name in generator.chains}
    subchains = {name for generator in assembly.generators for name in generator.subchains}
    polymers = ((chain.name, chain.get_polymer()) for chain in structure[0])
    return [
        name
        for name, polymer in polymers
        if len(polymer) and name not in chains and polymer.subchain_id() not in subchains
    ]


def _unique(generator: gemmi.Assembly.Gen) -> tuple[np.ndarray, np.ndarray]:
    """Return the operators of a generator once each, the identity first, and added where it is not among them."""
    rotations, translations = [np.eye(3)], [np.zeros(3)]
    for operator in generator.operators:
        rotation, shift = np.array(operator.transform.mat.tolist()), np.array(operator.transform.vec.tolist())
        known = (
            np.abs(rotation - r).max() < _SAME and np.abs(shift - t).max() < _SAME
            for r, t in zip(rotations, translations)
        )
        if not any(known):
            rotations.append(rotation)
            translations.append(shift)
    return np.array(rotations), np.array(translations)


def _are_same(first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray]) -> bool:
    return all(a.shape == b.shape and np.abs(a - b).max() < _SAME for a, b in zip(first, second))
