"""The density of a model as the searches use it: a Gaussian for each atom, and its cross-correlation with the map."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import ndimage
from scipy.spatial import cKDTree

from ...energies.density_fit import DensityFit
from ...maps.density_map import DensityMap
from ...models.chemistry.backbone import BACKBONE
from .molecule import Molecule
from .surrounding_mates import SurroundingMates

# Two Gaussians of width σ overlap in one of width σ √2; at a distance of 7 σ less than 1e-5 of the overlap is left.
_OVERLAP_CUTOFF_IN_SIGMA = 7.0


class DensityEnergySlopes(NamedTuple):
    """Derivatives of the density energy k (1 − S) about a model, in kJ/mol."""

    # −∂E/∂(∫ t ρ): the energy falls by this for each unit of the integral of the map with the model's density
    per_map: float
    # By how much each pair of atoms of weight 1 at a distance r raises the energy, over exp(−r²/4σ²)
    per_pair: float


class BoxSpline(NamedTuple):
    """The map blurred by an atom's Gaussian, in a box, as a cubic B-spline."""

    coefficients: np.ndarray  # (nz, ny, nx)
    # `to_index`, `shift` (3, 3): the place of a point **x** in Å among them, by z, y and x, is ``to_index @ x +
    # shift``.
    to_index: np.ndarray
    shift: np.ndarray
    low: np.ndarray  # `low`, `high` (3,): places between which the box and the map are.
    high: np.ndarray


class DensityModel:
    """What of a density fit the searches need: the map, the weights of the atoms, and the width of their Gaussians.

    The density of the model is ρ(**r**) = Σ_a w_a g(**r** − **x**_a), with g a normalised Gaussian of width σ, and the energy is
    k (1 − S) with S = ∫ t ρ / √(∫ ρ² ∫ t²), the cross-correlation about zero. The integrals of ρ are sums over atoms and over
    pairs of atoms: what a side chain adds to them is found from its own atoms and their neighbours, without a grid.

    Of a unit with n symmetry mates in a map of all, the integrals are the n-th part of those of all copies, and so is ∫ t²; S is
    then that of all. Mates are fixed atoms behind the unit's: each pair of an atom with a mate's is counted twice in ∫ ρ², as
    both copies of the pair change with the unit, less what these pairs were at the start.

    `target`: the map t. `weights` (N,): the integral of each atom's density, of either sign; 0 for atoms that are not
    fitted. `sigma`: σ in Å. `strength`: k in kJ/mol, of all atoms together. `is_fitted` bool (N,): which atoms are
    fitted; by default those of which the weight is not 0. `n_own`: atoms that are not symmetry mates', which come
    first; all by default. `n_copies` of the unit in the map. Attributes: `target`, `weights`, `sigma`, `strength`,
    `is_fitted`, `n_own` as given.
    """

    def __init__(
        self,
        target: DensityMap,
        weights: np.ndarray,
        sigma: float,
        strength: float,
        is_fitted: np.ndarray | None = None,
        n_own: int | None = None,
        n_copies: int = 1,
    ) -> None:
        self.target, self.weights, self.sigma, self.strength = target, weights, sigma, strength
        self.is_fitted = weights != 0 if is_fitted is None else is_fitted
        self.n_own = len(weights) if n_own is None else n_own
        self._pairs_with_mates = 0.0
        self._known: tuple[np.ndarray, DensityEnergySlopes] | None = None
        self._mode = "grid-wrap" if target.periodic else "constant"
        blurred = target.gaussian_filter(sigma).data.astype(np.float64)
        # The map blurred by an atom's Gaussian, at any point, is what an atom there adds to ∫ t ρ.
        self._spline = ndimage.spline_filter(blurred, mode="grid-wrap" if target.periodic else "mirror")
        self._to_index = np.linalg.inv(target.matrix)
        self._of_one_place = float(self.pair_integral(np.zeros(1))[0])
        self._target_square = (
            float((target.data.astype(np.float64) ** 2).sum()) * target.voxel_volume / n_copies
        )

    @classmethod
    def of_fit(
        cls,
        fit: DensityFit,
        molecule: Molecule,
        strength: float,
        mates: SurroundingMates | None = None,
    ) -> DensityModel:
        """Return the model of a density fit: its target, the weights of its atoms, and the width of its resolution.

        The weights are the integrals of the atoms' densities, whatever the fit takes for them: mass, atomic number, form factor
        and occupancy, charge (of its own sign), or numbers of the user. The width is that of the fit's resolution for all atoms:
        with those that form factors and B factors add to it, fewer rotamers are told apart. Hydrogens are left out.

        `strength`: k in kJ/mol, of all atoms together.
        """
        heavy = molecule.is_heavy[fit.atoms]
        weights, is_fitted = np.zeros(len(molecule.atoms)), np.zeros(len(molecule.atoms), dtype=bool)
        # Kernels hold densities in float32.
        weights[fit.atoms[heavy]] = fit.gaussians.integrals.numpy().astype(np.float32)[heavy]
        is_fitted[fit.atoms[heavy]] = True
        if mates is None:
            return cls(fit.target, weights, fit.sigma, strength, is_fitted)
        weights[mates.n_own :] = weights[mates.originals]
        own, copies = mates.n_own, mates.n_copies
        model = cls(fit.target, weights, fit.sigma, strength, is_fitted, own, copies)
        model._pairs_with_mates = model._overlaps(mates.around(mates.start))[1]
        return model

    @property
    def strength_per_atom(self) -> float:
        """The strength k in kJ/mol per fitted heavy atom."""
        return self.strength / max(np.count_nonzero(self.is_fitted), 1)

    def map_integral(self, points: np.ndarray) -> np.ndarray:
        """Return ∫ t g for the Gaussian of an atom of weight 1 at each of the points (…, 3) in Å."""
        index = (self._to_index @ (points.reshape(-1, 3) - self.target.origin).T)[::-1]
        values = ndimage.map_coordinates(self._spline, index, prefilter=False, mode=self._mode)
        return values.reshape(points.shape[:-1])

    def spline_around(self, low: np.ndarray, high: np.ndarray) -> BoxSpline:
        """Return what `map_integral` evaluates, in a box from one corner (Å) to the other, with places for its derivatives."""
        corners = np.stack(np.meshgrid(*zip(low, high), indexing="ij"), axis=-1).reshape(-1, 3)
        to_index = self._to_index[::-1]
        index = (corners - self.target.origin) @ to_index.T
        begin, end = np.floor(index.min(axis=0)).astype(int), np.ceil(index.max(axis=0)).astype(int)
        sizes = np.array(self._spline.shape)
        if not self.target.periodic:  # beyond it is nothing
            begin, end = np.clip(begin, 0, sizes - 1), np.clip(end, 0, sizes - 1)
        rows = [np.arange(a - 1, b + 3) for a, b in zip(begin, end)]
        if self.target.periodic:
            rows = [row % size for row, size in zip(rows, sizes)]
        else:  # mirrored at the outer voxels
            rows = [_mirrored(row, size) for row, size in zip(rows, sizes)]
        first = begin - 1
        return BoxSpline(
            self._spline[np.ix_(*rows)],
            to_index,
            -to_index @ self.target.origin - first,
            (begin - first).astype(float),
            (end - first).astype(float),
        )

    def pair_integral(self, squared_distances: np.ndarray) -> np.ndarray:
        """Return ∫ g g' of two atoms of weight 1, by their squared distance in Å²."""
        width = 4 * self.sigma**2
        return np.exp(-squared_distances / width) * (np.pi * width) ** -1.5

    def integrals(self, positions: np.ndarray) -> np.ndarray:
        """Return ∫ t ρ and ∫ ρ², shape (2,), at positions (N, 3) in Å."""
        own, with_mates = self._overlaps(positions)
        fitted = np.flatnonzero(self.weights[: self.n_own])
        positions, weights = positions[fitted], self.weights[fitted]
        square = own + 2 * with_mates - self._pairs_with_mates
        return np.array([(weights * self.map_integral(positions)).sum(), square])

    def _overlaps(self, positions: np.ndarray) -> tuple[float, float]:
        """Return ∫ ρ² of the unit alone, and the sum of the overlaps of its atoms with its mates'."""
        fitted = np.flatnonzero(self.weights)
        positions, weights = positions[fitted], self.weights[fitted]
        n_own = int(np.searchsorted(fitted, self.n_own))
        cutoff = _OVERLAP_CUTOFF_IN_SIGMA * self.sigma
        i, j = cKDTree(positions[:n_own]).query_pairs(cutoff, output_type="ndarray").T
        pairs = 2 * (weights[i] * weights[j] * self._of_pairs(positions, i, j)).sum()
        own = (weights[:n_own] ** 2).sum() * self._of_one_place
        if n_own == len(fitted):
            return pairs + own, 0.0
        trees = cKDTree(positions[:n_own]), cKDTree(positions[n_own:])
        across = trees[0].sparse_distance_matrix(trees[1], cutoff, output_type="ndarray")
        i, j = across["i"], across["j"] + n_own
        return pairs + own, float((weights[i] * weights[j] * self._of_pairs(positions, i, j)).sum())

    def _of_pairs(self, positions: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        return self.pair_integral(((positions[i] - positions[j]) ** 2).sum(axis=1))

    def similarity_of(self, integrals: np.ndarray) -> np.ndarray:
        """Return S from ∫ t ρ and ∫ ρ², shape (…, 2); 0 where the model has no density."""
        squares = integrals[..., 1] * self._target_square
        has_density = squares > 0
        return np.where(has_density, integrals[..., 0], 0.0) / np.sqrt(np.where(has_density, squares, 1.0))

    def similarity(self, positions: np.ndarray) -> float:
        """Return S at positions (N, 3) in Å."""
        return float(self.similarity_of(self.integrals(np.asarray(positions, dtype=np.float64))))

    def slopes(self, positions: np.ndarray) -> DensityEnergySlopes:
        """Return the derivatives of the energy at positions (N, 3) in Å, for an energy that is linear in both integrals.

        Those of the array that was given last are kept, as all trials of a model ask for them: it must not change.
        """
        if self._known is None or self._known[0] is not positions:
            with_map, square = self.integrals(np.asarray(positions, dtype=np.float64))
            root = np.sqrt(square * self._target_square)
            per_pair = self.strength * with_map / (root * square)
            slopes = DensityEnergySlopes(float(self.strength / root), float(per_pair * self._of_one_place))
            self._known = positions, slopes
        return self._known[1]

    def weight_of_an_atom(self, molecule: Molecule) -> float:
        """Return the magnitude of the weight of a carbon, or of any fitted atom where there is no carbon."""
        carbon = np.array(
            [a.element is not None and a.element.symbol == "C" for a in molecule.atoms], dtype=bool
        )
        weighed = self.weights != 0
        weights = self.weights[weighed & carbon if (weighed & carbon).any() else weighed]
        return float(np.median(np.abs(weights))) if len(weights) else 1.0

    def density_of_backbone(self, molecule: Molecule, positions: np.ndarray) -> float:
        """Return ∫ t g at the median fitted atom of the backbone, or at that of all where none is fitted; 0 without any."""
        fitted = self.weights != 0
        fitted[self.n_own :] = False
        backbone = fitted & np.array([atom.name in BACKBONE for atom in molecule.atoms], dtype=bool)
        seen = np.flatnonzero(backbone if backbone.any() else fitted)
        return float(np.median(self.map_integral(positions[seen]))) if len(seen) else 0.0

    def energy_of_seen_atom(self, molecule: Molecule, positions: np.ndarray) -> float:
        """Return what ∫ t ρ with a carbon as well seen as the median atom of the backbone adds to k S, in kJ/mol."""
        density = self.density_of_backbone(molecule, positions)
        if not density:
            return 0.0
        return max(self.slopes(positions).per_map * self.weight_of_an_atom(molecule) * density, 0.0)

    def linear_energy(self, slopes: DensityEnergySlopes, integrals: np.ndarray) -> np.ndarray:
        """Return what integrals (…, 2) add to the energy in kJ/mol about the model that the slopes are of."""
        per_square = 0.5 * slopes.per_pair / self._of_one_place
        return per_square * integrals[..., 1] - slopes.per_map * integrals[..., 0]


def _mirrored(places: np.ndarray, size: int) -> np.ndarray:
    """Return places along an axis, those beyond its ends mirrored at the outermost."""
    period = max(2 * (size - 1), 1)
    return np.minimum(places % period, period - places % period) if size > 1 else np.zeros_like(places)
