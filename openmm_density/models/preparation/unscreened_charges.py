"""Charges screened by water: without water they would collapse ions and side chains onto others, and drive strands apart.

Force fields for a vacuum, such as GROMOS 43B1, have no charged groups either: these keep their dipoles, and so hydrogen bonds.
"""

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
"""The least coordination number of a metal ion in water; with fewer atoms around it the model is incomplete."""
_REACH = 3.6
# The binding atom, the atom it is bonded to, and the number of such binding atoms there.
_ANIONS = frozenset({("O", "C", 2), ("O", "P", 2), ("S", "C", 1)})
_AMMONIUM, _CARBOXYLATE = frozenset({"N", "H", "H1", "H2", "H3"}), frozenset({"C", "O", "OXT"})


class ChargedGroup(NamedTuple):
    """Atoms that lose charge, and their total loss (e); None for all of it."""

    atoms: tuple[int, ...]
    charge: float | None


def bare_ions(topology: app.Topology, positions: np.ndarray, in_water: bool) -> dict[int, list[int]]:
    """Return single metal ions that only water would hold, and the atoms close enough to be bound to each.

    `in_water`: only ions with fewer than `WHOLE_SHELL` such atoms.
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
    in_vacuum: bool,
) -> list[ChargedGroup]:
    """Return groups without charge when there is no water: ions, acids that bind them, and in a vacuum all charges of polymers.

    In an implicit solvent, also the ends at gaps. `bonded`: neighbours of each atom; `shells`: the atoms around each ion, see
    `bare_ions`; `uncharged`: the atoms of residues without charge anyway.
    """
    left_out = {int(k) for atoms in uncharged for k in atoms}
    bound = {k for shell in shells.values() for k in shell}
    atoms = [
        atom
        for residue in topology.residues()
        for atom in residue.atoms()
        if (atom.index in bound or (in_vacuum and is_standard_polymer(residue.name)))
        and atom.index not in left_out
    ]
    others = _cations(atoms, bonded) if in_vacuum else _gap_ends(topology, bonded)
    return [*others, *_anions(atoms, bonded), *(ChargedGroup((ion,), None) for ion in shells)]


def _anions(
    atoms: list[app.topology.Atom], bonded: Mapping[int, list[app.topology.Atom]]
) -> list[ChargedGroup]:
    """Return the carboxylates, phosphates and thiolates that atoms belong to."""
    found = {}
    for atom in atoms:
        if len(bonded[atom.index]) != 1 or is_hydrogen(atom):
            continue
        centre = bonded[atom.index][0]
        alike = [each.index for each in bonded[centre.index] if _is_terminal(each, atom.element, bonded)]
        if (atom.element.symbol, centre.element.symbol, len(alike)) in _ANIONS:
            found[centre.index] = ChargedGroup((centre.index, *alike), -1.0)
    return list(found.values())


def _cations(
    atoms: list[app.topology.Atom], bonded: Mapping[int, list[app.topology.Atom]]
) -> list[ChargedGroup]:
    """Return the ammonium, guanidinium and imidazolium groups whose nitrogen or carbon is among atoms."""
    found = []
    for atom in atoms:
        around, nitrogen = bonded[atom.index], app.element.nitrogen
        if atom.element is nitrogen and len(around) == 4:
            found.append(ChargedGroup((atom.index, *(each.index for each in around)), 1.0))
        arms = [each for each in around if each.element is nitrogen and len(bonded[each.index]) == 3]
        if len(arms) >= 2 and len(around) == 3 and len(arms) + sum(map(is_hydrogen, around)) == 3:
            members = {each.index for arm in arms for each in (arm, *bonded[arm.index])}
            found.append(ChargedGroup(tuple(sorted(members)), 1.0))
    return found


def _is_terminal(
    atom: app.topology.Atom, element: app.Element, bonded: Mapping[int, list[app.topology.Atom]]
) -> bool:
    return atom.element is element and len(bonded[atom.index]) == 1


def _gap_ends(topology: app.Topology, bonded: Mapping[int, list[app.topology.Atom]]) -> list[ChargedGroup]:
    """Return the ammonium and carboxylate groups on both sides of gaps within chains, which are no real termini."""
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
        # A cap's methyl has hydrogens with the same names, but no N.
        hydrogens = sum(map(is_hydrogen, ammonium))
        if hydrogens == (2 if after.name == "PRO" else 3) and hydrogens < len(ammonium):
            found.append(ChargedGroup(tuple(atom.index for atom in ammonium), 1.0))
    return found


def discharge(system: openmm.System, groups: list[ChargedGroup]) -> None:
    """Remove the charge of groups, in implicit solvent as well; interactions within a few bonds stay."""
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
