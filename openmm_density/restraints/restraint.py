"""`Restraint`, what all restraints have in common: a force with one force constant, and the list of its violations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

import mdtraj
import numpy as np
import openmm
from openmm import app, unit

from ..base.errors import InputError
from ..base.units import as_number, in_unit, positions_in_angstrom, takes_units
from ..base.wording import residue_label
from ..models.chemistry.topologies import openmm_topology

# Å (or degrees); what may be off by less is told in two decimals, as one would not tell it from its target.
_SMALL_LIMIT = 0.5


@dataclass(frozen=True)
class Violation:
    """One term of a restraint that is far from its target.

    Attributes
    ----------
    restraint : str
        Name of the restraint in protocols and on the command line, as in ``cis``.
    residues : tuple of str
        Its residues, as in ``A HIS 57B``.
    quantity : str
        What is held, as in ``ω`` or ``CA to CA``.
    value, target : float
        What it is, and what it is held at; in ``unit``. Angles are given within 180° of the target.
    unit : str
        ``°`` or ``Å``.
    limit : float
        The deviation above which it counts as violated.
    atoms : tuple of int
        Indices into the topology.
    """

    restraint: str
    residues: tuple[str, ...]
    quantity: str
    value: float
    target: float
    unit: str
    limit: float
    atoms: tuple[int, ...]

    @property
    def deviation(self) -> float:
        """Distance of the value from the target."""
        return abs(self.value - self.target)

    def __str__(self) -> str:
        space = "" if self.unit == "°" else " "
        digits = 2 if self.limit < _SMALL_LIMIT else 1
        return (
            f"{' - '.join(self.residues)}: {self.quantity} is {self.value:.{digits}f}{space}{self.unit}, "
            f"held at {self.target:.{digits}f}{space}{self.unit}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return all fields as plain lists and numbers."""
        return {**asdict(self), "residues": list(self.residues), "atoms": list(self.atoms)}


class Restraint(ABC):
    """A force that holds part of a model's geometry, and lists where it failed.

    Parameters
    ----------
    topology : openmm.app.Topology or mdtraj.Topology
    positions : Quantity or array_like, shape (N, 3)
        Å where plain: the start, which most restraints take their targets from.
    force_constant : float or Quantity, optional
        k, in `force_constant_unit` where plain; `default_force_constant` by default.
    parameter_name : str, optional
        Name of the Context parameter; `default_parameter_name` by default.
    force_group : int
    periodic : bool
        Whether to take nearest periodic images: needed where the molecules that are held together may be wrapped apart.

    Raises
    ------
    InputError
        The numbers of atoms differ, a position is not a number, or the force constant is negative.

    Attributes
    ----------
    force_constant : float
        What new Contexts start with, in `force_constant_unit`.
    parameter_name : str
        The Context parameter that holds k: ``context.setParameter(restraint.parameter_name, 0)`` disables the restraint.
    notes : list of str
        A sentence on each thing that is not held, or that the reader of a result has to know.
    """

    name: ClassVar[str]
    """In protocols and on the command line."""
    default_force_constant: ClassVar[float]
    """In `force_constant_unit`."""
    force_constant_unit: ClassVar[unit.Unit]
    default_parameter_name: ClassVar[str]

    def __init_subclass__(cls, **options: Any) -> None:
        """Let positions have units, in whatever a restraint makes of them."""
        super().__init_subclass__(**options)
        for name in ("__init__", "violations"):
            if name in vars(cls) and "positions" not in getattr(vars(cls)[name], "units", ()):
                setattr(cls, name, takes_units("positions")(vars(cls)[name]))

    @takes_units("positions")
    def __init__(
        self,
        topology: app.Topology | mdtraj.Topology,
        positions: Any,
        force_constant: Any = None,
        *,
        parameter_name: str | None = None,
        force_group: int = 0,
        periodic: bool = False,
    ) -> None:
        self.topology = openmm_topology(topology)
        self.start = self._checked_start(positions)
        self.force_constant = self._checked_force_constant(force_constant)
        self.parameter_name = parameter_name or self.default_parameter_name
        self.force_group = force_group
        self.periodic = periodic
        self.notes: list[str] = []

    @cached_property
    def _atoms(self) -> list[app.topology.Atom]:
        return list(self.topology.atoms())

    @property
    @abstractmethod
    def n_terms(self) -> int:
        """Number of terms: what is held, one by one."""

    @abstractmethod
    def create_force(self) -> openmm.Force:
        """Build the force that ``System.addForce`` takes; each call builds another."""

    def create_forces(self) -> list[openmm.Force]:
        """Build all forces of the restraint, which is one for most."""
        return [self.create_force()]

    @abstractmethod
    def violations(self, positions: Any) -> list[Violation]:
        """List the terms that are violated, the worst first.

        Parameters
        ----------
        positions : Quantity or array_like, shape (N, 3)
            Å where plain.

        Raises
        ------
        InputError
            The numbers of atoms differ, or a position is not a number.
        """

    def _finish(self, force: openmm.Force) -> openmm.Force:
        """Set what all of these forces have, and return the force: its name, group, parameter and boundary conditions."""
        force.setName(type(self).__name__)
        force.setForceGroup(self.force_group)
        force.addGlobalParameter(self.parameter_name, self.force_constant)
        if hasattr(force, "setUsesPeriodicBoundaryConditions"):
            force.setUsesPeriodicBoundaryConditions(self.periodic)
        return force

    def _checked_start(self, positions: Any) -> np.ndarray:
        """Return the start in Å, shape (N, 3)."""
        return self._checked(positions)

    def _checked_force_constant(self, force_constant: Any) -> float:
        unit_of_k = self.force_constant_unit
        if force_constant is None:
            force_constant = self.default_force_constant
        value = as_number(in_unit(force_constant, unit_of_k, "force_constant"), "force_constant")
        if not (np.isfinite(value) and value >= 0):
            symbol = "" if unit_of_k == unit.dimensionless else f" {unit_of_k.get_symbol()}"
            raise InputError(
                "must be 0 or more",
                argument="force_constant",
                found=value,
                remedy=f"give a positive number, such as {self.default_force_constant:g}{symbol}, or 0 to disable the restraint",
            )
        return value

    def _checked(self, positions: Any) -> np.ndarray:
        """Return positions in Å, shape (N, 3), one for each atom of the topology and all of them finite."""
        positions = positions_in_angstrom(positions, self.topology.getNumAtoms())
        if not np.isfinite(positions).all():
            raise InputError(
                "must be finite", argument="positions", found="one that is not a number", remedy="correct it"
            )
        return positions

    def _residues(self, atoms: Iterable[int]) -> tuple[str, ...]:
        """Name the residues of some atoms, each once, in the order of the atoms."""
        return tuple(dict.fromkeys(map(self._label, atoms)))

    def _label(self, atom: int) -> str:
        return residue_label(self._atoms[atom].residue)

    def _violated(
        self,
        atoms: np.ndarray,
        values: np.ndarray,
        targets: np.ndarray,
        limits: np.ndarray | float,
        quantities: Sequence[str],
        unit_name: str,
    ) -> list[Violation]:
        excess = np.abs(values - targets) - limits
        limits = np.broadcast_to(limits, values.shape)
        return [
            Violation(
                self.name,
                self._residues(atoms[k]),
                quantities[k],
                float(values[k]),
                float(targets[k]),
                unit_name,
                float(limits[k]),
                tuple(int(atom) for atom in atoms[k]),
            )
            for k in np.argsort(-excess, kind="stable")
            if excess[k] > 0
        ]
