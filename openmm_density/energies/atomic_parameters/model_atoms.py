"""The atoms of a model whose B factors and occupancies are refined: where they are, and which of them scatter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from openmm import app

from ...base.errors import InputError
from ...base.wording import named_atoms
from ...maps.density_map import DensityMap
from ...maps.grids import checked_positions
from ...models.chemistry.elements import is_hydrogen
from ...models.conformer_topology import FurtherConformers, PlacedConformers
from ...models.model import Model
from ...models.symmetry_operators import SymmetryOperators
from ..symmetry_mates import check_whole_cell
from .levels import BLevel, checked_atoms
from .masked_map import MaskedMap
from .refinement import Refinement
from .scatterers import Mates, Scatterers


@dataclass(frozen=True)
class ModelAtoms:
    """Atoms of a model."""

    topology: app.Topology  # Of N atoms
    positions: np.ndarray  # (N, 3), Å
    occupancies: np.ndarray  # (N,)
    scattering: np.ndarray  # int (M,), those that scatter: all with an element but hydrogens
    # int (N,), for each atom which of those that scatter it goes with: itself, or of a hydrogen the one that it is
    # bound to; -1 for none
    place: np.ndarray
    further: FurtherConformers | None = None  # What the last of these atoms are, where there are such
    operators: SymmetryOperators | None = None  # Of the copies of all of them, whose density is beside theirs

    @classmethod
    def of(
        cls,
        model: Model | app.Topology,
        positions: Any,
        occupancies: Any,
        conformers: PlacedConformers | None = None,
    ) -> ModelAtoms:
        """Return a model's atoms (or a topology's), those of conformers last: by default its alternates, moved with it."""
        is_model = isinstance(model, Model)
        topology = model.topology if is_model else model
        if positions is None:
            if not is_model:
                raise InputError(
                    "are needed with a topology",
                    argument="positions",
                    remedy="give them in Å, or give a Model",
                )
            positions = model.positions
        count = topology.getNumAtoms()
        positions = checked_positions(positions, count, topology)
        if occupancies is None:
            occupancies = model.occupancies if is_model else np.ones(count)
        occupancies = _checked_occupancies(occupancies, topology)
        if is_model and conformers is None:
            conformers = PlacedConformers.of_model(model, positions)
        if conformers is not None and len(conformers.others):
            topology, count = conformers.others.joined, count + len(conformers.others)
            positions = np.concatenate(
                [positions, checked_positions(conformers.positions, len(conformers.others))]
            )
            occupancies = np.concatenate([occupancies, conformers.occupancies])
        scattering = np.array(
            [atom.index for atom in topology.atoms() if atom.element is not None and not is_hydrogen(atom)],
            dtype=np.int64,
        )
        if not len(scattering):
            raise InputError(
                "the model has no atoms with an element, apart from hydrogens",
                remedy="give a model that has some",
            )
        place = np.full(count, -1)
        place[scattering] = np.arange(len(scattering))
        for a, b in topology.bonds():
            for light, heavy in ((a, b), (b, a)):
                if is_hydrogen(light) and not is_hydrogen(heavy):
                    place[light.index] = place[heavy.index]
        further = None if conformers is None else conformers.others
        return cls(topology, positions, occupancies, scattering, place, further)

    def with_copies(self, operators: SymmetryOperators | None, density_map: DensityMap) -> ModelAtoms:
        """Return the same atoms beside their copies in a map, or raise InputError where it is not of their crystal."""
        if operators is not None:
            check_whole_cell(operators, density_map)
        return replace(self, operators=operators)

    @property
    def n_own(self) -> int:
        """How many atoms are none of further conformers."""
        return len(self.positions) - (0 if self.further is None else len(self.further))

    def groups(self, given: Sequence[Sequence[int]] | None) -> Sequence[Sequence[int]] | None:
        """Return groups of the model's own atoms, by default its chains, with those of further conformers of the same atoms."""
        if self.further is None:
            return given
        if given is None:
            return self.further.chains()
        originals = self.further.originals
        return [
            np.concatenate([each, self.n_own + np.flatnonzero(np.isin(originals, each))])
            for each in (checked_atoms(members, self.n_own, "groups") for members in given)
        ]

    @property
    def scattering_positions(self) -> np.ndarray:
        """The positions (M, 3) in Å of those that scatter."""
        return self.positions[self.scattering]

    def masked(self, density_map: Any, resolution: float) -> MaskedMap:
        """Return what the atoms are compared with."""
        return MaskedMap(density_map, self.scattering_positions, resolution)

    def scatterers(self, masked: MaskedMap, largest_b: float, scattering: str) -> Scatterers:
        """Return the atoms as they scatter in a map."""
        atoms = list(self.topology.atoms())
        elements = [atoms[index].element.symbol for index in self.scattering]
        mates = None
        if self.operators is not None:
            mates = Mates.of(
                self.operators, self.scattering_positions, masked.margin, self.occupancies[self.scattering]
            )
        return Scatterers(elements, self.scattering_positions, masked, largest_b, scattering, mates)

    def of_all(self, values: np.ndarray, others: float | np.ndarray) -> np.ndarray:
        """Return a value for each atom (N,) from those of what scatters (M,); others have a value of their own."""
        return np.where(self.place >= 0, values[self.place], others)


def prepared_refinement(
    atoms: ModelAtoms,
    masked: MaskedMap,
    level: BLevel,
    bounds: tuple[float, float],
    scattering: str,
    solvent: bool,
    **options: Any,
) -> Refinement:
    """Return the refinement of a model's atoms in a map."""
    scatterers = atoms.scatterers(masked, min(bounds[1], LARGEST_IN_FULL), scattering)
    occupancies = atoms.occupancies[atoms.scattering]
    if solvent:
        masked.displace(scatterers.displaced(occupancies))
    return Refinement(masked, scatterers, level, bounds, occupancies, **options)


LARGEST_IN_FULL = 200.0
"""Å²: the densities of atoms with larger B factors are cut off nearer than others, which saves most of the time."""


def checked_bounds(bounds: Sequence[float]) -> tuple[float, float]:
    """Return the least and the largest B factor in Å², or raise InputError where these are none."""
    try:
        low, high = (float(value) for value in bounds)
    except (TypeError, ValueError):
        low = high = np.nan
    if not 0 < low < high < np.inf:
        raise InputError(
            "must be two positive B factors in Å², the lesser first",
            argument="bounds",
            found=repr(bounds),
            remedy="give a pair such as (1, 500)",
        )
    return low, high


def _checked_occupancies(occupancies: Any, topology: app.Topology) -> np.ndarray:
    values = np.asarray(occupancies, dtype=np.float64)
    if values.shape != (topology.getNumAtoms(),):
        raise InputError(
            f"must be one for each of the {topology.getNumAtoms()} atoms",
            argument="occupancies",
            found=f"an array of shape {values.shape}",
            remedy="give as many",
        )
    wrong = np.flatnonzero(~((values >= 0) & (values <= 1)))
    if len(wrong):
        raise InputError(
            "must be from 0 to 1",
            argument="occupancies",
            found=f"{values[wrong[0]]:g} of {named_atoms(topology, wrong)}",
            remedy="correct these in the model",
        )
    return values
