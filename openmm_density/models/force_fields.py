"""The force fields and solvents that a fit can choose from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..base.errors import InputError, as_argument
from .force_field_xml import find_file, is_shipped, shipped_file

FORCE_FIELDS = {
    "amber14": ("amber14-all.xml", "amber14/tip3pfb.xml"),
    "charmm36": ("charmm36.xml", "charmm36/water.xml"),
}
"""OpenMM's files for each name; any other name is a file itself."""

IMPLICIT_SOLVENTS = {"obc": "implicit/obc2.xml", "gbn2": "implicit/gbn2.xml"}
RIGID = "rigid"
"""The option of `openmm_density.models.prepare` that keeps ligands in shape by springs."""
SOLVENTS = ("none", *IMPLICIT_SOLVENTS, "water")
"""Nothing but a screened Coulomb interaction, generalised Born models, or water and ions in a box."""


def force_field_files(
    names: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], solvent: str = "none"
) -> tuple[Path, ...]:
    """Return the files of a force field and an implicit solvent in OpenMM's order; known names stand for OpenMM's own files."""
    check_force_field_names(names, solvent)
    files = []
    for name in _listed(names):
        files += (
            [shipped_file(each) for each in FORCE_FIELDS[name]] if name in FORCE_FIELDS else [find_file(name)]
        )
    if solvent in IMPLICIT_SOLVENTS:
        files.append(shipped_file(IMPLICIT_SOLVENTS[solvent]))
    return tuple(files)


def check_force_field_names(
    names: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], solvent: str = "none"
) -> None:
    """Refuse unknown names of force fields and solvents, without looking for files."""
    if solvent not in SOLVENTS:
        raise InputError(
            "must be a known solvent",
            argument="solvent",
            found=f'"{solvent}"',
            remedy=f"use {', '.join(SOLVENTS)}",
        )
    listed = _listed(names)
    if not listed:
        raise InputError(
            f"must name {', '.join(FORCE_FIELDS)}, or files of OpenMM's (XML)",
            argument="forcefield",
            found="nothing",
            remedy="give at least one",
        )
    unknown = [name for name in listed if name not in FORCE_FIELDS and not name.endswith(".xml")]
    if unknown:
        raise InputError(
            "must be a known force field",
            argument="forcefield",
            found=f'"{unknown[0]}"',
            remedy=f"use {', '.join(FORCE_FIELDS)}, or files of OpenMM's that end in .xml",
        )


def check_ligands(ligand_forcefield: str | None, smiles: Mapping[str, str]) -> None:
    """Refuse the SMILES of ligands, by residue name, without a force field to parametrise them."""
    if ligand_forcefield in (None, RIGID) and smiles:
        raise InputError(
            f"can only be used with {as_argument('ligand_forcefield')}",
            argument="ligands",
            found=f"a SMILES of {next(iter(smiles))}",
            remedy=f"add {as_argument('ligand_forcefield', 'xtb')}, or leave the SMILES out",
        )


def lasting_names(names: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return names of force fields that hold in any folder: absolute paths of the user's files, other names as given."""
    listed = _listed(names)
    own = [None if name in FORCE_FIELDS else find_file(name) for name in listed]
    return [name if path is None or is_shipped(path) else str(path) for name, path in zip(listed, own)]


def _listed(names: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    listed = [names] if isinstance(names, str | os.PathLike) else list(names)
    for name in listed:
        if not isinstance(name, str | os.PathLike):
            raise InputError(
                f"must name {', '.join(FORCE_FIELDS)}, or files of OpenMM's (XML)",
                argument="forcefield",
                found=type(name).__name__,
                remedy="give names, or paths",
            )
    return [os.fspath(name) for name in listed]
