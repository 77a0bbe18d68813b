"""The Systems of a fit: force field, restraints and density, at the resolution, pressure and blur that a stage asks for."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import openmm
from openmm import app

from openmm_density.kernels import compilation

from ..base.wording import listing, residue_label
from ..energies.density_fit import DensityFit
from ..energies.forces import backend_problem, best_backend, own_backend
from ..energies.mate_contacts import add_symmetry_contacts
from ..maps.checks import widest_side
from ..models.chemistry.monomers.terms import GeometryTerms
from ..models.confidence import UNSURE
from ..models.merging import CopiedParticles, add_copies
from ..models.preparation import Prepared
from ..models.symmetry_operators import SymmetryOperators
from ..restraints import (
    GlycosidicRestraint,
    IdealGeometryRestraint,
    PlanarityRestraint,
    PositionalRestraint,
    RamachandranRestraint,
    Restraint,
    SugarPuckerRestraint,
    make_restraints,
)
from ..restraints.contacts import ContactRestraint
from .final_geometry import RESTRAINT_SCALES, contacts_at_rest, forces_at_rest, forces_of_puckers, stiffen
from .fit_map import FitMap
from .fit_result import FitResult
from .installed_extensions import extensions
from .options import RestraintOptions, RunOptions
from .protocols import COARSE, NEAR_CC, Protocol, Stage
from .unseen import unseen_residues, unshown_residues, without_unseen_atoms
from .widths import DensityWidths
from .worker_process import available_cores
from .written_atoms import labels_of

FORCE_FIELD_GROUP, RESTRAINT_GROUP, DENSITY_GROUP = 0, 1, 2

LARGE = 50_000
"""Particles from which on the memory of a System or Context that may not be used again counts more than the time to make it."""

_UNCHARGED_MATES = "Charges of symmetry mates are left out: the implicit solvent does not know of the mates."
# How close the oscillations out of a plane may come to the longest stable step.
STABLE_FRACTION = 0.95


class FitSystems:
    """The Systems of a fit, and which restraints act in their Contexts.

    `prepared`: the model, with the water around it where there is any; `protocol`: names what its stages hold;
    `cc_initial`: correlation of the model with the map: tells whether it lies there, and what the map does not show can
    be restrained; `run`: the platform, and the seed of a barostat; `density_options` of `DensityFit`. Attributes:
    `restraints`: what some stage of the protocol holds as it was; `density`: the density force at the resolution of the
    map; `plain`: particles, constraints and restraints, without force field; `notes`: a sentence on what is restrained as the
    map does not show it; `force_backend`: the class of the density force; `threads` that a user allows, None for all. Raises
    InputError if restraints, planarity or density cannot be made of what is given.
    """

    def __init__(
        self,
        prepared: Prepared,
        fit_map: FitMap,
        protocol: Protocol,
        cc_initial: float,
        run: RunOptions,
        restraint_options: RestraintOptions,
        density_options: Mapping[str, Any],
    ) -> None:
        self.prepared, self.asked = prepared, restraint_options.asked
        self.operators: SymmetryOperators | None = density_options.get("operators")
        self._fit_map = fit_map
        self._protocol, self._seed, self._platform = protocol, run.seed, run.platform
        self.threads = run.threads
        self.dictionaries = restraint_options.dictionaries
        names = dict.fromkeys(name for stage in protocol.stages for name in stage.restraints)
        # In a box of water ordered waters trade places with others.
        apart = ("planarity", "water") if prepared.solvent == "water" else ("planarity",)
        where = prepared.topology, prepared.positions
        self.restraints: list[Restraint] = make_restraints(
            [name for name in names if name not in apart],
            *where,
            force_group=RESTRAINT_GROUP,
            options=restraint_options.of_each(names, prepared),
        )
        screened = self.operators is not None and prepared.solvent != "none"
        self.notes = [_UNCHARGED_MATES] if screened else []
        self._anchors = self._anchored(cc_initial)
        self.planarity: PlanarityRestraint | None = None
        # Of this one density and planarity learn masses, charges and molecules.
        self.plain = self._restrained(hydrogen_mass=protocol.hydrogen_mass)
        if prepared.untyped:
            named = listing(prepared.untyped)
            self.notes.append(
                f"Bonds and angles that the force field does not know are held at usual values: {named}."
            )
        if restraint_options.planarity is not None:
            options = {"sigma": restraint_options.planarity, "dictionaries": restraint_options.dictionaries}
            (self.planarity,) = make_restraints(
                "planarity",
                *where,
                force_group=RESTRAINT_GROUP,
                options={"planarity": options | {"system": self.plain}},
            )
        self.density = DensityFit(
            fit_map.density_map,
            prepared.topology,
            fit_map.resolution,
            positions=prepared.positions,
            system=self.plain,
            force_group=DENSITY_GROUP,
            **density_options,
        )
        self.density, told = without_unseen_atoms(self.density, prepared)
        self.notes += told
        # By resolution, pressure, blur, whether angles are stiff, and residues that are not pulled.
        self._systems: dict[tuple[Any, ...], tuple[DensityFit, openmm.System]] = {}
        self._widths = DensityWidths(self.density, widest_side(fit_map.density_map))
        self._make_first()

    def _strip_plain(self) -> None:
        """Free what density and planarity have learned from, a tenth of a gigabyte of a large model."""
        if self.plain.usesPeriodicBoundaryConditions():  # as its force field alone may tell
            return
        for index in reversed(range(self.plain.getNumForces())):
            if self.plain.getForce(index).getForceGroup() == FORCE_FIELD_GROUP:
                self.plain.removeForce(index)

    def _make_first(self) -> None:
        """Make what may raise an error; of a large model not the System, as one is kept and a first stage's is mostly another."""
        self._strip_plain()
        if self._matches_widths and (self.threads or available_cores()) > 1:
            self._widths.begin()
        if self.plain.getNumParticles() > LARGE:
            self._density_force(self.density)
        else:
            self.at()

    @property
    def _matches_widths(self) -> bool:
        return self._protocol.match_blur and self.density.measure.compares_widths

    @property
    def system(self) -> openmm.System:
        """Force field, restraints and the density force at the resolution of the map, in three force groups."""
        return self.at()[1]

    @cached_property
    def without_density(self) -> openmm.System:
        """Force field and restraints, without constraints, at which the minimiser may stall."""
        return self._restrained(constraints=None, rigidWater=False)

    def forget_first(self) -> None:
        """Free the Systems of the first minimisation, which are made again where they are needed."""
        for name in ("without_density", "for_relaxation"):
            self.__dict__.pop(name, None)

    def forget(self) -> None:
        """Free the Systems with a density; `at` makes them again."""
        self._systems.clear()

    @cached_property
    def for_relaxation(self) -> openmm.System:
        """The same for bad starts: ligands with a learned potential, which knows no such geometry, are held by springs."""
        if not self.prepared.potentials:
            return self.without_density
        return self._restrained(constraints=None, rigidWater=False, ligand_energies="springs")

    @cached_property
    def force_field(self) -> openmm.System:
        """The same without restraints."""
        return self.prepared.system(constraints=None, rigidWater=False)

    @cached_property
    def _stiff(self) -> list[tuple[PlanarityRestraint | IdealGeometryRestraint, float]]:
        """The restraints that limit a time step, and the longest one in ps at which each is stable in full."""
        restraints = [each for each in (self.planarity, self._ideal) if each is not None]
        return [(each, each.stable_timestep(self.plain)) for each in restraints]

    @cached_property
    def _ideal(self) -> IdealGeometryRestraint | None:
        """The restraint of ideal geometry of stages that name it."""
        return next((each for each in self.restraints if isinstance(each, IdealGeometryRestraint)), None)

    def _stiffen(self, system: openmm.System, ideal: GeometryTerms | None = None) -> None:
        if ideal is None and self._ideal is not None:
            ideal = self._ideal.terms
        stiffen(system, self.prepared.topology, ideal)

    def at_rest(
        self, density: DensityFit | None, positions: np.ndarray, stiff: bool
    ) -> tuple[openmm.System, IdealGeometryRestraint, ContactRestraint]:
        """Return the System of a last minimisation from positions (N, 3) in Å, its ideal geometry, and contacts."""
        ideal = self.ideal_geometry(positions)
        is_large = self.plain.getNumParticles() > LARGE
        contacts = contacts_at_rest(self.prepared.topology, positions, ideal, for_once=is_large)
        # Constraints would be springs, which take the minimiser four times as long.
        system = self._restrained(constraints=None, rigidWater=False)
        if stiff:
            self._stiffen(system, ideal.terms)
        for force in self._forces_at_rest(ideal, positions):
            system.addForce(force)
        if self._ideal is None and ideal.planes.planes:
            system.addForce(ideal.create_force_of(ideal.planes, system.getNumParticles()))
        system.addForce(contacts.create_force())
        if density is not None:
            system.addForce(self._density_force(density))
        return system, ideal, contacts

    def at_rest_of(self, result: FitResult) -> openmm.System:
        """Return the same of a result without a density, its fitted conformers behind the model."""
        found = result.conformers
        if found is None or not len(found.copies):
            return self.at_rest(None, result.final, stiff=True)[0]
        copied = found.copies.copied(labels_of(self.prepared), found.positions)
        where = found.copies.others.joined, found.positions, copied
        ideal = self.ideal_geometry(result.final)
        return self.with_copied_atoms(None, *where, stiff=True, free=True, ideal=ideal)[1]

    def ideal_geometry(self, positions: np.ndarray) -> IdealGeometryRestraint:
        """Return the ideal geometry of a last minimisation: of stages that name it, else from positions (N, 3) in Å."""
        return self._ideal or IdealGeometryRestraint(
            self.prepared.topology, positions, dictionaries=self.dictionaries, force_group=RESTRAINT_GROUP
        )

    def _forces_at_rest(self, ideal: IdealGeometryRestraint, positions: np.ndarray) -> list[openmm.Force]:
        """Return what a last minimisation has beside other Systems but planes and contacts: forces that can have copies."""
        topology = self.prepared.topology
        forces = forces_at_rest(topology, ideal)
        if any(isinstance(each, SugarPuckerRestraint) for each in self.restraints):
            forces += forces_of_puckers(topology, positions, RESTRAINT_GROUP)
        return forces if self._ideal else [*forces, *ideal.create_forces_of_terms()]

    def with_density(self, density: DensityFit, stiff: bool = False) -> openmm.System:
        """Return force field, stiff where that is asked for (see `final_geometry`), restraints, and a density force."""
        system = self._restrained(hydrogen_mass=self._protocol.hydrogen_mass)
        if stiff:
            self._stiffen(system)
        system.addForce(self._density_force(density))
        return system

    def _density_force(self, density: DensityFit) -> openmm.Force:
        force = density.create_force(**self._force_options())
        self.force_backend = type(force).__name__
        return force

    def with_copied_atoms(
        self,
        density: DensityFit | None,
        topology: app.Topology,
        positions: np.ndarray,
        copied: CopiedParticles,
        stiff: bool,
        free: bool = False,
        ideal: IdealGeometryRestraint | None = None,
    ) -> tuple[DensityFit | None, openmm.System]:
        """Return a density force and its System, with copies of some atoms behind them all; `positions` (N + K, 3) in Å.

        `ideal`: the geometry of a last minimisation, whose System, see `at_rest`, is then that of the copies, too.
        """
        options = {"constraints": None, "rigidWater": False} if free else {}
        system = self.prepared.system(hydrogen_mass=self._protocol.hydrogen_mass, **options)
        # Forces of our own are made for a number of particles.
        held = (*self.restraints, *self._anchors)
        made = chain.from_iterable(
            each.create_forces_of_terms() if each is self._ideal else each.create_forces() for each in held
        )
        n_particles = system.getNumParticles()
        at_rest = [] if ideal is None else self._forces_at_rest(ideal, positions[:n_particles])
        for force in (*made, *self._forces_of_extensions(), *at_rest):
            system.addForce(force)
        if stiff:
            self._stiffen(system, None if ideal is None else ideal.terms)
        add_copies(system, copied)
        if self.operators is not None:
            self._add_contacts(system, self.operators, topology, positions, copied.apart)
        if ideal is not None:
            system.addForce(contacts_at_rest(topology, positions, ideal, apart=copied.apart).create_force())
        backend = self._force_options().get("backend", "auto")
        for restraint in (self.planarity, ideal or self._ideal):
            if restraint is not None and restraint.planes.planes:
                planes = restraint.planes.with_copies(copied.numbering(n_particles))
                system.addForce(restraint.create_force_of(planes, system.getNumParticles(), backend))
        if density is None:
            return None, system
        fitted = density.with_copies(topology, copied.originals, copied.weights, positions, system)
        system.addForce(fitted.create_force(**self._force_options()))
        return fitted, system

    def at(
        self,
        resolution: float | None = None,
        pressure: float | None = None,
        blur: float = 1.0,
        stiff: bool = False,
        left: tuple[int, ...] = (),
        sharpened: float = 1.0,
    ) -> tuple[DensityFit, openmm.System]:
        """Return the density force at a resolution, which is that of the map or coarser, and the System with it.

        Each is built once; of a large model, where each takes a fifth of a gigabyte, the newest one is kept.
        `resolution` in Å; one coarser than the map's blurs it. `left`: residues that are not pulled. `sharpened`: by which blur.
        """
        own = self.density.resolution
        resolution = resolution or own
        key = (resolution, pressure, blur, stiff, left, sharpened)
        if key not in self._systems:
            if self.plain.getNumParticles() > LARGE:
                self.forget()
            density = self._widths.at(blur, left)
            if resolution > own:
                coarse = self._fit_map.blurred_to(resolution)
                density = self._widths.at(1.0, left).with_map(coarse, resolution)
            elif sharpened > 1.0:
                density = density.with_map(self._fit_map.sharpened(sharpened), own)
            system = self.with_density(density, stiff)
            if pressure is not None:
                barostat = openmm.MonteCarloBarostat(pressure, self._protocol.stages[0].temperature[0])
                barostat.setRandomNumberSeed(self._seed + 1)
                system.addForce(barostat)
            self._systems[key] = density, system
        return self._systems[key]

    def of_stage(
        self, stage: Stage, positions: np.ndarray, ended: Sequence[Mapping[str, Any]] = ()
    ) -> tuple[DensityFit, openmm.System]:
        """Return a stage's density force, as wide as the map shows the model (Å), without unsure residues, and its System."""
        blur, left = 1.0, self.not_pulled(positions)
        fixed = stage.final or stage.resolution is not None or stage.strength[1] == 0
        if self._matches_widths and not fixed:
            blur = self._widths.best(positions, left)
        sharpened = self.sharpening(stage, ended)
        return self.at(stage.resolution, stage.pressure, blur, stage.final, left, sharpened)

    def sharpening(self, stage: Stage, ended: Sequence[Mapping[str, Any]]) -> float:
        """Return by which width of atoms a stage's map is sharpened, after those that ended; 1 where it is as it was read."""
        shown = [each["blur"] for each, past in zip(ended, self._protocol.stages) if not past.final]
        is_blurred = (stage.resolution or 0.0) > self.density.resolution
        return self._fit_map.sharpening(shown[-1]) if stage.final and shown and not is_blurred else 1.0

    def not_pulled(self, positions: np.ndarray) -> tuple[int, ...]:
        """Return the residues of a prediction that the density does not pull at positions (N, 3) in Å."""
        topology, plddt = self.prepared.topology, self.prepared.plddt
        if plddt is None or not (plddt < UNSURE).any():
            return ()
        correlations = self._fit_map.correlation(topology).residue_correlations(positions)
        return tuple(unshown_residues(topology, correlations, plddt).tolist())

    def release_restraints(self, context: openmm.Context, stage: Stage) -> None:
        """Disable the restraints that a stage does not name, and strengthen those that hold a final one."""
        for restraint in self.restraints:
            if restraint.name not in stage.restraints:
                context.setParameter(restraint.parameter_name, 0.0)
            elif stage.final and restraint.name in RESTRAINT_SCALES:
                scaled = RESTRAINT_SCALES[restraint.name] * restraint.force_constant
                context.setParameter(restraint.parameter_name, scaled)

    def hold_sugars(self, flipped: Mapping[str, Mapping[int, float]], context: openmm.Context | None) -> None:
        """Hold sugars and bases as a search left them, in a Context and in all that is made from now on.

        `flipped`: by kind ("pucker", "base") and residue the phase or χ in radians; all others are held as at the start.
        """
        # Of those that are made once where they are asked for, those that were.
        systems = [each for each in vars(self).values() if isinstance(each, openmm.System)]
        systems += [system for _, system in self._systems.values()]
        own = [] if context is None else context.getSystem().getForces()
        for restraint in self.restraints:
            if not isinstance(restraint, (SugarPuckerRestraint, GlycosidicRestraint)):
                continue
            restraint.flip(flipped[restraint.kind])
            for force in (*chain.from_iterable(each.getForces() for each in systems), *own):
                if force.getName() == type(restraint).__name__:
                    restraint.update(force)
                    if force in own:
                        force.updateParametersInContext(context)

    def set_stiff_restraints(
        self, context: openmm.Context, stage: Stage, timestep: float | None = None
    ) -> None:
        """Enable planarity and ideal geometry if a stage names them, in full, or by what is stable at a time step in ps."""
        # Replicas of an ensemble have planarity alone.
        there = set(context.getParameters())
        stiff = [(each, stable) for each, stable in self._stiff if each.parameter_name in there]
        acting = sum(restraint.name in stage.restraints for restraint, _ in stiff)
        for restraint, stable in stiff:
            scale = 1.0 if restraint.name in stage.restraints else 0.0
            if scale and timestep is not None:
                scale = min(scale, (STABLE_FRACTION * stable / timestep) ** 2 / acting)
            context.setParameter(restraint.parameter_name, scale * restraint.force_constant)

    def _restrained(self, **options: Any) -> openmm.System:
        """Return force field and restraints, without the density."""
        system = self.prepared.system(**options)
        for force in (
            *chain.from_iterable(map(self._forces_of, (*self.restraints, *self._anchors))),
            *self._forces_of_extensions(),
        ):
            system.addForce(force)
        if self.planarity is not None:
            system.addForce(self.planarity.create_force(**self._force_options()))
        if self.operators is not None:
            self._add_contacts(system, self.operators, self.prepared.topology, self.prepared.positions)
        return system

    def _add_contacts(
        self,
        system: openmm.System,
        operators: SymmetryOperators,
        topology: app.Topology,
        positions: np.ndarray,
        apart: Iterable[tuple[int, int]] = (),
    ) -> None:
        """Add the contacts with symmetry mates, whose charges no implicit solvent would screen."""
        prepared = self.prepared
        add_symmetry_contacts(
            system,
            topology,
            positions,
            operators,
            electrostatics=prepared.solvent == "none",
            links=self.symmetry_links,
            apart=apart,
            backend=self._force_options().get("backend", "auto"),
            force_group=FORCE_FIELD_GROUP,
        )

    @cached_property
    def symmetry_links(self) -> list[tuple[int, int]]:
        """Atoms of which one is bonded to a copy of the other, as the model's file says."""
        index = self.prepared.prepared_index
        links = [index[[link.first, link.second]] for link in self.prepared.model.links if link.symmetry]
        return [(int(a), int(b)) for a, b in links if min(a, b) >= 0]

    def _forces_of_extensions(self) -> Iterator[openmm.Force]:
        """Yield the forces of extensions, in the group of the restraints."""
        for extension in extensions():
            for force in extension.forces(self.prepared, self.asked):
                force.setForceGroup(RESTRAINT_GROUP)
                yield force

    def _forces_of(self, restraint: Restraint) -> list[openmm.Force]:
        # OpenMM's CPU platform takes a seventh of a step for this restraint's expression; plain PyTorch takes longer.
        own = isinstance(restraint, RamachandranRestraint) and self._platform == "CPU"
        if own and compilation.load("torsion_maps"):
            for backend in ("NativeForce", "TorchForce"):
                if backend_problem(backend) is None:
                    return [restraint.create_force(backend, parameter_derivative=False)]
        return restraint.create_forces()

    def _anchored(self, cc_initial: float) -> list[Restraint]:
        """Hold where they are residues that a coarse map does not show where a model that lies in it has them."""
        if cc_initial < NEAR_CC or self._fit_map.resolution < COARSE or not self.restraints:
            return []
        topology, positions = self.prepared.topology, self.prepared.positions
        correlations = self._fit_map.correlation(topology).residue_correlations(positions)
        unseen = unseen_residues(topology, correlations)
        if not len(unseen):
            return []
        residues = list(topology.residues())
        names = listing([residue_label(residues[index]) for index in unseen])
        self.notes.append(f"Not seen in the map where the model has them, and so held in place: {names}.")
        backbone = [a.index for i in unseen for a in residues[i].atoms() if a.name in ("N", "CA", "C")]
        periodic = self.prepared.solvent == "water"
        options = {"parameter_name": "unseen_strength", "force_group": RESTRAINT_GROUP, "periodic": periodic}
        return [PositionalRestraint(topology, positions, atoms=backbone, **options)]

    def _force_options(self) -> dict[str, Any]:
        """Return how our forces are made: `NativeForce`, with graphs, has the bits of ``TorchForce`` in less time."""
        options: dict[str, Any] = {"parameter_derivative": False}
        backend, problem = own_backend(self._platform)
        if problem is None and (
            self._platform == "CUDA" or compilation.kernels_serve(("density", "planarity"))
        ):
            return options | {"backend": backend}
        if self._platform != "CUDA":
            return options
        backend = best_backend()
        warnings.warn(
            f"using {backend}, which is slower: CudaGraphForce does not work here ({problem})", stacklevel=2
        )
        return options | {"cuda_graphs": backend != "PythonTorchForce"}
