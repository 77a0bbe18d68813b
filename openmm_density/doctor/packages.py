"""The packages that count here, and their versions."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Mapping

PACKAGES = (
    *("openmm-density", "torch", "openmm", "openmmtorch", "mdtraj", "gemmi", "mrcfile"),
    *("numpy", "scipy", "pdbfixer", "matplotlib", "rich"),
)
OPTIONAL_PACKAGES = {
    "triton": "kernels on a GPU",
    "pyrama": "tables of the Ramachandran plot",
    "openmmforcefields": "parameters of ligands",
}
"""What each is for; openmm-torch has stand-ins, and a remedy of its own."""
BUILT_FOR = {"1.5": {"torch": "2.9", "openmm": "8.4"}}
"""The versions for which releases of openmm-torch were built; beside others they load, and fail or end the process."""


def installed_versions() -> dict[str, str | None]:
    """Return the version of each package, the optional ones included; None where it is not installed."""
    return {package: _version(package) for package in (*PACKAGES, *OPTIONAL_PACKAGES)}


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


def foreign_to_openmmtorch(versions: Mapping[str, str | None]) -> dict[str, str]:
    """Return the installed packages for which the installed openmm-torch was not built, each with the version that it was."""
    built = BUILT_FOR.get(versions.get("openmmtorch") or "", {})
    return {
        package: version
        for package, version in built.items()
        if (installed := versions.get(package)) and _numbers(installed)[:2] != _numbers(version)
    }


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with, as in 2.9.1+cpu."""
    release = re.match(r"[\d.]*\d", version)
    return tuple(int(number) for number in release[0].split(".")) if release else ()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
