"""Make OpenMM find openmm-torch's platform plugins in whichever order things are imported."""

from __future__ import annotations

import logging
import re
from types import ModuleType

import torch  # noqa: F401  (the plugins need torch's libraries in the process)
from openmm import OpenMMException, Platform

_FAILURE = re.compile(r"Error loading library (?P<path>.*?\.(?:so|dylib|dll)): (?P<reason>.*)", re.DOTALL)

_unloaded: dict[str, str] = {}


def load_torch_plugins() -> None:
    """Load the openmm-torch plugins that OpenMM could not, because it was imported before torch."""
    for failure in Platform.getPluginLoadFailures():
        match = _FAILURE.match(failure)
        if match is None or "Torch" not in match["path"].rsplit("/", 1)[-1]:
            continue
        try:
            Platform.loadPluginLibrary(match["path"])
        except OpenMMException as error:
            _unloaded[match["path"]] = str(error)
        else:
            _unloaded.pop(match["path"], None)


def unloaded_plugins() -> dict[str, str]:
    """Give the openmm-torch plugins that do not load here, each with the loader's own words."""
    return dict(_unloaded)


def openmmtorch() -> ModuleType:
    """Import openmm-torch without its note on a deprecated name of OpenMM."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        import openmmtorch
    finally:
        logging.disable(level)
    return openmmtorch
