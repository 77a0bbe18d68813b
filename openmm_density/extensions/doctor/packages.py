"""The packages that count here, and their versions."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Mapping

from ...base.plugins import installed_version, openmm_torch_versions

PACKAGES = (
    *("openmm-density", "torch", "openmm", "mdtraj", "gemmi", "mrcfile"),
    *("numpy", "scipy", "pdbfixer", "matplotlib", "rich"),
)
OPTIONAL_PACKAGES = {
    "triton": "kernels on a GPU",
    "pyrama": "tables of the Ramachandran plot",
    "openmmforcefields": "parameters of ligands",
}
"""What each is for."""


def installed_versions() -> dict[str, str | None]:
    """Return the version of each package, the optional ones and openmm-torch included; None where it is not installed."""
    needed = {package: installed_version(package) for package in (*PACKAGES, *OPTIONAL_PACKAGES)}
    return needed | openmm_torch_versions()


def too_old(versions: Mapping[str, str | None]) -> dict[str, str]:
    """Return the installed packages that are older than this package needs, each with the oldest version that serves."""
    needed = {}
    try:
        requirements = importlib.metadata.requires("openmm-density") or ()
    except importlib.metadata.PackageNotFoundError:  # a clone that is on the path and not installed
        return {}
    for requirement in requirements:
        match = re.match(r"([\w-]+)>=([\d.]+)", requirement)
        if match:
            needed.setdefault(match[1], match[2])
    return {
        package: needed[package]
        for package, version in versions.items()
        if version is not None and package in needed and _numbers(version) < _numbers(needed[package])
    }


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with, as in 2.9.1+cpu."""
    release = re.match(r"[\d.]*\d", version)
    return tuple(int(number) for number in release[0].split(".")) if release else ()
