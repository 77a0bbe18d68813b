"""What a fit is refused for before it begins: it would be found out late, or never."""

from __future__ import annotations

from ..chemistry.residues import residue_kind
from ..errors import InputError
from ..maps.checks import check_resolution, widest_side
from ..maps.density_map import DensityMap
from ..maps.grids import check_finite_positions
from ..models.structures import Model
from .protocols import Protocol


def check_seed(seed: int) -> None:
    """Refuse what OpenMM cannot count to; one less, as the noise of a barostat has the next seed."""
    if not 0 <= seed < 2**31 - 1:
        raise InputError(f"seed must be from 0 to {2**31 - 2}, found {seed}.")


def check_start(model: Model, density_map: DensityMap, resolution: float) -> None:
    """Refuse models without a molecule or with positions that are no numbers, and resolutions (Å) that the map does not allow."""
    check_finite_positions(model.positions, model.topology)
    kinds = ((residue_kind(residue), len(residue)) for residue in model.topology.residues())
    if all(kind == "water" or (kind == "other" and size == 1) for kind, size in kinds):
        raise InputError(f"{model.path}: it holds no atoms but those of water and ions: give a molecule.")
    check_resolution(density_map, resolution)


def check_pressures(protocol: Protocol, solvent: str) -> None:
    """Refuse pressures where there is no box."""
    if solvent != "water" and any(stage.pressure is not None for stage in protocol.stages):
        raise InputError('a stage with a pressure needs a box of water: give solvent="water".')


def check_resolutions(protocol: Protocol, resolution: float, density_map: DensityMap) -> None:
    """Refuse stages at a finer resolution (Å) than the map's, or one coarser than the map is wide."""
    side = widest_side(density_map)
    for stage in protocol.stages:
        if stage.resolution is not None and not resolution <= stage.resolution <= side:
            raise InputError(
                f'stage "{stage.name}" asks for {stage.resolution:g} Å, but the map has {resolution:g} Å and is {side:.0f} Å '
                "wide: give a resolution between these, or leave it out."
            )


def checked_interval(name: str, steps: int, protocol: Protocol) -> int:
    """Check a number of steps between two events; at least one of them falls into a fit."""
    if steps < 1:
        raise InputError(f"{name} must be at least 1 step, found {steps}.")
    if steps % protocol.density_interval:
        raise InputError(
            f"{name} must be a multiple of density_interval, which is {protocol.density_interval}, found {steps}."
        )
    return min(steps, protocol.steps)
