"""`IdealGeometryRestraint`: bonds, angles, planes, chiral volumes and ω at the values by which depositions are judged."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import mdtraj
import numpy as np
import openmm
from openmm import app, unit

from ..base.errors import InputError
from ..base.units import ANGSTROM_PER_NANOMETER
from ..base.wording import listing
from ..models.chemistry.monomers.terms import GeometryTerms, IdealTerms, find_terms
from ..models.chemistry.planes import PlaneSet
from ..models.merging import call_for_each
from .pairs import distances
from .planarity import PlaneRestraint, stable_timestep, stiffness
from .restraint import Violation

IDEAL_GEOMETRY_FORCE_CONSTANT = 2.494
"""kJ/mol: kT at 300 K, at which the terms of a simulation spread by their standard deviations."""
LIMIT_IN_SIGMA = 4.0
"""Standard deviations off its ideal value from which a term counts as violating the restraint."""

_MOST_NAMED = 10


class IdealGeometryRestraint(PlaneRestraint):
    """Hold bonds, angles, planes, chiral volumes and ω torsions at the ideal values of the CCP4 monomer library.

    The energy is the negative log likelihood of the terms x with ideal values x₀ and standard deviations σ,

        E = k Σ ½ ((x - x₀)/σ)²,

    with k the Context parameter in kJ/mol: by default 2.494, which is kT at 300 K. Atoms of planes count by their distances
    from the best plane, as in `PlanarityRestraint`; chiral volumes by a σ of 0.2 Å³, as REFMAC's; ω is held at the nearer of
    cis and trans, at trans within 30° of ±90°. Bonds of hydrogens are those between nuclei, as force fields have them. A term
    counts as violated from 4 σ off.

    Bonds are held about ten times as stiffly as by Amber at the default: minimise with it, or simulate with a k that the time
    step allows, see `stable_timestep`. Each kind of term has a force of its own, all with the one parameter: add those of
    `create_forces`.

    Atoms are known by their names and those that OpenMM has for them; hydrogens of other names by what they are bonded to.
    Residues of which nothing is known, bonds that are no known link, and atoms that the library does not have are left out
    and named in ``notes``, and so are chiral centres that have the opposite chirality in the library, which keep theirs.

    Parameters
    ----------
    topology : openmm.app.Topology or mdtraj.Topology
        With bonds: links between residues are taken from them.
    positions : Quantity or array_like, shape (N, 3)
        Å where plain; they decide between cis and trans, and keep a centre's handedness.
    force_constant, parameter_name, force_group, periodic
        As for `openmm_density.restraints.Restraint`; k is in kJ/mol. What the terms hold must lie in one image of the box.
    monomers : path, optional
        Folder of a CCP4 monomer library; by default what the environment variable ``CLIBD_MON`` names, or else a table of
        the package, which also serves where the library lacks a residue.
    dictionaries : path or sequence of paths
        Restraint dictionaries of residue types (AceDRG's) or wwPDB component files, which go before the library.

    Attributes
    ----------
    terms : GeometryTerms
        What is held: ``terms.bonds.atoms``, ``terms.angles.atoms`` … say which terms of a force field it can replace.

    Raises
    ------
    InputError
        The monomer library or a dictionary cannot be read, the numbers of atoms differ, a position is not a number, or the force
        constant is negative.
    """

    name = "ideal-geometry"
    default_force_constant = IDEAL_GEOMETRY_FORCE_CONSTANT
    force_constant_unit = unit.kilojoule_per_mole
    default_parameter_name = "ideal_geometry_strength"

    def __init__(
        self,
        topology: app.Topology | mdtraj.Topology,
        positions: Any,
        force_constant: Any = None,
        *,
        monomers: str | os.PathLike[str] | None = None,
        dictionaries: Sequence[str | os.PathLike[str]] | str | os.PathLike[str] = (),
        **common: Any,
    ) -> None:
        super().__init__(topology, positions, force_constant, **common)
        self.terms = find_terms(self.topology, self.start, monomers, dictionaries)
        self.notes = _notes(self.terms)

    @property
    def planes(self) -> PlaneSet:
        """The planes of `terms`."""
        return self.terms.planes

    @property
    def n_terms(self) -> int:
        """Number of bonds, angles, torsions, volumes and planes."""
        terms = self.terms
        kinds = (terms.bonds, terms.angles, terms.torsions, terms.volumes)
        return sum(len(kind.atoms) for kind in kinds) + len(self.planes.planes)

    def create_force(self) -> openmm.Force:
        """Refuse to build one force for all kinds of terms: see `create_forces`."""
        raise InputError(
            "IdealGeometryRestraint has a force for each kind of its terms",
            remedy="add those of create_forces()",
        )

    def create_forces(self) -> list[openmm.Force]:
        """Build the forces that ``System.addForce`` takes: of bonds, angles, torsions, volumes and planes."""
        forces = self.create_forces_of_terms()
        return (
            [*forces, self.create_force_of(self.planes, len(self._atoms))] if self.planes.planes else forces
        )

    def create_forces_of_terms(self) -> list[openmm.Force]:
        """Build the same without that of planes: forces of OpenMM, of whose terms copies of atoms can have their own."""
        k = f"0.5*{self.parameter_name}"
        kinds = (
            (openmm.CustomBondForce(f"{k}*((r - ideal)/sigma)^2"), self.terms.bonds, 0.1),
            (openmm.CustomAngleForce(f"{k}*((theta - ideal)/sigma)^2"), self.terms.angles, 1.0),
            (openmm.CustomTorsionForce(f"{k}*({_TURNED}/sigma)^2;{_APART}"), self.terms.torsions, 1.0),
            (
                openmm.CustomCompoundBondForce(4, f"{k}*(({_VOLUME} - ideal)/sigma)^2;{_ARMS}"),
                self.terms.volumes,
                1e-3,
            ),
        )
        forces = []
        for force, terms, scale in kinds:
            if len(terms.atoms):
                add_ideal_terms(force, terms, scale)
                forces.append(self._finish(force))
        return forces

    def violations(self, positions: Any) -> list[Violation]:
        """List the terms more than 4 σ off, the worst of each kind first; see `Restraint.violations`."""
        positions = self._checked(positions)
        found = []
        for terms, kind, scale, unit_name in (
            (self.terms.bonds, "bond", 1.0, "Å"),
            (self.terms.angles, "angle", 180.0 / np.pi, "°"),
            (self.terms.torsions, "ω", 180.0 / np.pi, "°"),
            (self.terms.volumes, "chiral volume", 1.0, "Å³"),
        ):
            measured = scale * terms.measured(positions)
            found += self._violated(
                terms.atoms,
                measured,
                scale * terms.values,
                scale * LIMIT_IN_SIGMA * terms.sigmas,
                [
                    f"{kind} {' - '.join(self._atoms[k].name for k in atoms)}"
                    for atoms in terms.atoms.tolist()
                ],
                unit_name,
            )
        return found + self._violated_planes(self.planes, positions, LIMIT_IN_SIGMA)

    def stable_timestep(self, system: openmm.System) -> float:
        """Return the time step in ps up to which these oscillations are stable, at `force_constant`.

        It is 2/ω of a leapfrog integrator with ω² at most the largest sum of a row of M⁻¹H (Gershgorin), H = k Σ ∇x ∇xᵀ / σ² of
        bonds that are not constrained, angles and planes; volumes and ω are soft beside these. Other forces add to ω.

        Parameters
        ----------
        system : openmm.System
            The masses and constraints are its.

        Returns
        -------
        float
            Infinite where nothing oscillates.
        """
        constrained = {
            tuple(sorted(system.getConstraintParameters(n)[:2])) for n in range(system.getNumConstraints())
        }
        bonds, angles = self.terms.bonds, self.terms.angles
        free = np.array(
            [tuple(pair) not in constrained for pair in np.sort(bonds.atoms, axis=1).tolist()], dtype=bool
        )
        rows = stiffness(self.terms.planes, len(self._atoms))
        for atom in bonds.atoms[free].T:
            np.add.at(rows, atom, 2.0 * (bonds.sigmas[free] / ANGSTROM_PER_NANOMETER) ** -2)
        first, last = (
            ANGSTROM_PER_NANOMETER / distances(self.start, angles.atoms[:, [1, end]]) for end in (0, 2)
        )
        for atom, gradient in zip(angles.atoms.T, (first, first + last, last)):
            np.add.at(rows, atom, 2.0 * gradient * (first + last) / angles.sigmas**2)
        return stable_timestep(self.force_constant * rows, system)


_TURNED = "min(apart, 6.283185307179586 - apart)"
_APART = "apart = abs(theta - ideal)"
_VOLUME = "(ax*(by*cz - bz*cy) + ay*(bz*cx - bx*cz) + az*(bx*cy - by*cx))"
_ARMS = ";".join(
    f"{arm}{axis} = {axis}{k} - {axis}1" for k, arm in ((2, "a"), (3, "b"), (4, "c")) for axis in "xyz"
)
_SIZES = {
    openmm.CustomBondForce: ("Bond", False),
    openmm.CustomAngleForce: ("Angle", False),
    openmm.CustomTorsionForce: ("Torsion", False),
    openmm.CustomCompoundBondForce: ("Bond", True),
}


def add_ideal_terms(force: openmm.Force, terms: IdealTerms, scale: float, **others: np.ndarray) -> None:
    """Add terms to a force whose energy is of `ideal`, `sigma` and others (T,); scale: from Å or Å³ to OpenMM's units."""
    kind, in_one = _SIZES[type(force)]
    for parameter in ("ideal", "sigma", *others):
        getattr(force, f"addPer{kind}Parameter")(parameter)
    rows = np.column_stack([scale * terms.values, scale * terms.sigmas, *others.values()]).tolist()
    call_for_each(force, f"add{kind}", terms.atoms.tolist() if in_one else terms.atoms, rows)


def _notes(terms: GeometryTerms) -> list[str]:
    return [
        f"{sentence}: {listing(list(names), _MOST_NAMED)}."
        for sentence, names in (
            ("No ideal geometry is known of these residues", terms.unknown),
            (
                "These residues have other bonds or atoms than those of their name in the monomer library",
                terms.contradicted,
            ),
            (
                "The monomer library lacks these residues, whose ideal values are those of the package's table",
                terms.borrowed,
            ),
            ("These bonds are no links of which ideal geometry is known", terms.unlinked),
            ("The monomer library does not have these atoms of their residues", terms.unnamed),
            (
                "These chiral centres keep their handedness, which is not that of the monomer library",
                terms.other_hands,
            ),
        )
        if names
    ]
