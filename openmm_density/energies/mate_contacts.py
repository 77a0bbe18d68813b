"""Contacts of a unit with its symmetry mates: they repel and attract it as copies of its own atoms do."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

import gemmi
import numpy as np
import openmm
import torch
from openmm import unit
from openmm.app import Topology
from torch import Tensor, nn

from ..errors import InputError
from ..models.symmetry_operators import SPECIAL_POSITION, SymmetryOperators
from ..native_force.forms import evaluated_natively
from ..units import ANGSTROM_PER_NANOMETER
from . import forces
from .checks import positions_of_all
from .contact_images import contact_images
from .modules import check_particles

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


@evaluated_natively()
class MateContacts(nn.Module):
    """E = k · ½ Σ_g Σ_ij φ(|x_i − (R_g x_j + t_g)|), with φ the Lennard-Jones energy and that of charges in a reaction field.

    The sum is over all copies but the unit itself, and in a crystal over all translations of the lattice. Half of the energy of
    a pair belongs to each of its copies. The operators hold the inverse of each, so that the force on the unit, the gradient of
    E, is that of all mates on one copy.

    Parameters
    ----------
    spheres : Tensor, shape (N, 3), float64
        σ (nm), √ε (of kJ/mol) and charge of each particle.
    rotations, translations : Tensor, shapes (n, 3, 3) and (n, 3), float64
        In nm; the identity first.
    lattice : Tensor, shape (3, 3) or (0, 3), float64
        Its vectors in columns, in nm; empty where there is no crystal.
    excluded : Tensor, shape (E, 3), int64
        i, g and j of pairs that do not interact, in ascending order.
    cutoff : float
        nm; infinite for none.
    dielectric : float
        Beyond the cut-off, of the reaction field.
    images : Tensor, shape (G, 3, 4), float64
        R and t (nm), see `contact_images`: on a GPU `openmm_density.kernels.pairs.mate_contacts` computes all, in float32. A pair
        nearer than .6 of its σ has a finite force there.
    excluded_of_images : Tensor, shape (F, 3), int32
        i, image and j of pairs that do not interact, in ascending order.
    """

    def __init__(
        self,
        spheres: Tensor,
        rotations: Tensor,
        translations: Tensor,
        lattice: Tensor,
        excluded: Tensor,
        cutoff: float,
        dielectric: float,
        images: Tensor,
        excluded_of_images: Tensor,
    ) -> None:
        super().__init__()
        self.n_particles = spheres.shape[0]
        self.cutoff = cutoff
        finite = math.isfinite(cutoff)
        self.field = (dielectric - 1) / (2 * dielectric + 1) / cutoff**3 if finite else 0.0
        self.shift = 3 * dielectric / (2 * dielectric + 1) / cutoff if finite else 0.0
        self.coulomb = _COULOMB
        self.is_crystal = lattice.shape[0] == 3
        # Without a cut-off: what is beyond any model, and a constant by which the reaction field is 0 there.
        self.reach = cutoff if finite else _NO_CUTOFF
        self.dielectric = dielectric if finite else 0.0
        self.register_buffer("images", images)
        self.register_buffer("excluded_of_images", excluded_of_images)
        self.register_buffer("sizes", _sizes(spheres))
        self.register_buffer("spheres", spheres)
        self.register_buffer("rotations", rotations)
        self.register_buffer("translations", translations)
        self.register_buffer("lattice", lattice)
        inverse = torch.linalg.inv(lattice) if self.is_crystal else lattice.clone()
        self.register_buffer("inverse", inverse.contiguous())
        self.register_buffer("excluded", excluded)
        # Images of a pair beside the one that is nearest in fractions of the cell.
        steps = torch.zeros((1, 3), dtype=torch.float64)
        if self.is_crystal:
            most = [math.ceil(cutoff * float(row.norm()) + 0.5) - 1 for row in inverse]
            each = itertools.product(*(range(-n, n + 1) for n in most))
            steps = torch.tensor(sorted(each, key=lambda s: s != (0, 0, 0)), dtype=torch.float64)
        self.register_buffer("steps", steps)

    def forward(self, positions: Tensor, strength: Tensor) -> tuple[Tensor, Tensor]:
        """Return energy (kJ/mol) and forces (kJ/mol/nm) for positions (N, 3) in nm and the factor k, the strength."""
        check_particles(positions, self.n_particles, "add_symmetry_contacts")
        # Outside of no_grad for the reason given in SimilarityEnergy.
        k = strength.reshape(()).to(torch.float64)
        if self.spheres.is_cuda:
            energy, found = self.by_operator(positions, k)
        else:
            energy, found = self.by_all_pairs(positions, k)
        return energy, found

    def by_all_pairs(self, positions: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return energy and forces in float64, of each image all pairs."""
        with torch.no_grad():
            x = positions.detach().to(self.spheres.device, torch.float64)
            energy = torch.zeros((), dtype=torch.float64, device=x.device)
            found = torch.zeros_like(x)
            for copy in range(self.rotations.shape[0]):
                if copy > 0 or self.is_crystal:
                    mate = x @ self.rotations[copy].t() + self.translations[copy]
                    for begin in range(0, x.shape[0], 1024):
                        own = x[begin : begin + 1024]
                        part, force = self.between(own, mate, begin, copy)
                        energy = energy + part
                        found[begin : begin + 1024] += force
            scaled = (k.to(x.device) * found).to(positions)
            energy = energy.to(k.device)
        return k * energy, scaled

    @torch.jit.export
    def by_operator(self, positions: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return energy and forces as a kernel has them that looks at images in reach alone."""
        with torch.no_grad():
            device = self.images.device
            settings = [self.reach, self.coulomb, self.dielectric]
            energy, found = torch.ops.openmm_density.mate_contacts(
                positions.detach().to(device),
                self.sizes,
                self.images,
                self.excluded_of_images,
                self.reach,
                settings,
                (-k).to(device),
            )
            energy, found = energy.to(k.device), found.to(positions.device)
        return k * energy, found

    def between(self, own: Tensor, mate: Tensor, begin: int, copy: int) -> tuple[Tensor, Tensor]:
        """Return the energy of some atoms, from number begin on, with those of a copy, and the forces on them."""
        apart = own[:, None, :] - mate[None, :, :]
        weight = torch.ones((own.shape[0] + 1, mate.shape[0]), dtype=torch.float64, device=own.device)
        rows = self.excluded[:, 0] - begin
        here = (self.excluded[:, 1] == copy) & (rows >= 0) & (rows < own.shape[0])
        weight[torch.where(here, rows, own.shape[0]), self.excluded[:, 2]] = 0.0
        weight = weight[:-1]
        whole = torch.zeros_like(apart)
        if self.is_crystal:
            fractions = apart @ self.inverse.t()
            whole = torch.round(fractions)
            apart = (fractions - whole) @ self.lattice.t()
        energy = torch.zeros((), dtype=torch.float64, device=own.device)
        force = torch.zeros_like(own)
        sigma = 0.5 * (self.spheres[begin : begin + own.shape[0], 0][:, None] + self.spheres[:, 0][None, :])
        depth = self.spheres[begin : begin + own.shape[0], 1][:, None] * self.spheres[:, 1][None, :]
        charge = self.spheres[begin : begin + own.shape[0], 2][:, None] * self.spheres[:, 2][None, :]
        for step in range(self.steps.shape[0]):
            counted = weight
            vector = apart
            if self.is_crystal:
                vector = apart + self.lattice @ self.steps[step]
                if copy == 0:
                    counted = weight * (whole != self.steps[step]).any(dim=2).to(torch.float64)
            square = (vector * vector).sum(dim=2)
            counted = counted * (square < self.cutoff * self.cutoff).to(torch.float64)
            # Where a pair does not count, at any distance that is not 0.
            square = torch.where(counted > 0, square, torch.ones_like(square))
            inverse = 1.0 / square
            ratio = sigma * sigma * inverse
            sixth = ratio * ratio * ratio
            distance = torch.sqrt(square)
            of_charges = self.coulomb * charge
            pair = 4.0 * depth * (sixth * sixth - sixth)
            pair = pair + of_charges * (1.0 / distance + self.field * square - self.shift)
            slope = 24.0 * depth * (2.0 * sixth * sixth - sixth) * inverse
            slope = slope + of_charges * (1.0 / distance * inverse - 2.0 * self.field)
            energy = energy + 0.5 * (counted * pair).sum()
            force = force + ((counted * slope)[:, :, None] * vector).sum(dim=1)
        return energy, force


def add_symmetry_contacts(
    system: openmm.System,
    topology: Topology,
    positions: Any,
    operators: SymmetryOperators,
    *,
    electrostatics: bool | None = None,
    links: Iterable[tuple[int, int]] = (),
    backend: str = "auto",
    force_group: int = 0,
) -> openmm.Force:
    """Add the contacts of a unit with its symmetry mates to the unit's System.

    Each pair of an atom and a mate's interacts as two atoms of the System's `NonbondedForce` do, with its parameters and its
    cut-off. The energy is half of that of all these pairs; forces are those that the unit has in the System of all copies, of
    which each has the same. Where the operators are a piece of a helix their inverses are added: the unit is in the middle.

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
    backend : str
        See `openmm_density.energies.forces.create_force`; ``NativeForce`` finds pairs by cells, the others look at all.
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
    module = contacts_module(system, topology, positions, operators, electrostatics, links)
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
) -> MateContacts:
    """Build the module behind the force of `add_symmetry_contacts`, with the same arguments."""
    positions = positions_of_all(topology, positions)
    nonbonded = _nonbonded_force(system)
    if electrostatics is None:
        electrostatics = not any("GB" in type(force).__name__ for force in system.getForces())
    closed = with_inverses(operators)
    excluded = excluded_pairs(topology, positions, closed, links)
    cut = nonbonded.getNonbondedMethod() != openmm.NonbondedForce.NoCutoff
    cutoff = nonbonded.getCutoffDistance().value_in_unit(unit.nanometer) if cut else math.inf
    if not cut and closed.cell is not None:
        raise InputError(
            "of a crystal, which has no end, need a cut-off, and the System has none",
            argument="operators",
            remedy="make the System with nonbondedMethod=CutoffNonPeriodic",
        )
    lattice = np.zeros((0, 3))
    if closed.cell is not None:
        lattice = np.array(gemmi.UnitCell(*closed.cell).orth.mat.tolist()) / ANGSTROM_PER_NANOMETER
    images, numbers = contact_images(closed, positions, cutoff * ANGSTROM_PER_NANOMETER)
    images[:, :, 3] /= ANGSTROM_PER_NANOMETER
    of_images = [(i, g, j) for i, copy, j in excluded.tolist() for g in np.flatnonzero(numbers == copy)]
    return MateContacts(
        torch.from_numpy(_spheres(system, nonbonded, electrostatics)),
        torch.from_numpy(closed.rotations.copy()),
        torch.from_numpy(closed.translations / ANGSTROM_PER_NANOMETER),
        torch.from_numpy(lattice),
        torch.from_numpy(excluded),
        cutoff,
        nonbonded.getReactionFieldDielectric(),
        torch.from_numpy(images),
        torch.tensor(sorted(of_images), dtype=torch.int32).reshape(-1, 3),
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
) -> np.ndarray:
    """Return the pairs of an atom and a mate's that are up to three bonds apart across an element of symmetry, or a link.

    Parameters
    ----------
    topology : openmm.app.Topology
    positions : np.ndarray, shape (N, 3)
        Å.
    operators : SymmetryOperators
    links : iterable of (int, int)
        Atoms of which one is bonded to a copy of the other.

    Returns
    -------
    np.ndarray of int64, shape (E, 3)
        The atom, the number of the operator and the mate's atom, in ascending order.
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
    found = set()
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


def _spheres(system: openmm.System, nonbonded: openmm.NonbondedForce, electrostatics: bool) -> np.ndarray:
    """Return σ, √ε and charge of each particle, in OpenMM's units."""
    of_each = [nonbonded.getParticleParameters(i) for i in range(nonbonded.getNumParticles())]
    found = np.array(
        [
            [
                sigma.value_in_unit(unit.nanometer),
                math.sqrt(epsilon.value_in_unit(unit.kilojoule_per_mole)),
                charge.value_in_unit(unit.elementary_charge) if electrostatics else 0.0,
            ]
            for charge, sigma, epsilon in of_each
        ]
    )
    for force in system.getForces():
        # CHARMM keeps Lennard-Jones terms by types in a force of their own: E = A/r¹² − B/r⁶.
        if isinstance(force, openmm.CustomNonbondedForce) and force.getNumTabulatedFunctions() == 2:
            tables = {force.getTabulatedFunctionName(i): force.getTabulatedFunction(i) for i in range(2)}
            if tables.keys() == {"acoef", "bcoef"}:
                (n, _, a), (_, _, b) = (tables[name].getFunctionParameters() for name in ("acoef", "bcoef"))
                types = np.array([force.getParticleParameters(i)[0] for i in range(len(found))]).astype(int)
                repulsion, attraction = (np.array(table).reshape(n, n)[types, types] for table in (a, b))
                found[:, :2] = _sphere_of_type(repulsion, attraction)
    return found


def _sizes(spheres: Tensor) -> Tensor:
    """Return σ, ε and charge for the kernel; σ of atoms without a Lennard-Jones term says nothing in some force fields."""
    sigma, root, charge = spheres.unbind(dim=1)
    return torch.stack([torch.where(root > 0, sigma, _BARE_SIGMA), root * root, charge], dim=1).float()


def _sphere_of_type(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return σ and √ε of types by A = 4 ε σ¹² and B = 4 ε σ⁶ between two of one type."""
    has = (a > 0) & (b > 0)
    safe_a, safe_b = np.where(has, a, 1.0), np.where(has, b, 1.0)
    sigma = np.where(has, (safe_a / safe_b) ** (1 / 6), 1.0)
    return np.stack([sigma, np.where(has, safe_b / np.sqrt(4 * safe_a), 0.0)], axis=1)
