"""The energy of flat groups as a TorchScript module: from planes of atoms to the tables of the kernel."""

from __future__ import annotations

import numpy as np
import torch

from openmm_density.kernels.planarity import pack_planes

from ..base.units import ANGSTROM_PER_NANOMETER
from ..models.chemistry.planes import PlaneSet
from .modules import PlanarityEnergy, WholePlanes


def planarity_module(
    planes: PlaneSet, particles: np.ndarray, thermal_energy: float, *, constants: bool, periodic: bool
) -> torch.nn.Module:
    """Return the module of E = k · kT · Σ ½ (d/σ)², see `openmm_density.energies.modules.PlanarityEnergy`.

    ``module(positions, strength) -> (energy, forces)``, or ``module(positions, box, strength)``, where ``periodic``;
    in nm and kJ/mol.

    `particles` int (N,): whose positions the module takes, in rising order; they hold all members of planes.
    `thermal_energy`: kT in kJ/mol. `constants`: whether E also holds kT · Σ (ln σ + ½ ln 2π), with σ in nm.
    """
    groups = [
        (np.searchsorted(particles, atoms), sigmas / ANGSTROM_PER_NANOMETER)
        for atoms, sigmas in planes.grouped()
    ]
    if not periodic:
        packed = pack_planes(groups, len(particles))
        return PlanarityEnergy(packed, len(particles), thermal_energy, constants)
    members = np.concatenate([atoms.ravel() for atoms, _ in groups])
    anchors = np.concatenate([np.repeat(atoms[:, 0], atoms.shape[1]) for atoms, _ in groups])
    # The positions that the energy takes are those of the members, one after the other.
    first, own = 0, []
    for atoms, sigmas in groups:
        own.append((first + np.arange(atoms.size).reshape(atoms.shape), sigmas))
        first += atoms.size
    energy = PlanarityEnergy(pack_planes(own), len(members), thermal_energy, constants)
    return WholePlanes(energy, len(particles), torch.from_numpy(members), torch.from_numpy(anchors))
