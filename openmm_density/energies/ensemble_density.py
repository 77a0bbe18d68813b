"""The energy of an ensemble: the mean density of several models, in frames of their own, is compared with one target."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .modules import DensityEnergy, check_particle_count
from .native_force.forms import evaluated_natively


@evaluated_natively("density", "openmm_density_similarity")
class EnsembleDensity(nn.Module):
    """E = k · loss(Σ_i w_i ρ_i), where ρ_i is the density of replica i and the loss that of one model.

    All atoms of all replicas are one splat, whose amplitudes are multiplied by the weight of their replica, so that it costs
    what as many atoms of one model cost, and its forces are the exact gradient: w_i ∂E/∂ρ at the place of an atom of replica
    i. `energy`: that of one replica alone, among ``n_particles`` positions of its own. `displacements` float64 (R, 3) in nm by
    which each replica is away from the frame of the map; the first is that of the particles from 0 on, and so on.
    """

    def __init__(self, energy: DensityEnergy, displacements: Tensor) -> None:
        super().__init__()
        count, one = len(displacements), energy.n_particles
        self.n_particles = count * one
        self.max_similarity = energy.max_similarity
        atoms = energy.atoms
        self.register_buffer("atoms", torch.cat([atoms + replica * one for replica in range(count)]))
        self.register_buffer("own_atoms", torch.arange(count * len(atoms)))
        self.register_buffer("replicas", torch.arange(count).repeat_interleave(len(atoms)))
        self.register_buffer("displacements", displacements.to(torch.float64).contiguous())
        self.register_buffer("amplitudes", energy.amplitudes.repeat(count, 1))
        self.register_buffer("exponents", energy.exponents.repeat(count, 1))
        for name in ("target", "moments", "matrix", "origin"):
            self.register_buffer(name, getattr(energy, name))
        self.cutoff, self.periodic = energy.cutoff, energy.periodic
        self.measure, self.total_weight = energy.measure, energy.total_weight

    @torch.jit.export
    def of_fitted(
        self, positions: Tensor, weights: Tensor, scale: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return S of the weighted mean density and ∂S/∂positions (in nm⁻¹) of the fitted atoms, times a factor if any."""
        moved = self.displacements.to(positions.dtype).index_select(0, self.replicas)
        own = positions.index_select(0, self.atoms) - moved
        of_atom = weights.to(self.amplitudes.dtype).index_select(0, self.replicas)
        return torch.ops.openmm_density.density_similarity(
            own,
            self.own_atoms,
            self.amplitudes * of_atom[:, None],
            self.exponents,
            self.cutoff,
            self.target,
            self.moments,
            self.matrix,
            self.origin,
            self.periodic,
            self.measure,
            self.total_weight,
            scale,
        )

    @torch.jit.export
    def similarity(
        self, positions: Tensor, weights: Tensor, scale: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the same with the gradient of all particles."""
        similarity, gradient = self.of_fitted(positions, weights, scale)
        return similarity, torch.ops.openmm_density.among_all(gradient, self.atoms, positions.shape[0])

    def forward(self, positions: Tensor, strengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return energy (kJ/mol) and forces (kJ/mol/nm) for positions (N, 3) in nm, and k (kJ/mol) with the weights behind it."""
        check_particle_count(positions, self.n_particles, "EnsembleFit")
        # Outside of no_grad for the reason given in SimilarityEnergy.
        k = strengths.to(torch.float64)[0]
        with torch.no_grad():
            device = self.atoms.device
            weights = strengths.detach()[1:].to(device)
            similarity, forces = self.similarity(positions.detach().to(device), weights, k.to(device))
            forces = forces.to(positions.device)
            loss = (self.max_similarity - similarity).to(k.device)
        return k * loss, forces
