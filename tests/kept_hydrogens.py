"""Hydrogens that tests add to the same atoms again and again, which takes a sixth of a short fit: the same, once made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openmm

from openmm_density.models.preparation.work_residues import Link, WorkAtom, WorkResidue

Add = Callable[[list[WorkResidue], list[Link], list[str | None], float, openmm.Platform], None]


def kept(add_hydrogens: Add) -> Add:
    """Return the function `add_hydrogens` that remembers what it did."""
    known: dict[Any, Any] = {}

    def add(
        residues: list[WorkResidue],
        links: list[Link],
        variants: list[str | None],
        ph: float,
        platform: openmm.Platform,
    ) -> None:
        given = tuple(
            (each.name, each.chain, each.chain_id, each.id, each.insertion_code, *map(_content, each.atoms))
            for each in residues
        )
        key = given, tuple(links), tuple(variants), ph, platform.getName()
        if key not in known:
            add_hydrogens(residues, links, variants, ph, platform)
            atoms = [
                [(atom.name, atom.element, atom.position.copy()) for atom in each.atoms] for each in residues
            ]
            known[key] = atoms, list(variants)
            return
        found, variants[:] = known[key]
        for residue, atoms in zip(residues, found):
            old = {atom.name: atom for atom in residue.atoms}
            residue.atoms = [
                old.get(name) or WorkAtom(name, element, position.copy()) for name, element, position in atoms
            ]

    return add


def _content(atom: WorkAtom) -> tuple[Any, ...]:
    return atom.name, atom.element, atom.position.tobytes()
