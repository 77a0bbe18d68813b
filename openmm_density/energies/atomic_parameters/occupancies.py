"""`OccupancyRefinement`: the occupancies of groups of atoms in a map, such as ligands, waters and alternative conformers."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from openmm import app

from ...base.errors import InputError
from ...base.units import resolution_in_angstrom, takes_units
from ...base.wording import residue_label
from ...maps.checks import check_map, check_resolution
from ...maps.density_map import DensityMap
from ...models.chemistry.elements import is_hydrogen
from ...models.chemistry.residues import residue_kind
from ...models.conformer_topology import PlacedConformers
from ...models.model import Model
from ...models.symmetry_operators import SymmetryOperators
from .b_factors import BOUNDS
from .information import occupancy_deviations
from .levels import b_level, checked_atoms
from .model_atoms import ModelAtoms, checked_bounds, prepared_refinement
from .refinement import OccupancyGroups, Refined, Refinement

KINDS = ("ligands", "waters", "side-chains")
_ROUNDS, _AT_REST = 4, 0.01
_BACKBONE = frozenset(("N", "CA", "C", "O", "OXT", "CB"))


@dataclass(frozen=True)
class Occupancies:
    """Refined occupancies.

    Attributes
    ----------
    values : dict of str to float
        Of each group, by its name.
    deviations : dict of str to float
        Their standard deviations, were the model right.
    occupancies : np.ndarray, shape (N,)
        Of every atom; those in no group keep theirs.
    b_factors : np.ndarray, shape (N,)
        Å²: those that were refined beside, one for each residue, as a group's B factor and occupancy are known together only.
    cc_given, cc : float
        Correlations as in `BFactors`, with the occupancies of the model and refined, both with refined B factors.
    seconds : float
        Of processor time.
    notes : list of str
        What is to be known of it, one sentence each.
    of_conformers : np.ndarray, shape (K,)
        Of the atoms of further conformers.
    """

    values: dict[str, float]
    deviations: dict[str, float]
    occupancies: np.ndarray
    b_factors: np.ndarray
    cc_given: float
    cc: float
    seconds: float
    notes: list[str] = field(default_factory=list)
    of_conformers: np.ndarray = field(default_factory=lambda: np.empty(0))

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings and lists, without the values by atom."""
        return {
            "values": dict(self.values),
            "deviations": dict(self.deviations),
            "cc_given": self.cc_given,
            "cc": self.cc,
            "processor_seconds": self.seconds,
            "notes": list(self.notes),
        }


class OccupancyRefinement:
    """Refine the occupancies of groups of atoms, which stay where they are, against a map.

    A B factor for each residue is refined beside, held alike with those of what it touches: a weak density is one of few copies
    where the surroundings are sharp, and of mobile ones where they are not.

    Parameters
    ----------
    model : Model or openmm.app.Topology
        With bonds. Hydrogens do not scatter here; they have the occupancy of what they are bound to.
    density_map : DensityMap
    resolution : float or Quantity
        Of the map, in Å.
    groups : mapping of str to sequence of int, sequence of these, or str
        The atoms of each group, by its name or in order; or some of "ligands", "waters" and "side-chains", separated by commas:
        each of these is a group of its own.
    positions, occupancies
        As of `openmm_density.energies.atomic_parameters.BFactorRefinement`; the latter are where the refinement starts.
    alternatives : sequence of sequence
        Sets of groups, by name or number, whose occupancies have the sum 1: conformers of one residue.
    bounds : tuple of float
        The least and the largest B factor in Å².
    scattering : {"electron", "xray"}
        Form factors.
    solvent : bool
        Whether the model displaces solvent.
    conformers : PlacedConformers, optional
        As of `BFactorRefinement`; in groups their atoms are numbered behind those of the model.

    Raises
    ------
    InputError
        One sentence naming the argument, what was found and what to do.
    """

    @takes_units("resolution", "positions", bounds="Å²")
    def __init__(
        self,
        model: Model | app.Topology,
        density_map: DensityMap,
        resolution: Any,
        groups: Mapping[str, Sequence[int]] | Sequence[Sequence[int]] | str,
        *,
        positions: Any = None,
        occupancies: Any = None,
        alternatives: Sequence[Sequence[str | int]] = (),
        bounds: tuple[float, float] = BOUNDS,
        scattering: str = "electron",
        solvent: bool = True,
        conformers: PlacedConformers | None = None,
    ) -> None:
        check_map(density_map)
        self.resolution = resolution_in_angstrom(resolution)
        check_resolution(density_map, self.resolution)
        self.bounds = checked_bounds(bounds)
        self.atoms = ModelAtoms.of(model, positions, occupancies, conformers)
        topology = self.atoms.topology
        if isinstance(groups, str):
            groups = occupancy_groups(model.topology if isinstance(model, Model) else model, groups)
        elif not isinstance(groups, Mapping):
            groups = {str(number): members for number, members in enumerate(groups)}
        self.groups = {
            name: checked_atoms(members, topology.getNumAtoms(), "groups") for name, members in groups.items()
        }
        self._alternatives = _numbered(alternatives, list(self.groups))
        self._check_apart()
        self._map, self._scattering, self._solvent = density_map, scattering, solvent

    def with_copies(self, operators: SymmetryOperators | None) -> OccupancyRefinement:
        """Return the same refinement in the density of all copies of the model, whose atoms are as those of the model.

        See `openmm_density.energies.atomic_parameters.BFactorRefinement.with_copies`.
        """
        result = copy.copy(self)
        result.atoms = self.atoms.with_copies(operators, self._map)
        return result

    def refine(self) -> Occupancies:
        """Refine, and say how well what was found is determined."""
        begun = time.process_time()
        atoms = self.atoms
        masked = atoms.masked(self._map, self.resolution)
        level = b_level("residue", atoms.topology, atoms.positions, atoms.scattering)
        members = [np.unique(atoms.place[each][atoms.place[each] >= 0]) for each in self.groups.values()]
        empty = [name for name, each in zip(self.groups, members) if not len(each)]
        if empty:
            raise InputError(
                "must each hold an atom other than hydrogen",
                argument="groups",
                found=f'"{empty[0]}"',
                remedy="leave it out",
            )
        groups = OccupancyGroups(members, self._alternatives)
        refinement = prepared_refinement(
            atoms, masked, level, self.bounds, self._scattering, self._solvent, groups=groups
        )
        found = self._found(refinement)
        b_factors = refinement.b_factors(found.logarithms)
        deviations = occupancy_deviations(refinement, found, atoms.scattering_positions)
        given = refinement.compare(b_factors, atoms.occupancies[atoms.scattering])
        # All atoms of a group go with it, those of no density too.
        occupancies = atoms.occupancies.copy()
        for each, value in zip(members, found.occupancies):
            occupancies[np.isin(atoms.place, each)] = value
        values = {name: float(value) for name, value in zip(self.groups, found.occupancies)}
        return Occupancies(
            values,
            {name: float(value) for name, value in zip(self.groups, deviations)},
            occupancies[: atoms.n_own],
            atoms.of_all(b_factors, float(np.median(b_factors)))[: atoms.n_own],
            given.cc,
            found.agreement.cc,
            time.process_time() - begun,
            [
                f"{name} has no density of its own in the map (occupancy {value:.2f})."
                for name, value in values.items()
                if value < 0.1
            ],
            occupancies[atoms.n_own :],
        )

    def _found(self, refinement: Refinement) -> Refined:
        """Refine, round by round with the solvent that the atoms displace by the occupancies found before."""
        start = refinement.uniform()
        found = refinement.run(start)
        for _ in range(_ROUNDS if self._solvent else 0):
            before = found.occupancies
            occupied = refinement.occupancies(before)
            refinement.masked.displace(refinement.scatterers.displaced(occupied))
            found = refinement.run(start, found)
            if np.abs(found.occupancies - before).max() < _AT_REST:
                break
        return found

    def _check_apart(self) -> None:
        """Refuse no groups, and groups that share atoms."""
        if not self.groups:
            raise InputError("must hold at least one", argument="groups", remedy="give the atoms of one")
        seen = np.zeros(self.atoms.topology.getNumAtoms(), dtype=bool)
        for name, members in self.groups.items():
            if seen[members].any():
                raise InputError(
                    "must not share atoms",
                    argument="groups",
                    found=f'atom {int(members[seen[members]][0])} in "{name}" and in another',
                    remedy="leave it in one",
                )
            seen[members] = True


def occupancy_groups(topology: app.Topology, kinds: str) -> dict[str, np.ndarray]:
    """Return the atoms of what has an occupancy of its own, by its name as in ``A HEM 142``."""
    names = [name.strip() for name in kinds.split(",")]
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise InputError(
            f"must be some of {', '.join(KINDS)}",
            argument="occupancies",
            found=f'"{unknown[0]}"',
            remedy="choose of these, separated by commas",
        )
    wanted = {"ligands": "other", "waters": "water", "side-chains": "polymer"}
    kinds_wanted = {wanted[name] for name in names}
    groups: dict[str, list[int]] = {}
    for residue in topology.residues():
        kind = residue_kind(residue)
        if kind not in kinds_wanted:
            continue
        atoms = list(residue.atoms())
        if kind == "polymer":
            hydrogens = {"H", "HA", "H1", "H2", "H3", "HB", "HA2", "HA3", "HB1", "HB2", "HB3", "HXT"}
            atoms = [atom for atom in atoms if atom.name not in _BACKBONE | hydrogens]
        if any(atom.element is not None and not is_hydrogen(atom) for atom in atoms):
            label = residue_label(residue)
            groups.setdefault(label if label not in groups else f"{label} ({residue.index})", []).extend(
                atom.index for atom in atoms
            )
    if not groups:
        raise InputError(
            f"the model has none of what it asks for ({', '.join(names)})",
            argument="occupancies",
            remedy="leave it out",
        )
    return {name: np.array(members) for name, members in groups.items()}


def _numbered(alternatives: Sequence[Sequence[str | int]], names: list[str]) -> list[np.ndarray]:
    """Return sets of groups by their numbers."""
    found = []
    for each in alternatives:
        numbers = []
        for group in each:
            number = names.index(group) if group in names else group
            if not isinstance(number, int) or not 0 <= number < len(names):
                raise InputError(
                    "must hold names or numbers of groups",
                    argument="alternatives",
                    found=repr(group),
                    remedy=f"give some, such as {names[:2]}",
                )
            numbers.append(number)
        found.append(np.array(numbers))
    flat = [number for each in found for number in each]
    if len(set(flat)) != len(flat) or any(len(each) < 2 for each in found):
        raise InputError(
            "must be sets of two or more groups, each group in one of them",
            argument="alternatives",
            found=repr([list(map(int, each)) for each in found]),
            remedy="give a list such as [[0, 1]]",
        )
    return found
