"""The density forces of models side by side in one System: each is pulled into its own map, by its own strength."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import openmm
import torch
from torch import Tensor

from ..base.errors import InputError
from ..models.merging import MergedSystem
from . import forces
from .density_fit import DensityFit
from .modules import SimilarityEnergy
from .native_force import Computation, make_force
from .native_force.forms import evaluated_natively


@evaluated_natively()
class SideBySide(torch.nn.Module):
    """Σ k_i · loss_i over models whose positions come one after the other.

    On a GPU every model's kernels are launched in a stream of its own: recorded as a CUDA graph they are parallel branches, so
    that small models share the GPU. `energies` of each model, for its own positions alone.
    """

    def __init__(self, energies: Sequence[SimilarityEnergy]) -> None:
        super().__init__()
        self.energies = torch.nn.ModuleList(energies)
        self.sizes = [energy.n_particles for energy in energies]

    def forward(self, positions: Tensor, strengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return energy (kJ/mol) and forces (kJ/mol/nm) for positions (N, 3) in nm and k of each model in kJ/mol."""
        # Outside of no_grad for the reason given in SimilarityEnergy.
        k = strengths.to(torch.float64).reshape(-1)
        with torch.no_grad():
            own = torch.split(positions.detach(), self.sizes)
            if torch.jit.is_scripting() or not positions.is_cuda:
                losses, found = self._one_after_another(own, k.detach())
            else:
                losses, found = self._in_parallel(own, k.detach())
            forces = torch.cat(found)
        return (k * torch.stack(losses)).sum(), forces

    def _one_after_another(self, own: list[Tensor], k: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        losses: list[Tensor] = []
        found: list[Tensor] = []
        for i, energy in enumerate(self.energies):
            similarity, gradient = energy.similarity(own[i], k[i])
            losses.append(energy.max_similarity - similarity)
            found.append(gradient)
        return losses, found

    @torch.jit.unused
    def _in_parallel(self, own: list[Tensor], k: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        present = torch.cuda.current_stream(k.device)
        streams = [torch.cuda.Stream(k.device) for _ in self.sizes]
        losses: list[Tensor] = []
        found: list[Tensor] = []
        for i, energy in enumerate(self.energies):
            streams[i].wait_stream(present)
            with torch.cuda.stream(streams[i]):
                similarity, gradient = energy.similarity(own[i], k[i])
                losses.append(energy.max_similarity - similarity)
                found.append(gradient)
        for stream in streams:
            present.wait_stream(stream)
        return losses, found


def copy_parameter_names(fits: Sequence[DensityFit]) -> list[str]:
    """Return the Context parameter that holds the total k of each model, as ``density_strength_0``."""
    return [f"{fit.parameter_name}_{number}" for number, fit in enumerate(fits)]


def density_forces_of_copies(
    fits: Sequence[DensityFit], merged: MergedSystem, backend: str = "auto"
) -> list[openmm.Force]:
    """Build the forces that pull each of some merged models into its map."""
    if len(fits) != len(merged) or any(fit.periodic for fit in fits):
        raise InputError(
            "must be one fit for each merged System, and not periodic",
            argument="fits",
            found=f"{len(fits)} for {len(merged)}",
            remedy="make them for the Systems that were merged",
        )
    names = copy_parameter_names(fits)
    first = merged.first.tolist()
    if backend != "CudaGraphForce":
        return [
            density_force(_moved(fit, moved, fit.atoms + begin, first[-1]), fit, name, backend)
            for fit, moved, begin, name in zip(fits, merged.displacements, first, names)
        ]
    return [_graph_force(fits, merged, names)]


def _graph_force(fits: Sequence[DensityFit], merged: MergedSystem, names: Sequence[str]) -> openmm.Force:
    energies = [
        _moved(fit, moved, np.arange(len(fit.atoms)), len(fit.atoms))
        for fit, moved in zip(fits, merged.displacements)
    ]
    particles = np.concatenate([fit.atoms + begin for fit, begin in zip(fits, merged.first)])
    computation = Computation(SideBySide(energies), particles, False, len(fits))
    force = make_force(computation, names, [fit.default_strength for fit in fits])
    force.setForceGroup(fits[0].force_group)
    force.setName("DensityFit")
    return force


def density_force(
    module: torch.nn.Module, fit: DensityFit, parameter_name: str, backend: str = "auto"
) -> openmm.Force:
    """Build the force of a module that was made of a fit, for another System than the fit's own."""
    return forces.create_force(
        module,
        parameter_name,
        fit.default_strength,
        periodic=False,
        name="DensityFit",
        backend=backend,
        force_group=fit.force_group,
        parameter_derivative=False,
    )


def _moved(
    fit: DensityFit, displacement: np.ndarray, atoms: np.ndarray, n_particles: int
) -> SimilarityEnergy:
    """Return the energy of a fit whose map has been moved (nm), for fitted atoms of these numbers among so many."""
    energy = fit.module_for(torch.from_numpy(atoms), n_particles)
    energy.move(torch.from_numpy(displacement))
    return energy
