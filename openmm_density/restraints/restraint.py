"""What every restraint is: a force with one strength, and a list of what ended violated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import mdtraj
import numpy as np
import openmm
from openmm import app, unit

from ..chemistry.residues import residue_label
from ..errors import InputError
from ..units import number_in, positions_in_angstrom


@dataclass(frozen=True)
class Violation:
    """One term of a restraint that ended away from its target.

    Attributes
    ----------
    restraint : str
        What the command line calls it, as in ``cis``.
    residues : tuple of str
        Whose it is, as in ``A HIS 57B``.
    quantity : str
        What was to be kept, as in ``ω`` or ``CA to CA``.
    value, target : float
        Found, and held at; in ``unit``. Angles are given within 180° of the target.
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
        """How far the value is from the target."""
        return abs(self.value - self.target)

    def __str__(self) -> str:
        space = "" if self.unit == "°" else " "
        return (
            f"{' - '.join(self.residues)}: {self.quantity} is {self.value:.1f}{space}{self.unit}, "
            f"held at {self.target:.1f}{space}{self.unit}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return all fields as plain lists and numbers."""
        return {**asdict(self), "residues": list(self.residues), "atoms": list(self.atoms)}


class Restraint(ABC):
    """A force that keeps something of a model as it is, and tells where it did not.

    Parameters
    ----------
    topology : openmm.app.Topology or mdtraj.Topology
    positions : Quantity or array_like of shape (N, 3)
        Å where plain: the start, which says how things are to stay.
    strength : float or Quantity, optional
        The force constant, in `strength_unit` where plain; `usual_strength` by default.
    parameter_name : str, optional
        Name of the Context parameter; `usual_parameter_name` by default.
    force_group : int
    periodic : bool
        Whether to take nearest periodic images: needed where what is held together may be wrapped apart.

    Raises
    ------
    InputError
        The numbers of atoms differ, a position is not a number, or the strength is negative.

    Attributes
    ----------
    default_strength : float
        What new Contexts start with.
    parameter_name : str
        The Context parameter that holds the strength: ``context.setParameter(restraint.parameter_name, 0)`` lets go.
    notes : list of str
        A sentence on each thing that could not be restrained.
    """

    name: ClassVar[str]
    """What the command line calls it."""
    usual_strength: ClassVar[float]
    """In `strength_unit`."""
    strength_unit: ClassVar[unit.Unit]
    usual_parameter_name: ClassVar[str]

    def __init__(
        self,
        topology: app.Topology | mdtraj.Topology,
        positions: Any,
        strength: Any = None,
        *,
        parameter_name: str | None = None,
        force_group: int = 0,
        periodic: bool = False,
    ) -> None:
        if isinstance(topology, mdtraj.Topology):
            topology = topology.to_openmm()
        self.topology = topology
        self.start = self._checked(positions)
        strength = self.usual_strength if strength is None else strength
        self.default_strength = number_in(strength, self.strength_unit, "strength")
        if not np.isfinite(self.default_strength) or self.default_strength < 0:
            raise InputError(
                f"strength: found {self.default_strength:g}; give a force constant of zero or more "
                f"({self.strength_unit.get_symbol()})."
            )
        self.parameter_name = parameter_name or self.usual_parameter_name
        self.force_group = force_group
        self.periodic = periodic
        self.notes: list[str] = []
        self._atoms = list(topology.atoms())

    @property
    @abstractmethod
    def n_terms(self) -> int:
        """Number of things that are restrained."""

    @abstractmethod
    def create_force(self) -> openmm.Force:
        """Make the force that ``System.addForce`` takes; each call makes another."""

    @abstractmethod
    def violations(self, positions: Any) -> list[Violation]:
        """List what is violated, the worst first.

        Parameters
        ----------
        positions : Quantity or array_like of shape (N, 3)
            Å where plain.

        Raises
        ------
        InputError
            The numbers of atoms differ, or a position is not a number.
        """

    def _finish(self, force: openmm.Force) -> openmm.Force:
        """Return a force what all have: its name, group, strength and boundary conditions."""
        force.setName(type(self).__name__)
        force.setForceGroup(self.force_group)
        force.addGlobalParameter(self.parameter_name, self.default_strength)
        if hasattr(force, "setUsesPeriodicBoundaryConditions"):
            force.setUsesPeriodicBoundaryConditions(self.periodic)
        return force

    def _checked(self, positions: Any) -> np.ndarray:
        positions = positions_in_angstrom(positions)
        if len(positions) != self.topology.getNumAtoms():
            raise InputError(
                f"positions: found {len(positions)} for the {self.topology.getNumAtoms()} atoms of the topology; "
                "give one for each."
            )
        if not np.isfinite(positions).all():
            raise InputError("positions: one is not a number; give finite positions.")
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
