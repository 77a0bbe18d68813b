"""The energy of a side chain's conformations among the atoms around it: density and contacts."""

from __future__ import annotations

import numpy as np

from ...models.chemistry.contacts import HYDROGEN_BOND_ALLOWANCE
from .density_model import DensityModel
from .molecule import Molecule
from .side_chains import SideChain

# Depth of a contact in kJ/mol, what it costs at most, and the Å by which it may be nearer, as the model is not rigid.
_DEPTH, _MAX_CONTACT_ENERGY, _SOFTNESS = 0.5, 1000.0, 0.1
# Distances that are held at once: what is larger than a processor's cache takes twice as long.
_AT_ONCE = 100_000


class SideChainEnergy:
    """Density and contacts of one side chain, in any conformation, among atoms that stay, in each of S models at once.

    `around` int (M,): indices of the atoms around it. `positions` (S, M, 3) in Å, of these in each model. `in_contact`
    bool (S or 1, number of scored atoms, M): which pairs must not overlap. `present` bool (S, M): which atoms count in
    each model; all by default.
    """

    def __init__(
        self,
        molecule: Molecule,
        density: DensityModel,
        chain: SideChain,
        around: np.ndarray,
        positions: np.ndarray,
        in_contact: np.ndarray,
        present: np.ndarray | None = None,
    ) -> None:
        self._density, self._scored = density, chain.scored
        turning = chain.scored_atoms
        self._own = density.weights[turning]
        self._others = np.broadcast_to(density.weights[around], positions.shape[:2])
        radii = molecule.radii[turning][:, None] + molecule.radii[around]
        hydrogen_bonds = molecule.polar[turning][:, None] & molecule.polar[around]
        # Without a radius they are in no contact.
        radii = (radii - HYDROGEN_BOND_ALLOWANCE * hydrogen_bonds) * in_contact
        if present is not None:
            self._others = self._others * present
            radii = radii * present[:, None]
        self._radii = np.broadcast_to(radii, (len(positions), *radii.shape[1:]))
        # Products of large coordinates would lose the last digits of distances.
        self._centre = positions.reshape(-1, 3).mean(axis=0) if positions.size else np.zeros(3)
        self._positions = positions - self._centre
        self._squares = (self._positions**2).sum(axis=-1)

    def evaluate(self, conformations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the density and contacts of conformations.

        `conformations` (S, K, n, 3) in Å, of all atoms of the side chain. Returns `integrals` (S, K, 2): what each adds
        to ∫ t ρ and ∫ ρ²; `contacts` (S, K) in kJ/mol.
        """
        density = self._density
        scored = conformations[:, :, self._scored]
        integrals, contacts = np.empty((*scored.shape[:2], 2)), np.empty(scored.shape[:2])
        integrals[..., 0] = density.map_integral(scored) @ self._own
        within = ((scored[:, :, :, None] - scored[:, :, None]) ** 2).sum(axis=-1)
        pairs = np.outer(self._own, self._own).ravel()
        with_own = density.pair_integral(within.reshape(*scored.shape[:2], -1)) @ pairs
        per_model = max(scored.shape[1] * len(self._own) * self._squares.shape[1], 1)
        at_once = max(_AT_ONCE // per_model, 1)
        for first in range(0, len(scored), at_once):
            some = slice(first, first + at_once)
            with_others, contacts[some] = self._with_others(some, scored[some] - self._centre)
            integrals[some, :, 1] = 2 * with_others + with_own[some]
        return integrals, contacts

    def _with_others(self, models: slice, scored: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the overlaps and the contacts, shape (S, K), of scored atoms (S, K, n, 3) with those around."""
        n_models, count, size = scored.shape[:3]
        own = scored.reshape(n_models, -1, 3)
        squares = own @ (-2 * self._positions[models].transpose(0, 2, 1))
        squares += (own**2).sum(axis=-1)[..., None]
        squares += self._squares[models, None]
        np.maximum(squares, 0.0, out=squares)
        overlaps = self._density.pair_integral(squares) @ self._others[models, :, None]
        with_others = overlaps.reshape(n_models, count, size) @ self._own
        distances = np.sqrt(squares, out=squares).reshape(n_models, count, size, -1)
        return with_others, contact_energies(distances, self._radii[models, None]).sum(axis=(2, 3))


def contact_energies(distances: np.ndarray, radii: np.ndarray) -> np.ndarray:
    """Return the energies in kJ/mol of contacts between atoms, in place of their distances.

    `distances` in Å; overwritten. `radii` in Å, sums of the radii of both atoms, of a shape that broadcasts; 0 for
    pairs in no contact.
    """
    ratio = distances
    ratio += _SOFTNESS
    np.divide(radii, ratio, out=ratio)
    ratio *= ratio
    ratio *= ratio * ratio
    energy = ratio * (ratio - 2)
    energy *= _DEPTH
    return np.minimum(energy, _MAX_CONTACT_ENERGY, out=energy)
