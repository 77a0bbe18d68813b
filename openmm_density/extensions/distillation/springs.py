"""A cheap force field (MMFF94, or UFF where that has no parameters) that draws geometries before anything was learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.units import ANGSTROM_PER_NANOMETER
from .accuracy import KJ_PER_KCAL

if TYPE_CHECKING:
    from rdkit.Chem import Mol

# Å: displacements of the numerical Hessian.
_STEP = 0.01


class Springs:
    """Forces between the atoms of a molecule. `molecule` with hydrogens and one set of positions."""

    def __init__(self, molecule: Mol) -> None:
        from rdkit.Chem import AllChem

        properties = AllChem.MMFFGetMoleculeProperties(molecule)
        self.name = "UFF" if properties is None else "MMFF94"
        self._field: Any = (
            AllChem.UFFGetMoleculeForceField(molecule)
            if properties is None
            else AllChem.MMFFGetMoleculeForceField(molecule, properties)
        )

    def forces(self, positions: np.ndarray) -> np.ndarray:
        """Return forces in kJ/mol/nm on each of B geometries in nm, both of the shape (B, n, 3)."""
        return np.stack([self._of_one(each) for each in positions])

    def hessian(self, positions: np.ndarray) -> np.ndarray:
        """Return the second derivatives (3n, 3n) in kJ/mol/nm² at positions (n, 3) in nm, by central differences."""
        step = _STEP / ANGSTROM_PER_NANOMETER
        moves = np.eye(positions.size).reshape(-1, *positions.shape) * step
        found = (self.forces(positions - moves) - self.forces(positions + moves)) / (2 * step)
        found = found.reshape(positions.size, positions.size)
        return (found + found.T) / 2

    def _of_one(self, positions: np.ndarray) -> np.ndarray:
        # Without it RDKit takes the distances of the call before.
        self._field.Initialize()
        gradient = self._field.CalcGrad((positions.ravel() * ANGSTROM_PER_NANOMETER).tolist())
        return -np.asarray(gradient).reshape(positions.shape) * (KJ_PER_KCAL * ANGSTROM_PER_NANOMETER)
