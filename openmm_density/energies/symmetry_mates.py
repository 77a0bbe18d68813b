"""The density of a unit together with its copies: one unit moves, and its mates follow from operators."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from openmm_density.kernels import molecules as _molecules  # noqa: F401  (defines operators)

from ..base.errors import InputError
from ..base.units import ANGSTROM_PER_NANOMETER
from ..maps.density_map import DensityMap
from ..models.symmetry_operators import SymmetryOperators
from .modules import SimilarityEnergy
from .native_force.forms import evaluated_natively

# By this part the axes of the operators' cell and of the map's may differ if they are one crystal.
SAME_CELL = 0.02
_SAME_ANGLE = 1.0


@evaluated_natively()
class SymmetryMates(SimilarityEnergy):
    """The similarity of a unit with all its copies x′ = R x + t, as a function of the positions of the unit alone.

    S is that of the whole; k (largest S − S), with k that of the unit, is the energy of one of the n copies. Its gradient

        ∂S/∂x = Σ_g R_gᵀ ∂S/∂x_g

    is n times that by the positions of one copy, where target and operators have one symmetry. So the unit has the force that
    one copy has in the model of all of them, whose k is n times as large.

    `energy` of the positions of the unit's M fitted atoms in each copy, one copy after the other; `atoms` int64 (M,):
    the particles that are fitted; `n_particles`: see `SimilarityEnergy`; `rotations` float64 (n, 3, 3); `translations`
    float64 (n, 3) in nm.
    """

    def __init__(
        self,
        energy: SimilarityEnergy,
        atoms: Tensor,
        n_particles: int,
        rotations: Tensor,
        translations: Tensor,
    ) -> None:
        super().__init__(atoms, n_particles, energy.max_similarity)
        self.energy = energy
        self.register_buffer("rotations", rotations)
        self.register_buffer("translations", translations)

    def move(self, displacement: Tensor) -> None:
        """Move map and operators by a displacement (3,) in nm: models that are merged are far from each other."""
        self.energy.move(displacement)
        self.translations = self.translations + displacement - self.rotations @ displacement

    @torch.jit.export
    def similarity(self, positions: Tensor, scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return S of the whole and ∂S/∂positions (in nm⁻¹), times a factor if there is one."""
        copies = torch.ops.openmm_density.symmetry_copies(
            positions, self.atoms, self.rotations, self.translations
        )
        similarity, gradient = self.energy.similarity(copies, scale)
        folded = torch.ops.openmm_density.folded_copies(
            gradient, self.atoms, self.rotations, positions.shape[0]
        )
        return similarity, folded


def around_copies(operators: SymmetryOperators, around: np.ndarray | None) -> np.ndarray | None:
    """Return where a map is needed for copies of positions (M, 3) in Å; None for all of it: those of a crystal fill its cell."""
    if around is None or operators.cell is not None:
        return None
    return operators.expanded(around).reshape(-1, 3)


def mates_of(
    energy: SimilarityEnergy, atoms: Tensor, n_particles: int, operators: SymmetryOperators
) -> SymmetryMates:
    """Return the energy of a unit from that of all copies' fitted atoms; operators in Å."""
    rotations = torch.from_numpy(operators.rotations.copy())
    translations = torch.from_numpy(operators.translations / ANGSTROM_PER_NANOMETER)
    return SymmetryMates(energy, atoms, n_particles, rotations, translations)


def check_whole_cell(operators: SymmetryOperators, density_map: DensityMap) -> None:
    """Refuse operators of a crystal for the map of anything else than its whole cell."""
    if not isinstance(operators, SymmetryOperators):
        raise InputError(
            "must be SymmetryOperators",
            argument="operators",
            found=type(operators).__name__,
            remedy="make them with SymmetryOperators.from_matrices or SymmetryOperators.crystal",
        )
    if operators.cell is None:
        return
    if not density_map.periodic:
        raise InputError(
            "of a crystal need the periodic map of its whole cell, and this map is finite",
            argument="operators",
            remedy="give the map of the cell, or the operators of an assembly",
        )
    edges = density_map.matrix * density_map.size
    axes = np.linalg.norm(edges, axis=0)
    unit_edges = edges / axes
    cosines = [unit_edges[:, i] @ unit_edges[:, j] for i, j in ((1, 2), (0, 2), (0, 1))]
    angles = np.degrees(np.arccos(np.clip(cosines, -1, 1)))
    cell = np.array(operators.cell)
    if np.any(np.abs(axes / cell[:3] - 1) > SAME_CELL) or np.any(np.abs(angles - cell[3:]) > _SAME_ANGLE):
        found = ", ".join(f"{value:.2f}" for value in [*axes, *angles])
        raise InputError(
            f"are of a crystal with the cell {', '.join(f'{value:.2f}' for value in cell)}, and the map has another one",
            argument="operators",
            found=found,
            remedy="give the map and the cell of one crystal",
        )
