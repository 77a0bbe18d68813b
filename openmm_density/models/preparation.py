"""Complete a model for a force field, and keep rigid what the force field does not know."""

from __future__ import annotations

import copy
import io
import os
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import gemmi
import numpy as np
import openmm
import torch  # noqa: F401  before openmm, or openmm-torch's platform plugins stay unloaded
from openmm import app, unit
from pdbfixer import PDBFixer
from scipy.spatial import cKDTree

from openmm_density.errors import InputError
from openmm_density.models.force_fields import force_field_files, with_native_born
from openmm_density.models.ligands import LigandParameters, dictionary_smiles, rotation_onto
from openmm_density.models.structures import (
    BACKBONE_BONDS,
    NEIGHBOUR_BACKBONE_BOND,
    Model,
    covalent_radius,
    is_backbone_bond,
    is_hydrogen,
    is_metal,
    is_standard_polymer,
    openmm_element,
    polymer_element,
    standard_residue_names,
)
from openmm_density.units import positions_in_angstrom, value_in
from openmm_density.whole_files import read_file
from openmm_density.wording import listing, one_line

# Chemically the nearest residue that the force fields know; only where shape and protonation are the same.
SUBSTITUTIONS = {"MSE": ("MET", {"SE": "SD"})}

RIGID_FREQUENCY = 150.0
"""Angular frequency (1/ps) at which an atom of a rigid residue vibrates about its place."""
RIGID_CUTOFF = 12.0
"""Longest pair (Å) of a rigid residue's elastic network."""
LONGEST_BOND = 100.0
"""Å; a longer one is a slip in the coordinates that a minimisation does not mend."""
LINK_FORCE_CONSTANT = 1.0e5
"""kJ/mol/nm², of a bond between a rigid residue and its surroundings; a fifth for pairs one bond further."""
RIGID_EPSILON = 0.4
"""Lennard-Jones well depth (kJ/mol) of the atoms of rigid residues."""


@dataclass
class PreparationReport:
    """What :func:`prepare` changed.

    Attributes
    ----------
    sentences : list of str
        All of it, in plain words.
    added_heavy_atoms : dict of str to list of str
        Residue (``A 45 LYS``) to the names of the heavy atoms that were built.
    added_hydrogens : int
        Hydrogens that the input lacks.
    dropped_hydrogens : list of str
        Input hydrogens without a counterpart; in ``fitted.pdb`` they move rigidly with their residue.
    rigid_residues : list of str
        Residues kept rigid, as in ``HEM A 142 (43 atoms)``.
    ligands : list of str
        Residues parametrised by their SMILES, as in ``LIG A 501 (openff-2.2.1)``.
    adapted_residues : list of str
        Residues parametrised as a known one with fewer hydrogens or other neighbours.
    substitutions : list of str
        Residues replaced by a known one.
    links : list of str
        Bonds held by springs.
    chain_breaks : list of str
        Places where the backbone is broken; both ends are treated as termini.
    """

    sentences: list[str] = field(default_factory=list)
    added_heavy_atoms: dict[str, list[str]] = field(default_factory=dict)
    added_hydrogens: int = 0
    dropped_hydrogens: list[str] = field(default_factory=list)
    rigid_residues: list[str] = field(default_factory=list)
    ligands: list[str] = field(default_factory=list)
    adapted_residues: list[str] = field(default_factory=list)
    substitutions: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    chain_breaks: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Give all fields as plain lists, dicts and numbers."""
        return asdict(self)


@dataclass
class _WorkAtom:
    name: str
    element: app.element.Element
    position: np.ndarray
    source: int = -1


@dataclass
class _WorkResidue:
    name: str
    chain: int
    chain_id: str
    id: str
    insertion_code: str
    atoms: list[_WorkAtom]

    @property
    def label(self) -> str:
        return " ".join(f"{self.name} {self.chain_id} {self.id}{self.insertion_code}".split())

    def find(self, name: str) -> _WorkAtom | None:
        return next((atom for atom in self.atoms if atom.name == name), None)


# Two atoms, each as the index of its residue and its name.
_Link = tuple[tuple[int, str], tuple[int, str]]


@dataclass
class Prepared:
    """A model that a force field can run.

    Attributes
    ----------
    model : Model
        What it was made from.
    topology : openmm.app.Topology
        All atoms, hydrogens included. Bonds between a metal and another residue are not in it (the force
        field would not know its residues any more): see ``links``.
    positions : ndarray of shape (N, 3)
        Å. Atoms that the input has are where it has them.
    input_index : ndarray of shape (N,)
        The input's atom, or -1 for an atom that was added.
    prepared_index : ndarray of shape (M,)
        For each input atom its atom here, or -1 for a hydrogen without a counterpart.
    b_factors : ndarray of shape (N,)
        Å²; an added atom has that of the nearest input atom of its residue.
    rigid : list of ndarray
        The atoms of each residue that is kept rigid.
    links : list of (int, int)
        Bonds that springs hold: between rigid residues and their surroundings, and metal coordination.
    report : PreparationReport
        What was changed.
    solvent : str
        One of `openmm_density.models.force_fields.SOLVENTS`.
    """

    model: Model
    topology: app.Topology
    positions: np.ndarray
    input_index: np.ndarray
    prepared_index: np.ndarray
    b_factors: np.ndarray
    rigid: list[np.ndarray]
    links: list[tuple[int, int]]
    report: PreparationReport
    solvent: str = "none"
    forcefield: app.ForceField | None = field(default=None, repr=False)
    residue_templates: dict[int, str] = field(default_factory=dict, repr=False)
    _systems: dict[str, openmm.System] = field(default_factory=dict, init=False, repr=False)

    def input_positions(self, positions: Any) -> np.ndarray:
        """Give the positions of the input's atoms, in the input's order.

        An input hydrogen without a counterpart is carried along by the rigid motion that best superposes the
        other atoms of its residue, as the input has them, on where they are now.

        Parameters
        ----------
        positions : Quantity or array_like of shape (N, 3)
            Positions of the prepared atoms; Å where plain.

        Returns
        -------
        ndarray of shape (M, 3)
            Å.
        """
        positions = positions_in_angstrom(positions)
        if positions.shape != self.positions.shape:
            raise InputError(
                f"positions: expected {len(self.positions)} prepared atoms, found {len(positions)}; "
                "give the positions of every atom of prepared.topology."
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
                rotation, shift = _superposition(self.model.positions[kept], result[kept])
                result[lost] = self.model.positions[lost] @ rotation.T + shift
        return result

    def system(
        self,
        nonbonded_cutoff: Any = 1.0,
        constraints: Any = app.HBonds,
        hydrogen_mass: Any = None,
        nonbonded_method: Any = None,
        rigid_force_group: int = 0,
        **options: Any,
    ) -> openmm.System:
        """Build the System: the force field, and springs for what it does not know.

        Centre-of-mass motion is not removed: it would hold the model back from its density. OpenMM's
        minimiser often stalls where there are constraints: minimise a new model in a System with
        ``constraints=None, rigidWater=False`` first, and start the run from there.

        Parameters
        ----------
        nonbonded_cutoff : float or Quantity
            nm.
        constraints : None, HBonds, AllBonds or HAngles
            As for ``ForceField.createSystem``.
        hydrogen_mass : float or Quantity, optional
            Da; mass moved to hydrogens from their heavy atoms.
        nonbonded_method : NoCutoff, CutoffNonPeriodic or PME, optional
            As for ``ForceField.createSystem``; by default PME in water, else CutoffNonPeriodic.
        rigid_force_group : int
            Force group of the springs.
        **options
            Passed to ``ForceField.createSystem``.

        Raises
        ------
        InputError
            The force field cannot describe the model with these options.
        """
        if nonbonded_method is None:
            nonbonded_method = app.PME if self.solvent == "water" else app.CutoffNonPeriodic
        arguments: dict[str, Any] = {
            "nonbondedMethod": nonbonded_method,
            "constraints": constraints,
            "removeCMMotion": False,
            **options,
        }
        if nonbonded_method is not app.NoCutoff:
            arguments["nonbondedCutoff"] = value_in(nonbonded_cutoff, unit.nanometer) * unit.nanometer
        if hydrogen_mass is not None:
            arguments["hydrogenMass"] = value_in(hydrogen_mass, unit.dalton) * unit.dalton
        made_with = repr(arguments)
        if made_with not in self._systems:
            self._systems[made_with] = self._described(arguments)
        # A fit asks for several, and the force field takes tens of seconds for a large model.
        system = copy.deepcopy(self._systems[made_with])
        self._add_springs(system, rigid_force_group)
        return system

    def _described(self, arguments: dict[str, Any]) -> openmm.System:
        """Make the System of the force field alone."""
        residues = list(self.topology.residues())
        templates = {residues[index]: name for index, name in self.residue_templates.items()}
        try:
            system = self.forcefield.createSystem(self.topology, residueTemplates=templates, **arguments)
        except Exception as error:  # ForceField raises bare Exception for what it cannot match
            raise InputError(
                f"{self.model.path}: the force field cannot describe the model ({one_line(error)}); "
                "give other force field files or options."
            ) from None
        if self.solvent == "obc":
            with_native_born(system)
        return system

    def _add_springs(self, system: openmm.System, force_group: int) -> None:
        if not self.rigid and not self.links:
            return
        masses = np.array(
            [system.getParticleMass(i).value_in_unit(unit.dalton) for i in range(len(self.positions))]
        )
        springs: dict[tuple[int, int], tuple[float, float]] = {}
        excluded: set[tuple[int, int]] = set()
        for atoms in self.rigid:
            if len(atoms) < 2:
                continue
            pairs = cKDTree(self.positions[atoms]).query_pairs(RIGID_CUTOFF, output_type="ndarray")
            count = np.bincount(pairs.ravel(), minlength=len(atoms))
            for k, m in pairs:
                i, j = sorted((int(atoms[k]), int(atoms[m])))
                reduced = masses[i] * masses[j] / (masses[i] + masses[j])
                # A third of a random spring's stiffness acts along each axis.
                stiffness = 3 * reduced * RIGID_FREQUENCY**2 / max(count[k], count[m])
                springs[i, j] = (self._distance(i, j), stiffness)
                excluded.add((i, j))
        atoms = list(self.topology.atoms())
        bonded = _bonded_atoms(self.topology)
        for i, j in self.links:
            for a, b, stiffness in _link_pairs(i, j, bonded):
                pair = (min(a, b), max(a, b))
                excluded.add(pair)
                if stiffness and pair not in springs:
                    length = self._distance(a, b)
                    if (a, b) == (i, j) and not is_metal(atoms[a]) and not is_metal(atoms[b]):
                        ideal = covalent_radius(atoms[a]) + covalent_radius(atoms[b])
                        length = float(np.clip(length, 0.85 * ideal, 1.15 * ideal))
                    springs[pair] = (length, stiffness)
        force = openmm.HarmonicBondForce()
        force.setName("RigidResidues")
        force.setForceGroup(force_group)
        for (i, j), (length, stiffness) in sorted(springs.items()):
            force.addBond(i, j, length / 10.0, stiffness)
        system.addForce(force)
        _exclude(system, sorted(excluded))

    def _distance(self, i: int, j: int) -> float:
        return float(np.linalg.norm(self.positions[i] - self.positions[j]))


def _bonded_atoms(topology: app.Topology) -> dict[int, list[app.topology.Atom]]:
    bonded: dict[int, list[app.topology.Atom]] = defaultdict(list)
    for a, b in topology.bonds():
        bonded[a.index].append(b)
        bonded[b.index].append(a)
    return bonded


def _link_pairs(
    i: int, j: int, bonded: dict[int, list[app.topology.Atom]]
) -> Iterator[tuple[int, int, float]]:
    """Give the pairs one and two bonds apart across a link; hydrogens are excluded but not held."""
    yield i, j, LINK_FORCE_CONSTANT
    for near, far in ((i, j), (j, i)):
        for neighbour in bonded[near]:
            if neighbour.index != far:
                yield neighbour.index, far, 0.0 if is_hydrogen(neighbour) else LINK_FORCE_CONSTANT / 5


def _exclude(system: openmm.System, pairs: list[tuple[int, int]]) -> None:
    """Take pairs out of every nonbonded force (OpenMM demands the same exclusions of all)."""
    for force in system.getForces():
        if isinstance(force, openmm.NonbondedForce):
            for i, j in pairs:
                force.addException(i, j, 0.0, 0.1, 0.0, True)
        elif isinstance(force, openmm.CustomNonbondedForce):
            known = {frozenset(force.getExclusionParticles(k)) for k in range(force.getNumExclusions())}
            for i, j in pairs:
                if frozenset((i, j)) not in known:
                    force.addExclusion(i, j)


def _superposition(moving: np.ndarray, fixed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give the rotation and shift that carry points onto others (Kabsch); a shift alone for fewer than 3."""
    if len(moving) == 0:
        return np.eye(3), np.zeros(3)
    centre, target = moving.mean(axis=0), fixed.mean(axis=0)
    rotation = np.eye(3)
    if len(moving) >= 3:
        rotation = rotation_onto(moving - centre, fixed - target)
    return rotation, target - rotation @ centre


def prepare(
    model: Model,
    forcefield: str | Sequence[str] = "amber14",
    *,
    solvent: str = "none",
    ph: float = 7.0,
    platform: str = "CPU",
    ligand_forcefield: str | None = None,
    ligands: Mapping[str, str] | None = None,
    dictionaries: Sequence[str | os.PathLike[str]] | str | os.PathLike[str] = (),
) -> Prepared:
    """Complete a model for molecular dynamics, without losing an atom of it.

    - Heavy atoms that a standard residue lacks and terminal oxygens are built (pdbfixer). Loops are not: the
      ends of a gap become termini.
    - Hydrogens of standard residues follow the force field: the input's are kept where they have a
      counterpart, the others are built. Protonation follows the input's hydrogens and residue names
      (``HID``/``HSD``, ``ASH``, ``LYN`` …), then metal coordination, then the pH.
    - Selenomethionine becomes methionine, its selenium the sulphur.
    - A residue that has the atoms of a known one less some hydrogens, or with other neighbours (a
      glycosylated asparagine, a nucleotide that begins with a phosphate), takes that one's parameters, the
      charge of a missing hydrogen added to its parent.
    - With ``ligand_forcefield``, a residue that has a SMILES and is bound to nothing gets the hydrogens and parameters of that
      molecule (`openmm_density.models.ligands`).
    - Every other residue is kept rigid, in place: no charges, generic Lennard-Jones spheres (gemmi's van der
      Waals radii), an elastic network between all its atoms, and springs across its bonds and metal
      coordination.

    Parameters
    ----------
    model : Model
        From :func:`openmm_density.models.structures.read_model`.
    forcefield : str or sequence of str
        "amber14", "charmm36", or OpenMM force field files.
    solvent : str
        "none", "obc" or "gbn2"; or "water", which `openmm_density.fitting.solvation.solvated` then adds.
    ph : float
        For the protonation of titratable residues.
    platform : str
        OpenMM platform that relaxes the atoms which are built.
    ligand_forcefield : {"openff", "gaff"}, optional
        What parametrises ligands; by default they are kept rigid.
    ligands : mapping of str to str, optional
        Their SMILES by residue name. Those that ``dictionaries`` hold serve where none is given.
    dictionaries : path or sequence of paths
        Restraint dictionaries or wwPDB component files.

    Raises
    ------
    InputError
        The model has no backbone (a Cα trace), a force field file cannot be read, or ligands cannot be parametrised.
    """
    loaded = _load_forcefield(force_field_files(forcefield, solvent))
    report = PreparationReport(sentences=list(model.notes))
    parameters, parametrised = _ligands(model, loaded, ligand_forcefield, ligands or {}, dictionaries, report)
    residues, links = _work_residues(model, parametrised, report)
    _refuse_trace(model, residues)
    _refuse_strays(model)
    compute = openmm.Platform.getPlatformByName(platform)
    with repeatable(compute), _building(model):
        _add_missing_heavy_atoms(residues, links, compute, report)
        variants = _variants(model, residues, links)
        _add_hydrogens(residues, links, variants, ph, compute)
    _free_valences(residues, links)
    if parameters is not None:
        _complete_ligands(parameters, parametrised, residues, links)
    _take_input_hydrogens(model, residues, parametrised, report)

    topology, coordination = _topology_of(residues, links)
    positions = np.array([atom.position for residue in residues for atom in residue.atoms])
    input_index = np.array([atom.source for residue in residues for atom in residue.atoms], dtype=np.int64)
    prepared_index = np.full(len(model.positions), -1, dtype=np.int64)
    prepared_index[input_index[input_index >= 0]] = np.flatnonzero(input_index >= 0)

    if parameters is not None:
        chosen = [residue for residue in topology.residues() if residue.index in parametrised]
        parameters.add_to(loaded, [(_label(residue), residue) for residue in chosen])
        report.ligands += [f"{_label(residue)} ({parameters.version})" for residue in chosen]
    templates, rigid = _templates(loaded, topology, residues, report)
    held = _held_links(topology, rigid, coordination)
    atoms = list(topology.atoms())
    for i, j in held:
        pair = " - ".join(f"{_label(atoms[k].residue)} {atoms[k].name}" for k in (i, j))
        report.links.append(f"{pair} ({np.linalg.norm(positions[i] - positions[j]):.2f} Å)")
    _describe(residues, report)
    return Prepared(
        model=model,
        topology=topology,
        positions=positions,
        input_index=input_index,
        prepared_index=prepared_index,
        b_factors=_b_factors(model, residues),
        rigid=rigid,
        links=held,
        report=report,
        solvent=solvent,
        forcefield=loaded,
        residue_templates=templates,
    )


def _refuse_strays(model: Model) -> None:
    """Refuse a model of which an atom is nowhere near what it is bonded to."""
    bonds = [(a, b) for a, b in model.topology.bonds() if a.residue is b.residue]
    if not bonds:
        return
    pairs = np.array([(a.index, b.index) for a, b in bonds])
    lengths = np.linalg.norm(model.positions[pairs[:, 0]] - model.positions[pairs[:, 1]], axis=1)
    worst = int(np.argmax(lengths))
    if lengths[worst] > LONGEST_BOND:
        a, b = bonds[worst]
        raise InputError(
            f"{model.path}: {_label(a.residue)} has {a.name} and {b.name}, which are bonded, {lengths[worst]:.0f} Å apart; "
            "correct or remove one."
        )


def _label(residue: app.topology.Residue) -> str:
    return " ".join(f"{residue.name} {residue.chain.id} {residue.id}{residue.insertionCode}".split())


def _ligands(
    model: Model,
    forcefield: app.ForceField,
    name: str | None,
    smiles: Mapping[str, str],
    dictionaries: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    report: PreparationReport,
) -> tuple[LigandParameters | None, frozenset[int]]:
    """Give what parametrises ligands, and which residues."""
    if name is None:
        if smiles:
            raise InputError(
                f'ligands: a SMILES of {next(iter(smiles))} is of no use without ligand_forcefield="openff" or "gaff".'
            )
        return None, frozenset()
    residues = list(model.topology.residues())
    present = {residue.name for residue in residues}
    strangers = sorted(set(smiles) - present)
    if strangers:
        raise InputError(
            f"ligands: {model.path} has no residue {strangers[0]}: give SMILES of residues that are in it."
        )
    known = standard_residue_names() | forcefield._templates.keys()
    if known & smiles.keys():
        raise InputError(
            f"ligands: the force field knows {min(known & smiles.keys())} already: leave out its SMILES, or the file that "
            "describes it."
        )
    wanted = {
        residue: text
        for residue, text in {**dictionary_smiles(dictionaries), **smiles}.items()
        if residue in present - known
    }
    parameters = LigandParameters(name, wanted)
    bound = {
        atom.residue.index
        for a, b in model.topology.bonds()
        if a.residue is not b.residue and not is_metal(a) and not is_metal(b)
        for atom in (a, b)
    }
    candidates = [residue for residue in residues if residue.name in wanted]
    free = [residue for residue in candidates if residue.index not in bound]
    if not free:
        why = (
            "has no unknown residue with a SMILES"
            if not candidates
            else f"has {_label(candidates[0])} bound to another residue"
        )
        raise InputError(
            f'{model.path}: ligand_forcefield="{name}" has nothing to parametrise, as the model {why}: give the SMILES of a free '
            "ligand, or leave it out."
        )
    if len(free) < len(candidates):
        listed = listing([_label(residue) for residue in candidates if residue.index in bound])
        report.sentences.append(f"Bound to other residues, so not parametrised as ligands: {listed}.")
    return parameters, frozenset(residue.index for residue in free)


def _complete_ligands(
    parameters: LigandParameters,
    parametrised: frozenset[int],
    residues: list[_WorkResidue],
    links: list[_Link],
) -> None:
    """Give ligands, which have heavy atoms only, the hydrogens of their SMILES."""
    for k in sorted(parametrised):
        atoms = list(residues[k].atoms)
        place = {atom.name: index for index, atom in enumerate(atoms)}
        bonds = [(place[a[1]], place[b[1]]) for a, b in links if a[0] == b[0] == k]
        hydrogens = parameters.hydrogens(
            residues[k].name,
            residues[k].label,
            [atom.element.symbol for atom in atoms],
            bonds,
            np.array([atom.position for atom in atoms]),
        )
        for number, hydrogen in enumerate(hydrogens, start=1):
            name = f"H{number}" if f"H{number}" not in place else f"H{number}X"
            residues[k].atoms.append(_WorkAtom(name, app.element.hydrogen, hydrogen.position))
            links.append(((k, atoms[hydrogen.parent].name), (k, name)))


@contextmanager
def _building(model: Model) -> Iterator[None]:
    """Say of which model pdbfixer or Modeller could make nothing."""
    try:
        yield
    except (openmm.OpenMMException, LookupError, ValueError) as error:
        raise InputError(
            f"{model.path}: missing atoms cannot be built ({one_line(error)}): look for residues or atoms that are in it twice, "
            "and for residues that lack their backbone."
        ) from None


def _load_forcefield(names: Sequence[str]) -> app.ForceField:
    try:
        for name in names:
            if Path(name).exists():
                read_file(name)
        return app.ForceField(*names)
    except Exception as error:  # ForceField raises whatever the XML parser and its own checks raise
        said = (error.strerror if isinstance(error, OSError) else None) or one_line(error)
        raise InputError(
            f"force field {', '.join(names)}: cannot be read ({said}); "
            "give OpenMM force field files, such as amber14-all.xml."
        ) from None


@contextmanager
def repeatable(platform: openmm.Platform) -> Iterator[None]:
    """Make building atoms give the same bits each time.

    Modeller draws hydrogen directions from Python's generator, and neither it nor pdbfixer passes properties
    to the platform: seed the one, set defaults of the other, and put both back.
    """
    state = random.getstate()
    random.seed(0)
    wanted = {"Threads": "1", "DeterministicForces": "true"}
    defaults = {
        name: platform.getPropertyDefaultValue(name) for name in wanted if name in platform.getPropertyNames()
    }
    for name in defaults:
        platform.setPropertyDefaultValue(name, wanted[name])
    try:
        yield
    finally:
        random.setstate(state)
        for name, value in defaults.items():
            platform.setPropertyDefaultValue(name, value)


def _work_residues(
    model: Model, parametrised: frozenset[int], report: PreparationReport
) -> tuple[list[_WorkResidue], list[_Link]]:
    """Give residues without the hydrogens that will be built anew, and the bonds between residues."""
    standard = standard_residue_names()
    residues: list[_WorkResidue] = []
    place: dict[int, tuple[int, str]] = {}
    for residue in model.topology.residues():
        name, renamed = SUBSTITUTIONS.get(residue.name, (residue.name, {}))
        work = _WorkResidue(
            name, residue.chain.index, residue.chain.id, residue.id, residue.insertionCode, atoms=[]
        )
        if name != residue.name:
            report.substitutions.append(f"{_label(residue)} as {name}")
        for atom in residue.atoms():
            if (name in standard or residue.index in parametrised) and is_hydrogen(atom):
                continue
            atom_name = renamed.get(atom.name, atom.name)
            element = atom.element or app.element.carbon
            if atom.name in renamed:
                element = openmm_element(polymer_element(atom_name))
            work.atoms.append(_WorkAtom(atom_name, element, model.positions[atom.index], atom.index))
            place[atom.index] = (len(residues), atom_name)
        residues.append(work)
    links: list[_Link] = []
    for a, b in model.topology.bonds():
        if a.index in place and b.index in place:
            first, second = place[a.index], place[b.index]
            inside = first[0] == second[0]
            if inside and residues[first[0]].name in standard:
                continue
            if not inside and _is_remade(residues, first, second):
                continue
            links.append((first, second))
    for chain in model.topology.chains():
        chain_residues = list(chain.residues())
        following = next((other for other in model.topology.chains() if other.index == chain.index + 1), None)
        if following is None or following.id != chain.id:
            continue
        last, first = chain_residues[-1], next(following.residues())
        if is_standard_polymer(last.name) and is_standard_polymer(first.name):
            report.chain_breaks.append(f"{_label(last)} | {_label(first)}")
    return residues, links


def _is_remade(residues: list[_WorkResidue], a: tuple[int, str], b: tuple[int, str]) -> bool:
    """Tell whether createStandardBonds makes this bond between neighbours again."""
    if a[0] > b[0]:
        a, b = b, a
    return (
        b[0] == a[0] + 1 and residues[a[0]].chain == residues[b[0]].chain and (a[1], b[1]) in BACKBONE_BONDS
    )


def _refuse_trace(model: Model, residues: list[_WorkResidue]) -> None:
    amino = [residue for residue in residues if gemmi.find_tabulated_residue(residue.name).is_amino_acid()]
    bare = sum(residue.find("N") is None or residue.find("C") is None for residue in amino)
    if amino and bare > len(amino) / 2:
        raise InputError(
            f"{model.path}: {bare} of {len(amino)} amino acids lack backbone atoms, as in a Cα trace; "
            "build the full backbone first."
        )


def _topology_of(
    residues: list[_WorkResidue], links: list[_Link]
) -> tuple[app.Topology, list[tuple[int, int]]]:
    """Build the topology; give the bonds to metals of other residues apart."""
    topology = app.Topology()
    chain, number = None, None
    index: dict[tuple[int, str], app.topology.Atom] = {}
    for k, residue in enumerate(residues):
        if chain is None or residue.chain != number:
            chain, number = topology.addChain(residue.chain_id), residue.chain
        new = topology.addResidue(residue.name, chain, residue.id, residue.insertion_code)
        for atom in residue.atoms:
            index[k, atom.name] = topology.addAtom(atom.name, atom.element, new)
    topology.createStandardBonds()
    bonded = {frozenset((a.index, b.index)) for a, b in topology.bonds()}
    # Backbone bonds to residues that are not standard: the standard side makes only its own.
    for k in range(len(residues) - 1):
        if residues[k].chain == residues[k + 1].chain:
            for tail, head in BACKBONE_BONDS:
                ends = index.get((k, tail)), index.get((k + 1, head))
                if None not in ends and frozenset(a.index for a in ends) not in bonded:
                    near = np.linalg.norm(
                        residues[k].find(tail).position - residues[k + 1].find(head).position
                    )
                    if near < NEIGHBOUR_BACKBONE_BOND:
                        topology.addBond(*ends)
                        bonded.add(frozenset(a.index for a in ends))
    coordination = []
    for first, second in links:
        a, b = index[first], index[second]
        if frozenset((a.index, b.index)) in bonded:
            continue
        bonded.add(frozenset((a.index, b.index)))
        if first[0] != second[0] and (is_metal(a) or is_metal(b)):
            coordination.append((a.index, b.index))
        else:
            topology.addBond(a, b)
    return topology, coordination


def _quantity(residues: list[_WorkResidue]) -> unit.Quantity:
    return [
        openmm.Vec3(*(atom.position / 10.0)) for residue in residues for atom in residue.atoms
    ] * unit.nanometer


def _add_missing_heavy_atoms(
    residues: list[_WorkResidue], links: list[_Link], platform: openmm.Platform, report: PreparationReport
) -> None:
    topology, _ = _topology_of(residues, links)
    # PDBFixer reads files only: it gets a stand-in, then the model.
    fixer = PDBFixer(
        pdbfile=io.StringIO(
            "ATOM      1  CA  GLY A   1       0.000   0.000   0.000  1.00  0.00           C\nEND\n"
        ),
        platform=platform,
    )
    fixer.topology, fixer.positions = topology, _quantity(residues)
    fixer.missingResidues = {}
    fixer.findMissingAtoms()
    if _add_beta_carbons(residues, fixer, report):
        fixer.topology, fixer.positions = _topology_of(residues, links)[0], _quantity(residues)
        fixer.findMissingAtoms()
    for residue, atoms in list(fixer.missingAtoms.items()):
        if not any(atom.name == name for name in ("CA", "C3'", "C") for atom in residue.atoms()):
            del fixer.missingAtoms[residue]
            continue
        report.added_heavy_atoms.setdefault(_label(residue), []).extend(atom.name for atom in atoms)
    for residue, names in fixer.missingTerminals.items():
        if {"CA", "C", "O"} <= {atom.name for atom in residue.atoms()} | {
            atom.name for atom in fixer.missingAtoms.get(residue, [])
        }:
            report.added_heavy_atoms.setdefault(_label(residue), []).extend(names)
    if not fixer.missingAtoms and not fixer.missingTerminals:
        return
    fixer.addMissingAtoms(seed=1)
    placed = fixer.positions.value_in_unit(unit.angstrom)
    for work, residue in zip(residues, fixer.topology.residues(), strict=True):
        known = {atom.name for atom in work.atoms}
        for atom in residue.atoms():
            if atom.name not in known:
                work.atoms.append(_WorkAtom(atom.name, atom.element, np.array(placed[atom.index])))
        if work.name in _BETA_CENTRES:
            _turn_built_centre(work, fixer.templates[work.name])


def _turn_built_centre(work: _WorkResidue, template: Any) -> None:
    """Put a built atom at a Cβ to the side that makes Cβ as it is in the template; pdbfixer does not look."""
    names = ("CB", *_BETA_CENTRES[work.name])
    atoms = [work.find(name) for name in names]
    places = {
        atom.name: np.array(position.value_in_unit(unit.angstrom))
        for atom, position in zip(template.topology.atoms(), template.positions)
    }
    if None in atoms or np.sign(_volume([atom.position for atom in atoms])) == np.sign(
        _volume([places[name] for name in names])
    ):
        return
    built = next(
        (atom for atom in reversed(atoms) if atom.source < 0 and atom.name not in ("CA", "CB")), None
    )
    if built is None:  # the input has it so
        return
    centre = atoms[0].position
    vectors = np.array([atom.position - centre for atom in atoms[1:]])
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    opposite = -(vectors / np.maximum(lengths, _SMALLEST)).sum(axis=0)
    moved = centre + opposite / max(float(np.linalg.norm(opposite)), _SMALLEST) * np.linalg.norm(
        built.position - centre
    )
    beyond = work.find("CD1") if built.name == "CG1" else None
    if beyond is not None:
        beyond.position = beyond.position + moved - built.position
    built.position = moved


# At Cβ, the neighbours but hydrogen; the last is moved first.
_BETA_CENTRES = {"ILE": ("CA", "CG1", "CG2"), "THR": ("CA", "OG1", "CG2")}


def _volume(places: Sequence[np.ndarray]) -> float:
    """Give the signed volume of three neighbours about the first place."""
    return float(np.linalg.det(np.array(places[1:]) - places[0]))


def _add_beta_carbons(residues: list[_WorkResidue], fixer: PDBFixer, report: PreparationReport) -> bool:
    """Give Cβ to amino acids that end at Cα; pdbfixer, which builds the rest, gives some of them to the wrong side."""
    added = False
    for residue, atoms in fixer.missingAtoms.items():
        work = residues[residue.index]
        backbone = [work.find(name) for name in ("N", "CA", "C")]
        beyond = {atom.name for atom in work.atoms if not is_hydrogen(atom)} - {"N", "CA", "C", "O", "OXT"}
        if beyond or None in backbone or not any(atom.name == "CB" for atom in atoms):
            continue
        n, ca, c = (atom.position for atom in backbone)
        first, second = ca - n, c - ca
        bisector, normal = second - first, np.cross(first, second)
        if min(np.linalg.norm(bisector), np.linalg.norm(normal)) < _SMALLEST:
            continue
        # Of a tetrahedron two of whose corners are N and C: its other two are half the tetrahedral angle from the bisector.
        outward = -bisector / np.linalg.norm(bisector)
        up = normal / np.linalg.norm(normal)
        place = ca + _CA_CB * (np.cos(_HALF_TETRAHEDRAL) * outward - np.sin(_HALF_TETRAHEDRAL) * up)
        work.atoms.append(_WorkAtom("CB", app.element.carbon, place))
        report.added_heavy_atoms.setdefault(_label(residue), []).append("CB")
        added = True
    return added


# Å; and the angle between the bisector of a tetrahedron's edge and a corner.
_CA_CB = 1.53
_HALF_TETRAHEDRAL = np.arccos(-1 / 3) / 2
_SMALLEST = 1e-3


def _variants(model: Model, residues: list[_WorkResidue], links: list[_Link]) -> list[str | None]:
    """Choose protonation states that the input or a bond decides; None leaves it to the pH."""
    variants: list[str | None] = [None] * len(residues)
    metals: dict[int, set[str]] = defaultdict(set)
    bonds: dict[int, set[str]] = defaultdict(set)
    for (a, name_a), (b, name_b) in links:
        if a == b:
            continue
        bonds[a].add(name_a)
        bonds[b].add(name_b)
        for (own, own_name), (other, other_name) in (((a, name_a), (b, name_b)), ((b, name_b), (a, name_a))):
            if is_metal(residues[other].find(other_name)):
                metals[own].add(own_name)
    for k, residue in enumerate(model.topology.residues()):
        names = {atom.name for atom in residue.atoms()}
        has_hydrogens = any(is_hydrogen(atom) for atom in residue.atoms())
        original = model.records[next(residue.atoms()).index].residue_name
        if residue.name == "HIS":
            if metals[k] & {"NE2", "ND1"}:
                variants[k] = {("NE2",): "HID", ("ND1",): "HIE"}.get(
                    tuple(sorted(metals[k] & {"NE2", "ND1"})), "HIN"
                )
            elif names & {"HD1", "HE2"}:
                variants[k] = "HIP" if {"HD1", "HE2"} <= names else ("HID" if "HD1" in names else "HIE")
            else:
                variants[k] = {"HSD": "HID", "HSE": "HIE", "HSP": "HIP"}.get(
                    original, original if original in ("HID", "HIE", "HIP") else None
                )
        elif residue.name == "ASP":
            if "HD2" in names or (original == "ASH" and not has_hydrogens):
                variants[k] = "ASH"
        elif residue.name == "GLU":
            if "HE2" in names or (original == "GLH" and not has_hydrogens):
                variants[k] = "GLH"
        elif residue.name == "LYS":
            stripped = {"HZ1", "HZ2"} <= names and "HZ3" not in names
            if "NZ" in bonds[k] or stripped or original == "LYN":
                variants[k] = "LYN"
        elif residue.name == "CYS" and "SG" in metals[k] | bonds[k]:
            variants[k] = "CYX"
    return variants


def _add_hydrogens(
    residues: list[_WorkResidue],
    links: list[_Link],
    variants: list[str | None],
    ph: float,
    platform: openmm.Platform,
) -> None:
    # Modeller refuses a histidine without its ring; pdbfixer could not complete it, so leave it alone.
    hidden = {}
    for k, residue in enumerate(residues):
        if residue.name == "HIS" and (residue.find("ND1") is None or residue.find("NE2") is None):
            hidden[k], residue.name = residue.name, "HIS*"
            variants[k] = None
    topology, _ = _topology_of(residues, links)
    modeller = app.Modeller(topology, _quantity(residues))
    modeller.addHydrogens(None, pH=ph, variants=variants, platform=platform)
    placed = modeller.positions.value_in_unit(unit.angstrom)
    for work, residue in zip(residues, modeller.topology.residues(), strict=True):
        old = {atom.name: atom for atom in work.atoms}
        work.atoms = [
            old.get(atom.name) or _WorkAtom(atom.name, atom.element, np.array(placed[atom.index]))
            for atom in residue.atoms()
        ]
        # Modeller caps the first nucleotide of a chain even where a phosphate already sits on its O5'.
        if work.find("P") is not None:
            work.atoms = [atom for atom in work.atoms if atom.name != "HO5'"]
    for k, name in hidden.items():
        residues[k].name = name


def _free_valences(residues: list[_WorkResidue], links: list[_Link]) -> None:
    """Take away the hydrogen that a bond to another residue replaces."""
    standard = standard_residue_names()
    for first, second in links:
        if first[0] == second[0]:
            continue
        for (own, name), (other, other_name) in ((first, second), (second, first)):
            if residues[own].name not in standard:
                continue
            parent, partner = residues[own].find(name), residues[other].find(other_name)
            if is_metal(partner) or is_metal(parent):
                continue
            hydrogens = [
                atom
                for atom in residues[own].atoms
                if is_hydrogen(atom) and np.linalg.norm(atom.position - parent.position) < 1.5
            ]
            if hydrogens:
                nearest = min(hydrogens, key=lambda atom: np.linalg.norm(atom.position - partner.position))
                residues[own].atoms.remove(nearest)


def _take_input_hydrogens(
    model: Model, residues: list[_WorkResidue], parametrised: frozenset[int], report: PreparationReport
) -> None:
    """Match the input's hydrogens with the built ones: by name, then by parent; take their positions."""
    standard = standard_residue_names()
    for work, residue in zip(residues, model.topology.residues(), strict=True):
        if work.name not in standard and residue.index not in parametrised:
            continue
        given = [atom for atom in residue.atoms() if is_hydrogen(atom)]
        built = {atom.name: atom for atom in work.atoms if is_hydrogen(atom)}
        heavy = [atom for atom in work.atoms if not is_hydrogen(atom)]
        places = np.array([atom.position for atom in heavy])

        def parent(position: np.ndarray, places: np.ndarray = places) -> int:
            return int(np.argmin(np.linalg.norm(places - position, axis=1)))

        if not given or not heavy:
            report.dropped_hydrogens += [model.records[atom.index].describe() for atom in given]
            continue
        matches: list[tuple[Any, _WorkAtom]] = []
        left = []
        for atom in given:
            twin = built.get(atom.name)
            if twin is not None and parent(twin.position) == parent(model.positions[atom.index]):
                matches.append((atom, built.pop(atom.name)))
            else:
                left.append(atom)
        for atom in left:
            own = parent(model.positions[atom.index])
            rivals = [twin for twin in built.values() if parent(twin.position) == own]
            if rivals:
                position = model.positions[atom.index]
                twin = min(rivals, key=lambda rival: np.linalg.norm(rival.position - position))
                matches.append((atom, built.pop(twin.name)))
            else:
                report.dropped_hydrogens.append(model.records[atom.index].describe())
        for atom, twin in matches:
            twin.source = atom.index
            position = model.positions[atom.index]
            if 0.7 < np.linalg.norm(position - places[parent(position)]) < 1.6:
                twin.position = position


def _templates(
    forcefield: app.ForceField,
    topology: app.Topology,
    residues: list[_WorkResidue],
    report: PreparationReport,
) -> tuple[dict[int, str], list[np.ndarray]]:
    """Give a template to every residue that the force field does not match; tell which are rigid."""
    known = forcefield._templates
    templates: dict[int, str] = {}
    bonded = _bonded_atoms(topology)
    single: list[app.topology.Residue] = []
    for residue in topology.residues():
        if len(residue) == 1 and residue.name != "HOH":
            # Several templates may hold one atom of an element (FE, FE2): the name decides.
            atom = next(residue.atoms())
            template = known.get(residue.name) or known.get(residue.name.capitalize())
            fits = (
                template is not None
                and len(template.atoms) == 1
                and template.atoms[0].element is atom.element
                and not bonded[atom.index]
            )
            if fits:
                templates[residue.index] = template.name
            else:
                single.append(residue)
    unmatched = _unmatched(forcefield, topology, templates, set(single))
    for kind, belongs in (("amino acids", _is_amino_acid), ("nucleotides", _is_nucleotide)):
        members = [residue for residue in topology.residues() if belongs(residue)]
        if len(members) > 1 and set(members) <= set(unmatched):
            raise InputError(
                f"forcefield describes none of the {len(members)} {kind} ({_label(members[0])} …): give another one; amber14 has "
                "proteins, DNA and RNA, charmm36 proteins."
            )
    unknown = sorted([*unmatched, *single], key=lambda residue: residue.index)
    if not unknown:
        return templates, []

    xml = ElementTree.Element("ForceField")
    types = ElementTree.SubElement(xml, "AtomTypes")
    definitions = ElementTree.SubElement(xml, "Residues")
    elements: set[str] = set()
    rigid = []
    for residue in unknown:
        name = f"{residue.name}-{residue.index}-openmm-density"
        templates[residue.index] = name
        definition = ElementTree.SubElement(definitions, "Residue", name=name)
        parameters = _adapted_parameters(known, residue)
        if parameters is None:
            rigid.append(np.array([atom.index for atom in residue.atoms()]))
            report.rigid_residues.append(f"{_label(residue)} ({len(residue)} atoms)")
            parameters = []
            for atom in residue.atoms():
                elements.add(atom.element.symbol)
                parameters.append((f"rigid-{atom.element.symbol}", 0.0))
        else:
            report.adapted_residues.append(_label(residue))
        atoms = list(residue.atoms())
        order = {atom.index: k for k, atom in enumerate(atoms)}
        for k, (type_, charge) in enumerate(parameters):
            ElementTree.SubElement(definition, "Atom", name=f"a{k}", type=type_, charge=repr(charge))
        for atom in atoms:
            for other in bonded[atom.index]:
                if other.residue is not residue:
                    ElementTree.SubElement(definition, "ExternalBond", atomName=f"a{order[atom.index]}")
                elif other.index > atom.index:
                    ElementTree.SubElement(
                        definition,
                        "Bond",
                        atomName1=f"a{order[atom.index]}",
                        atomName2=f"a{order[other.index]}",
                    )
    generators = forcefield.getGenerators()
    own = next((g for g in generators if isinstance(g, app.forcefield.NonbondedGenerator)), None)
    separate = next((g for g in generators if isinstance(g, app.forcefield.LennardJonesGenerator)), None)
    nonbonded = ElementTree.SubElement(
        xml,
        "NonbondedForce",
        coulomb14scale=repr(own.coulomb14scale if own else 1.0),
        lj14scale=repr(own.lj14scale if own else 1.0),
    )
    # CHARMM keeps Lennard-Jones terms in a force of their own, with nothing left in NonbondedForce.
    spheres = nonbonded
    if separate is not None:
        spheres = ElementTree.SubElement(xml, "LennardJonesForce", lj14scale=repr(separate.lj14scale))
    for symbol in sorted(elements):
        element = gemmi.Element(symbol)
        ElementTree.SubElement(
            types,
            "Type",
            {
                "name": f"rigid-{symbol}",
                "class": f"rigid-{symbol}",
                "element": symbol,
                "mass": repr(element.weight),
            },
        )
        sphere = {"epsilon": repr(RIGID_EPSILON), "sigma": repr(2 * element.vdw_r / 10.0 / 2 ** (1 / 6))}
        nothing = {"epsilon": "0", "sigma": "1"}
        name = {"type": f"rigid-{symbol}"}
        if spheres is not nonbonded:
            ElementTree.SubElement(spheres, "Atom", {**name, **sphere})
        ElementTree.SubElement(
            nonbonded, "Atom", {**name, "charge": "0", **(sphere if spheres is nonbonded else nothing)}
        )
    forcefield.loadFile(io.StringIO(ElementTree.tostring(xml, encoding="unicode")))
    return templates, rigid


def _is_amino_acid(residue: app.topology.Residue) -> bool:
    known = gemmi.find_tabulated_residue(residue.name)
    return known.is_standard() and known.is_amino_acid() and len(residue) > 1


def _is_nucleotide(residue: app.topology.Residue) -> bool:
    known = gemmi.find_tabulated_residue(residue.name)
    return known.is_standard() and known.is_nucleic_acid() and len(residue) > 1


def _unmatched(
    forcefield: app.ForceField,
    topology: app.Topology,
    templates: dict[int, str],
    skipped: set[app.topology.Residue],
) -> list[app.topology.Residue]:
    """Give the residues that neither a template nor a patched one (CHARMM's termini) describes; note the latter's templates."""
    data = app.ForceField._SystemData(topology)
    unmatched = []
    # OpenMM looks its templates up by a residue's place, since 8.5 by the residue itself.
    found: dict[Any, Any] = {key: None for residue in topology.residues() for key in (residue, residue.index)}
    for residue in topology.residues():
        if residue in skipped or residue.index in templates:
            continue
        try:
            template, _ = forcefield._getResidueTemplateMatches(residue, data.bondedToAtom)
        except Exception:  # several templates fit, with different parameters: none can be trusted
            template = None
        if template is None:
            unmatched.append(residue)
        found[residue] = found[residue.index] = template
    if unmatched and forcefield._patches:
        patched = list(unmatched)
        try:
            unmatched = app.forcefield._applyPatchesToMatchResidues(
                forcefield, data, unmatched, found, data.bondedToAtom, False, False
            )
        except Exception as error:  # several patched templates fit a residue
            raise InputError(
                f"forcefield does not tell what a residue is ({one_line(error)}): give another one."
            ) from None
        for residue in patched:
            # Kept by name: to apply all patches to all templates takes seconds, and createSystem would do it each time.
            template = found[residue] or found[residue.index]
            if template is not None:
                templates[residue.index] = f"{residue.name}-{residue.index}-patched"
                forcefield._templates[templates[residue.index]] = template
    return unmatched


def _adapted_parameters(
    known: dict[str, Any], residue: app.topology.Residue
) -> list[tuple[str, float]] | None:
    """Take types and charges from the residue's own template where only hydrogens or neighbours differ."""
    protein, variant = residue.name, {"HIS": ("HID", "HIE", "HIP"), "CYS": ("CYX", "CYM"), "LYS": ("LYN",)}
    stems = [protein, *variant.get(protein, ()), *{"ASP": ("ASH",), "GLU": ("GLH",)}.get(protein, ())]
    names = {atom.name for atom in residue.atoms()}
    ends = ["C", "N", ""] if "OXT" in names else ["", "N", "C"]
    if {"H2", "H3"} & names:
        ends = ["N", "", "C"]
    candidates = [end + stem for stem in stems for end in ends]
    candidates += [protein + end for end in ("5", "3")]
    best: tuple[int, list[tuple[str, float]]] | None = None
    for candidate in candidates:
        template = known.get(candidate)
        if template is None:
            continue
        by_name = {atom.name: atom for atom in template.atoms}
        if not names <= set(by_name):
            continue
        missing = [atom for atom in template.atoms if atom.name not in names]
        if not all(is_hydrogen(atom) for atom in missing):
            continue
        charges = {atom.name: float(atom.parameters.get("charge", 0.0)) for atom in template.atoms}
        for atom in missing:
            for neighbour in atom.bondedTo:
                charges[template.atoms[neighbour].name] += charges[atom.name]
        parameters = [(by_name[atom.name].type, charges[atom.name]) for atom in residue.atoms()]
        if best is None or len(missing) < best[0]:
            best = (len(missing), parameters)
    return None if best is None else best[1]


def _held_links(
    topology: app.Topology, rigid: list[np.ndarray], coordination: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Give the bonds between residues that the force field may not know."""
    unknown = {int(index) for atoms in rigid for index in atoms}
    held = list(coordination)
    for a, b in topology.bonds():
        if a.residue is b.residue:
            continue
        ordinary = is_backbone_bond(a, b) or a.name == b.name == "SG"
        if not ordinary or {a.index, b.index} & unknown:
            held.append((a.index, b.index))
    return held


def _b_factors(model: Model, residues: list[_WorkResidue]) -> np.ndarray:
    result = []
    for residue in residues:
        sources = [atom for atom in residue.atoms if atom.source >= 0 and not is_hydrogen(atom)]
        sources = sources or [atom for atom in residue.atoms if atom.source >= 0]
        places = np.array([atom.position for atom in sources]).reshape(-1, 3)
        for atom in residue.atoms:
            if atom.source >= 0:
                result.append(model.b_factors[atom.source])
            elif len(sources):
                nearest = np.argmin(np.linalg.norm(places - atom.position, axis=1))
                result.append(model.b_factors[sources[nearest].source])
            else:
                result.append(0.0)
    return np.array(result)


def _describe(residues: list[_WorkResidue], report: PreparationReport) -> None:
    report.added_hydrogens = sum(
        is_hydrogen(atom) and atom.source < 0 for residue in residues for atom in residue.atoms
    )
    say = report.sentences.append
    if report.chain_breaks:
        say(
            f"The backbone is broken at {len(report.chain_breaks)} places (both ends become termini): "
            f"{listing(report.chain_breaks)}."
        )
    if report.added_heavy_atoms:
        total = sum(len(names) for names in report.added_heavy_atoms.values())
        say(
            f"{total} missing heavy atoms were built in {len(report.added_heavy_atoms)} residues: "
            f"{listing([' '.join([label, *names]) for label, names in report.added_heavy_atoms.items()])}."
        )
    if report.added_hydrogens:
        say(f"{report.added_hydrogens} hydrogens were added.")
    if report.dropped_hydrogens:
        say(
            f"{len(report.dropped_hydrogens)} input hydrogens have no counterpart (other protonation); "
            f"in the PDB file they move rigidly with their residue: {listing(report.dropped_hydrogens)}."
        )
    if report.substitutions:
        say(f"Residues simulated as the standard one: {listing(report.substitutions)}.")
    if report.adapted_residues:
        say(
            "Residues parametrised as the standard one with another protonation or neighbours: "
            f"{listing(report.adapted_residues)}."
        )
    if report.ligands:
        say(f"Ligands parametrised by their SMILES: {listing(report.ligands)}.")
    if report.rigid_residues:
        say(
            "The force field does not know these residues; each was kept as a rigid body without charges: "
            f"{listing(report.rigid_residues)}."
        )
    if report.links:
        say(f"Bonds held by springs at their length in the input: {listing(report.links)}.")
