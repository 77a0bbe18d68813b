"""A model ready for a force field, and the changes that made it so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import openmm
from openmm import app, unit
from scipy.spatial import cKDTree

from ...base.errors import InputError
from ...base.garbage import without_collection
from ...base.stopwatch import counted_as
from ...base.units import positions_in_angstrom, takes_units
from ...base.wording import atom_label, one_line
from ..chemistry.elements import is_metal
from ..chemistry.ideal_geometry import bond_angles, heavy_bonds
from ..chemistry.topologies import bonded_atoms
from ..confidence import residue_means
from ..ligand_potentials import PlacedPotential
from ..merging import bare, call_for_each
from ..structures import Model
from ..superposition import superposition
from .constrained_variants import ConstrainedVariants
from .ideal_shapes import IdealShapes
from .ligand_terms import (
    add_idle_springs,
    add_potentials,
    constrain_hydrogens,
    elastic_network,
    remove_inner_terms,
    spring_pairs,
)
from .like_chains import described
from .missing_terms import (
    LINK_FORCE_CONSTANT,
    MissingTerms,
    link_length,
    link_pairs,
    missing_terms,
    three_apart,
)
from .unscreened_charges import ChargedGroup, discharge

RIGID_FREQUENCY = 150.0
"""Angular frequency (1/ps) at which an atom of a rigid residue vibrates about its place."""
RIGID_CUTOFF = 12.0
"""Longest pair (Å) of a rigid residue's elastic network."""
CONFORMER_EXCLUSION_REACH = 8.0
"""Å up to which interactions between different conformers are excluded."""


# Pairs of atoms, length in nm and stiffness of each, and the pairs to exclude.
_Springs = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass
class PreparationReport:
    """The changes that `prepare` made."""

    sentences: list[str] = field(default_factory=list)  # All changes, as sentences
    # Residue (``A LYS 45``) to the names of the heavy atoms that were built
    added_heavy_atoms: dict[str, list[str]] = field(default_factory=dict)
    added_hydrogens: int = 0  # Hydrogens that the input lacks
    # Input hydrogens without a counterpart; in ``fitted.pdb`` they move rigidly with their residue
    dropped_hydrogens: list[str] = field(default_factory=list)
    # Residues kept rigid, as in ``A HEM 142 (43 atoms)``
    rigid_residues: list[str] = field(default_factory=list)
    # Residues parametrised by their SMILES, as in ``A LIG 501 (openff-2.2.1)``
    ligands: list[str] = field(default_factory=list)
    # Residues with a potential of their own, and which
    ligand_potentials: list[str] = field(default_factory=list)
    # Residues parametrised as a known one with fewer hydrogens or other neighbours
    adapted_residues: list[str] = field(default_factory=list)
    substitutions: list[str] = field(default_factory=list)  # Residues replaced by a known one
    links: list[str] = field(default_factory=list)  # Bonds held by springs
    # Breaks of the backbone; both ends are treated as termini
    chain_breaks: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return all fields as plain lists, dicts and numbers."""
        return asdict(self)


@dataclass(frozen=True)
class Described:
    """What describes the residues of a model."""

    forcefield: app.ForceField
    templates: dict[int, str]  # By residue index
    potentials: list[PlacedPotential]  # Of ligands


@dataclass
class Prepared:
    """A model ready for a force field.

    Attributes
    ----------
    model : Model
        The model that was prepared.
    topology : openmm.app.Topology
        All atoms, hydrogens included. Bonds between a metal and another residue are not in it (the force
        field would no longer match its residues): see ``links``.
    positions : np.ndarray, shape (N, 3)
        Å. Atoms of the input keep its positions.
    input_index : np.ndarray, shape (N,)
        The input's atom, or -1 for an atom that was added.
    prepared_index : np.ndarray, shape (M,)
        For each input atom its atom here, or -1 for a hydrogen without a counterpart.
    b_factors : np.ndarray, shape (N,)
        Å²; an added atom has that of the nearest input atom of its residue.
    rigid : list of np.ndarray
        The atoms of each residue that is kept rigid.
    links : list of (int, int)
        Bonds that springs hold: between rigid residues and their surroundings, and metal coordination.
    report : PreparationReport
        The changes.
    solvent : str
        One of `openmm_density.models.force_fields.SOLVENTS`.
    described : Described, optional
        What describes its residues.
    unscreened : list of ChargedGroup
        Groups without charge when there is no water: metal ions with their ligands, and the ends at gaps.
    mended_ends : dict of int to np.ndarray
        Where springs hold atoms of rigid residues with impossible bonds or angles in the input, in Å.
    shapes : IdealShapes
        Where springs hold the atoms of rigid residues with known ideal geometry.
    """

    model: Model
    topology: app.Topology
    positions: np.ndarray = field(repr=False)
    input_index: np.ndarray = field(repr=False)
    prepared_index: np.ndarray = field(repr=False)
    b_factors: np.ndarray = field(repr=False)
    rigid: list[np.ndarray] = field(repr=False)
    links: list[tuple[int, int]] = field(repr=False)
    report: PreparationReport = field(repr=False)
    solvent: str = "none"
    described: Described | None = field(default=None, repr=False)
    unscreened: list[ChargedGroup] = field(default_factory=list, repr=False)
    mended_ends: dict[int, np.ndarray] = field(default_factory=dict, repr=False)
    shapes: IdealShapes = field(default_factory=IdealShapes, repr=False)
    _missing: MissingTerms | None = field(default=None, init=False, repr=False)
    _springs: dict[bytes, _Springs] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def plddt(self) -> np.ndarray | None:
        """The pLDDT of each residue of a prediction, (R,) from 0 to 100, NaN where unknown; None for another model."""
        if self.model.confidence is None:
            return None
        residue_of = np.array([atom.residue.index for atom in self.topology.atoms()])
        values = np.append(self.model.confidence.plddt, np.nan)[self.input_index]
        return residue_means(values, residue_of, self.topology.getNumResidues())

    @cached_property
    def predicted_errors(self) -> np.ndarray | None:
        """Expected errors between a prediction's residues, (R, R) in Å, NaN where unknown; None without them."""
        confidence = self.model.confidence
        if confidence is None or confidence.errors is None:
            return None
        rows = np.full(self.topology.getNumResidues(), -1)
        given = np.flatnonzero(self.input_index >= 0)
        own, of_model = (
            np.array([atom.residue.index for atom in topology.atoms()])
            for topology in (self.topology, self.model.topology)
        )
        rows[own[given]] = of_model[self.input_index[given]]
        return np.pad(confidence.errors, (0, 1), constant_values=np.nan)[np.ix_(rows, rows)]

    @property
    def forcefield(self) -> app.ForceField:
        """The force field that `system` uses."""
        return self.described.forcefield

    @property
    def residue_templates(self) -> dict[int, str]:
        """Its templates by residue index, which it need not look for or would not find."""
        return self.described.templates

    @property
    def potentials(self) -> list[PlacedPotential]:
        """The ligands that have a potential of their own."""
        return [] if self.described is None else self.described.potentials

    @takes_units("positions")
    def input_positions(self, positions: Any) -> np.ndarray:
        """Return the positions of the input's atoms, in the input's order.

        An input hydrogen without a counterpart follows the rigid motion that best superposes the
        other atoms of its residue from the input onto their present positions.

        Parameters
        ----------
        positions : Quantity or array_like, shape (N, 3)
            Positions of the prepared atoms; Å where plain.

        Returns
        -------
        np.ndarray, shape (M, 3)
            Å.
        """
        positions = positions_in_angstrom(positions)
        if positions.shape != self.positions.shape:
            raise InputError(
                f"must be one for each of the {len(self.positions)} prepared atoms",
                argument="positions",
                found=len(positions),
                remedy="give the positions of every atom of prepared.topology",
            )
        has = self.prepared_index >= 0
        result = np.empty_like(self.model.positions)
        result[has] = positions[self.prepared_index[has]]
        if has.all():
            return result
        for residue in self.model.topology.residues():
            atoms = np.array([atom.index for atom in residue.atoms()])
            lost, kept = atoms[~has[atoms]], atoms[has[atoms]]
            if len(lost):
                rotation, shift = superposition(self.model.positions[kept], result[kept])
                result[lost] = self.model.positions[lost] @ rotation.T + shift
        return result

    def nearest_input(self) -> np.ndarray:
        """Return the input's atom for each atom; for built ones the nearest of its residue, or -1 where there is none.

        Returns
        -------
        np.ndarray of int, shape (N,)
        """
        return self._nearest_input.copy()

    @cached_property
    def _nearest_input(self) -> np.ndarray:
        result = self.input_index.copy()
        for residue in self.topology.residues():
            atoms = np.array([atom.index for atom in residue.atoms()])
            built, given = atoms[self.input_index[atoms] < 0], atoms[self.input_index[atoms] >= 0]
            if len(built) and len(given):
                _, nearest = cKDTree(self.positions[given]).query(self.positions[built])
                result[built] = self.input_index[given[nearest]]
        return result

    @without_collection()
    @takes_units(nonbonded_cutoff="nm", hydrogen_mass="Da")
    def system(
        self,
        nonbonded_cutoff: Any = 1.0,
        constraints: Any = app.HBonds,
        hydrogen_mass: Any = None,
        nonbonded_method: Any = None,
        rigid_force_group: int = 0,
        ligand_energies: str = "potentials",
        **options: Any,
    ) -> openmm.System:
        """Build the System: the force field, and springs for what it does not know.

        Interactions are excluded between residues whose labels put them into different conformers, such as a water of B beside a
        side chain of A.

        Centre-of-mass motion is not removed: it would hold the model back from its density. OpenMM's minimiser often stalls where
        there are constraints: minimise a new model with ``constraints=None, rigidWater=False`` first, and start from there.

        Parameters
        ----------
        nonbonded_cutoff : float or Quantity
            nm.
        constraints : None, HBonds, AllBonds or HAngles
            As for ``ForceField.createSystem``.
        hydrogen_mass : float or Quantity, optional
            Da; mass moved to hydrogens from their heavy atoms.
        nonbonded_method : NoCutoff, CutoffNonPeriodic or PME, optional
            By default PME in water, else CutoffNonPeriodic.
        rigid_force_group : int
            Of the springs.
        ligand_energies : {"potentials", "springs", "none"}
            The internal energy of ligands with a potential: that, springs as in rigid residues, or nothing (see `ligand_terms`).
        **options
            Passed to ``ForceField.createSystem``.

        Raises
        ------
        InputError
            The force field cannot describe the model with these options.
        """
        arguments = self._options(nonbonded_cutoff, nonbonded_method) | {
            "constraints": constraints,
            **options,
        }
        if hydrogen_mass is not None:
            arguments["hydrogenMass"] = hydrogen_mass * unit.dalton
        system = self._variants.system(arguments)
        held = [each.atoms for each in self.potentials] if ligand_energies == "springs" else []
        self._missing_terms(arguments).add_to(system)
        self._add_springs(system, rigid_force_group, [*self.rigid, *held])
        if not held:
            self._add_ligands(system, constraints, with_energies=ligand_energies == "potentials")
        _exclude(system, _pairs(self._alternative_pairs()))
        return system

    def _options(self, cutoff: float = 1.0, method: Any = None) -> dict[str, Any]:
        """Return the options of ``createSystem`` other than constraints and masses; the cut-off in nm."""
        if method is None:
            # Before water is added there is no box.
            boxed = self.solvent == "water" and self.topology.getPeriodicBoxVectors() is not None
            method = app.PME if boxed else app.CutoffNonPeriodic
        options = {"nonbondedMethod": method, "removeCMMotion": False}
        return options if method is app.NoCutoff else options | {"nonbondedCutoff": cutoff * unit.nanometer}

    def _add_ligands(self, system: openmm.System, constraints: Any, with_energies: bool) -> None:
        """Replace a force field's terms within ligands by potentials, and add the springs that can hold ligands."""
        if with_energies:
            add_potentials(system, self.potentials, [0])
        for placed in self.potentials:
            _exclude(system, _pairs(spring_pairs(placed)))
            remove_inner_terms(system, placed)
            if constraints is not None:
                constrain_hydrogens(system, placed)
        add_idle_springs(system, self.potentials)

    def _alternative_pairs(self) -> list[tuple[int, int]]:
        """Return the pairs of close atoms in different conformers, which never occur together."""
        if not any(record.altloc for record in self.model.records):
            return []
        labels = ["" if index < 0 else self.model.records[index].altloc for index in self.nearest_input()]
        residues = [atom.residue.index for atom in self.topology.atoms()]
        joined = {frozenset((a.residue.index, b.residue.index)) for a, b in self.topology.bonds()}
        labelled = np.flatnonzero(np.array([bool(label) for label in labels]))
        pairs = labelled[
            cKDTree(self.positions[labelled]).query_pairs(CONFORMER_EXCLUSION_REACH, output_type="ndarray")
        ]
        return [
            (int(i), int(j))
            for i, j in np.sort(pairs, axis=1)
            if labels[i] != labels[j]
            and residues[i] != residues[j]
            and frozenset((residues[i], residues[j])) not in joined
        ]

    @property
    def untyped(self) -> list[str]:
        """Bonds and angles without a term in the force field, held at usual values; links excepted."""
        missing, atoms = self._missing_terms(self._options()), list(self.topology.atoms())
        links = set(map(frozenset, self.links))
        return [
            " - ".join(atom_label(atoms[i]) for i in members)
            for members in (*missing.bonds.tolist(), *missing.angles.tolist())
            if links.isdisjoint(map(frozenset, pairwise(members)))
        ]

    def parametrise(self) -> None:
        """Find what all Systems need of the force field, where that is to be done before the first is asked for; see `system`."""
        self._missing_terms(self._options())

    def _missing_terms(self, options: dict[str, Any]) -> MissingTerms:
        """Return these terms, from the force field's System with some options: they are the same with any."""
        if self._missing is None:
            system = self._variants.whole(options)
            held = [*self.rigid, *(each.atoms for each in self.potentials)]
            self._missing = missing_terms(system, self.topology, self.positions, held, self.links)
        return self._missing

    @cached_property
    def _variants(self) -> ConstrainedVariants:
        """The Systems of the force field alone."""
        return ConstrainedVariants(self.topology, self.forcefield, self._parametrised)

    def _parametrised(self, **arguments: Any) -> openmm.System:
        """Have the force field build a System."""
        try:
            with counted_as("system"):
                system = described(self.forcefield, self.topology, self.residue_templates, **arguments)
        except Exception as error:  # ForceField raises bare Exception for what it cannot match
            raise InputError(
                f"the force field cannot describe the model ({one_line(error)})",
                source=self.model.path,
                remedy="give other force field files or options",
            ) from None
        if self.solvent == "obc":
            use_native_gbsa(system)
        if self.solvent != "water":
            discharge(system, self.unscreened)
        return system

    def _add_springs(self, system: openmm.System, force_group: int, rigid: Sequence[np.ndarray]) -> None:
        """Add springs within residues that are kept rigid, and those of links."""
        if not rigid and not self.links:
            return
        masses = np.full(system.getNumParticles(), np.nan)
        held = np.concatenate([np.empty(0, dtype=np.int64), *rigid])
        masses[held] = list(map(bare(system, "getParticleMass"), held.tolist()))
        # Mass moved to hydrogens makes other springs.
        key = masses[held].tobytes()
        if key not in self._springs:
            self._springs[key] = self._found_springs(masses, rigid)
        pairs, values, excluded = self._springs[key]
        force = openmm.HarmonicBondForce()
        force.setName("RigidResidues")
        force.setForceGroup(force_group)
        call_for_each(force, "addBond", pairs, values)
        system.addForce(force)
        _exclude(system, excluded)

    def _found_springs(self, masses: np.ndarray, rigid: Sequence[np.ndarray]) -> _Springs:
        """Return pairs of atoms with their springs, and the pairs to exclude, both in order."""
        shape = self.positions.copy()
        for atom, place in {**self.mended_ends, **self.shapes.places}.items():
            shape[atom] = place
        springs: dict[tuple[int, int], tuple[float, float]] = {}
        excluded: set[tuple[int, int]] = set()
        for atoms in rigid:
            network = elastic_network(masses, atoms, shape, RIGID_FREQUENCY, RIGID_CUTOFF)
            springs |= network
            excluded |= network.keys()
        self._stiffen_bonds(springs)
        atoms = list(self.topology.atoms())
        bonded = bonded_atoms(self.topology)
        for i, j in self.links:
            if not is_metal(atoms[i]) and not is_metal(atoms[j]):
                excluded |= three_apart(i, j, bonded)
            for a, b, stiffness in link_pairs(i, j, bonded):
                pair = (min(a, b), max(a, b))
                excluded.add(pair)
                if stiffness and pair not in springs:
                    length = self.shapes.link_lengths.get(pair) or self._distance(a, b)
                    if (a, b) == (i, j):
                        length = link_length(length, atoms[a], atoms[b])
                    springs[pair] = (length, stiffness)
        pairs, values = zip(*sorted(springs.items())) if springs else ([], [])
        return _pairs(pairs), np.reshape(values, (-1, 2)) / [10.0, 1.0], _pairs(sorted(excluded))

    def _stiffen_bonds(self, springs: dict[tuple[int, int], tuple[float, float]]) -> None:
        """Make the springs of bonds and angles as stiff as those of links: a density compresses residues without spheres."""
        bonds = heavy_bonds(self.topology)
        near = [(bonds, LINK_FORCE_CONSTANT), (bond_angles(bonds)[:, [0, 2]], LINK_FORCE_CONSTANT / 5)]
        ends = np.unique([*springs])
        for pairs, least in near:
            for pair in np.sort(pairs[np.isin(pairs, ends).all(axis=1)], axis=1).tolist():
                if (known := springs.get(tuple(pair))) is not None:
                    springs[tuple(pair)] = known[0], max(known[1], least)

    def _distance(self, i: int, j: int) -> float:
        return float(np.linalg.norm(self.positions[i] - self.positions[j]))


def _pairs(found: Sequence[tuple[int, int]]) -> np.ndarray:
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def _exclude(system: openmm.System, pairs: np.ndarray) -> None:
    """Exclude pairs (P, 2) from every nonbonded force (OpenMM demands the same exclusions of all)."""
    for force in system.getForces():
        if isinstance(force, openmm.NonbondedForce):
            call_for_each(
                force, "addException", pairs, *([value] * len(pairs) for value in (0.0, 0.1, 0.0, True))
            )
        elif isinstance(force, openmm.CustomNonbondedForce):
            known = {frozenset(force.getExclusionParticles(k)) for k in range(force.getNumExclusions())}
            for i, j in pairs.tolist():
                if frozenset((i, j)) not in known:
                    force.addExclusion(i, j)


def use_native_gbsa(system: openmm.System) -> None:
    """Replace a file's `CustomGBForce` of GBSA-OBC (Onufriev, Bashford and Case 2004) by OpenMM's faster, equal one."""
    index, custom = next(
        (i, force) for i, force in enumerate(system.getForces()) if isinstance(force, openmm.CustomGBForce)
    )
    names = [custom.getPerParticleParameterName(i) for i in range(custom.getNumPerParticleParameters())]
    born = openmm.GBSAOBCForce()
    born.setNonbondedMethod(custom.getNonbondedMethod())
    born.setCutoffDistance(custom.getCutoffDistance())
    # The dielectric constants of the file, and the surface term in its units, are the defaults of both.
    born.setSolventDielectric(_SOLVENT_DIELECTRIC)
    born.setSurfaceAreaEnergy(_SURFACE_AREA_ENERGY)
    for i in range(custom.getNumParticles()):
        values = dict(zip(names, custom.getParticleParameters(i)))
        offset_radius = values["or"]
        born.addParticle(values["charge"], offset_radius + _OFFSET, values["sr"] / offset_radius)
    system.removeForce(index)
    system.addForce(born)


_SOLVENT_DIELECTRIC = 78.5
_SURFACE_AREA_ENERGY = 2.25936 * unit.kilojoule_per_mole / unit.nanometer**2
# nm by which the model's radii are smaller than those of the atoms.
_OFFSET = 0.009
