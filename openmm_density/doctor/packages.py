"""The packages that count here, and their versions."""

from __future__ import annotations

import importlib.metadata

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


def installed_versions() -> dict[str, str | None]:
    """Return the version of each package, the optional ones included; None where it is not installed."""
    return {package: _version(package) for package in (*PACKAGES, *OPTIONAL_PACKAGES)}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
