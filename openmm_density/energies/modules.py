"""The energies as TorchScript modules: positions in nm and a factor k in, (energy, forces) in kJ/mol and nm out.

The modules compute their forces themselves: operators run under ``no_grad``, and the energy is differentiable in k alone.
Operators without a formula for autograd would otherwise stop a process in which openmm-torch asks for the derivative with respect
to k.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from openmm_density.kernels import interpolation as _interpolation  # noqa: F401  (defines an operator, as does the next)
from openmm_density.kernels import molecules as _molecules  # noqa: F401
from openmm_density.kernels.density import target_moments
from openmm_density.kernels.planarity import Planes

from .measures import Measure
from .native_force.forms import evaluated_natively

# Two layers of zeros around a finite potential let the tricubic interpolation end with value and slope 0.
_POTENTIAL_PADDING = 2


class Grid(NamedTuple):
    """Where a grid of voxels is."""

    matrix: Tensor  # float64 (3, 3), its columns are the steps along x, y and z in nm
    origin: Tensor  # float64 (3,), where voxel (0, 0, 0) is, in nm
    periodic: bool  # Whether the grid is a crystal's cell


def inverse_of_box(lattice: Tensor) -> Tensor:
    """Invert box vectors (3, 3): by cross products, which no solver's library has to be called for while a graph is captured."""
    columns = torch.linalg.cross(lattice.roll(-1, 0), lattice.roll(-2, 0))
    volume = (lattice[0] * columns[0]).sum()
    return columns.t() / volume


def check_particle_count(positions: Tensor, n_particles: int, made: str) -> None:
    """Refuse positions of another number of particles than an energy was made for: it would act on the wrong ones."""
    if positions.shape[0] != n_particles:
        raise ValueError(
            f"{made} was made of a topology of {n_particles} atoms, but the System has {positions.shape[0]} particles: "
            "make it of the topology of the Simulation, such as modeller.topology, with all its particles."
        )


class SimilarityEnergy(nn.Module):
    """E = k · loss, where the loss is the distance of a similarity S from the largest that it can be.

    `atoms` int64 (M,): the particles that are fitted; `n_particles`: how many positions there are; `max_similarity`:
    see `openmm_density.energies.measures.Measure`.
    """

    def __init__(self, atoms: Tensor, n_particles: int, max_similarity: float) -> None:
        super().__init__()
        self.register_buffer("atoms", atoms)
        self.n_particles = n_particles
        self.max_similarity = max_similarity

    def similarity(self, positions: Tensor, scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return S and ∂S/∂positions (in nm⁻¹), times a factor if there is one."""
        raise NotImplementedError

    def move(self, displacement: Tensor) -> None:
        """Move the map by a displacement (3,) in nm."""
        self.origin = self.origin + displacement

    def forward(self, positions: Tensor, strength: Tensor) -> tuple[Tensor, Tensor]:
        """Return energy (kJ/mol) and forces (kJ/mol/nm) for positions (N, 3) in nm and k, the strength, in kJ/mol."""
        check_particle_count(positions, self.n_particles, "DensityFit")
        # Outside of no_grad, although used inside: freezing merges equal expressions, and would keep the one without gradient.
        k = strength.reshape(()).to(torch.float64)
        with torch.no_grad():
            device = self.atoms.device
            # The operator applies k: see kernels/scale.h.
            similarity, forces = self.similarity(positions.detach().to(device), k.to(device))
            forces = forces.to(positions.device)
            loss = (self.max_similarity - similarity).to(k.device)
        return k * loss, forces


@evaluated_natively("density", "openmm_density_similarity")
class DensityEnergy(SimilarityEnergy):
    """The similarity of the model's density and a target.

    `atoms` int64 (M,): the particles that are fitted; `n_particles`: see `SimilarityEnergy`; `amplitudes`, `exponents`
    float32 (M, C) in nm⁻³ and nm⁻²; `cutoff` in nm; `target` float32 (nz, ny, nx): NaN where a voxel does not count;
    `grid` of the target; `measure`: one that compares densities; `total_weight`: see
    `openmm_density.kernels.density.density_similarity`; `moments`: the target's, where they are known.
    """

    def __init__(
        self,
        atoms: Tensor,
        n_particles: int,
        amplitudes: Tensor,
        exponents: Tensor,
        cutoff: float,
        target: Tensor,
        grid: Grid,
        measure: Measure,
        total_weight: float,
        moments: Tensor | None = None,
    ) -> None:
        super().__init__(atoms, n_particles, measure.max_similarity)
        self.register_buffer("amplitudes", amplitudes)
        self.register_buffer("exponents", exponents)
        self.register_buffer("target", target.contiguous())
        self.register_buffer("moments", target_moments(target) if moments is None else moments)
        self.register_buffer("matrix", grid.matrix)
        self.register_buffer("origin", grid.origin)
        self.cutoff = cutoff
        self.periodic = grid.periodic
        self.measure = measure.number
        self.total_weight = total_weight

    @torch.jit.export
    def similarity(self, positions: Tensor, scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return S and ∂S/∂positions (in nm⁻¹), times a factor if there is one."""
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
            scale,
        )


@evaluated_natively("interpolation", "openmm_density_map_potential")
class MapPotentialEnergy(SimilarityEnergy):
    """The weighted mean over the atoms of a map that is scaled to 0…1 and interpolated (the potential of MDFF).

    `atoms` int64 (M,). `n_particles`: see `SimilarityEnergy`. `weights` float32 (M,). `potential` float32 (nz, ny, nx):
    the map after clamping and scaling. Around a finite one come zeros, so that no force acts outside. `grid` of the
    potential. `measure`: that whose potential it is.
    """

    def __init__(
        self,
        atoms: Tensor,
        n_particles: int,
        weights: Tensor,
        potential: Tensor,
        grid: Grid,
        measure: Measure,
    ) -> None:
        super().__init__(atoms, n_particles, measure.max_similarity)
        padding = 0 if grid.periodic else _POTENTIAL_PADDING
        self.register_buffer("weights", weights)
        self.register_buffer("potential", nn.functional.pad(potential, (padding,) * 6).contiguous())
        self.register_buffer("matrix", grid.matrix)
        self.register_buffer(
            "origin", grid.origin - grid.matrix @ torch.full((3,), float(padding), dtype=torch.float64)
        )
        self.periodic = grid.periodic

    @torch.jit.export
    def similarity(self, positions: Tensor, scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return S and ∂S/∂positions (in nm⁻¹), times a factor if there is one."""
        return torch.ops.openmm_density.map_potential(
            positions,
            self.atoms,
            self.weights,
            self.potential,
            self.matrix,
            self.origin,
            self.periodic,
            scale,
        )


@evaluated_natively("molecules", "openmm_density_whole_molecules")
class WholeMolecules(nn.Module):
    """An energy for a periodic system whose positions may come wrapped, molecule by molecule, into the box.

    Each molecule is shifted by the lattice vector that brings its centroid nearest to a reference point, so that wrapping
    changes nothing. A shift leaves forces as they are. `energy`: ``energy(positions, strength)`` of the ``particles`` alone,
    by their index in that list; `particles` int64 (M,): the particles that the energy needs; `n_particles`: how many positions
    there are; `molecules` int64 (M,): the number of each one's molecule, from 0; `references` float64 (molecules, 3): where
    each molecule's centroid (over its particles listed here) was at the start, in nm.
    """

    def __init__(
        self,
        energy: nn.Module,
        particles: Tensor,
        n_particles: int,
        molecules: Tensor,
        references: Tensor,
    ) -> None:
        super().__init__()
        self.energy = energy
        self.n_particles = n_particles
        self.all_particles = bool(torch.equal(particles.cpu(), torch.arange(n_particles)))
        self.register_buffer("particles", particles)
        self.register_buffer("order", molecules.argsort(stable=True))
        self.register_buffer(
            "offsets", torch.cat([molecules.new_zeros(1), torch.bincount(molecules).cumsum(0)])
        )
        self.register_buffer("references", references)

    @torch.jit.export
    def whole(self, positions: Tensor, box: Tensor) -> Tensor:
        """Return the positions of the particles, whole molecules beside their reference points."""
        return torch.ops.openmm_density.whole_molecules(
            positions, self.particles, self.order, self.offsets, self.references, box
        )

    def forward(self, positions: Tensor, box: Tensor, strength: Tensor) -> tuple[Tensor, Tensor]:
        """Return energy and forces for positions (N, 3) and box vectors (3, 3, in rows) in nm."""
        check_particle_count(positions, self.n_particles, "DensityFit")
        with torch.no_grad():
            device = self.particles.device
            whole = self.whole(positions.detach().to(device), box.detach().to(device))
        energy, forces = self.energy(whole, strength)
        with torch.no_grad():
            forces = forces.to(positions)
            if not self.all_particles:
                forces = torch.ops.openmm_density.among_all(
                    forces, self.particles.to(positions.device), positions.shape[0]
                )
        return energy, forces


@evaluated_natively("planarity", "openmm_density_planarity")
class PlanarityEnergy(nn.Module):
    """E = k · kT · Σ ½ (d/σ)²: the negative log likelihood of the atoms' distances from their planes.

    `planes` from `openmm_density.kernels.planarity.pack_planes`, with σ in nm. `n_particles`: how many positions there
    are. `thermal_energy`: kT in kJ/mol. `constants`: whether E also holds Σ (ln σ + ½ ln 2π), σ in nm. Without it flat
    planes have no energy.
    """

    def __init__(
        self, planes: Planes, n_particles: int, thermal_energy: float, constants: bool = False
    ) -> None:
        super().__init__()
        self.n_particles = n_particles
        self.register_buffer("members", planes.members)
        self.register_buffer("offsets", planes.offsets)
        self.register_buffer("inverse_sigmas", planes.inverse_sigmas)
        self.register_buffer("atom_offsets", planes.atom_offsets)
        self.register_buffer("atom_members", planes.atom_members)
        self.thermal_energy = thermal_energy
        self.constants = constants

    def forward(self, positions: Tensor, strength: Tensor) -> tuple[Tensor, Tensor]:
        """Return energy (kJ/mol) and forces (kJ/mol/nm) for positions (N, 3) in nm and the factor k, the strength."""
        check_particle_count(positions, self.n_particles, "PlanarityRestraint")
        # Outside of no_grad for the reason given in SimilarityEnergy.
        k = strength.reshape(()).to(torch.float64)
        with torch.no_grad():
            likelihood, forces = torch.ops.openmm_density.planarity(
                positions.detach().to(self.members.device),
                self.members,
                self.offsets,
                self.inverse_sigmas,
                self.atom_offsets,
                self.atom_members,
                self.constants,
                (-self.thermal_energy * k).to(self.members.device),
            )
            forces = forces.to(positions.device)
            energy = (self.thermal_energy * likelihood).to(k.device)
        return k * energy, forces


@evaluated_natively()
class WholePlanes(nn.Module):
    """An energy of planes whose atoms may be in different molecules, which a periodic System wraps each on its own.

    Every member is taken at its image beside the first member of its plane: the nearest one, as long as a plane is smaller
    than half the width of the box. `energy`: ``energy(positions, strength)`` of the members, by their index in ``members``;
    `n_particles`: how many positions there are; `members` int64 (M,): the particle of each member of each plane; `anchors`
    int64 (M,): the particle that is its plane's first member.
    """

    def __init__(self, energy: nn.Module, n_particles: int, members: Tensor, anchors: Tensor) -> None:
        super().__init__()
        self.energy = energy
        self.n_particles = n_particles
        self.register_buffer("members", members)
        self.register_buffer("anchors", anchors)
        particles, of_member, counts = torch.unique(members, return_inverse=True, return_counts=True)
        # The rows of each particle's members, padded with the row after the last one: a sum over them has one order on every
        # device, which adding by index does not.
        order = of_member.argsort(stable=True)
        column = torch.arange(len(members)) - (counts.cumsum(0) - counts)[of_member[order]]
        rows = torch.full((len(particles), int(counts.max()) if len(counts) else 0), len(members))
        rows[of_member[order], column] = order
        self.register_buffer("particles", particles)
        self.register_buffer("rows", rows)

    def forward(self, positions: Tensor, box: Tensor, strength: Tensor) -> tuple[Tensor, Tensor]:
        """Return energy and forces for positions (N, 3) and box vectors (3, 3, in rows) in nm."""
        check_particle_count(positions, self.n_particles, "PlanarityRestraint")
        with torch.no_grad():
            own = positions.detach().to(self.members.device)
            lattice = box.detach().to(own.device, torch.float64)
            selected = own.index_select(0, self.members)
            away = (selected - own.index_select(0, self.anchors)).to(torch.float64)
            images = torch.round(away @ inverse_of_box(lattice))
            whole = selected - (images @ lattice).to(selected.dtype)
        energy, forces = self.energy(whole, strength)
        with torch.no_grad():
            padded = torch.cat([forces, torch.zeros_like(forces[:1])])
            summed = padded[self.rows].sum(dim=1)
            scattered = torch.ops.openmm_density.among_all(summed.to(own), self.particles, own.shape[0])
        return energy, scattered.to(positions.device)


@evaluated_natively()
class ProbeEnergy(nn.Module):
    """E = k Σ x² of any particles, to see whether a way of adding forces works."""

    def forward(self, positions: Tensor, strength: Tensor) -> tuple[Tensor, Tensor]:
        """Return energy (kJ/mol) and forces (kJ/mol/nm) for positions (N, 3) in nm and k in kJ/mol/nm²."""
        k = strength.reshape(()).to(torch.float64)
        with torch.no_grad():
            square = (positions * positions).sum().to(torch.float64)
            forces = -2 * k.to(positions) * positions
        return k * square, forces.contiguous()
