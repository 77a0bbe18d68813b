"""A rigid model, larger or smaller by some per cent, refined against a map by interpolating the map at its atoms."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import optimize
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from ...maps.density_map import DensityMap
from .rigid_search import SIGMA

SCALES = (0.93, 1.07)
"""How much smaller or larger the model may become."""

# The scale at which a refinement begins: the nearest maximum of a scan in these steps.
_SCAN = np.arange(0.94, 1.0601, 0.01)
_STARTS = 2
ITERATIONS = 40
_REFINEMENTS = 2
_RELATIVE_GAIN = 1e-6
# Å: a refinement that moved no atom so far was the last.
_SETTLED = 0.02
# Å around the atoms that a refinement may reach.
_MARGIN = 10.0
# With more atoms, so many of them stand for all.
MOST_ATOMS = 5000


class Pose(NamedTuple):
    """A model turned about its centre, scaled and shifted: x → scale · rotation · (x − centre) + place."""

    similarity: float
    rotation: Rotation
    place: np.ndarray
    scale: float


class RigidScan:
    """The correlation of a rigid model with a map, as a function of its rotation, place and scale.

    Map and model are compared in a band: both are convolved with the difference of two Gaussians (σ = 0.225 d, d the resolution,
    and twice as wide), so that neither a constant nor the molecule's envelope, which draws everything to its middle, has a part.
    The map is interpolated trilinearly at the atoms, Σ w t(x); the model's own norm, Σ w w′ K(|x − x′|), depends on the scale
    alone. An evaluation so takes a millisecond for thousands of atoms.

    `positions` (N, 3) of the non-hydrogen atoms, in Å; `weights` (N,): atomic numbers; `resolution` in Å; `most_atoms`
    of more, so many evenly taken stand for all; `whole_map`: whether poses anywhere in the map are to be refined, and
    not only near the positions. Raises InputError if the positions do not overlap the map.
    """

    def __init__(
        self,
        density_map: DensityMap,
        positions: np.ndarray,
        weights: np.ndarray,
        resolution: float,
        *,
        most_atoms: int = MOST_ATOMS,
        whole_map: bool = False,
    ) -> None:
        self.centre = positions.mean(axis=0)
        some = slice(None, None, -(-len(positions) // most_atoms))
        self._atoms, self._weights = (positions - self.centre)[some], weights[some] / weights[some].sum()
        self._radius = max(float(np.sqrt((self._atoms**2).sum(axis=1).mean())), 1.0)
        sigma = SIGMA * resolution
        reach = _MARGIN + (SCALES[1] - 1) * float(np.abs(self._atoms).max())
        piece = density_map if whole_map else density_map.crop(positions, reach)
        band = piece.gaussian_filter(sigma).data.astype(np.float64) - piece.gaussian_filter(2 * sigma).data
        self._band = band / (band.std() or 1.0)
        self._inverse, self._origin = np.linalg.inv(piece.matrix), piece.origin
        self._log_norm = self._norms(sigma)
        self._log_norm_slope = self._log_norm.deriv()

    def _norms(self, sigma: float) -> np.polynomial.Polynomial:
        """Return the logarithm of the model's squared norm as a function of its scale."""
        pairs = cKDTree(self._atoms).query_pairs(8 * sigma, output_type="ndarray")
        square = ((self._atoms[pairs[:, 0]] - self._atoms[pairs[:, 1]]) ** 2).sum(axis=1)
        weights = 2 * self._weights[pairs[:, 0]] * self._weights[pairs[:, 1]]

        def overlap(square: np.ndarray | float) -> np.ndarray:
            # The kernel, G(σ) − G(2σ), convolved with itself.
            terms = ((1, 2), (-2, 5), (1, 8))
            return sum(
                sign * np.exp(-np.asarray(square) / (2 * factor * sigma**2)) / factor**1.5
                for sign, factor in terms
            )

        own = float((self._weights**2).sum() * overlap(0.0))
        scales = np.linspace(*SCALES, 7)
        norms = [own + float((weights * overlap(square * scale**2)).sum()) for scale in scales]
        return np.polynomial.Polynomial.fit(scales, np.log(norms), 3)

    def start(self) -> Pose:
        """Return the pose of the model as it was given."""
        return Pose(0.0, Rotation.identity(), self.centre, 1.0)

    def best(self) -> tuple[Pose, Pose]:
        """Return the nearest maximum as the model is, and the best where it may also change its scale."""
        one = self.refined(self.start(), fixed_scale=True)
        scanned = sorted(_SCAN, key=lambda scale: -self._value(one.rotation, one.place, scale)[0])
        found = [self.refined(one._replace(scale=float(scale))) for scale in scanned[:_STARTS]]
        return one, max([one, *found], key=lambda pose: pose.similarity)

    def refined(self, pose: Pose, *, fixed_scale: bool = False, iterations: int = ITERATIONS) -> Pose:
        """Return the nearest maximum, uphill from a pose; with fewer iterations, what is near it."""
        _, rotation, place, scale = pose
        for _ in range(_REFINEMENTS if iterations >= ITERATIONS else 1):

            def downhill(
                v: np.ndarray,
                rotation: Rotation = rotation,
                place: np.ndarray = place,
                scale: float = scale,
            ) -> tuple[float, np.ndarray]:
                turn = v[:3] / self._radius
                value, gradient = self._value(
                    Rotation.from_rotvec(turn) * rotation, place + v[3:6], scale + v[6] / self._radius
                )
                gradient[:3] = left_jacobian(turn).T @ gradient[:3] / self._radius
                gradient[6] = 0.0 if fixed_scale else gradient[6] / self._radius
                return -value, -gradient

            bounds = [(None, None)] * 6 + [tuple((limit - scale) * self._radius for limit in SCALES)]
            options = {"maxiter": iterations, "ftol": _RELATIVE_GAIN}
            found = optimize.minimize(
                downhill, np.zeros(7), jac=True, method="L-BFGS-B", bounds=bounds, options=options
            )
            rotation = Rotation.from_rotvec(found.x[:3] / self._radius) * rotation
            place, scale = place + found.x[3:6], float(scale + found.x[6] / self._radius)
            if np.abs(found.x).max() < _SETTLED:
                break
        return Pose(-float(found.fun), rotation, place, scale)

    def moved(self, positions: np.ndarray, pose: Pose) -> np.ndarray:
        """Return positions (N, 3) in Å as a pose has them."""
        return pose.rotation.apply(positions - self.centre) * pose.scale + pose.place

    def _value(self, rotation: Rotation, place: np.ndarray, scale: float) -> tuple[float, np.ndarray]:
        """Return the similarity, and its slope along a further turn (rad), the place (Å) and the scale, shape (7,)."""
        turned = rotation.apply(self._atoms) * scale
        values, slopes = self._interpolated(turned + place)
        norm = float(np.exp(-0.5 * self._log_norm(scale)))
        total = float(self._weights @ values)
        slopes *= self._weights[:, None]
        along = (slopes * turned).sum() / scale - 0.5 * self._log_norm_slope(scale) * total
        gradient = np.concatenate([np.cross(turned, slopes).sum(axis=0), slopes.sum(axis=0), [along]])
        return total * norm, gradient * norm

    def _interpolated(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the band of the map at points, and its slope; 0 outside."""
        index = (points - self._origin) @ self._inverse.T
        size = np.array(self._band.shape[::-1])
        known = ((index >= 0) & (index <= size - 1)).all(axis=1)
        base = np.clip(index.astype(np.int64), 0, np.maximum(size - 2, 0))
        x, y, z = (index - base).T
        flat, steps = self._band.ravel(), np.where(size > 1, (1, size[0], size[0] * size[1]), 0)
        first = base @ np.array((1, size[0], size[0] * size[1]))
        corner = {
            (i, j, k): flat[first + i * steps[0] + j * steps[1] + k * steps[2]]
            for i in (0, 1)
            for j in (0, 1)
            for k in (0, 1)
        }
        on_x = {jk: corner[(0, *jk)] * (1 - x) + corner[(1, *jk)] * x for jk in np.ndindex(2, 2)}
        by_x = {jk: corner[(1, *jk)] - corner[(0, *jk)] for jk in np.ndindex(2, 2)}
        low, high = (on_x[0, k] * (1 - y) + on_x[1, k] * y for k in (0, 1))
        slope_x = (by_x[0, 0] * (1 - y) + by_x[1, 0] * y) * (1 - z)
        slope_x += (by_x[0, 1] * (1 - y) + by_x[1, 1] * y) * z
        slope_y = (on_x[1, 0] - on_x[0, 0]) * (1 - z) + (on_x[1, 1] - on_x[0, 1]) * z
        values = low * (1 - z) + high * z
        slopes = np.stack([slope_x, slope_y, high - low], axis=1) @ self._inverse
        return np.where(known, values, 0.0), np.where(known[:, None], slopes, 0.0)


def left_jacobian(vector: np.ndarray) -> np.ndarray:
    """Return what turns a change of a rotation vector into the further rotation that it makes (of SO(3))."""
    angle = float(np.linalg.norm(vector))
    x, y, z = vector
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    if angle < 1e-6:
        return np.eye(3) + cross / 2
    return (
        np.eye(3)
        + (1 - np.cos(angle)) / angle**2 * cross
        + (angle - np.sin(angle)) / angle**3 * cross @ cross
    )
