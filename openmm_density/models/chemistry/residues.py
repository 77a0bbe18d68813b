"""What a residue is, by its name and its atoms, and how messages call it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import gemmi
from openmm import app

from ...base.wording import listing

_SIMULATED_WATERS = frozenset(("SOL", "SPC", "T3P", "T4P", "TIP", "TIP3", "TIP4", "TP3"))


def is_water(name: str) -> bool:
    """Return whether a residue of this name is water, also as simulations call it."""
    return name in _SIMULATED_WATERS or gemmi.find_tabulated_residue(name).is_water()


def residue_kind(residue: app.topology.Residue) -> str:
    """Return what a residue belongs to: "polymer", "water", or "other", which is a ligand, an ion or a sugar."""
    if is_water(residue.name):
        return "water"
    known = gemmi.find_tabulated_residue(residue.name)
    # Amino acids that gemmi does not know have their backbone.
    has_backbone = {"N", "CA", "C"} <= {atom.name for atom in residue.atoms()}
    return "polymer" if known.is_amino_acid() or known.is_nucleic_acid() or has_backbone else "other"


def residue_label(residue: app.topology.Residue) -> str:
    """Return the name of a residue in messages, as in ``A HIS 57B``."""
    return " ".join(f"{residue.chain.id} {residue.name} {residue.id}{residue.insertionCode}".split())


def atom_label(atom: app.topology.Atom) -> str:
    """Return the name of an atom in messages, as in ``A HIS 57B CA``."""
    return f"{residue_label(atom.residue)} {atom.name}"


def named_atoms(topology: app.Topology, indices: Iterable[int], longest: int = 5) -> str:
    """Return the names of atoms in a message, as in ``A HIS 57B CA, A HIS 57B CB and 3 more``."""
    atoms = list(topology.atoms())
    return listing([atom_label(atoms[int(index)]) for index in indices], longest)


@lru_cache(maxsize=128)
def is_d_amino_acid(name: str) -> bool:
    """Return whether a residue of this name is an amino acid of the D form."""
    return gemmi.find_tabulated_residue(name).kind == gemmi.ResidueKind.AAD
