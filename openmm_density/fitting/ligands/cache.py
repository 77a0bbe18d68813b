"""Where distilled potentials of ligands are kept, so that each is made once."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from openmm_density.kernels.compilation import cache_folder

from ...distillation import Ligand
from ...errors import InputError
from ..locks import Waiting, held

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
