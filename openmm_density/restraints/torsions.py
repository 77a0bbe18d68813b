"""`TorsionRestraint`: torsions held at targets by a harmonic energy with a flat bottom."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import openmm
from openmm import app, unit

from ..models.chemistry.torsions import torsion_angles
from .restraint import Restraint, Violation

# Both theta and target lie in [-π, π], so that their distance on the circle needs no rounding: on the CPU
# platform this takes a sixth of the time of an expression with floor().
_EXCESS = "excess = max(0, min(apart, 6.283185307179586 - apart) - {tolerance});apart = abs(theta - target)"
_FLAT_BOTTOM = f"0.5*{{force_constant}}*excess^2;{_EXCESS}"
_RELEASED = f"{{force_constant}}*{{well}}^2*(1 - exp(-0.5*(excess/{{well}})^2));{_EXCESS}"


class TorsionRestraint(Restraint):
    """Hold torsions at targets: E = ½ k max(0, |θ - θ₀| - tolerance)², with k in kJ/mol/rad².

    The force is continuous, except where a torsion is exactly opposite to its target.

    Attributes: `torsions` int (T, 4); `targets` (T,): θ₀ in radians.
    """

    tolerance: ClassVar[float]
    """Half the width of the flat bottom, in radians."""
    limit: ClassVar[float]
    """Deviation in radians above which a torsion counts as violated."""
    well: ClassVar[float | None] = None
    """w in radians, where torsions that are turned far are released: E = k w² [1 - exp(-x²/2w²)], with x beyond the tolerance."""

    force_constant_unit = unit.kilojoule_per_mole / unit.radian**2

    def __init__(
        self, topology: app.Topology, positions: Any, force_constant: Any = None, **common: Any
    ) -> None:
        super().__init__(topology, positions, force_constant, **common)
        self.torsions, self.targets = self._find()

    def _find(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the torsions and their targets."""
        raise NotImplementedError

    def _quantity(self, torsion: np.ndarray) -> str:
        """Return what messages call a torsion."""
        raise NotImplementedError

    @property
    def n_terms(self) -> int:
        """Number of torsions."""
        return len(self.torsions)

    def create_force(self) -> openmm.CustomTorsionForce:
        """Build the force that ``System.addForce`` takes; each call builds another."""
        form = _FLAT_BOTTOM if self.well is None else _RELEASED
        energy = form.format(
            force_constant=self.parameter_name, tolerance=repr(float(self.tolerance)), well=self.well
        )
        force = openmm.CustomTorsionForce(energy)
        force.addPerTorsionParameter("target")
        for atoms, target in zip(self.torsions.tolist(), self.targets.tolist()):
            force.addTorsion(*atoms, [target])
        return self._finish(force)

    def violations(self, positions: Any) -> list[Violation]:
        """List the torsions beyond their limit, the worst first; see `Restraint.violations`."""
        found = torsion_angles(self._checked(positions), self.torsions)
        turned = np.mod(found - self.targets + np.pi, 2 * np.pi) - np.pi
        return self._violated(
            self.torsions,
            np.degrees(self.targets + turned),
            np.degrees(self.targets),
            float(np.degrees(self.limit)),
            [self._quantity(torsion) for torsion in self.torsions],
            "°",
        )


class BackboneTorsionRestraint(TorsionRestraint):
    """Hold some φ and ψ at targets."""

    def _quantity(self, torsion: np.ndarray) -> str:
        return "φ" if self._atoms[torsion[0]].name == "C" else "ψ"

    def _residues(self, atoms: np.ndarray) -> tuple[str, ...]:
        # The second and third atom of φ are N and CA, of ψ CA and C: the residue whose torsion it is.
        return super()._residues(atoms[1:3])
