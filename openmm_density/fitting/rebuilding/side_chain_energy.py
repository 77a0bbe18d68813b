"""The energy of a side chain's conformations among the atoms around it: density and contacts."""

from __future__ import annotations

import numpy as np

from ...chemistry.contacts import HYDROGEN_BOND_ALLOWANCE
from .density_model import DensityModel
from .molecule import Molecule
from .side_chains import SideChain

# Depth of a contact in kJ/mol, what it costs at most, and the Å by which it may be nearer, as the model is not rigid.
_DEPTH, _MAX_CONTACT_ENERGY, _SOFTNESS = 0.5, 1000.0, 0.1


class SideChainEnergy:
    """Density and contacts of one side chain, in any conformation, among atoms that stay.

    Parameters
    ----------
    molecule : Molecule
    density : DensityModel
    chain : SideChain
    around : np.ndarray of int, shape (M,)
        Indices of the atoms around it.
    positions : np.ndarray, shape (M, 3)
        Å, of these.
    in_contact : np.ndarray of bool, shape (number of scored atoms, M)
        Which pairs must not overlap.
    """

    def __init__(
        self,
        molecule: Molecule,
        density: DensityModel,
        chain: SideChain,
        around: np.ndarray,
        positions: np.ndarray,
        in_contact: np.ndarray,
    ) -> None:
        self._density, self._scored = density, chain.scored
        turning = chain.scored_atoms
        self._positions, self._in_contact = positions, in_contact
        self._own, self._others = density.weights[turning], density.weights[around]
        self._radii = molecule.radii[turning][:, None] + molecule.radii[around]
        hydrogen_bonds = molecule.polar[turning][:, None] & molecule.polar[around]
        self._radii = self._radii - HYDROGEN_BOND_ALLOWANCE * hydrogen_bonds

    def evaluate(self, conformations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the density and contacts of conformations.

        Parameters
        ----------
        conformations : np.ndarray, shape (K, n, 3)
            Å, of all atoms of the side chain.

        Returns
        -------
        integrals : np.ndarray, shape (K, 2)
            What each adds to ∫ t ρ and ∫ ρ².
        contacts : np.ndarray, shape (K,)
            kJ/mol.
        """
        density = self._density
        positions = conformations[:, self._scored]
        to_others = ((positions[:, :, None] - self._positions) ** 2).sum(axis=-1)
        within = ((positions[:, :, None] - positions[:, None]) ** 2).sum(axis=-1)
        with_map = density.map_integral(positions) @ self._own
        with_others = np.einsum("kij,i,j->k", density.pair_integral(to_others), self._own, self._others)
        with_own = np.einsum("kij,i,j->k", density.pair_integral(within), self._own, self._own)
        ratio = ((self._radii / (np.sqrt(to_others) + _SOFTNESS)) ** 6) * self._in_contact
        contacts = np.minimum(_DEPTH * (ratio**2 - 2 * ratio), _MAX_CONTACT_ENERGY).sum(axis=(1, 2))
        return np.stack([with_map, 2 * with_others + with_own], axis=1), contacts
