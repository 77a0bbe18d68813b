"""Steps that complete a model for a force field and keep residues rigid that the force field does not know.

- Missing heavy atoms of standard residues and terminal oxygens are built (pdbfixer). Loops are not: the ends of a gap become
  termini.
- Hydrogens of standard residues follow the force field: the input's are kept where they have a counterpart, the others are
  built. Protonation follows the input's hydrogens and residue names (``HID``/``HSD``, ``ASH``, ``LYN`` …), then metal
  coordination, then the pH.
- Selenomethionine becomes methionine, its selenium the sulphur.
- A residue with the atoms of a known one but fewer hydrogens or other neighbours (a glycosylated asparagine, a
  nucleotide that begins with a phosphate) takes that one's parameters; the charge of a missing hydrogen goes to its parent.
- With a force field for ligands, a free residue with a SMILES gets the hydrogens and parameters of that
  molecule (`openmm_density.models.ligands`).
- Every other residue is kept rigid, in place: no charges, generic Lennard-Jones spheres (gemmi's van der Waals radii), an
  elastic network between all its atoms, and springs across its bonds and metal coordination.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import openmm
from openmm import app

from ...base import stopwatch
from ...base.errors import InputError
from ...base.garbage import without_collection
from ...base.wording import counted, listing, named_atoms, one_line, residue_label
from ..bonds import with_bonds_of
from ..chemistry.elements import is_hydrogen
from ..chemistry.topologies import bonded_atoms
from ..force_field_xml import load_force_field
from ..force_fields import force_field_files
from ..ligand_potentials import InternalPotential, PotentialParameters
from ..model import check_model
from ..structures import Model, is_backbone_bond
from .heavy_atoms import add_missing_heavy_atoms
from .hydrogens import add_hydrogens, find_variants, keep_input_hydrogens, remove_replaced_hydrogens
from .ideal_shapes import BAD_ANGLE, BAD_BOND, IdealShapes, ideal_shapes
from .ligand_residues import (
    LigandOptions,
    Parameters,
    Paths,
    complete_ligands,
    ligand_parameters,
    parametrise,
)
from .ligand_terms import mended_ends
from .prepared import Described, PreparationReport, Prepared
from .templates import add_templates, is_amide_bond
from .unscreened_charges import bare_ions, unscreened_charges
from .work_residues import (
    Link,
    WorkAtom,
    WorkResidue,
    b_factors_of,
    check_backbone,
    check_model_positions,
    topology_of,
    work_residues_of,
)


@without_collection()
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
    allow_scripts: bool = False,
    ligand_potentials: Mapping[str, InternalPotential] | None = None,
    completed: Model | None = None,
) -> Prepared:
    """Complete a model for molecular dynamics without losing an atom; see above for what is done to which residue.

    Parameters
    ----------
    model : Model
        From `openmm_density.models.structures.read_model`.
    forcefield : str or sequence of str
        "amber14", "charmm36", or OpenMM force field files.
    solvent : str
        "none", "obc" or "gbn2"; or "water", which `openmm_density.fitting.solvation.solvated` then adds.
    ph : float
        For the protonation of titratable residues.
    platform : str
        OpenMM platform that relaxes built atoms.
    ligand_forcefield : {"rigid", "openff", "gaff", "xtb"}, optional
        The parameters of ligands; by default they are kept rigid. With "xtb" each has one of the ``ligand_potentials``.
    ligands : mapping of str to str, optional
        Their SMILES by residue name; by default those in `dictionaries`.
    dictionaries : path or sequence of paths
        Restraint dictionaries or wwPDB component files.
    allow_scripts : bool
        Whether force field files other than OpenMM's own may run the Python code in them, with your permissions.
    ligand_potentials : mapping of str to InternalPotential, optional
        By residue name, such as `openmm_density.extensions.distillation.LigandEnergy`. Ligands without one are kept rigid.
    completed : Model, optional
        The same model as completed by an earlier preparation, such as ``fitted.cif`` of a fit beside its ``fitted.pdb``: its
        protonation is kept, and atoms that it built keep their positions.

    Raises
    ------
    InputError
        The model has no backbone (a Cα trace), a force field file cannot be read or contains forbidden code, or ligands
        cannot be parametrised.
    """
    check_model(model)
    model = with_bonds_of(model, dictionaries)
    loaded = load_force_field(force_field_files(forcefield, solvent), allow_scripts)
    report = PreparationReport(sentences=list(model.notes))
    options = LigandOptions(ligand_forcefield, ligands or {}, dictionaries, ligand_potentials or {})
    parameters, parametrised = ligand_parameters(model, loaded, options, report)
    with stopwatch.counted_as("completion"):
        residues = _completed(model, parameters, parametrised, ph, platform, report, completed)
    return _parametrised(model, loaded, residues, parameters, parametrised, report, solvent, dictionaries)


def _completed(
    model: Model,
    parameters: Parameters | None,
    parametrised: frozenset[int],
    ph: float,
    platform: str,
    report: PreparationReport,
    before: Model | None,
) -> tuple[list[WorkResidue], list[Link]]:
    """Return the completed residues of a model, and the bonds between them."""
    residues, links = work_residues_of(model, parametrised, report)
    known = completed_residues(model, before, residues)
    check_backbone(model, residues)
    check_model_positions(model)
    compute = openmm.Platform.getPlatformByName(platform)
    with repeatable(compute), _naming_the_model(model):
        add_heavy_atoms_of(known, residues, report)
        add_missing_heavy_atoms(residues, links, compute, report)
        variants = find_variants(model, residues, links, [each.names for each in known])
        add_hydrogens(residues, links, variants, ph)
    remove_replaced_hydrogens(residues, links)
    if parameters is not None:
        complete_ligands(parameters, parametrised, residues, links)
    keep_input_hydrogens(model, residues, parametrised, report)
    place_hydrogens_of(known, residues)
    return residues, links


def _parametrised(
    model: Model,
    forcefield: app.ForceField,
    completed: tuple[list[WorkResidue], list[Link]],
    parameters: Parameters | None,
    parametrised: frozenset[int],
    report: PreparationReport,
    solvent: str,
    dictionaries: Paths = (),
) -> Prepared:
    """Return the model of completed residues with a force field for all of them."""
    residues, links = completed
    topology, coordination = topology_of(residues, links)
    positions = np.array([atom.position for residue in residues for atom in residue.atoms])
    _check_built(model, topology, positions)
    input_index = np.array([atom.source for residue in residues for atom in residue.atoms], dtype=np.int64)
    prepared_index = np.full(len(model.positions), -1, dtype=np.int64)
    prepared_index[input_index[input_index >= 0]] = np.flatnonzero(input_index >= 0)

    chosen, potentials = parametrise(parameters, parametrised, forcefield, topology, report)
    templates, rigid = add_templates(forcefield, topology, residues, report, chosen)
    if isinstance(parameters, PotentialParameters):
        parameters.load_into(forcefield)
    bonded, atoms = bonded_atoms(topology), list(topology.atoms())
    bare = bare_ions(topology, positions, in_water=solvent == "water")
    ends = mended_ends(topology, positions, rigid)
    if ends:
        report.sentences.append(
            f"Atoms at impossible distances or angles are moved: {named_atoms(topology, ends)}."
        )
    shapes = _shapes(topology, positions, rigid, ends, dictionaries, report)
    ends |= {k: shapes.places[k] for k in sorted(shapes.mended)}
    held = _held_links(topology, rigid, coordination, bonded)
    known = set(map(frozenset, held))
    held += [(ion, k) for ion, shell in bare.items() for k in shell if frozenset((ion, k)) not in known]
    if bare:
        report.sentences.append(
            "Unscreened by water, ions collapse onto what attracts them: in a fit without water these ions, and the acids that "
            f"bind them, have no charge. Springs hold them beside their neighbours: {named_atoms(topology, bare)}."
        )
    for i, j in held:
        pair = " - ".join(f"{residue_label(atoms[k].residue)} {atoms[k].name}" for k in (i, j))
        report.links.append(f"{pair} ({np.linalg.norm(positions[i] - positions[j]):.2f} Å)")
    _describe(residues, report)
    return Prepared(
        model=model,
        topology=topology,
        positions=positions,
        input_index=input_index,
        prepared_index=prepared_index,
        b_factors=b_factors_of(model, residues),
        rigid=rigid,
        links=held,
        report=report,
        solvent=solvent,
        described=Described(forcefield, templates, potentials),
        unscreened=unscreened_charges(topology, bonded, bare, rigid, in_vacuum=solvent == "none"),
        mended_ends=ends,
        shapes=shapes,
    )


def _shapes(
    topology: app.Topology,
    positions: np.ndarray,
    rigid: list[np.ndarray],
    ends: Mapping[int, np.ndarray],
    dictionaries: Paths,
    report: PreparationReport,
) -> IdealShapes:
    """Return the ideal shapes of rigid residues with corrected ends, and report the corrections."""
    begin = positions.copy()
    for atom, place in ends.items():
        begin[atom] = place
    shapes = ideal_shapes(topology, begin, rigid, dictionaries)
    report.sentences += shapes.sentences
    if shapes.n_mended:
        named = listing([f"{label} ({count})" for label, count in shapes.n_mended.items()])
        report.sentences.append(
            f"Bonds over {BAD_BOND:g} Å or angles over {BAD_ANGLE:g}° off the monomer library's are mended, with how many of "
            f"each residue: {named}."
        )
    return shapes


@contextmanager
def _naming_the_model(model: Model) -> Iterator[None]:
    """Raise an InputError that names the model if missing atoms cannot be built."""
    try:
        yield
    except (openmm.OpenMMException, LookupError, ValueError, ArithmeticError) as error:
        raise InputError(
            f"missing atoms cannot be built ({one_line(error)})",
            source=model.path,
            remedy="look for duplicate residues, atoms at the same place, and residues that lack their backbone",
        ) from None


def _check_built(model: Model, topology: app.Topology, positions: np.ndarray) -> None:
    lost = np.flatnonzero(~np.isfinite(positions).all(axis=1))
    if len(lost):
        raise InputError(
            f"there is no room for {named_atoms(topology, lost)}, which the model lacks",
            source=model.path,
            remedy="look for atoms at the same place",
        )


@contextmanager
def repeatable(platform: openmm.Platform) -> Iterator[None]:
    """Make building of atoms reproducible to the bit.

    `Modeller.addSolvent` replaces water by ions at random, with Python's generator, and neither it nor pdbfixer passes
    properties to the platform: seed the generator, set the platform's defaults, and restore both.
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


def _held_links(
    topology: app.Topology,
    rigid: list[np.ndarray],
    coordination: list[tuple[int, int]],
    bonded: Mapping[int, list[app.topology.Atom]],
) -> list[tuple[int, int]]:
    """Return the bonds between residues that the force field may lack."""
    unknown = {int(index) for atoms in rigid for index in atoms}
    held = list(coordination)
    for a, b in topology.bonds():
        if a.residue is b.residue:
            continue
        ordinary = is_backbone_bond(a, b) or a.name == b.name == "SG" or is_amide_bond(a, b, bonded)
        if not ordinary or {a.index, b.index} & unknown:
            held.append((a.index, b.index))
    return held


def _describe(residues: list[WorkResidue], report: PreparationReport) -> None:
    report.added_hydrogens = sum(
        is_hydrogen(atom) and atom.source < 0 for residue in residues for atom in residue.atoms
    )
    say = report.sentences.append
    if report.chain_breaks:
        say(
            f"The backbone is broken at {counted(len(report.chain_breaks), 'place')} (both ends become termini, without "
            f"charge where there is no water): {listing(report.chain_breaks)}."
        )
    if report.added_heavy_atoms:
        total = sum(len(names) for names in report.added_heavy_atoms.values())
        say(
            f"{counted(total, 'missing heavy atom')} {'was' if total == 1 else 'were'} built in "
            f"{counted(len(report.added_heavy_atoms), 'residue')}: "
            f"{listing([' '.join([label, *names]) for label, names in report.added_heavy_atoms.items()])}."
        )
    if report.added_hydrogens:
        say(
            f"{counted(report.added_hydrogens, 'hydrogen')} {'was' if report.added_hydrogens == 1 else 'were'} added."
        )
    if report.dropped_hydrogens:
        say(
            "Input hydrogens without a counterpart (other protonation) move rigidly with their residue in the PDB file, "
            f"{len(report.dropped_hydrogens)} of them: {listing(report.dropped_hydrogens)}."
        )
    if report.substitutions:
        say(f"Residues simulated as the standard one: {listing(report.substitutions)}.")
    if report.adapted_residues:
        say(
            "Residues parametrised as the standard one with other protonation or neighbours: "
            f"{listing(report.adapted_residues)}."
        )
    if report.ligands:
        say(f"Ligands parametrised by their SMILES: {listing(report.ligands)}.")
    if report.ligand_potentials:
        say(
            "Ligands whose internal energy is a potential of their own; charges and spheres describe their interactions: "
            f"{listing(report.ligand_potentials)}."
        )
    if report.rigid_residues:
        say(
            "The force field does not know these residues. Springs hold each near the ideal shape that has its torsions; "
            "they have no charges, and the planarity restraint, if on, flattens their flat groups: "
            f"{listing(report.rigid_residues)}."
        )
    if report.links:
        say(
            f"Bonds held by springs at the library's or the input's length, which is: {listing(report.links)}."
        )


SAME_PLACE = 0.05
"""Å within which an atom counts as unmoved: files have three decimals."""


@dataclass(frozen=True)
class CompletedResidue:
    """The atoms that an earlier preparation built in a residue."""

    names: frozenset[str] = frozenset()  # The names of all its atoms
    # Element and position (Å) of each atom that the model lacks; none where the residue has moved
    built: Mapping[str, tuple[app.element.Element, np.ndarray]] = field(default_factory=dict)


def completed_residues(
    model: Model, completed: Model | None, residues: Sequence[WorkResidue]
) -> list[CompletedResidue]:
    """Return the atoms built earlier in each residue of a model."""
    if completed is None:
        return [CompletedResidue()] * len(residues)
    before = list(completed.topology.residues())
    if [_place(each) for each in before] != [_place(each) for each in model.topology.residues()]:
        raise InputError(
            "its residues differ from those of the model to complete",
            source=completed.path,
            remedy=f"give what a fit of {model.path.name} has written",
        )
    return [_with_residues_completed(work, each, completed.positions) for work, each in zip(residues, before)]


def _place(residue: app.topology.Residue) -> tuple[str, str, str]:
    return residue.chain.id, residue.id, residue.insertionCode


def _with_residues_completed(
    work: WorkResidue, before: app.topology.Residue, positions: np.ndarray
) -> CompletedResidue:
    if work.name != before.name:  # of two residues at one place the other is now the major conformer
        return CompletedResidue()
    atoms = {atom.name: atom for atom in before.atoms()}
    shared = [atom for atom in work.atoms if atom.name in atoms]
    shifts = [np.linalg.norm(atom.position - positions[atoms[atom.name].index]) for atom in shared]
    names = frozenset(atoms)
    if not shared or max(shifts) > SAME_PLACE:
        return CompletedResidue(names)
    lacking = {name: atom for name, atom in atoms.items() if work.find(name) is None}
    return CompletedResidue(
        names, {name: (atom.element, positions[atom.index]) for name, atom in lacking.items()}
    )


def add_heavy_atoms_of(
    completed: Sequence[CompletedResidue], residues: Sequence[WorkResidue], report: PreparationReport
) -> None:
    """Add the heavy atoms that were built earlier, and report them as built: the model lacks them."""
    for known, work in zip(completed, residues):
        for name, (element, position) in known.built.items():
            if element.atomic_number != 1:
                work.atoms.append(WorkAtom(name, element, position.copy()))
                report.added_heavy_atoms.setdefault(work.label, []).append(name)


def place_hydrogens_of(completed: Sequence[CompletedResidue], residues: Sequence[WorkResidue]) -> None:
    """Put built hydrogens back at their earlier positions."""
    for known, work in zip(completed, residues):
        for atom in work.atoms:
            if atom.source < 0 and is_hydrogen(atom) and atom.name in known.built:
                atom.position = known.built[atom.name][1].copy()
