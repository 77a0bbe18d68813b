"""The energy of a target, the densities of atoms and a measure of similarity, in nm."""

from __future__ import annotations

import torch

from ..base.units import ANGSTROM_PER_NANOMETER
from ..models.symmetry_operators import SymmetryOperators
from .density_target import DensityTarget
from .fitted_atoms import AtomGaussians
from .measures import Measure
from .modules import DensityEnergy, Grid, MapPotentialEnergy, SimilarityEnergy
from .symmetry_mates import mates_of


def similarity_energy(
    target: DensityTarget,
    potential: torch.Tensor | None,
    gaussians: AtomGaussians,
    cutoff: float,
    measure: Measure,
    atoms: torch.Tensor,
    n_particles: int,
    operators: SymmetryOperators | None = None,
) -> SimilarityEnergy:
    """Build the module that compares `atoms` (M,) with a target, or its `potential` if that is the measure; `cutoff` in Å."""
    if operators is not None:
        in_all = torch.arange(len(operators) * len(atoms))
        of_all = gaussians.repeated(len(operators))
        energy = similarity_energy(target, potential, of_all, cutoff, measure, in_all, len(in_all))
        return mates_of(energy, atoms, n_particles, operators)
    nm = ANGSTROM_PER_NANOMETER
    density_map = target.map
    grid = Grid(
        torch.from_numpy(density_map.matrix / nm),
        torch.from_numpy(density_map.origin / nm),
        density_map.periodic,
    )
    if measure.is_potential:
        weights = gaussians.integrals.to(torch.float32)
        return MapPotentialEnergy(atoms, n_particles, weights, potential, grid, measure)
    return DensityEnergy(
        atoms,
        n_particles,
        (gaussians.amplitudes * nm**3).to(torch.float32),
        (gaussians.exponents * nm**2).to(torch.float32),
        cutoff / nm,
        target.voxels(),
        grid,
        measure,
        # Σ of a complete model's density over the voxels, for densities in nm⁻³.
        float(gaussians.integrals.numpy().sum()) / density_map.voxel_volume * nm**3,
        target.moments.clone(),
    )
