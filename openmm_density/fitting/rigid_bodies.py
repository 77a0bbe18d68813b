"""The similarity of rigid bodies with a map as a function of how they are turned and where they are, and its nearest maximum."""

from __future__ import annotations

import numpy as np
import torch
from openmm import app
from scipy import optimize
from scipy.spatial.transform import Rotation

from ..base.units import ANGSTROM_PER_NANOMETER
from ..energies.density_fit import DensityFit
from ..maps.density_map import DensityMap
from ..validation.map_checks.rigid_scan import left_jacobian

# Rotation vectors are taken from where the last refinement ended; one that moved no atom so far (Å) was the last.
_REFINEMENTS, _SETTLED = 3, 0.02


class RigidBodies:
    """A model whose bodies turn about their centres and shift: x → rotation · (x − centre) + place.

    `body_of` (N,): the body of each atom, from 0; all are one by default. Attributes: `centres` (n, 3) of their heavy atoms, Å.
    """

    def __init__(
        self,
        topology: app.Topology,
        positions: np.ndarray,
        target: DensityMap,
        resolution: float,
        body_of: np.ndarray | None = None,
    ) -> None:
        fit = DensityFit(target, topology, resolution, crop_margin=None, periodic=False, strength=1.0)
        self._energy = fit.create_module()
        self._body_of = np.zeros(len(positions), dtype=np.int64) if body_of is None else body_of
        heavy = heavy_atoms_of(topology)
        self.centres = self._sums(positions[heavy], heavy) / self._counts(heavy)
        self.centred = positions - self.centres[self._body_of]
        square = self._sums((self.centred**2).sum(axis=1, keepdims=True)) / self._counts()
        self._radii = np.maximum(np.sqrt(square), 1.0)

    def _sums(self, values: np.ndarray, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return the sums of values (N, k) over each body."""
        of = self._body_of[rows]
        n = int(self._body_of.max()) + 1
        return np.stack([np.bincount(of, column, minlength=n) for column in values.T], axis=1)

    def _counts(self, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        n = int(self._body_of.max()) + 1
        return np.bincount(self._body_of[rows], minlength=n)[:, None]

    def start(self) -> Rotation:
        """Return rotations that leave the bodies as they are."""
        return Rotation.identity(len(self.centres))

    def similarity(self, rotations: Rotation, places: np.ndarray) -> tuple[float, np.ndarray]:
        """Return S, and its gradient (n, 6) with respect to further rotation vectors and the places, in rad⁻¹ and Å⁻¹."""
        matrices = rotations.as_matrix()[self._body_of]
        rotated = np.einsum("nij,nj->ni", matrices, self.centred)
        positions = torch.from_numpy((rotated + places[self._body_of]) / ANGSTROM_PER_NANOMETER)
        energy, forces = self._energy(positions, torch.ones((), dtype=torch.float64))
        uphill = forces.numpy() / ANGSTROM_PER_NANOMETER
        return 1.0 - float(energy), self._sums(np.concatenate([np.cross(rotated, uphill), uphill], axis=1))

    def refined(self, rotations: Rotation, places: np.ndarray) -> tuple[float, Rotation, np.ndarray]:
        """Go uphill to the nearest maximum."""
        n = len(places)
        for _ in range(_REFINEMENTS):

            def downhill(
                v: np.ndarray, rotations: Rotation = rotations, places: np.ndarray = places
            ) -> tuple[float, np.ndarray]:
                vectors = v.reshape(n, 6)
                turns = vectors[:, :3] / self._radii
                value, gradient = self.similarity(
                    Rotation.from_rotvec(turns) * rotations, places + vectors[:, 3:]
                )
                # The gradient at a rotated model is with respect to a further rotation: the left Jacobian leads to v.
                for row, turn in zip(gradient, turns):
                    row[:3] = left_jacobian(turn).T @ row[:3]
                gradient[:, :3] /= self._radii
                return -value, -gradient.ravel()

            found = optimize.minimize(
                downhill, np.zeros(6 * n), jac=True, method="L-BFGS-B", options={"maxiter": 60}
            )
            vectors = found.x.reshape(n, 6)
            rotations = Rotation.from_rotvec(vectors[:, :3] / self._radii) * rotations
            places = places + vectors[:, 3:]
            if np.abs(found.x).max() < _SETTLED:
                break
        return -float(found.fun), rotations, places


def heavy_atoms_of(topology: app.Topology) -> np.ndarray:
    """Return the atoms that are neither hydrogens nor without element."""
    return np.array(
        [a.index for a in topology.atoms() if a.element is not None and a.element.symbol not in ("H", "D")],
        dtype=np.int64,
    )
