"""Which ligands of a model get which potential: those of files that are given, of the cache, or distilled now."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gemmi
from openmm import app

from ...chemistry.elements import is_hydrogen
from ...chemistry.residues import residue_label
from ...distillation import Ligand, LigandEnergy
from ...distillation.accuracy import FORCE_LIMIT
from ...errors import InputError, as_argument
from ...models.ligand_hydrogens import graph_of, same_atoms
from ...models.ligand_potentials import XTB
from ...models.ligands import dictionary_smiles
from ...models.model import Model
from ...models.preparation.ligand_residues import check_names, ligands_of
from ...wording import listing
from .cache import cached_path, only_one, same_molecule

Paths = Sequence[str | os.PathLike[str]] | str | os.PathLike[str]
Say = Callable[[int, int, str], None]
"""Called with what is done, of how much, and what is being done."""


@dataclass(frozen=True)
class LigandSources:
    """What a user says of ligands that get a potential.

    Attributes
    ----------
    smiles : mapping of str to str
        By residue name.
    dictionaries : path or sequence of paths
        Which hold SMILES of others.
    files : path or sequence of paths
        Potentials that were made before.
    threads : int, optional
        Of a distillation.
    """

    smiles: Mapping[str, str] = field(default_factory=dict)
    dictionaries: Paths = ()
    files: Paths = ()
    threads: int | None = None


@dataclass(frozen=True)
class FoundPotentials:
    """The potentials of a model's ligands by residue name, and sentences on ligands that have none."""

    by_name: dict[str, LigandEnergy]
    notes: list[str]

    @property
    def paths(self) -> list[Path]:
        """The files that they are from."""
        return list(dict.fromkeys(each.path for each in self.by_name.values() if each.path is not None))


def find_potentials(
    model: Model, forcefield: app.ForceField, sources: LigandSources, say: Say | None = None
) -> FoundPotentials:
    """Return potentials for the free ligands of a model that its force field does not know; distil those that there are not.

    Parameters
    ----------
    model : Model
    forcefield : ForceField
    sources : LigandSources
    say : callable, optional
        See `Say`.

    Raises
    ------
    InputError
        If no ligand can have a potential, a file is of none of them, a SMILES is not that of its ligand, or one cannot be
        distilled.
    """
    # Before minutes are spent on others.
    check_names(model, forcefield, sources.smiles)
    ligands = ligands_of(model, forcefield)
    residues: dict[str, app.topology.Residue] = {}
    for residue in ligands.free:
        residues.setdefault(residue.name, residue)
    smiles = {**dictionary_smiles(sources.dictionaries), **sources.smiles}
    found = _of_files(model, residues, smiles, sources.files)
    unknown = []
    for name, residue in residues.items():
        if name not in found and name in smiles:
            found[name] = _made(residue, smiles[name], sources, say)
        elif name not in found:
            unknown.append(residue)
    if not found:
        _refuse(model, ligands.bound, ligands.with_metal, unknown)
    notes = []
    if unknown:
        notes.append(
            "Kept rigid, as their charge and the orders of their bonds are not known (a SMILES, or a dictionary with one, "
            f"gives them a potential): {listing([residue_label(residue) for residue in unknown])}."
        )
    notes += [
        f"The potential of {name} is not as near to {each.known.teacher.method} as it should be (forces within "
        f"{each.known.accuracy.force_mae:.1f} kcal/mol/Å at {each.known.accuracy.temperature:g} K, where {FORCE_LIMIT:g} is "
        "asked for, or it broke in its own dynamics): distil it with another seed, and give that file."
        for name, each in found.items()
        if not each.known.done
    ]
    return FoundPotentials(found, notes)


def _of_files(
    model: Model,
    residues: Mapping[str, app.topology.Residue],
    smiles: Mapping[str, str],
    files: Paths,
) -> dict[str, LigandEnergy]:
    """Return the potentials of files by the name of the residue whose heavy atoms and bonds are theirs.

    Stereoisomers, and protonation states, have the same: where a file could be of several residues, or a residue could have
    several files, the SMILES says which it is.
    """
    paths = [files] if isinstance(files, str | os.PathLike) else files
    energies = [LigandEnergy.read(path) for path in paths]
    names = [
        [name for name, residue in residues.items() if _is_of(energy.known.ligand, residue)]
        for energy in energies
    ]
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
        if fitting:
            found[name] = fitting[-1]
    return found


def _is_of(ligand: Ligand, residue: app.topology.Residue) -> bool:
    """Return whether a residue has the heavy atoms and bonds of a molecule."""
    symbols = [gemmi.Element(number).name for number in ligand.elements]
    whole = graph_of(symbols, [(i, j) for i, j, _ in ligand.bonds])
    heavy = whole.subgraph([k for k, symbol in enumerate(symbols) if symbol != "H"])
    atoms = _heavy_atoms(residue)
    place = {atom.index: k for k, atom in enumerate(atoms)}
    bonds = [
        (place[a.index], place[b.index])
        for a, b in residue.internal_bonds()
        if a.index in place and b.index in place
    ]
    own = graph_of([atom.element.symbol for atom in atoms], bonds)
    return len(own) == len(heavy) and next(same_atoms(heavy, own), None) is not None


def _heavy_atoms(residue: app.topology.Residue) -> list[app.topology.Atom]:
    return [atom for atom in residue.atoms() if atom.element is not None and not is_hydrogen(atom)]


def _made(
    residue: app.topology.Residue, smiles: str, sources: LigandSources, say: Say | None
) -> LigandEnergy:
    """Return the potential of a molecule from the cache, or distil it, and keep it there."""
    name = residue.name
    ligand = _molecule(name, smiles)
    if not _is_of(ligand, residue):
        n_heavy = sum(number > 1 for number in ligand.elements)
        raise InputError(
            f'its {len(_heavy_atoms(residue))} heavy atoms and their bonds are not the {n_heavy} of the SMILES "{smiles}"',
            source=residue_label(residue),
            remedy="give that of what is in the model",
        )
    path = cached_path(ligand, name, XTB)
    with only_one(path):
        known = same_molecule(path)
        if known is None:
            from ...distillation import distill, save

            told = None if say is None else lambda done, of, doing: say(done, of, f"{name}: {doing}")
            # What the teacher said is kept until there is a potential: an interrupted distillation goes on from it.
            labels = path.with_suffix(".labels")
            made = distill(name, smiles=smiles, labels=labels, threads=sources.threads, progress=told)
            save(path, made.potential)
            labels.unlink(missing_ok=True)
            known = path
    return LigandEnergy.read(known)


def _molecule(name: str, smiles: str) -> Ligand:
    """Return the molecule that the SMILES of a residue is."""
    from ...distillation.molecule import ligand_of, read_molecule

    return ligand_of(read_molecule(name, smiles=smiles))


def _refuse(
    model: Model,
    bound: Sequence[app.topology.Residue],
    with_metal: Sequence[app.topology.Residue],
    unknown: Sequence[app.topology.Residue],
) -> None:
    """Raise an error, as no ligand of a model can have a potential."""
    if unknown:
        raise InputError(
            f"{residue_label(unknown[0])} can have no potential, as its charge and the orders of its bonds are not known",
            source=model.path,
            remedy=f"give {_what_to_give(unknown[0].name)}",
        )
    why = "it has no ligand that the force field does not know"
    if bound:
        why = f"{residue_label(bound[0])} is bound to another residue"
    elif with_metal:
        why = f"{residue_label(with_metal[0])} has a metal in it"
    raise InputError(
        f"{as_argument('ligand_forcefield', XTB)} has no free ligand to give a potential, as {why}",
        source=model.path,
        remedy="leave it out",
    )


def _what_to_give(name: str) -> str:
    return f"{as_argument('ligands', f'{name}=SMILES')}, or a {as_argument('dictionaries')} with its SMILES"
