"""What a fit is refused for before it begins: it would be found out late, or never."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import signature

from ..base.errors import InputError, as_argument, check_keywords
from ..energies.density_fit import DensityFit
from ..maps.checks import check_map, check_resolution, widest_side
from ..maps.density_map import DensityMap
from ..maps.grids import check_finite_positions
from ..models.chemistry.residues import residue_kind
from ..models.model import Model, check_model
from ..models.symmetry_operators import SymmetryOperators
from ..validation.map_checks import check_map_units
from .fit_map import FitMap
from .installed_extensions import answered, extension_options
from .protocols import Protocol

# Of the arguments of `DensityFit`, those that a fit sets itself.
_SET_BY_FITS = ("density_map", "topology", "resolution", "system", "positions", "force_group")


def check_arguments(
    fit: type, density_options: Iterable[str], density_map: DensityMap, **models: Model | None
) -> None:
    """Refuse arguments that a fit does not take, or of another kind, such as a model's path; ``model`` must be one."""
    own = [each.name for each in signature(fit).parameters.values() if each.kind is not each.VAR_KEYWORD]
    own += [name for name in signature(DensityFit).parameters if name not in _SET_BY_FITS]
    check_keywords(fit.__name__, density_options, [*own, *(option.name for option in extension_options())])
    for name, model in models.items():
        if model is not None or name == "model":
            check_model(model, name)
    check_map(density_map)


def check_mates(operators: SymmetryOperators | None, solvent: str) -> None:
    """Refuse symmetry mates in water, whose box is not the crystal's."""
    if operators is not None and solvent == "water":
        raise InputError(
            "is not for a unit with symmetry mates: they would overlap the water around it",
            argument="solvent",
            found=solvent,
            remedy='use "none", "obc" or "gbn2"',
        )


def check_start(model: Model, fit_map: FitMap) -> None:
    """Refuse what no fit can begin with."""
    density_map = fit_map.density_map
    # Other errors would follow from a map in nm.
    check_map_units(density_map, model.topology, model.positions)
    check_finite_positions(model.positions, model.topology)
    kinds = ((residue_kind(residue), len(residue)) for residue in model.topology.residues())
    if all(kind == "water" or (kind == "other" and size == 1) for kind, size in kinds):
        raise InputError("it holds only water and ions", source=model.path, remedy="give a molecule")
    check_resolution(density_map, fit_map.resolution)


def check_pressures(protocol: Protocol, solvent: str) -> None:
    """Refuse pressures where there is no box."""
    if solvent != "water" and any(stage.pressure is not None for stage in protocol.stages):
        raise InputError(
            "a stage with a pressure needs a box of water", remedy=f"give {as_argument('solvent', 'water')}"
        )


def check_driven(protocol: Protocol) -> None:
    """Refuse stages with replicas where no extension drives them."""
    if any(stage.exchange for stage in protocol.stages) and "exchange" not in answered():
        raise InputError(
            "replicas exchange by an extension of openmm-density that is not installed",
            remedy=f"install it, or take another {as_argument('protocol')}",
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
