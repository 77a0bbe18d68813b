"""The energy of a `LocalSystem` as arrays, for the kernel that computes it.

A new term stands here, in ``kernels/local_dynamics/energy.h``, and in `local_forces` for OpenMM, where nothing can be compiled.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from openmm_density.kernels.local_dynamics import LocalTerms, MapTerms, PairTerms, SplineMap, Terms

from ...base.units import ANGSTROM_PER_NANOMETER
from ...models.chemistry.contacts import BONDS_APART, CLASH_OVERLAP, HYDROGEN_BOND_ALLOWANCE
from ...restraints import Restraint
from ...restraints.contacts import CONTACT_FORCE_CONSTANT, CONTACT_MARGIN
from ...restraints.ramachandran import RamachandranRestraint
from ...restraints.torsions import TorsionRestraint
from .bonded_terms import BondedTerms
from .density_model import DensityModel
from .molecule import Molecule

REPULSION = CONTACT_FORCE_CONSTANT
"""kJ/mol/nm² of atoms nearer than their radii allow."""
OVERLAP = (CLASH_OVERLAP - CONTACT_MARGIN) / ANGSTROM_PER_NANOMETER
"""nm by which they may be."""
ALLOWANCE = HYDROGEN_BOND_ALLOWANCE / ANGSTROM_PER_NANOMETER
"""nm by which two more may be that can be in a hydrogen bond."""

# Å: an atom with this radius is in no contact.
_NO_RADIUS = -100.0
# Å around the moving atoms up to which the map is there.
_MARGIN = 6.0


@dataclass(frozen=True)
class LocalAtoms:
    """The atoms of a `LocalSystem`."""

    force_field: BondedTerms
    molecule: Molecule
    density: DensityModel
    positions: np.ndarray  # (N, 3), Å, of the whole model
    members: np.ndarray  # int (M,), atoms that are present
    moving: np.ndarray  # int, places among these of those that move
    bonds: list[tuple[int, int]]  # Between members, by their places
    restraints: list[Restraint]  # Of the members

    @cached_property
    def moves(self) -> np.ndarray:
        """Which members move."""
        result = np.zeros(len(self.members), dtype=bool)
        result[self.moving] = True
        return result

    @cached_property
    def order(self) -> np.ndarray:
        """Places of the members, those that move first."""
        return np.concatenate([self.moving, np.flatnonzero(~self.moves)])

    @cached_property
    def radii(self) -> np.ndarray:
        """Radii of the members in nm. Metals are in no contact: their ligands are nearer, and the topology lacks those bonds."""
        molecule, members = self.molecule, self.members
        return (
            np.where(molecule.is_metal[members], _NO_RADIUS, molecule.radii[members]) / ANGSTROM_PER_NANOMETER
        )


def cutoff(density: DensityModel) -> float:
    """Return the distance in nm beyond which atoms neither touch nor overlap."""
    return max(5.5 * density.sigma / ANGSTROM_PER_NANOMETER, 0.4)


def local_terms(given: LocalAtoms) -> LocalTerms | None:
    """Return the terms of the energy, atoms in the order of `Surroundings.order`; None where the kernel lacks a kind."""
    order = given.order
    members, moves = given.members[order], given.moves[order]
    bonded = given.force_field.arrays_among(members, moves)
    if bonded is None:
        return None
    # Places of the members in that order.
    there = np.empty_like(order)
    there[order] = np.arange(len(order))
    maps = [
        _ramachandran(each, there, moves)
        for each in given.restraints
        if isinstance(each, RamachandranRestraint)
    ]
    held = [each for each in given.restraints if isinstance(each, TorsionRestraint)]
    if len(maps) + len(held) < len(given.restraints) or len(maps) > 1:
        return None
    slopes = given.density.slopes(given.positions)
    return LocalTerms(
        masses=given.force_field.masses[members[moves]],
        bonds=bonded.bonds,
        angles=bonded.angles,
        torsions=bonded.torsions,
        held=_held(bonded.held, held, there, moves),
        maps=[*maps, *([bonded.cmap] if bonded.cmap is not None else [])],
        pairs=_pairs(given, there, slopes.per_pair),
        density=_spline_map(given, slopes.per_map),
    )


def _held(bonded: Terms, restraints: list[TorsionRestraint], there: np.ndarray, moves: np.ndarray) -> Terms:
    """Return the terms of the restraints after those of the force field."""
    members, parameters = [bonded.members], [bonded.parameters]
    for each in restraints:
        torsions = there[each.torsions]
        chosen = moves[torsions].any(axis=1)
        members.append(torsions[chosen])
        own = np.broadcast_to([each.tolerance, each.force_constant], (chosen.sum(), 2))
        parameters.append(np.concatenate([each.targets[chosen][:, None], own], axis=1))
    return Terms(np.concatenate(members), np.concatenate(parameters))


def _ramachandran(restraint: RamachandranRestraint, there: np.ndarray, moves: np.ndarray) -> MapTerms:
    module = restraint.create_module()
    members = there[module.members.numpy().reshape(-1, 5)]
    chosen = moves[members].any(axis=1)
    return MapTerms(
        members[chosen],
        module.map_of_term.numpy()[chosen],
        module.handedness.numpy()[chosen],
        module.nodes.numpy(),
        restraint.force_constant,
    )


def _pairs(given: LocalAtoms, there: np.ndarray, per_pair: float) -> PairTerms:
    members, size = given.members[given.order], len(given.members)
    first, second = there[np.array(given.bonds, dtype=np.int64).reshape(-1, 2)].T
    joined = sparse.coo_array((np.ones(len(first), dtype=bool), (first, second)), (size, size)).tocsr()
    joined = joined + joined.T + sparse.eye_array(size, dtype=bool, format="csr")
    near = joined
    for _ in range(BONDS_APART - 1):
        near = near @ joined
    excluded = np.stack(near.nonzero(), axis=1)
    return PairTerms(
        # A pair may overlap by as much.
        radii=given.radii[given.order] - 0.5 * OVERLAP,
        polar=given.molecule.polar[members],
        weights=given.density.weights[members],
        excluded=excluded[excluded[:, 0] != excluded[:, 1]],
        cutoff=cutoff(given.density),
        repulsion=REPULSION,
        allowance=ALLOWANCE,
        width=4 * (given.density.sigma / ANGSTROM_PER_NANOMETER) ** 2,
        overlapping=per_pair,
    )


def _spline_map(given: LocalAtoms, per_map: float) -> SplineMap:
    places = given.positions[given.members[given.moving]]
    spline = given.density.spline_around(places.min(axis=0) - _MARGIN, places.max(axis=0) + _MARGIN)
    return SplineMap(
        spline.coefficients,
        spline.to_index * ANGSTROM_PER_NANOMETER,
        spline.shift,
        spline.low,
        spline.high,
        per_map,
    )
