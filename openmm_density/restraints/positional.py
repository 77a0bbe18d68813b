"""`PositionalRestraint`: atoms stay near given positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import openmm
from openmm import app, unit

from ..base.errors import InputError
from ..base.units import as_number, takes_units
from ..energies.atom_selection import select_atoms
from .restraint import Restraint, Violation

POSITIONAL_FORCE_CONSTANT = 1000.0
"""kJ/mol/nm²: 1 Å off costs 5 kJ/mol an atom."""
POSITIONAL_LIMIT = 1.0
"""Å beyond the flat bottom from which an atom counts as violated."""


class PositionalRestraint(Restraint):
    """Hold atoms at their positions: ``E = ½ k max(0, |x - x₀| - width)²``.

    An atom counts as violated when it is 1 Å beyond the width.

    Parameters
    ----------
    topology : openmm.app.Topology or mdtraj.Topology
    positions : Quantity or array_like, shape (N, 3)
        Å where plain: x₀ of each atom.
    atoms : str or array_like
        "heavy" (no hydrogens, water or single ions), "all", an mdtraj selection, N booleans, or indices.
    width : float or Quantity
        In Å: half the width of the flat bottom, within which an atom moves freely.
    force_constant, parameter_name, force_group, periodic
        As for `openmm_density.restraints.Restraint`; k is in kJ/mol/nm². A System with a box needs ``periodic``.

    Attributes
    ----------
    atoms : np.ndarray of int, shape (M,)
    width : float
        Å.

    Raises
    ------
    InputError
        The numbers of atoms differ, a position is not a number, force constant or width is negative, or atoms selects nothing.
    """

    name = "position"
    default_force_constant = POSITIONAL_FORCE_CONSTANT
    default_parameter_name = "positional_restraint_strength"
    force_constant_unit = unit.kilojoule_per_mole / unit.nanometer**2

    @takes_units("positions", "width")
    def __init__(
        self,
        topology: app.Topology,
        positions: Any,
        force_constant: Any = None,
        *,
        atoms: Any = "heavy",
        width: Any = 0.0,
        **common: Any,
    ) -> None:
        super().__init__(topology, positions, force_constant, **common)
        self.width = as_number(width, "width")
        if not (np.isfinite(self.width) and self.width >= 0):
            raise InputError(
                "must be 0 or more", argument="width", found=self.width, remedy="give Å, such as 1"
            )
        self.atoms = select_atoms(self.topology, atoms)

    @property
    def n_terms(self) -> int:
        """Number of atoms."""
        return len(self.atoms)

    def create_force(self) -> openmm.CustomExternalForce:
        """Build the force that ``System.addForce`` takes; each call builds another."""
        apart = "(x - x0)^2 + (y - y0)^2 + (z - z0)^2"
        square = "periodicdistance(x, y, z, x0, y0, z0)^2" if self.periodic else apart
        # A distance has no derivative at zero, where every atom starts: 1e-9 nm more gives it one.
        flat = f"max(0, sqrt(square + 1e-18) - {self.width / 10.0!r})^2; square = {square}"
        energy = flat if self.width > 0 else f"({square})"
        force = openmm.CustomExternalForce(f"0.5*{self.parameter_name}*{energy}")
        for axis in ("x0", "y0", "z0"):
            force.addPerParticleParameter(axis)
        for atom, target in zip(self.atoms.tolist(), (self.start[self.atoms] / 10.0).tolist()):
            force.addParticle(atom, target)
        return self._finish(force)

    def violations(self, positions: Any) -> list[Violation]:
        """List the atoms that are too far away, the worst first; see `Restraint.violations`."""
        moved = np.linalg.norm(self._checked(positions)[self.atoms] - self.start[self.atoms], axis=1)
        return self._violated(
            self.atoms[:, None],
            moved,
            np.zeros(len(moved)),
            self.width + POSITIONAL_LIMIT,
            [f"distance of {self._atoms[atom].name} from its place" for atom in self.atoms],
            "Å",
        )
