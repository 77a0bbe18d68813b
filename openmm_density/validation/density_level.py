"""The level at which a map's surface is looked at first."""

from __future__ import annotations

from typing import Any

import numpy as np
from openmm import app

from ..maps.density_map import DensityMap
from ..maps.grids import checked_positions
from ..models.chemistry.elements import is_hydrogen

VOLUME_PER_MASS = 1.21
"""Å³ that a dalton of protein fills."""

# A heavy atom's mass with that of the hydrogens bound to it, over its own.
_WITH_HYDROGENS = 1.07
# Å from an atom within which its density lies.
_NEAR = 4.0
# From this resolution (Å) on a molecule fills its surface; at finer ones, down to half of it, the surface follows chains.
_FILLED_FROM, _LEAST_FILLED = 5.0, 0.5
# The part of the heavy atoms that may be outside the surface in finer maps, as ends of side chains are: 1.2 σ in PDB 3PQR.
_ATOMS_OUTSIDE = 0.15
# The least part of the way from the map's mean to the median density at the atoms.
_ABOVE_SOLVENT = 0.2
# A value that so many of the voxels near a model have is that of a mask.
_MASK = 0.1


def density_level(
    density_map: DensityMap, topology: app.Topology, positions: Any, resolution: float
) -> float:
    """Return the value above which as much of the map near a model lies as the model fills, and in fine maps most of its atoms.

    `positions` (N, 3) in Å. `resolution` in Å. At resolutions finer than 5 Å less of the molecule's volume is above the
    level, half of it at 2.5 Å, and no more than encloses 85% of its heavy atoms that are in the map: maps are noisy at
    the level that encloses all. What lies in a mask does not count. The level is at least a fifth of the way from the
    map's mean to the median density at the atoms: lower ones would seem to enclose a model that lies half in solvent.
    """
    positions = checked_positions(positions, topology.getNumAtoms(), topology)
    heavy = np.array(
        [atom.element is not None and not is_hydrogen(atom) for atom in topology.atoms()], dtype=bool
    )
    atoms = np.array([0.0 if atom.element is None else atom.element.mass._value for atom in topology.atoms()])
    mass = _WITH_HYDROGENS * float(atoms[heavy].sum())
    volume = VOLUME_PER_MASS * mass * float(np.clip(resolution / _FILLED_FROM, _LEAST_FILLED, 1))
    near = density_map.data[density_map.mask_around(positions[heavy], _NEAR)]
    if not near.size:
        near = density_map.data.reshape(-1)
    values, counts = np.unique(near, return_counts=True)
    masked = values[np.argmax(counts)] if counts.max() > _MASK * near.size else np.nan
    place = near.size - int(np.clip(volume / density_map.voxel_volume, 1, near.size))
    level = float(np.partition(near, place)[place])
    at_atoms = density_map.value_at(positions[heavy])
    at_atoms = at_atoms[np.isfinite(at_atoms) & (at_atoms != masked)]
    if not at_atoms.size:
        return level
    mean = float(density_map.data.mean(dtype=np.float64))
    level = max(level, mean + _ABOVE_SOLVENT * (float(np.median(at_atoms)) - mean))
    return level if resolution >= _FILLED_FROM else max(level, float(np.quantile(at_atoms, _ATOMS_OUTSIDE)))
