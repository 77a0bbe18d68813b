"""Which ligands of a model get which potential: those of files that are given, of the cache, or distilled now."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import gemmi
import numpy as np
from openmm import app

from openmm_density.kernels.compilation import cache_folder

from ...base.errors import InputError, as_argument
from ...base.units import ANGSTROM_PER_NANOMETER
from ...base.wording import listing, residue_label
from ...fitting.locks import Waiting, held
from ...fitting.options import PreparationOptions
from ...models.ligand_hydrogens import CompleteMolecule
from ...models.ligand_identity import HeavyAtoms, is_of, is_part_of, unlike
from ...models.ligand_potentials import OPENMM_ML, XTB, FoundPotentials
from ...models.ligands import dictionary_smiles
from ...models.model import Model
from ...models.preparation.ligand_residues import Ligands, check_names, ligands_of
from ..distillation import FORCE_LIMIT, Ligand, LigandEnergy
from .openmm_ml import OpenMMMLEnergy, check_known, openmm_ml_energy

Paths = Sequence[str | os.PathLike[str]] | str | os.PathLike[str]
Say = Callable[[int, int, str], None]
"""Called with what is done, of how much, and what is being done."""


@dataclass(frozen=True)
class LigandSources:
    """What a user says of ligands that get a potential."""

    smiles: Mapping[str, str] = field(default_factory=dict)  # By residue name
    dictionaries: Paths = ()  # Which hold SMILES of others
    files: Paths = ()  # Potentials that were made before
    threads: int | None = None  # Of a distillation
    solvent: str = "none"  # Of the fit
    ligand_forcefield: str = XTB  # What gives the potentials: ``xtb``, or one of OpenMM-ML


def potentials_asked(
    model: Model, forcefield: app.ForceField, asked: PreparationOptions, threads: int | None, say: Say | None
) -> FoundPotentials:
    """Return the potentials of a model's ligands that the options of a fit ask for."""
    sources = LigandSources(
        asked.ligands or {},
        asked.dictionaries,
        asked.ligand_files,
        threads,
        asked.solvent,
        str(asked.ligand_forcefield),
    )
    return find_potentials(model, forcefield, sources, say)


def find_potentials(
    model: Model, forcefield: app.ForceField, sources: LigandSources, say: Say | None = None
) -> FoundPotentials:
    """Return potentials for the free ligands of a model that its force field does not know; distil those that there are not.

    `say`: see `Say`. Raises InputError if no ligand can have a potential, a file is of none of them, a SMILES is not
    that of its ligand, or one cannot be distilled.
    """
    by_openmm_ml = sources.ligand_forcefield.startswith(OPENMM_ML)
    if by_openmm_ml:
        check_known(sources.ligand_forcefield)
    # Before minutes are spent on others.
    check_names(model, forcefield, sources.smiles)
    ligands = ligands_of(model, forcefield)
    copies: dict[str, list[app.topology.Residue]] = {}
    for residue in ligands.free:
        copies.setdefault(residue.name, []).append(residue)
    # Models often lack what their maps do not show.
    residues = {name: max(each, key=lambda one: len(HeavyAtoms.of(one))) for name, each in copies.items()}
    smiles = {**dictionary_smiles(sources.dictionaries), **sources.smiles}
    found: dict[str, LigandEnergy | OpenMMMLEnergy] = {**_of_files(model, residues, smiles, sources)}
    unknown: list[app.topology.Residue] = []
    others: list[str] = []
    wanted: dict[str, Ligand] = {}
    for name, residue in residues.items():
        if name not in found and name not in smiles:
            unknown.append(residue)
            continue
        own = found.get(name)
        ligand = own.known.ligand if isinstance(own, LigandEnergy) else _molecule(name, smiles[name])
        _check_is_of(ligand, residue)
        said = {residue_label(one): unlike(as_molecule(ligand), one, model.positions) for one in copies[name]}
        if all(said.values()):
            others += [f"{label} ({difference})" for label, difference in said.items()]
            found.pop(name, None)
        elif name not in found:
            wanted[name] = ligand
    for name, ligand in wanted.items():
        if by_openmm_ml:
            found[name] = openmm_ml_energy(ligand, sources.ligand_forcefield, _charges(ligand))
        else:
            found[name] = _made(name, ligand, smiles[name], sources, say)
    if not found:
        _refuse(model, sources.ligand_forcefield, ligands, unknown, others)
    return FoundPotentials(found, _notes(found, unknown, others, sources.solvent))


def _notes(
    found: Mapping[str, LigandEnergy | OpenMMMLEnergy],
    unknown: Sequence[app.topology.Residue],
    others: Sequence[str],
    solvent: str,
) -> list[str]:
    """Return sentences on ligands without a potential, and on potentials that are not what they should be."""
    notes = []
    if unknown:
        notes.append(
            "Kept rigid, as their charge and the orders of their bonds are not known (a SMILES, or a dictionary with one, "
            f"gives them a potential): {listing([residue_label(residue) for residue in unknown])}."
        )
    if others:
        notes.append(f"Kept rigid, as they are not what their SMILES says: {listing(others)}.")
    for name, each in found.items():
        if isinstance(each, OpenMMMLEnergy):
            continue
        teacher = each.known.teacher
        if not each.known.done:
            notes.append(
                f"The potential of {name} is not as near to {teacher.method} as it should be (forces within "
                f"{each.known.accuracy.force_mae:.1f} kcal/mol/Å at {each.known.accuracy.temperature:g} K, where "
                f"{FORCE_LIMIT:g} is asked for, or it broke in its own dynamics): distil it with more rounds or "
                "another seed, and give that file."
            )
        if teacher.solvent is not None and solvent != "none":
            notes.append(
                f"The potential of {name} was learned in {teacher.solvent}, and the fit has a solvent of its own: it is "
                f"counted twice. Distil {name} without a solvent, and give that file."
            )
    return notes


def _of_files(
    model: Model,
    residues: Mapping[str, app.topology.Residue],
    smiles: Mapping[str, str],
    sources: LigandSources,
) -> dict[str, LigandEnergy]:
    """Return the potentials of files by the name of the residue whose heavy atoms and bonds are theirs.

    Stereoisomers, and protonation states, have the same: where a file could be of several residues, or a residue could have
    several files, the SMILES says which it is.
    """
    files = sources.files
    paths = [files] if isinstance(files, str | os.PathLike) else files
    energies = [LigandEnergy.read(path) for path in paths]
    names = [_names_of(as_molecule(energy.known.ligand), residues) for energy in energies]
    for path, energy, own in zip(paths, energies, names):
        if not own:
            raise InputError(
                f'is of "{energy.smiles}", which no free ligand of {model.path} is that the force field does not know',
                argument="ligand_potentials",
                found=str(path),
                remedy="give that of a ligand in the model, or leave it out",
            )
    found = {}
    for name, residue in residues.items():
        fitting = [energy for energy, own in zip(energies, names) if name in own]
        is_shared = any(name in own and len(own) > 1 for own in names)
        if name in smiles and (is_shared or len({energy.smiles for energy in fitting}) > 1):
            wanted = _molecule(name, smiles[name]).smiles
            fitting = [energy for energy in fitting if energy.smiles == wanted]
        if len({energy.smiles for energy in fitting}) > 1:
            molecules = listing([f'"{energy.smiles}"' for energy in fitting])
            raise InputError(
                f"{residue_label(residue)} may be {molecules}, by its atoms and bonds",
                argument="ligand_potentials",
                remedy=f"give {as_argument('ligands', f'{name}=SMILES')}, or one of them only",
            )
        if fitting and name in sources.smiles:
            _check_smiles(name, sources.smiles[name], fitting[-1])
        if fitting:
            found[name] = fitting[-1]
    return found


def _check_smiles(name: str, smiles: str, energy: LigandEnergy) -> None:
    """Refuse a potential of another molecule than the user says that a ligand is."""
    wanted = _molecule(name, smiles).smiles
    # RDKit's canonical SMILES change between its versions: both are written by this one.
    if wanted not in (energy.smiles, _molecule(name, energy.smiles).smiles):
        raise InputError(
            f'is of "{energy.smiles}", while {as_argument("ligands", f"{name}={smiles}")} says another molecule, or '
            "another protonation or handedness of it",
            argument="ligand_potentials",
            found=str(energy.path),
            remedy="give one of the two",
        )


def as_molecule(ligand: Ligand) -> CompleteMolecule:
    """Return a ligand with the symbols of its elements, and its positions in Å."""
    symbols = [gemmi.Element(number).name for number in ligand.elements]
    bonds = [(i, j) for i, j, _ in ligand.bonds]
    return CompleteMolecule(
        symbols, bonds, ligand.positions * ANGSTROM_PER_NANOMETER, f'of the SMILES "{ligand.smiles}"'
    )


def _names_of(molecule: CompleteMolecule, residues: Mapping[str, app.topology.Residue]) -> list[str]:
    """Return the names of residues with the heavy atoms and bonds of a molecule; without any, those with some of them."""
    whole = [name for name, residue in residues.items() if is_of(molecule, residue)]
    return whole or [name for name, residue in residues.items() if is_part_of(molecule, residue)]


def _check_is_of(ligand: Ligand, residue: app.topology.Residue) -> None:
    """Refuse a molecule that a residue is no part of."""
    if not _names_of(as_molecule(ligand), {residue.name: residue}):
        n_heavy = sum(number > 1 for number in ligand.elements)
        raise InputError(
            f"its {len(HeavyAtoms.of(residue))} heavy atoms and their bonds are not the {n_heavy} of the SMILES "
            f'"{ligand.smiles}"',
            source=residue_label(residue),
            remedy="give that of what is in the model",
        )


def _made(name: str, ligand: Ligand, smiles: str, sources: LigandSources, say: Say | None) -> LigandEnergy:
    """Return the potential of a molecule from the cache, or distil it, and keep it there."""
    path = cached_path(ligand, name, XTB)
    told = None if say is None else lambda done, of, doing: say(done, of, f"{name}: {doing}")
    with only_one(
        path, told and (lambda holder: told(0, 1, f"waiting for its potential ({holder} makes it)"))
    ):
        known = same_molecule(path)
        if known is None:
            from ..distillation import distill, write_potential

            # What the teacher said is kept until there is a potential: an interrupted distillation goes on from it.
            labels = path.with_suffix(".labels")
            made = distill(name, smiles=smiles, labels=labels, threads=sources.threads, progress=told)
            write_potential(path, made.potential)
            labels.unlink(missing_ok=True)
            known = path
    return LigandEnergy.read(known)


def _charges(ligand: Ligand) -> np.ndarray:
    """Return partial charges of a molecule by GFN2-xTB."""
    from ..distillation import Labeller

    labels = Labeller(ligand)(ligand.positions[None])
    if not np.isfinite(labels.energies[0]):
        raise InputError(
            "GFN2-xTB finds no partial charges for it",
            source=ligand.smiles,
            remedy="check the charge and the hydrogens of its SMILES, or keep it rigid",
        )
    found = labels.charges[0]
    return found + (ligand.charge - found.sum()) / len(found)


def _molecule(name: str, smiles: str) -> Ligand:
    """Return the molecule that the SMILES of a residue is."""
    from ..distillation import ligand_of, read_molecule

    return ligand_of(read_molecule(name, smiles=smiles))


def _refuse(
    model: Model,
    ligand_forcefield: str,
    ligands: Ligands,
    unknown: Sequence[app.topology.Residue],
    others: Sequence[str],
) -> None:
    """Raise an error, as no ligand of a model can have a potential."""
    if others:
        raise InputError(
            f"no ligand in it is what its SMILES says: {listing(others)}",
            source=model.path,
            remedy="complete or correct the model, give the SMILES of what is in it, or keep ligands rigid",
        )
    if unknown:
        raise InputError(
            f"{residue_label(unknown[0])} can have no potential, as its charge and the orders of its bonds are not known",
            source=model.path,
            remedy=f"give {_what_to_give(unknown[0].name)}",
        )
    why = "it has no ligand that the force field does not know"
    if ligands.bound:
        why = f"{residue_label(ligands.bound[0])} is bound to another residue"
    elif ligands.with_metal:
        why = f"{residue_label(ligands.with_metal[0])} has a metal in it"
    raise InputError(
        f"{as_argument('ligand_forcefield', ligand_forcefield)} has no free ligand to give a potential, as {why}",
        source=model.path,
        remedy="leave it out",
    )


def _what_to_give(name: str) -> str:
    return f"{as_argument('ligands', f'{name}=SMILES')}, or a {as_argument('dictionaries')} with its SMILES"


LIGANDS = "ligands"
"""The folder within the package's cache."""

_SUFFIX = ".safetensors"
# What is hashed; another number makes all potentials anew.
_VERSION = 1


def cached_path(ligand: Ligand, name: str, teacher: str) -> Path:
    """Return where the potential of a molecule is kept, by its graph, charge, teacher, and the versions of that and of ours."""
    versions = [_version(package) for package in ("openmm-density", "tblite")]
    key = json.dumps([_VERSION, ligand.smiles, ligand.charge, teacher, *versions])
    return _folder() / f"{_safe(name)}-{hashlib.sha256(key.encode()).hexdigest()[:20]}{_SUFFIX}"


def same_molecule(path: Path) -> Path | None:
    """Return a file of the same molecule, under whatever name of a residue; None where there is none."""
    digest = path.name.rpartition("-")[2]
    return next(iter(sorted(path.parent.glob(f"*-{digest}"))), None)


@contextmanager
def only_one(path: Path, waiting: Waiting | None = None) -> Iterator[None]:
    """Let one process at a time make what belongs at a path; the others wait for it."""
    if not cache_folder.make(path.parent):
        raise InputError(
            "potentials of ligands cannot be kept there",
            source=path.parent,
            remedy="set OPENMM_DENSITY_CACHE to a folder that you alone can write to",
        )
    with held(path.with_name(f".{path.name}.lock"), waiting):
        yield


def _folder() -> Path:
    return cache_folder.usable_folder()[0] / LIGANDS


def _safe(name: str) -> str:
    return "".join(letter for letter in name if letter.isalnum()) or "ligand"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
