"""The packages that distillation needs beside those of every installation."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from ...base.errors import InputError
from ...base.wording import one_line

INSTALL = 'pip install "openmm-density[ligands]"'
"""What installs all of them."""


def imported(module: str, purpose: str) -> ModuleType:
    """Import a module of RDKit, tblite or safetensors."""
    try:
        return import_module(module)
    except (ImportError, OSError) as error:
        package = module.partition(".")[0]
        raise InputError(f"{purpose} needs {package} ({one_line(error)})", remedy=INSTALL) from None
