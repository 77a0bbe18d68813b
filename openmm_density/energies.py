"""The energies as TorchScript modules: positions in nm and a strength in, (energy, forces) in kJ/mol and nm out.

The modules work out their forces themselves: operators run under ``no_grad``, and the energy is differentiable in the strength
alone. Operators that autograd knows nothing of would otherwise stop a process in which openmm-torch asks for the derivative
with respect to the strength.
"""

import torch
from torch import Tensor, nn

from .kernels import interpolation  # noqa: F401  (defines the operator)
from .kernels.density import target_moments
from .kernels.planarity import Planes


class SimilarityEnergy(nn.Module):
    """E = k (c − S): what an energy made of a similarity S adds to it.

    Parameters
    ----------
    atoms : Tensor, shape (M,), int64
        The particles that are fitted.
    ceiling : float
        c: 1 for a similarity that 1 bounds, else 0.
    """

    def __init__(self, atoms: Tensor, ceiling: float) -> None:
        super().__init__()
        self.register_buffer("atoms", atoms)
        self.ceiling = ceiling

    def similarity(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Give S and ∂S/∂positions (in nm⁻¹)."""
        raise NotImplementedError

    def forward(self, positions: Tensor, strength: Tensor) -> tuple[Tensor, Tensor]:
        """Give energy (kJ/mol) and forces (kJ/mol/nm) for positions (N, 3) in nm and k in kJ/mol."""
        # Outside of no_grad, although used inside: freezing merges equal expressions, and would keep the one without gradient.
        k = strength.reshape(()).to(torch.float64)
        with torch.no_grad():
            similarity, gradient = self.similarity(positions.detach().to(self.atoms.device))
            forces = (gradient * k.to(gradient)).to(positions.device)
            distance = (self.ceiling - similarity).to(k.device)
        return k * distance, forces


class DensityEnergy(SimilarityEnergy):
    """The similarity of the model's density and a target.

    Parameters
    ----------
    atoms : Tensor, shape (M,), int64
        The particles that are fitted.
    amplitudes, exponents : Tensor, shape (M, C), float32
        In nm⁻³ and nm⁻².
    cutoff : float
        In nm.
    target : Tensor, shape (nz, ny, nx), float32
        NaN where a voxel does not count.
    matrix, origin : Tensor, float64
        Steps (columns) and place of the grid in nm.
    periodic : bool
        Whether the grid is a crystal's cell.
    measure : int
        One of the constants of `openmm_density.kernels.density`.
    total_weight : float
        See `openmm_density.kernels.density.density_similarity`.
    ceiling : float
        See `SimilarityEnergy`.
    """

    def __init__(
        self,
        atoms: Tensor,
        amplitudes: Tensor,
        exponents: Tensor,
        cutoff: float,
        target: Tensor,
        matrix: Tensor,
        origin: Tensor,
        periodic: bool,
        measure: int,
        total_weight: float,
        ceiling: float,
    ) -> None:
        super().__init__(atoms, ceiling)
        self.register_buffer("amplitudes", amplitudes)
        self.register_buffer("exponents", exponents)
        self.register_buffer("target", target.contiguous())
        self.register_buffer("moments", target_moments(target))
        self.register_buffer("matrix", matrix)
        self.register_buffer("origin", origin)
        self.cutoff = cutoff
        self.periodic = periodic
        self.measure = measure
        self.total_weight = total_weight

    @torch.jit.export
    def similarity(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Give S and ∂S/∂positions (in nm⁻¹)."""
        return torch.ops.openmm_density.density_similarity(
            positions,
            self.atoms,
            self.amplitudes,
            self.exponents,
            self.cutoff,
            self.target,
            self.moments,
            self.matrix,
            self.origin,
            self.periodic,
            self.measure,
            self.total_weight,
        )


class MapPotentialEnergy(SimilarityEnergy):
    """The weighted mean over the atoms of a map that is scaled to 0…1 and interpolated (the potential of MDFF).

    Parameters
    ----------
    atoms : Tensor, shape (M,), int64
    weights : Tensor, shape (M,), float32
    potential : Tensor, shape (nz, ny, nx), float32
        The map after clamping and scaling; 0 on the outermost voxels of a finite map, so that no force acts outside.
    matrix, origin : Tensor, float64
        In nm.
    periodic : bool
        Whether the grid is a crystal's cell.
    """

    def __init__(
        self,
        atoms: Tensor,
        weights: Tensor,
        potential: Tensor,
        matrix: Tensor,
        origin: Tensor,
        periodic: bool,
    ) -> None:
        super().__init__(atoms, 1.0)
        self.register_buffer("weights", weights)
        self.register_buffer("potential", potential.contiguous())
        self.register_buffer("matrix", matrix)
        self.register_buffer("origin", origin)
        self.periodic = periodic

    @torch.jit.export
    def similarity(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Give S and ∂S/∂positions (in nm⁻¹)."""
        return torch.ops.openmm_density.map_potential(
            positions, self.atoms, self.weights, self.potential, self.matrix, self.origin, self.periodic
        )


class WholeMolecules(nn.Module):
    """An energy for a periodic system whose positions may come wrapped, molecule by molecule, into the box.

    Each molecule is shifted by the lattice vector that brings its centroid nearest to a reference point, so that wrapping changes
    nothing. A shift leaves forces as they are.

    Parameters
    ----------
    energy : Module
        ``energy(positions, strength)`` of the ``particles`` alone, by their place in that list.
    particles : Tensor, shape (M,), int64
        The particles that the energy needs.
    molecules : Tensor, shape (M,), int64
        The number of each one's molecule, from 0.
    references : Tensor, shape (molecules, 3), float64
        Where each molecule's centroid (over its particles listed here) was at the start, in nm.
    """

    def __init__(self, energy: nn.Module, particles: Tensor, molecules: Tensor, references: Tensor) -> None:
        super().__init__()
        self.energy = energy
        self.register_buffer("particles", particles)
        self.register_buffer("molecules", molecules)
        self.register_buffer("references", references)
        self.register_buffer("counts", torch.bincount(molecules).to(torch.float64)[:, None])
        neighbours = torch.cartesian_prod(*[torch.tensor([0.0, -1.0, 1.0], dtype=torch.float64)] * 3)
        self.register_buffer("neighbours", neighbours)

    @torch.jit.export
    def whole(self, positions: Tensor, box: Tensor) -> Tensor:
        """Give the positions of the particles, whole molecules beside their reference points."""
        selected = positions.index_select(0, self.particles)
        centroids = torch.zeros_like(self.references).index_add(0, self.molecules, selected.to(torch.float64))
        away = self.references - centroids / self.counts
        lattice = box.to(torch.float64)
        # Rounding each coordinate is right up to one step in a skewed box; the nearest of the 27 around it is exact.
        steps = torch.round(away @ torch.linalg.inv_ex(lattice)[0])
        candidates = steps[:, None, :] + self.neighbours[None, :, :]
        distance = ((away[:, None, :] - candidates @ lattice) ** 2).sum(dim=2)
        nearest = distance.argmin(dim=1)
        best = steps + self.neighbours.index_select(0, nearest)
        return selected + (best @ lattice).index_select(0, self.molecules).to(selected.dtype)

    def forward(self, positions: Tensor, box: Tensor, strength: Tensor) -> tuple[Tensor, Tensor]:
        """Give energy and forces for positions (N, 3) and box vectors (3, 3, in rows) in nm."""
        with torch.no_grad():
            device = self.particles.device
            whole = self.whole(positions.detach().to(device), box.detach().to(device))
        energy, forces = self.energy(whole, strength)
        with torch.no_grad():
            scattered = torch.zeros_like(positions).index_copy(
                0, self.particles.to(positions.device), forces.to(positions)
            )
        return energy, scattered


class PlanarityEnergy(nn.Module):
    """E = k · kT · Σ ½ (d/σ)²: the negative log likelihood of the atoms' distances from their planes.

    Parameters
    ----------
    planes : Planes
        From `openmm_density.kernels.planarity.pack_planes`, with σ in nm.
    thermal_energy : float
        kT in kJ/mol.
    constants : bool
        Whether E also holds Σ (ln σ + ½ ln 2π), σ in nm. Without it flat planes have no energy.
    """

    def __init__(self, planes: Planes, thermal_energy: float, constants: bool = False) -> None:
        super().__init__()
        self.register_buffer("members", planes.members)
        self.register_buffer("offsets", planes.offsets)
        self.register_buffer("inverse_sigmas", planes.inverse_sigmas)
        self.register_buffer("atom_offsets", planes.atom_offsets)
        self.register_buffer("atom_members", planes.atom_members)
        self.thermal_energy = thermal_energy
        self.constants = constants

    def forward(self, positions: Tensor, strength: Tensor) -> tuple[Tensor, Tensor]:
        """Give energy (kJ/mol) and forces (kJ/mol/nm) for positions (N, 3) in nm and the factor k."""
        # Outside of no_grad for the reason given in SimilarityEnergy.
        k = strength.reshape(()).to(torch.float64)
        with torch.no_grad():
            likelihood, gradient = torch.ops.openmm_density.planarity(
                positions.detach().to(self.members.device),
                self.members,
                self.offsets,
                self.inverse_sigmas,
                self.atom_offsets,
                self.atom_members,
                self.constants,
            )
            forces = (gradient * (-self.thermal_energy * k).to(gradient)).to(positions.device)
            energy = (self.thermal_energy * likelihood).to(k.device)
        return k * energy, forces


class WholePlanes(nn.Module):
    """An energy of planes whose atoms may be in different molecules, which a periodic System wraps each on its own.

    Every member is taken at its image beside the first member of its plane: the nearest one, as long as a plane is smaller than
    half the width of the box.

    Parameters
    ----------
    energy : Module
        ``energy(positions, strength)`` of the members, by their place in ``members``.
    members : Tensor, shape (M,), int64
        The particle of each member of each plane.
    anchors : Tensor, shape (M,), int64
        The particle that is its plane's first member.
    """

    def __init__(self, energy: nn.Module, members: Tensor, anchors: Tensor) -> None:
        super().__init__()
        self.energy = energy
        self.register_buffer("members", members)
        self.register_buffer("anchors", anchors)

    def forward(self, positions: Tensor, box: Tensor, strength: Tensor) -> tuple[Tensor, Tensor]:
        """Give energy and forces for positions (N, 3) and box vectors (3, 3, in rows) in nm."""
        with torch.no_grad():
            own = positions.detach().to(self.members.device)
            lattice = box.detach().to(own.device, torch.float64)
            selected = own.index_select(0, self.members)
            away = (selected - own.index_select(0, self.anchors)).to(torch.float64)
            images = torch.round(away @ torch.linalg.inv_ex(lattice)[0])
            whole = selected - (images @ lattice).to(selected.dtype)
        energy, forces = self.energy(whole, strength)
        with torch.no_grad():
            summed = torch.zeros_like(own).index_add(0, self.members, forces)
        return energy, summed.to(positions.device)
