"""Contacts of a unit with its symmetry mates: they repel and attract it as copies of its own atoms do."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import openmm
import torch
from openmm import unit
from openmm.app import Topology
from torch import Tensor, nn

from openmm_density.kernels import pairs as _pairs  # noqa: F401  (defines an operator)

from ..base.errors import InputError
from ..base.units import ANGSTROM_PER_NANOMETER, takes_units
from ..models.symmetry_operators import SPECIAL_POSITION, SymmetryOperators
from . import forces
from .checks import positions_of_all
from .contact_images import contact_images
from .modules import check_particle_count
from .native_force.forms import evaluated_natively

PARAMETER_NAME = "mate_contacts"
# 1/(4 π ε₀) in kJ/mol nm e⁻², as OpenMM has it.
_COULOMB = 138.93545764438198
# nm: farther than atoms of any model.
_NO_CUTOFF = 1e4
# nm, of atoms without a Lennard-Jones term.
_BARE_SIGMA = 0.12
# Atoms so many bonds apart do not interact: as within a molecule.
_BONDS_APART = 3
LONGEST_LINK = 3.5
"""Å: the longest bond that a file may name between an atom and a mate's."""


@evaluated_natively("pairs", "openmm_density_mate_contacts")
class MateContacts(nn.Module):
    """E = k · ½ Σ_g Σ_ij φ(|x_i − (R_g x_j + t_g)|), with φ the Lennard-Jones energy and that of charges in a reaction field.

    The sum is over the images of the unit. Half of the energy of a pair belongs to each of its copies. The images hold the
    inverse of each, so that the force on the unit, the gradient of E, is that of all mates on one copy. All is computed by
    `openmm_density.kernels.pairs.mate_contacts`, in float32 with sums in float64; a pair nearer than 0.6 of its σ has there a
    finite force, and an energy that goes on along its tangent.

    `spheres` float32 (N, 3): σ (nm), ε (kJ/mol) and charge of each particle. `images` float64 (G, 3, 4): R and t (nm),
    see `contact_images`. `excluded` int32 (E, 3): i, image and j of pairs that do not interact, in ascending order.
    `cutoff` in nm; infinite for none. `switch_from` in nm, from which on the Lennard-Jones energy is switched off up to
    the cut-off; the cut-off for no switch. `dielectric`: beyond the cut-off, of the reaction field.
    """

    def __init__(
        self,
        spheres: Tensor,
        images: Tensor,
        excluded: Tensor,
        cutoff: float,
        switch_from: float,
        dielectric: float,
    ) -> None:
        super().__init__()
        self.n_particles = spheres.shape[0]
        self.coulomb = _COULOMB
        finite = math.isfinite(cutoff)
        # Without a cut-off: what is beyond any model, and a constant by which the reaction field is 0 there.
        self.reach = cutoff if finite else _NO_CUTOFF
        self.switch_from = switch_from if finite else _NO_CUTOFF
        self.dielectric = dielectric if finite else 0.0
        self.register_buffer("spheres", spheres)
        self.register_buffer("images", images)
        self.register_buffer("excluded", excluded)

    def forward(self, positions: Tensor, strength: Tensor) -> tuple[Tensor, Tensor]:
        """Return energy (kJ/mol) and forces (kJ/mol/nm) for positions (N, 3) in nm and the factor k, the strength."""
        check_particle_count(positions, self.n_particles, "add_symmetry_contacts")
        # Outside of no_grad for the reason given in SimilarityEnergy.
        k = strength.reshape(()).to(torch.float64)
        with torch.no_grad():
            device = self.images.device
            settings = [self.switch_from, self.coulomb, self.dielectric]
            energy, found = torch.ops.openmm_density.mate_contacts(
                positions.detach().to(device),
                self.spheres,
                self.images,
                self.excluded,
                self.reach,
                settings,
                (-k).to(device),
            )
            energy, found = energy.to(k.device), found.to(positions.device)
        return k * energy, found


@takes_units("positions")
def add_symmetry_contacts(
    system: openmm.System,
    topology: Topology,
    positions: Any,
    operators: SymmetryOperators,
    *,
    electrostatics: bool | None = None,
    links: Iterable[tuple[int, int]] = (),
    apart: Iterable[tuple[int, int]] = (),
    backend: str = "auto",
    force_group: int = 0,
) -> openmm.Force:
    """Add the contacts of a unit with its symmetry mates to the unit's System.

    Each pair of an atom and a mate's interacts as two atoms of the System's `NonbondedForce` do, with its parameters, its
    cut-off and its switching function. The energy is half of that of all these pairs; forces are those that the unit has in the
    System of all copies, of which each has the same. Where the operators are a piece of a helix their inverses are added: the
    unit is in the middle. A unit in a crystal may move by 10 Å from where it starts.

    Atoms that are one with a mate's (within 0.8 Å at the start, on an element of symmetry), and those up to three bonds from
    such an atom and its mates', do not interact across it.

    Parameters
    ----------
    system : openmm.System
        Of one unit, not periodic.
    topology : openmm.app.Topology
    positions : Quantity or array_like, shape (N, 3)
        Where the unit starts, in Å without a unit.
    operators : SymmetryOperators
    electrostatics : bool, optional
        Whether charges interact across; by default unless the System has an implicit solvent, which would have to screen them:
        its Born radii do not know of the mates.
    links : iterable of (int, int)
        Atoms of which one is bonded to a copy of the other, as the model's file says.
    apart : iterable of (int, int)
        Atoms that never occur together, such as those of alternate conformers, and so do not see each other's copies.
    backend : str
        See `openmm_density.energies.forces.create_force`.
    force_group : int

    Returns
    -------
    openmm.Force
        The force, which has been added. Its Context parameter ``mate_contacts``, 1 by default, scales it.

    Raises
    ------
    InputError
        The System has no `NonbondedForce`, or is periodic.
    """
    module = contacts_module(system, topology, positions, operators, electrostatics, links, apart)
    options = {"backend": backend, "force_group": force_group, "parameter_derivative": False}
    force = forces.create_force(module, PARAMETER_NAME, 1.0, periodic=False, name="MateContacts", **options)
    system.addForce(force)
    return force


def contacts_module(
    system: openmm.System,
    topology: Topology,
    positions: Any,
    operators: SymmetryOperators,
    electrostatics: bool | None = None,
    links: Iterable[tuple[int, int]] = (),
    apart: Iterable[tuple[int, int]] = (),
) -> MateContacts:
    """Build the module behind the force of `add_symmetry_contacts`, with the same arguments."""
    positions = positions_of_all(topology, positions)
    nonbonded = _nonbonded_force(system)
    if electrostatics is None:
        electrostatics = not any("GB" in type(force).__name__ for force in system.getForces())
    closed = with_inverses(operators)
    excluded = excluded_pairs(topology, positions, closed, links, apart)
    cut = nonbonded.getNonbondedMethod() != openmm.NonbondedForce.NoCutoff
    cutoff = nonbonded.getCutoffDistance().value_in_unit(unit.nanometer) if cut else math.inf
    if not cut and closed.cell is not None:
        raise InputError(
            "of a crystal, which has no end, need a cut-off, and the System has none",
            argument="operators",
            remedy="make the System with nonbondedMethod=CutoffNonPeriodic",
        )
    images, numbers = contact_images(closed, positions, cutoff * ANGSTROM_PER_NANOMETER)
    images[:, :, 3] /= ANGSTROM_PER_NANOMETER
    of_images = [(i, g, j) for i, copy, j in excluded.tolist() for g in np.flatnonzero(numbers == copy)]
    by_types = _force_of_types(system)
    return MateContacts(
        _spheres(nonbonded, by_types, electrostatics),
        torch.from_numpy(images),
        torch.tensor(sorted(of_images), dtype=torch.int32).reshape(-1, 3),
        cutoff,
        _switch_from(by_types or nonbonded, cutoff),
        nonbonded.getReactionFieldDielectric(),
    )


def with_inverses(operators: SymmetryOperators) -> SymmetryOperators:
    """Return operators with the inverses that they lack."""
    if operators.is_group():
        return operators
    rotations, translations = [*operators.rotations], [*operators.translations]
    for R, t in zip(operators.rotations, operators.translations):
        S, s = R.T, -R.T @ t
        apart = [np.abs(S - Q).max() + np.abs(s - q).max() for Q, q in zip(rotations, translations)]
        if min(apart) > 1e-3:
            rotations.append(S)
            translations.append(s)
    turned, moved = np.array(rotations), np.array(translations)
    return SymmetryOperators(turned, moved, operators.cell, operators.space_group)


def excluded_pairs(
    topology: Topology,
    positions: np.ndarray,
    operators: SymmetryOperators,
    links: Iterable[tuple[int, int]] = (),
    apart: Iterable[tuple[int, int]] = (),
) -> np.ndarray:
    """Return the pairs of an atom and a mate's that are up to three bonds apart across an element of symmetry, or a link.

    Those of two atoms that never occur together are among them, for each operator but the identity. `positions` (N, 3) in Å.
    Returns int64 (E, 3), the atom, the number of the operator and the mate's atom, in ascending order.
    """
    bonded: dict[int, list[int]] = {}
    for first, second in topology.bonds():
        bonded.setdefault(first.index, []).append(second.index)
        bonded.setdefault(second.index, []).append(first.index)
    copies = operators.expanded(positions)
    # Pairs that are joined across, by how many bonds.
    joined: list[tuple[int, int, int, int]] = []
    away = operators.nearest_images(copies - positions)
    for copy, atom in np.argwhere(np.linalg.norm(away, axis=2) < SPECIAL_POSITION):
        if copy > 0:
            joined.append((int(atom), int(copy), int(atom), 0))
    for a, b in links:
        for i, j in ((a, b), (b, a)):
            far = np.linalg.norm(operators.nearest_images(copies[:, j] - positions[i]), axis=1)
            joined += [(i, int(copy), j, 1) for copy in np.flatnonzero(far < LONGEST_LINK) if copy > 0]
    pairs = [pair for i, j in apart for pair in ((int(i), int(j)), (int(j), int(i)))]
    found = {(i, copy, j) for i, j in pairs for copy in range(1, len(operators))}
    for i, copy, j, length in joined:
        for k, one in _within(bonded, i, _BONDS_APART - length):
            for m, other in _within(bonded, j, _BONDS_APART - length):
                if one + other + length <= _BONDS_APART:
                    found.add((k, copy, m))
    return np.array(sorted(found), dtype=np.int64).reshape(-1, 3)


def _within(bonded: dict[int, list[int]], start: int, most: int) -> list[tuple[int, int]]:
    """Return the atoms at most so many bonds from one, and how many."""
    distances = {start: 0}
    for atom in (queue := [start]):
        for next_atom in bonded.get(atom, []) if distances[atom] < most else []:
            if next_atom not in distances:
                distances[next_atom] = distances[atom] + 1
                queue.append(next_atom)
    return list(distances.items())


def _nonbonded_force(system: openmm.System) -> openmm.NonbondedForce:
    for force in system.getForces():
        if isinstance(force, openmm.NonbondedForce):
            if force.usesPeriodicBoundaryConditions():
                raise InputError(
                    "is periodic: its box is not the crystal's, and mates take the place of its images",
                    argument="system",
                    remedy="make it with nonbondedMethod=CutoffNonPeriodic, without water around it",
                )
            return force
    raise InputError(
        "has no NonbondedForce, whose parameters contacts need",
        argument="system",
        remedy="make it by a force field",
    )


def _force_of_types(system: openmm.System) -> openmm.CustomNonbondedForce | None:
    """Return the force in which CHARMM keeps Lennard-Jones terms by types, E = A/r¹² − B/r⁶; None without."""
    for force in system.getForces():
        if isinstance(force, openmm.CustomNonbondedForce):
            count = force.getNumTabulatedFunctions()
            if {force.getTabulatedFunctionName(i) for i in range(count)} == {"acoef", "bcoef"}:
                return force
    return None


def _switch_from(force: openmm.NonbondedForce | openmm.CustomNonbondedForce, cutoff: float) -> float:
    """Return the distance in nm from which on a force switches its Lennard-Jones energy off; the cut-off where it does not."""
    if not force.getUseSwitchingFunction():
        return cutoff
    return min(force.getSwitchingDistance().value_in_unit(unit.nanometer), cutoff)


def _spheres(
    nonbonded: openmm.NonbondedForce, by_types: openmm.CustomNonbondedForce | None, electrostatics: bool
) -> Tensor:
    """Return σ, ε and charge of each particle, in OpenMM's units; σ of one without ε says nothing in some force fields."""
    of_each = [nonbonded.getParticleParameters(i) for i in range(nonbonded.getNumParticles())]
    found = np.array(
        [
            [
                sigma.value_in_unit(unit.nanometer),
                epsilon.value_in_unit(unit.kilojoule_per_mole),
                charge.value_in_unit(unit.elementary_charge) if electrostatics else 0.0,
            ]
            for charge, sigma, epsilon in of_each
        ]
    )
    if by_types is not None:
        tables = {by_types.getTabulatedFunctionName(i): by_types.getTabulatedFunction(i) for i in range(2)}
        (n, _, a), (_, _, b) = (tables[name].getFunctionParameters() for name in ("acoef", "bcoef"))
        types = np.array([by_types.getParticleParameters(i)[0] for i in range(len(found))]).astype(int)
        repulsion, attraction = (np.array(table).reshape(n, n)[types, types] for table in (a, b))
        found[:, :2] = _sphere_of_type(repulsion, attraction)
    found[:, 0] = np.where(found[:, 1] > 0, found[:, 0], _BARE_SIGMA)
    return torch.from_numpy(found).float()


def _sphere_of_type(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return σ and ε of types by A = 4 ε σ¹² and B = 4 ε σ⁶ between two of one type."""
    has = (a > 0) & (b > 0)
    safe_a, safe_b = np.where(has, a, 1.0), np.where(has, b, 1.0)
    sigma = np.where(has, (safe_a / safe_b) ** (1 / 6), 1.0)
    return np.stack([sigma, np.where(has, safe_b**2 / (4 * safe_a), 0.0)], axis=1)
