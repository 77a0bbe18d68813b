"""The energy of maps of two torsions as a TorchScript module: positions in nm and a factor k in, (energy, forces) out."""

import torch
from torch import Tensor, nn

from openmm_density.kernels.torsion_maps import MappedTorsions

from .modules import check_particle_count
from .native_force.forms import evaluated_natively


@evaluated_natively("torsion_maps", "openmm_density_torsion_maps")
class TorsionMapEnergy(nn.Module):
    """E = k · Σ map(φ, ψ), see `openmm_density.kernels.torsion_maps`.

    `torsions` from `openmm_density.kernels.torsion_maps.pack_torsions`; `nodes` float32 (K, n, n, 4): the maps, from
    `openmm_density.kernels.torsion_maps.spline_nodes`, in kJ/mol at k = 1; `n_particles`: how many positions there are;
    `made`: what is made of a topology, for the error where it is not that of the System.
    """

    def __init__(self, torsions: MappedTorsions, nodes: Tensor, n_particles: int, made: str) -> None:
        super().__init__()
        self.n_particles = n_particles
        self.made = made
        self.register_buffer("members", torsions.members)
        self.register_buffer("map_of_term", torsions.map_of_term)
        self.register_buffer("handedness", torsions.handedness)
        self.register_buffer("atom_offsets", torsions.atom_offsets)
        self.register_buffer("atom_members", torsions.atom_members)
        self.register_buffer("nodes", nodes)

    def forward(self, positions: Tensor, strength: Tensor) -> tuple[Tensor, Tensor]:
        """Return energy (kJ/mol) and forces (kJ/mol/nm) for positions (N, 3) in nm and the factor k, the strength."""
        check_particle_count(positions, self.n_particles, self.made)
        # Outside of no_grad for the reason given in SimilarityEnergy.
        k = strength.reshape(()).to(torch.float64)
        with torch.no_grad():
            device = self.members.device
            total, forces = torch.ops.openmm_density.torsion_maps(
                positions.detach().to(device),
                self.members,
                self.map_of_term,
                self.handedness,
                self.atom_offsets,
                self.atom_members,
                self.nodes,
                (-k).to(device),
            )
            forces = forces.to(positions.device)
            total = total.to(k.device)
        return k * total, forces
