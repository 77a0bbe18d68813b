"""Ligands that no force field file knows: parameters from openmmforcefields for the molecules of their SMILES."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any

import gemmi
import numpy as np
from openmm import app

from ..base.cif_files import read_cif
from ..base.errors import InputError, as_argument
from ..base.wording import one_line
from .ligand_hydrogens import BuiltHydrogen, CompleteMolecule, built_hydrogens

LIGAND_FORCE_FIELDS = {"openff": "SMIRNOFFTemplateGenerator", "gaff": "GAFFTemplateGenerator"}
"""The class of openmmforcefields for each name; each uses its newest version by default and goes with Amber's force fields."""

# The toolkits' name of the charge method that both use. RDKit does not have it.
_CHARGES = "am1bcc"
# Characters of a toolkit's message to show: it lists everything that was tried.
_LONGEST = 200
_INSTALL = "conda install -c conda-forge openmmforcefields (with OpenFF toolkit and AmberTools, which pip does not have)"


class LigandParameters:
    """Parameters for ligands that are given as SMILES.

    `forcefield` {"openff", "gaff"}: see `LIGAND_FORCE_FIELDS`; `smiles`: SMILES by residue name, in the desired
    protonation. Attributes: `version`: openmmforcefields' name of the force field, as in ``openff-2.2.1``. Raises
    InputError if the name is not known, openmmforcefields is not installed, or a SMILES cannot be read.
    """

    def __init__(self, forcefield: str, smiles: Mapping[str, str]) -> None:
        if forcefield not in LIGAND_FORCE_FIELDS:
            raise InputError(
                "must be a known force field for ligands",
                argument="ligand_forcefield",
                found=f'"{forcefield}"',
                remedy=f"use {', '.join(LIGAND_FORCE_FIELDS)}",
            )
        self._argument = as_argument("ligand_forcefield", forcefield)
        self.smiles = dict(smiles)
        molecule_of, generators = self._imported("openff.toolkit", "openmmforcefields.generators")
        self._molecules = {
            name: self._read(molecule_of.Molecule, name, text) for name, text in self.smiles.items()
        }
        try:
            kind = getattr(generators, LIGAND_FORCE_FIELDS[forcefield])
            self._generator = kind(molecules=list(self._molecules.values()))
        except Exception as error:  # whatever the toolkits raise when something is missing
            raise InputError(
                f"{self._argument} cannot be used ({one_line(error)})", remedy=_INSTALL
            ) from None
        self.version = str(self._generator.forcefield)

    @property
    def names(self) -> frozenset[str]:
        """The residue names that have a SMILES."""
        return frozenset(self._molecules)

    def hydrogens(
        self, name: str, label: str, elements: Sequence[str], bonds: Sequence[tuple[int, int]], positions: Any
    ) -> list[BuiltHydrogen]:
        """Build the hydrogens of a ligand, with the geometry of a conformer of the molecule. `positions` (N, 3) in Å."""
        return built_hydrogens(self.molecule(name), label, elements, bonds, positions)

    def molecule(self, name: str) -> CompleteMolecule:
        """Return the molecule of residues with a name."""
        molecule = self._molecules[name]
        return CompleteMolecule(
            [gemmi.Element(atom.atomic_number).name for atom in molecule.atoms],
            [(bond.atom1_index, bond.atom2_index) for bond in molecule.bonds],
            np.asarray(molecule.conformers[0].m_as("angstrom"), dtype=np.float64),
            f'of the SMILES "{self.smiles[name]}"',
        )

    def add_to(
        self, forcefield: app.ForceField, residues: Iterator[tuple[str, app.topology.Residue]]
    ) -> None:
        """Add the templates and parameters of ligands, one residue of each kind, to a force field."""
        done = set()
        for label, residue in residues:
            if residue.name in done:
                continue
            done.add(residue.name)
            try:
                found = self._generator.generator(forcefield, residue)
            except Exception as error:  # whatever the toolkits and the force field raise
                said = one_line(error)
                if _CHARGES in said.lower():
                    raise InputError(
                        f"{self.version} takes its charges from AmberTools, which is not installed",
                        source=label,
                        remedy=f"{_INSTALL}, or keep it rigid, without {self._argument}",
                    ) from None
                raise InputError(
                    f"{self.version} has no parameters for it that go with the force field "
                    f"({shorten(said, _LONGEST, placeholder=' …')})",
                    source=label,
                    remedy=f"keep it rigid, without {self._argument}",
                ) from None
            if not found:
                raise InputError(
                    f"{self.version} does not recognise it",
                    source=label,
                    remedy=f"keep it rigid, without {self._argument}",
                )

    def _imported(self, *modules: str) -> list[Any]:
        try:
            return [importlib.import_module(module) for module in modules]
        except ImportError as error:
            raise InputError(
                f"{self._argument} needs openmmforcefields ({one_line(error)})", remedy=_INSTALL
            ) from None

    def _read(self, kind: Any, name: str, smiles: str) -> Any:
        try:
            molecule = kind.from_smiles(smiles, allow_undefined_stereo=True)
            molecule.generate_conformers(n_conformers=1)
        except Exception as error:  # the toolkits have exceptions of their own
            raise InputError(
                f"must be SMILES of molecules ({one_line(error)})",
                argument="ligands",
                found=f'"{smiles}" of {name}',
                remedy="correct it",
            ) from None
        return molecule


def dictionary_smiles(paths: Sequence[str | os.PathLike[str]] | str | os.PathLike[str]) -> dict[str, str]:
    """Return the SMILES in restraint dictionaries (AceDRG) and wwPDB component files, by component."""
    found: dict[str, str] = {}
    for path in [paths] if isinstance(paths, str | os.PathLike) else paths:
        if not Path(path).is_file():
            continue
        try:
            document = read_cif(path)
        except (InputError, OSError):
            continue
        for block in document:
            rows = block.find("_pdbx_chem_comp_descriptor.", ["comp_id", "type", "descriptor"])
            described = [[gemmi.cif.as_string(value) for value in row] for row in rows]
            # The canonical one has stereochemistry, which the plain one may lack.
            for kind in ("SMILES", "SMILES_CANONICAL"):
                found |= {name: text for name, given, text in described if given.upper() == kind}
    return found
