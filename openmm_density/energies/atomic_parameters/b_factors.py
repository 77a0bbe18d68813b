"""`BFactorRefinement`: the isotropic B factors of a model in a map."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from openmm import app

from ...base.errors import InputError, as_argument
from ...base.units import resolution_in_angstrom, takes_units
from ...base.wording import residue_label
from ...maps.checks import check_map, check_resolution
from ...maps.density_map import DensityMap
from ...maps.half_maps import check_half_maps
from ...models.chemistry.elements import is_hydrogen
from ...models.conformer_topology import PlacedConformers
from ...models.model import Model
from ...models.symmetry_operators import SymmetryOperators
from .information import uncertainties
from .levels import ATOM_UP_TO, LEVELS, RESIDUE_UP_TO, BLevel, b_level, finest_level
from .masked_map import MaskedMap
from .model_atoms import ModelAtoms, checked_bounds, prepared_refinement

BOUNDS = (1.0, 500.0)
"""Å²."""


@dataclass(frozen=True)
class BFactors:
    """Refined B factors.

    Attributes
    ----------
    b_factors : np.ndarray, shape (N,)
        Å², of every atom: hydrogens have that of the atom that they are bound to.
    deviations : np.ndarray, shape (N,)
        Their standard deviations in Å²: how well map and restraints together determine them, were the model right, and how far
        they are from those that are refined without a solvent around the model.
    determined : np.ndarray, shape (N,)
        What of each is the map's, from 0 (the restraints alone) to 1.
    scattering : np.ndarray of int, shape (S,), optional
        The atoms but hydrogens, which means are of; all by default.
    of_conformers : np.ndarray, shape (K,)
        Å²: of the further conformers, such as the alternates of a Model, atom by atom.
    level : str
        "atom", "residue" or "group".
    uniform : float
        The one B factor of all atoms, in Å², with which the model agrees best with the map.
    cc_given, cc_uniform, cc : float
        The Pearson correlation over the voxels within 3 Å of the non-hydrogen atoms, of the map up to its resolution and the
        model's density with solvent contrast: with the B factors of the model (None where these are all alike), with the uniform
        one, and refined. The figure that is reported everywhere, `openmm_density.validation.correlation`, knows no B factors.
    scale, solvent : float
        Of the model's density to the map, and of the solvent that it displaces in that unit, 0 or less.
    n_refined : int
        How many different B factors were refined.
    iterations : int
    seconds : float
        Of processor time.
    half_maps : HalfMapCheck, optional
        What the other half map says, where there were two.
    notes : list of str
        What is to be known of it, one sentence each.
    """

    b_factors: np.ndarray
    deviations: np.ndarray
    determined: np.ndarray
    level: str
    uniform: float
    cc_given: float | None
    cc_uniform: float
    cc: float
    scale: float
    solvent: float
    n_refined: int
    iterations: int
    seconds: float
    half_maps: HalfMapCheck | None = None
    notes: list[str] = field(default_factory=list)
    of_conformers: np.ndarray = field(default_factory=lambda: np.empty(0))
    scattering: np.ndarray | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings and lists, without the values by atom; means are of the atoms but hydrogens."""
        counted = slice(None) if self.scattering is None else self.scattering
        b_factors = self.b_factors[counted]
        return {
            "level": self.level,
            "n_refined": self.n_refined,
            "uniform_b": self.uniform,
            "mean_b": float(b_factors.mean()),
            "least_b": float(b_factors.min()),
            "largest_b": float(b_factors.max()),
            "mean_b_deviation": float(self.deviations[counted].mean()),
            "mean_determined": float(self.determined[counted].mean()),
            "cc_given": self.cc_given,
            "cc_uniform": self.cc_uniform,
            "cc": self.cc,
            "scale": self.scale,
            "solvent": self.solvent,
            "iterations": self.iterations,
            "processor_seconds": self.seconds,
            "half_maps": None if self.half_maps is None else self.half_maps.as_dict(),
            "notes": list(self.notes),
        }


class BFactorRefinement:
    """Refine the isotropic B factors of a model, whose atoms stay where they are, against a map.

    Each B factor widens its atom's electron or X-ray form factor; the map is compared up to its resolution and near the model,
    with the best scale, offset and contrast of the solvent that the model displaces. Neighbours are held alike, and all about
    the best uniform B factor, the less firmly the more the map says. A B factor means what the map's own sharpening lets it mean:
    a map that was sharpened further has smaller ones. The same input gives the same bits.

    Parameters
    ----------
    model : Model or openmm.app.Topology
        With bonds. Hydrogens do not scatter here.
    density_map : DensityMap
    resolution : float or Quantity
        Of the map, in Å.
    positions : Quantity or array_like, shape (N, 3), optional
        Å where plain; those of the Model by default.
    level : {"auto", "atom", "residue", "group"}
        What has a B factor of its own. "auto" is the finest that the resolution supports (atoms up to 3.5 Å, residues up to 6 Å,
        then chains); with half maps, that of no finer level which raises the correlation with the other half most.
    groups : sequence of sequence of int, optional
        The atoms of each group of level "group"; by default those of each chain.
    bounds : tuple of float
        The least and the largest B factor in Å².
    occupancies : array_like, shape (N,), optional
        From 0 to 1; those of the Model by default, else 1.
    half_maps : tuple of DensityMap, optional
        Two half maps, to check that B factors refined in the one agree better with the other too.
    scattering : {"electron", "xray"}
        Form factors.
    solvent : bool
        Whether the model displaces solvent, whose contrast is found beside the scale.
    conformers : PlacedConformers, optional
        Further conformers of residues, with their parts of the density; of a Model by default its alternates, moved with it.

    Raises
    ------
    InputError
        One sentence naming the argument, what was found and what to do.

    Examples
    --------
    >>> refined = BFactorRefinement(read_model("model.pdb"), DensityMap.from_file("map.mrc"), 3.0).refine()
    >>> refined.b_factors, refined.cc_uniform, refined.cc
    """

    @takes_units("resolution", "positions", bounds="Å²")
    def __init__(
        self,
        model: Model | app.Topology,
        density_map: DensityMap,
        resolution: Any,
        *,
        positions: Any = None,
        level: str = "auto",
        groups: Sequence[Sequence[int]] | None = None,
        bounds: tuple[float, float] = BOUNDS,
        occupancies: Any = None,
        half_maps: Sequence[DensityMap] | None = None,
        scattering: str = "electron",
        solvent: bool = True,
        conformers: PlacedConformers | None = None,
    ) -> None:
        check_map(density_map)
        self.resolution = resolution_in_angstrom(resolution)
        check_resolution(density_map, self.resolution)
        if level not in ("auto", *LEVELS):
            raise InputError(
                f"must be auto, {', '.join(LEVELS[:-1])} or {LEVELS[-1]}",
                argument="level",
                found=f'"{level}"',
                remedy="choose one of these",
            )
        if groups is not None and level not in ("auto", "group"):
            raise InputError(
                f"is for {as_argument('level', 'group')}", argument="groups", remedy="leave it out"
            )
        self.bounds = checked_bounds(bounds)
        self.atoms = ModelAtoms.of(model, positions, occupancies, conformers)
        self._given = None
        if isinstance(model, Model) and model.known_b_factors.any():
            further = [] if self.atoms.further is None else self.atoms.further.alternates
            self._given = np.concatenate([model.b_factors, model.alternates.b_factors[further]])
        self._map, self._halves = density_map, half_maps
        self._wanted = "group" if groups is not None else level
        self._groups, self._scattering, self._solvent = groups, scattering, solvent

    def with_copies(self, operators: SymmetryOperators | None) -> BFactorRefinement:
        """Return the same refinement in the density of all copies of the model, whose atoms are as those of the model.

        Parameters
        ----------
        operators : SymmetryOperators, optional
            Of the copies; of a crystal, the map is that of its whole cell. None: there are none.

        Raises
        ------
        InputError
            If the map is not that of the operators' crystal.
        """
        result = copy.copy(self)
        result.atoms = self.atoms.with_copies(operators, self._map)
        return result

    def refine(self) -> BFactors:
        """Refine, and say how well what was found is determined."""
        begun = time.process_time()
        notes: list[str] = []
        name = finest_level(self.resolution) if self._wanted == "auto" else self._wanted
        check = None
        if self._halves is not None:
            check = self._checked_by_halves(name)
            if self._wanted == "auto":
                name = check.best
            notes += check.notes(name)
        elif name == "atom" and finest_level(self.resolution) != "atom":
            notes.append(
                f"A map at {self.resolution:g} Å is too coarse for a B factor of each atom: those of neighbours are mostly the "
                f"restraints' (residues are the finest level beyond {ATOM_UP_TO:g} Å)."
            )
        if name == "residue" and finest_level(self.resolution) == "group":
            notes.append(
                f"A map at {self.resolution:g} Å is too coarse for a B factor of each residue: those of neighbours are mostly "
                f"the restraints' (chains are the finest level beyond {RESIDUE_UP_TO:g} Å)."
            )
        return self._refined(name, check, notes, begun)

    def _refined(self, name: str, check: HalfMapCheck | None, notes: list[str], begun: float) -> BFactors:
        atoms = self.atoms
        masked = atoms.masked(self._map, self.resolution)
        level = self._level(name)
        refinement = prepared_refinement(atoms, masked, level, self.bounds, self._scattering, self._solvent)
        occupancies = atoms.occupancies[atoms.scattering]
        start = refinement.uniform()
        uniform = refinement.compare(np.full(len(atoms.scattering), start), occupancies)
        found = refinement.run(start)
        deviations, determined = uncertainties(refinement, found, atoms.scattering_positions)
        b_factors = refinement.b_factors(found.logarithms)
        group = level.group_of_atom
        notes += _bound_notes(b_factors, self.bounds)
        of_all, own = atoms.of_all(b_factors, start), atoms.n_own
        of_each = np.hypot(deviations[group], self._left_open(level, masked, b_factors))
        return BFactors(
            b_factors=of_all[:own],
            deviations=atoms.of_all(of_each, 0.0)[:own],
            determined=atoms.of_all(determined[group], 0.0)[:own],
            of_conformers=of_all[own:],
            scattering=atoms.scattering[atoms.scattering < own],
            level=name,
            uniform=start,
            cc_given=self._cc_given(refinement),
            cc_uniform=uniform.cc,
            cc=found.agreement.cc,
            scale=found.agreement.scale,
            solvent=found.agreement.solvent,
            n_refined=level.n_groups,
            iterations=found.iterations,
            seconds=time.process_time() - begun,
            half_maps=check,
            notes=notes,
        )

    def _left_open(self, level: BLevel, masked: MaskedMap, b_factors: np.ndarray) -> np.ndarray | float:
        """Return how far B factors (Å²) are from those without displaced solvent, which changes a map as wide atoms do."""
        if not self._solvent:
            return 0.0
        plain = prepared_refinement(
            self.atoms, masked.without_solvent(), level, self.bounds, self._scattering, solvent=False
        )
        found = plain.run(plain.uniform())
        return np.abs(plain.b_factors(found.logarithms) - b_factors)

    def _level(self, name: str) -> BLevel:
        atoms = self.atoms
        groups = atoms.groups(self._groups) if name == "group" else None
        return b_level(name, atoms.topology, atoms.positions, atoms.scattering, groups)

    def _cc_given(self, refinement: Any) -> float | None:
        """Return the correlation with the B factors of the model, where they are any."""
        if self._given is None:
            return None
        given = np.clip(np.nan_to_num(self._given[self.atoms.scattering]), *self.bounds)
        if np.ptp(given) < 1e-3:
            return None
        return refinement.compare(given, self.atoms.occupancies[self.atoms.scattering]).cc

    def _checked_by_halves(self, finest: str) -> HalfMapCheck:
        levels = LEVELS[LEVELS.index(finest) :] if self._wanted == "auto" else (finest,)
        made = [self._level(name) for name in levels]
        return check_levels(
            self.atoms, self._halves, self.resolution, made, self.bounds, self._scattering, self._solvent
        )


def _bound_notes(b_factors: np.ndarray, bounds: tuple[float, float]) -> list[str]:
    notes = []
    for bound, word in zip(bounds, ("least", "largest")):
        part = float(np.mean(np.abs(b_factors - bound) < 1e-3 * bound))
        if part > 0.05:
            notes.append(
                f"{100 * part:.0f}% of the atoms have the {word} B factor that is allowed, {bound:g} Å²: "
                + (
                    "the map may be sharpened too far."
                    if word == "least"
                    else "there may be no density where they are."
                )
            )
    return notes


@dataclass(frozen=True)
class LevelScore:
    """Correlations of a level refined in one half map, the mean of both ways round.

    Attributes
    ----------
    level : str
    work, free : float
        With the half map that it was refined in, and with the other.
    """

    level: str
    work: float
    free: float


@dataclass(frozen=True)
class HalfMapCheck:
    """What half maps say about the B factors of a model.

    Attributes
    ----------
    uniform : LevelScore
        With one B factor for all atoms.
    levels : list of LevelScore
        From the finest to the coarsest that was tried.
    """

    uniform: LevelScore
    levels: list[LevelScore]

    @property
    def best(self) -> str:
        """The level whose correlation with the other half map is highest."""
        return max(self.levels, key=lambda each: each.free).level

    def gain(self, level: str) -> float:
        """Return by how much the correlation with the other half map rises from one B factor to those of a level."""
        return next(each.free for each in self.levels if each.level == level) - self.uniform.free

    def notes(self, level: str) -> list[str]:
        """Return sentences for the user on what is refined."""
        scores = {each.level: each for each in self.levels}
        chosen, gain = scores[level], self.gain(level)
        said = f"from {self.uniform.free:.4f} to {chosen.free:.4f}"
        if gain <= 0:
            return [
                f"B factors per {level} refined in one half map do not agree better with the other (CC {said}): they fit noise."
            ]
        notes = [
            f"B factors per {level} refined in one half map agree better with the other too (CC {said})."
        ]
        finest = self.levels[0]
        if finest.level != level:
            notes.append(
                f"Those per {finest.level} were not taken: their CC with the other half map is {finest.free:.4f}."
            )
        return notes

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings and lists."""
        return asdict(self)


def check_levels(
    atoms: ModelAtoms,
    half_maps: Sequence[DensityMap],
    resolution: float,
    levels: Sequence[BLevel],
    bounds: tuple[float, float],
    scattering: str,
    solvent: bool,
) -> HalfMapCheck:
    """Refine each level in each half map, and score it in the other. `resolution` in Å."""
    first, second = half_maps
    check_half_maps(first, second)
    masked = [atoms.masked(each, resolution) for each in (first, second)]
    occupancies = atoms.occupancies[atoms.scattering]
    scores: dict[str, list[tuple[float, float]]] = {}
    for work, free in (masked, masked[::-1]):
        start = None
        for level in levels:
            refinement = prepared_refinement(atoms, work, level, bounds, scattering, solvent)
            if solvent:
                free.displace(refinement.scatterers.displaced(occupancies))
            if start is None:
                start = refinement.uniform()
                both = _scored(
                    refinement.scatterers, np.full(len(occupancies), start), occupancies, work, free
                )
                scores.setdefault("uniform", []).append(both)
            b_factors = refinement.b_factors(refinement.run(start).logarithms)
            both = _scored(refinement.scatterers, b_factors, occupancies, work, free)
            scores.setdefault(level.name, []).append(both)
    found = [LevelScore(name, *map(float, np.mean(values, axis=0))) for name, values in scores.items()]
    return HalfMapCheck(found[0], found[1:])


def _scored(
    scatterers: Any, b_factors: np.ndarray, occupancies: np.ndarray, work: Any, free: Any
) -> tuple[float, float]:
    density = scatterers.density(b_factors, occupancies)
    return work.compare(density, False).cc, free.compare(density, False).cc


def b_factor_rows(topology: app.Topology, refined: BFactors) -> list[dict[str, Any]]:
    """Return the ``residue``, ``b_factor``, ``b_factor_deviation`` (Å²) and ``determined`` (0 to 1) of residues' heavy atoms."""
    rows = []
    for residue in topology.residues():
        every = [atom.index for atom in residue.atoms()]
        atoms = [atom.index for atom in residue.atoms() if not is_hydrogen(atom)] or every
        rows.append(
            {
                "residue": residue_label(residue),
                "b_factor": round(float(refined.b_factors[atoms].mean()), 2),
                "b_factor_deviation": round(float(refined.deviations[atoms].mean()), 2),
                "determined": round(float(refined.determined[atoms].mean()), 3),
            }
        )
    return rows
