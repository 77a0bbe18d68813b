"""What metals bind in a model, and at which distances they usually do."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from openmm import app
from scipy.spatial import cKDTree

from .elements import covalent_radius, is_metal
from .residues import is_water

# Å from oxygen of water, of acids and hydroxyls and of carbonyl groups, nitrogen of histidine, sulphur of cysteine: targets of
# M. M. Harding, Acta Cryst. D62, 678 (2006); of nickel H. Zheng et al., J. Inorg. Biochem. 102, 1765 (2008). Where these have
# none, sums of covalent radii serve.
_TARGETS: dict[str, tuple[float | None, ...]] = {
    "Na": (2.41, 2.41, 2.38, None, None),
    "Mg": (2.07, 2.07, 2.26, None, None),
    "K": (2.81, 2.82, 2.74, None, None),
    "Ca": (2.39, 2.36, 2.36, None, None),
    "Mn": (2.19, 2.15, 2.19, 2.21, 2.35),
    "Fe": (2.09, 2.04, 2.04, 2.16, 2.30),
    "Co": (2.09, 2.05, 2.08, 2.14, 2.25),
    "Ni": (2.19, 2.17, 2.17, 1.99, 2.24),
    "Cu": (2.13, 1.99, 2.04, 2.02, 2.15),
    "Zn": (2.09, 1.99, 2.07, 2.03, 2.31),
}
DONORS = frozenset({"N", "O", "S", "Se"})
REACH = 0.5
"""Å beyond the target up to which an atom counts as bound: a carboxylate's second oxygen is 0.2 to 0.5 Å beyond the first one."""
USUAL = (-0.2, 0.3)
"""Å by which distances usually deviate from the target at most: four standard deviations for most metals."""
_LONGEST = 3.6
_CARBONYL = {"O": None, "OD1": "ASN", "OE1": "GLN"}


class MetalSites(NamedTuple):
    """The metals of a model, and the atoms close enough to be bound to them."""

    metals: np.ndarray  # int (M,), atoms
    pairs: np.ndarray  # int (P, 2), a metal's place among these, and an atom that it binds
    targets: np.ndarray  # (P,), Å


def is_measured_donor(donor: app.topology.Atom) -> bool:
    """Return whether an atom is of the kinds whose distances from metals `_TARGETS` has, of elements alone for oxygen."""
    symbol = "" if donor.element is None else donor.element.symbol
    in_ring = donor.residue.name == "HIS" and donor.name in ("ND1", "NE2")
    return symbol == "O" or in_ring or (donor.residue.name == "CYS" and symbol == "S")


def target_distance(metal: app.topology.Atom, donor: app.topology.Atom) -> float:
    """Return the distance in Å at which a metal usually binds an atom."""
    known = _TARGETS.get(metal.element.symbol, ())
    symbol = "" if donor.element is None else donor.element.symbol
    place = {"N": 3, "S": 4}.get(symbol)
    if symbol == "O":
        carbonyl = _CARBONYL.get(donor.name, "") in (None, donor.residue.name)
        place = 0 if is_water(donor.residue.name) else 2 if carbonyl else 1
    found = known[place] if known and place is not None else None
    return covalent_radius(metal) + covalent_radius(donor) if found is None else found


def find_metal_sites(topology: app.Topology, positions: np.ndarray) -> MetalSites:
    """Return the metals of a model, and which N, O, S and Se they bind at positions (N, 3) in Å."""
    atoms = list(topology.atoms())
    metals = np.array([atom.index for atom in atoms if is_metal(atom)], dtype=np.int64)
    donors = np.array(
        [atom.index for atom in atoms if atom.element is not None and atom.element.symbol in DONORS],
        dtype=np.int64,
    )
    pairs, targets = [], []
    if len(metals) and len(donors):
        near = cKDTree(positions[donors]).query_ball_point(positions[metals], _LONGEST)
        for place, (metal, around) in enumerate(zip(metals.tolist(), near)):
            for donor in sorted(donors[around].tolist()):
                target = target_distance(atoms[metal], atoms[donor])
                if np.linalg.norm(positions[metal] - positions[donor]) < target + REACH:
                    pairs.append((place, donor))
                    targets.append(target)
    return MetalSites(
        metals, np.array(pairs, dtype=np.int64).reshape(-1, 2), np.array(targets, dtype=np.float64)
    )
