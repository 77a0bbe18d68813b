"""What a residue is, by its name and its atoms."""

from __future__ import annotations

from functools import lru_cache

import gemmi
from openmm import app

_SIMULATED_WATERS = frozenset(("SOL", "SPC", "T3P", "T4P", "TIP", "TIP3", "TIP4", "TP3"))


def is_water(name: str) -> bool:
    """Return whether a residue of this name is water, simulations' names included."""
    return name in _SIMULATED_WATERS or gemmi.find_tabulated_residue(name).is_water()


def residue_kind(residue: app.topology.Residue) -> str:
    """Return what a residue belongs to: "polymer", "water", or "other", which is a ligand, an ion or a sugar."""
    if is_water(residue.name):
        return "water"
    known = gemmi.find_tabulated_residue(residue.name)
    # Amino acids that gemmi does not know are recognised by their backbone.
    has_backbone = {"N", "CA", "C"} <= {atom.name for atom in residue.atoms()}
    return "polymer" if known.is_amino_acid() or known.is_nucleic_acid() or has_backbone else "other"


@lru_cache(maxsize=128)
def is_d_amino_acid(name: str) -> bool:
    """Return whether a residue of this name is a D-amino acid."""
    return gemmi.find_tabulated_residue(name).kind == gemmi.ResidueKind.AAD
