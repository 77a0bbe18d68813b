"""What a model is made of, and the mean B factors of its parts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import gemmi
import numpy as np
from openmm import app

from ..chemistry.elements import is_hydrogen
from ..chemistry.residues import residue_kind

KINDS = ("protein", "nucleotide", "ligand", "water")


def kind_of(residue: app.topology.Residue) -> str:
    """Return which of `KINDS` a residue is: ions and sugars are ligands."""
    kind = residue_kind(residue)
    if kind != "polymer":
        return "water" if kind == "water" else "ligand"
    return "nucleotide" if gemmi.find_tabulated_residue(residue.name).is_nucleic_acid() else "protein"


def composition(topology: app.Topology) -> dict[str, Any]:
    """Return how many there are of what."""
    kinds = Counter(map(kind_of, topology.residues()))
    hydrogens = sum(map(is_hydrogen, topology.atoms()))
    ligands = Counter(residue.name for residue in topology.residues() if kind_of(residue) == "ligand")
    return {
        "chains": len({chain.id for chain in topology.chains()}),
        "atoms": topology.getNumAtoms() - hydrogens,
        "hydrogens": hydrogens,
        **{kind: kinds[kind] for kind in KINDS},
        "ligands": dict(sorted(ligands.items())),
    }


def mean_b_factors(topology: app.Topology, b_factors: Iterable[float]) -> dict[str, float | None]:
    """Return the mean B factors in Å² over the atoms but hydrogens of each of `KINDS`, and ``all`` of them; None of none."""
    values = defaultdict(list)
    for atom, b_factor in zip(topology.atoms(), np.asarray(b_factors).tolist(), strict=True):
        if not is_hydrogen(atom):
            values[kind_of(atom.residue)].append(b_factor)
    values["all"] = [each for kind in KINDS for each in values[kind]]
    return {kind: float(np.mean(values[kind])) if values[kind] else None for kind in (*KINDS, "all")}
