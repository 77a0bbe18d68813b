"""A trained PaiNN as a force of OpenMM: energy and forces of a molecule by the kernels of this package, without autograd."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence

import openmm
import torch
from torch import Tensor, nn

from openmm_density.kernels import messages as _messages  # noqa: F401  (defines an operator, as does the next)
from openmm_density.kernels import neighbors as _neighbors  # noqa: F401

from ..base.errors import InputError
from .forces import create_force
from .native_force.forms import evaluated_natively
from .painn_network import ANGSTROM_PER_NM, PaiNNNetwork

# Of more atoms, most pairs are beyond the cut-off: a list is made of the others at every step.
ALL_PAIRS_UP_TO = 100
# Of molecules; proteins have 100. Where a GPU's list is too short for what is pressed together, the energy is not a number.
_MOST_ATOMS_PER_NM3 = 250.0


@evaluated_natively()
class PaiNN(nn.Module):
    """Energy and forces of a molecule by trained networks; TorchScript can compile it.

    Parameters
    ----------
    networks : PaiNNNetwork or sequence of PaiNNNetwork
        One, or several of the same atoms whose mean is taken: a committee. Their weights are copied, as float32.
    particles : sequence of int, optional
        The particles of the System that are the networks' atoms, in their order; all of it by default. The molecule is taken as
        it lies: in a periodic box, in one piece.

    Raises
    ------
    InputError
        If there is no network, networks are of different atoms, or particles are not as many different ones as there are atoms.

    Examples
    --------
    >>> energy = PaiNN(network, particles=[atom.index for atom in ligand.atoms()])
    >>> system.addForce(energy.create_force())
    """

    def __init__(
        self, networks: PaiNNNetwork | Sequence[PaiNNNetwork], particles: Sequence[int] | None = None
    ) -> None:
        super().__init__()
        networks = [networks] if isinstance(networks, nn.Module) else list(networks)
        _check_networks(networks)
        n_atoms = len(networks[0].elements)
        self.register_buffer("particles", _indices(particles, n_atoms))
        self.n_atoms = n_atoms
        self.takes_all = particles is None
        self.n_particles = n_atoms if self.takes_all else int(self.particles.max()) + 1
        self.members = nn.ModuleList(CommitteeMember(network) for network in networks)

    def forward(self, positions: Tensor, strength: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the energy and the forces, times a factor where one is given.

        Parameters
        ----------
        positions : Tensor, shape (N, 3), float32 or float64
            Of all particles, in nm.
        strength : Tensor, shape () or (1,), optional

        Returns
        -------
        energy : Tensor, shape (), float64
            In kJ/mol. It can be differentiated with respect to the factor alone.
        forces : Tensor, shape (N, 3), of the positions' type
            In kJ/mol/nm; 0 for other particles.
        """
        with torch.no_grad():
            if self.takes_all:
                if positions.shape[0] != self.n_atoms:
                    raise ValueError(
                        f"this PaiNN is of {self.n_atoms} atoms and was given no particles, but the System has "
                        f"{positions.shape[0]} particles: give PaiNN the argument particles, the indices of the molecule's atoms."
                    )
                own = positions
            else:
                if positions.shape[0] < self.n_particles:
                    raise ValueError(
                        f"the argument particles of this PaiNN has the index {self.n_particles - 1}, but the System has "
                        f"{positions.shape[0]} particles: give the indices of the molecule's atoms in this System."
                    )
                own = positions.index_select(0, self.particles)
            # On a GPU each operation on a few numbers takes a microsecond: there are none that change nothing.
            energies = torch.jit.annotate(list[Tensor], [])
            pushes = torch.jit.annotate(list[Tensor], [])
            for member in self.members:
                found, push = member(own)
                energies.append(found)
                pushes.append(push)
            energy, forces = energies[0], pushes[0]
            if len(energies) > 1:
                for i in range(1, len(energies)):
                    energy = energy + energies[i]
                    forces = forces + pushes[i]
                energy = energy / len(energies)
                forces = forces / len(energies)
            if not self.takes_all:
                forces = torch.zeros_like(positions).index_copy_(0, self.particles, forces)
            if strength is not None:
                forces = forces * strength.to(forces.dtype)
        if strength is not None:
            energy = strength.reshape([]) * energy
        return energy, forces

    def create_force(
        self,
        *,
        backend: str = "auto",
        force_group: int = 0,
        parameter_name: str = "painn_strength",
        parameter_derivative: bool = False,
    ) -> openmm.Force:
        """Return it as a force of OpenMM for a System that holds the particles.

        Parameters
        ----------
        backend : str
            As of `openmm_density.DensityFit.create_force`.
        force_group : int
        parameter_name : str
            Of the Context parameter by which energy and forces are multiplied, which is 1 at first.
        parameter_derivative : bool
            Whether a State can give the energy's derivative by that parameter, as a free energy calculation needs it.

        Raises
        ------
        InputError
            If the backend is unknown, does not work here, or has no derivatives.
        """
        return create_force(
            self,
            parameter_name,
            1.0,
            periodic=False,
            name="PaiNN",
            backend=backend,
            force_group=force_group,
            parameter_derivative=parameter_derivative,
        )


@evaluated_natively("messages", "openmm_density_painn")
class CommitteeMember(nn.Module):
    """One network's weights, as the operator takes them, and its pairs."""

    def __init__(self, network: PaiNNNetwork) -> None:
        super().__init__()
        n = len(network.elements)
        self.cutoff = network.cutoff
        self.all_pairs = n <= ALL_PAIRS_UP_TO
        self.capacity = _capacity(n, network.cutoff)
        self.scale = float(network.scale)
        self.constant = float(network.element_offsets[network.kinds].sum() + network.mean_energy)
        self.register_buffer("kinds", network.kinds.to(torch.int32).cpu().clone())
        # A list is not moved to a device, parameters are.
        self.weights = nn.ParameterList(
            nn.Parameter(weight, requires_grad=False) for weight in _weights_of(network)
        )
        others = torch.arange(n).expand(n, n)[~torch.eye(n, dtype=torch.bool)]
        if not self.all_pairs:
            others = others[:0]
        self.register_buffer("offsets", torch.arange(n + 1, dtype=torch.int32) * (n - 1))
        self.register_buffer("others", others.to(torch.int32).contiguous())
        self.register_buffer("no_shifts", torch.zeros_like(self.others))

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the energy in kJ/mol, float64, and forces in kJ/mol/nm, of positions (n, 3) in nm."""
        weights = torch.jit.annotate(list[Tensor], [])
        for weight in self.weights:
            weights.append(weight)
        offsets, others, shifts = self.offsets, self.others, self.no_shifts
        complete = True
        status = offsets
        if not self.all_pairs:
            # A list without a capacity waits for the device, which a recorded graph cannot.
            capacity = self.capacity if positions.is_cuda else None
            offsets, others, shifts, status = torch.ops.openmm_density.neighbors(
                positions, None, self.cutoff, True, capacity
            )
            complete = not positions.is_cuda
        energy, gradient = torch.ops.openmm_density.painn(
            positions, None, offsets, others, shifts, self.kinds, weights, self.cutoff
        )
        energy = self.scale * energy + self.constant
        forces = -self.scale * gradient
        if not complete:  # dynamics that asks for forces alone must not go on with some pairs missing
            lost = status[0] > self.capacity
            energy = torch.where(lost, torch.full_like(energy, math.nan), energy)
            forces = torch.where(lost, torch.full_like(forces, math.nan), forces)
        return energy, forces


def _weights_of(network: PaiNNNetwork) -> list[Tensor]:
    """Return a network's weights in the order of `openmm_density.kernels.messages.painn`."""

    def dense(layer: nn.Linear) -> list[Tensor]:
        return [layer.weight.t(), layer.weight, *([] if layer.bias is None else [layer.bias])]

    first, _, last = network.readout
    found = [network.embedding.weight, *dense(first), last.weight[0], last.bias]
    for layer in network.layers:
        # The kernels' functions are of r in the positions' unit.
        rows = torch.cat([layer.filter.weight.t() / ANGSTROM_PER_NM, layer.filter.bias[None]])
        found += [*dense(layer.message[0]), *dense(layer.message[2]), rows]
        found += [*dense(layer.mix), *dense(layer.update[0]), *dense(layer.update[2])]
    return [each.detach().to("cpu", torch.float32, copy=True).contiguous() for each in found]


def _capacity(n_atoms: int, cutoff: float) -> int:
    """Return for how many pairs, both ways, a list has room."""
    neighbors = min(n_atoms - 1, math.ceil(4 / 3 * math.pi * cutoff**3 * _MOST_ATOMS_PER_NM3))
    return max(1, n_atoms * neighbors)


def _check_networks(networks: list[PaiNNNetwork]) -> None:
    others = [network for network in networks if not isinstance(network, PaiNNNetwork)]
    if others:
        raise InputError(
            "must be a PaiNNNetwork, or several",
            argument="networks",
            found=type(others[0]).__name__,
            remedy="build them by PaiNNNetwork(...), PaiNNNetwork.from_tensors(...) or the networks() of a ligand's potential",
        )
    if not networks or any(network.elements != networks[0].elements for network in networks):
        raise InputError(
            "must be one or more networks of the same atoms",
            argument="networks",
            found=", ".join(f"one of {len(network.elements)} atoms" for network in networks) or "none",
            remedy="give the members of one committee",
        )


def _indices(particles: Sequence[int] | None, n_atoms: int) -> Tensor:
    """Return the particles as a tensor, after checking them; empty for all."""
    if particles is None:
        return torch.zeros(0, dtype=torch.int64)
    given = list(particles)
    others = [particle for particle in given if not isinstance(particle, numbers.Integral)]
    if others:
        raise InputError(
            "must be indices of particles, whole numbers from 0",
            argument="particles",
            found=type(others[0]).__name__,
            remedy="give a list such as [atom.index for atom in residue.atoms()]",
        )
    found = torch.tensor([int(particle) for particle in given], dtype=torch.int64)
    negative = found[found < 0].tolist()
    if len(found) != n_atoms or len(found.unique()) != n_atoms or negative:
        raise InputError(
            f"must be {n_atoms} different indices, one for each atom of the network",
            argument="particles",
            found=negative[0] if negative else f"{len(found)}, of which {len(found.unique())} are different",
            remedy="give them in the order of the network's elements",
        )
    return found
