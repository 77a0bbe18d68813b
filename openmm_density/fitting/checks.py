"""What a fit is refused for before it begins: it would be found out late, or never."""

from __future__ import annotations

from ..chemistry.residues import residue_kind
from ..errors import InputError, as_argument
from ..maps.checks import check_resolution, widest_side
from ..maps.grids import check_finite_positions
from ..models.structures import Model
from ..validation.map_checks import check_map_units
from .fit_map import FitMap
from .protocols import Protocol


def check_seed(seed: int) -> None:
    """Refuse what OpenMM cannot count to; one less, as the noise of a barostat has the next seed."""
    if not 0 <= seed < 2**31 - 1:
        raise InputError(f"must be from 0 to {2**31 - 2}", argument="seed", found=seed, remedy="give another")


def check_start(model: Model, fit_map: FitMap) -> None:
    """Refuse what no fit can begin with.

    Raises
    ------
    InputError
        If the map is in nm, the model has no molecule or positions that are no numbers, or the map cannot have the resolution.
    """
    density_map = fit_map.density_map
    # Other errors would follow from a map in nm.
    check_map_units(density_map, model.topology, model.positions)
    check_finite_positions(model.positions, model.topology)
    kinds = ((residue_kind(residue), len(residue)) for residue in model.topology.residues())
    if all(kind == "water" or (kind == "other" and size == 1) for kind, size in kinds):
        raise InputError(
            "it holds no atoms but those of water and ions", source=model.path, remedy="give a molecule"
        )
    check_resolution(density_map, fit_map.resolution)


def check_pressures(protocol: Protocol, solvent: str) -> None:
    """Refuse pressures where there is no box."""
    if solvent != "water" and any(stage.pressure is not None for stage in protocol.stages):
        raise InputError(
            "a stage with a pressure needs a box of water", remedy=f"give {as_argument('solvent', 'water')}"
        )


def check_exchange(protocol: Protocol, solvent: str) -> None:
    """Refuse replicas in water: each would need a box of its own."""
    if solvent == "water" and any(stage.exchange for stage in protocol.stages):
        raise InputError(
            "replicas exchange without water around them",
            remedy=f"give {as_argument('solvent', 'gbn2')} or none, or another {as_argument('protocol')}",
        )


def check_resolutions(protocol: Protocol, fit_map: FitMap) -> None:
    """Refuse stages at a finer resolution than the map's, or one coarser than the map is wide."""
    resolution, side = fit_map.resolution, widest_side(fit_map.density_map)
    for stage in protocol.stages:
        if stage.resolution is not None and not resolution <= stage.resolution <= side:
            raise InputError(
                f"its resolution must be between those of the map, {resolution:g} Å, and of its width, {side:.0f} Å",
                source=f'stage "{stage.name}"',
                found=f"{stage.resolution:g} Å",
                remedy="give one between these, or leave it out",
            )


def checked_interval(name: str, steps: int, protocol: Protocol) -> int:
    """Check a number of steps between two events; at least one of them falls into a fit."""
    if steps < 1:
        raise InputError("must be at least 1 step", argument=name, found=steps, remedy="give more")
    if steps % protocol.density_interval:
        every = as_argument("density_interval")
        raise InputError(
            f"must be a multiple of {every}, which is {protocol.density_interval}",
            argument=name,
            found=steps,
            remedy=f"give one, or another {every}",
        )
    return min(steps, protocol.steps)
