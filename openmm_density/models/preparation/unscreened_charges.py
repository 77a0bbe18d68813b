"""Charges that water screens: in a model without it they would draw ions, and the ends at gaps, onto what they see through it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import openmm
from openmm import app
from scipy.spatial import cKDTree

from ..bonds import COORDINATING, METAL_BOND_SLACK
from ..chemistry.elements import covalent_radius, is_hydrogen, is_metal
from ..chemistry.residue_names import is_standard_polymer

WHOLE_SHELL = 4
"""Atoms that a metal ion in water has around it at least, or the model lacks some of them."""
_REACH = 3.6
# The atom that binds, what it is bonded to, and how many such atoms that has.
_ANIONS = frozenset({("O", "C", 2), ("O", "P", 2), ("S", "C", 1)})
_AMMONIUM, _CARBOXYLATE = frozenset({"N", "H", "H1", "H2", "H3"}), frozenset({"C", "O", "OXT"})


class ChargedGroup(NamedTuple):
    """Atoms that lose their charge, and how much that is together (e); None for all that they have."""

    atoms: tuple[int, ...]
    charge: float | None


def bare_ions(topology: app.Topology, positions: np.ndarray, in_water: bool) -> dict[int, list[int]]:
    """Return single metal ions that only water would hold in their place, and the atoms near enough to be bound to each.

    `positions` (N, 3) in Å; `in_water`: whether they are those alone that have fewer than `WHOLE_SHELL` such atoms.
    """
    atoms = list(topology.atoms())
    ions = [
        atom.index
        for residue in topology.residues()
        if len(residue) == 1
        for atom in residue.atoms()
        if is_metal(atom)
    ]
    if not ions:
        return {}
    found = {}
    for ion, near in zip(ions, cKDTree(positions).query_ball_point(positions[ions], _REACH)):
        shell = [
            k
            for k in near
            if atoms[k].element is not None
            and atoms[k].element.symbol in COORDINATING
            and np.linalg.norm(positions[k] - positions[ion])
            < covalent_radius(atoms[k]) + covalent_radius(atoms[ion]) + METAL_BOND_SLACK
        ]
        if not in_water or len(shell) < WHOLE_SHELL:
            found[ion] = sorted(shell)
    return found


def unscreened_charges(
    topology: app.Topology,
    bonded: Mapping[int, list[app.topology.Atom]],
    shells: Mapping[int, list[int]],
    uncharged: Iterable[np.ndarray],
) -> list[ChargedGroup]:
    """Return what has no charge where there is no water: the ends at gaps, ions, and the acids that bind these.

    `bonded`: what each atom is bonded to; `shells`: what is around each ion, see `bare_ions`; `uncharged`: the atoms of
    residues that have no charge anyway.
    """
    left_out = {int(k) for atoms in uncharged for k in atoms}
    bound = {k for shell in shells.values() for k in shell} - left_out
    bound_atoms = [atom for atom in topology.atoms() if atom.index in bound]
    ions = [ChargedGroup((ion,), None) for ion in shells]
    return [*_gap_ends(topology, bonded), *_bound_anions(bound_atoms, bonded), *ions]


def _bound_anions(
    bound: list[app.topology.Atom], bonded: Mapping[int, list[app.topology.Atom]]
) -> list[ChargedGroup]:
    """Return the carboxylates, phosphates and thiolates that are bound to ions, without whose charge they repel each other."""
    found = {}
    for atom in bound:
        if len(bonded[atom.index]) != 1:
            continue
        centre = bonded[atom.index][0]
        alike = [each.index for each in bonded[centre.index] if _is_terminal(each, atom.element, bonded)]
        if (atom.element.symbol, centre.element.symbol, len(alike)) in _ANIONS:
            found[centre.index] = ChargedGroup((centre.index, *alike), -1.0)
    return list(found.values())


def _is_terminal(
    atom: app.topology.Atom, element: app.Element, bonded: Mapping[int, list[app.topology.Atom]]
) -> bool:
    return atom.element is element and len(bonded[atom.index]) == 1


def _gap_ends(topology: app.Topology, bonded: Mapping[int, list[app.topology.Atom]]) -> list[ChargedGroup]:
    """Return the ammonium and carboxylate groups at both sides of gaps within chains, where no end is."""
    found = []
    for chain, following in pairwise(topology.chains()):
        before, after = list(chain.residues())[-1], next(following.residues())
        if chain.id != following.id or not all(map(is_standard_polymer, (before.name, after.name))):
            continue
        if any(other.residue is after for atom in before.atoms() for other in bonded[atom.index]):
            continue
        carboxylate = [atom.index for atom in before.atoms() if atom.name in _CARBOXYLATE]
        if len(carboxylate) == len(_CARBOXYLATE):
            found.append(ChargedGroup(tuple(carboxylate), -1.0))
        ammonium = [atom for atom in after.atoms() if atom.name in _AMMONIUM]
        # A cap's methyl has hydrogens of the same names, and no N.
        hydrogens = sum(map(is_hydrogen, ammonium))
        if hydrogens == (2 if after.name == "PRO" else 3) and hydrogens < len(ammonium):
            found.append(ChargedGroup(tuple(atom.index for atom in ammonium), 1.0))
    return found


def discharge(system: openmm.System, groups: list[ChargedGroup]) -> None:
    """Take the charge of groups, in implicit solvent as well; what acts within a few bonds stays."""
    change = {k: group.charge and group.charge / len(group.atoms) for group in groups for k in group.atoms}
    for force in system.getForces():
        if isinstance(force, (openmm.NonbondedForce, openmm.GBSAOBCForce)):
            for k, taken in change.items():
                charge, *others = force.getParticleParameters(k)
                force.setParticleParameters(k, _left(charge._value, taken), *others)
        elif isinstance(force, openmm.CustomGBForce):
            names = [force.getPerParticleParameterName(k) for k in range(force.getNumPerParticleParameters())]
            for k, taken in change.items():
                values = force.getParticleParameters(k)
                force.setParticleParameters(
                    k,
                    [
                        _left(value, taken) if name == "charge" else value
                        for name, value in zip(names, values)
                    ],
                )


def _left(charge: float, taken: float | None) -> float:
    return 0.0 if taken is None else charge - taken
