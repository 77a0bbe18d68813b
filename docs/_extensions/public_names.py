"""References of docstrings to names inside the package: to the page of what is public, as plain code to what is not.

A docstring names things by the module that defines them, `openmm_density.models.structures.read_model`; the reference documents
them by the name that users import, ``openmm_density.models.read_model``. What neither names anything is left to the warning.
"""

from __future__ import annotations

import importlib
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

PACKAGE = "openmm_density"


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.Node | None:
    """Return a link to a name's page, its plain text where it has none, and None where there is no such name."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or target.partition(".")[0] != PACKAGE:
        return None
    found = find(target)
    if found is None:
        return None
    for name, entry in env.get_domain("py").objects.items():
        if name.rpartition(".")[2] == target.rpartition(".")[2] and find(name) is found:
            return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, content, name)
    return content


def find(target: str) -> Any:
    """Return what a dotted name stands for, None where it stands for nothing."""
    parts = target.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for name in parts[length:]:
            if not hasattr(found, name) and name not in getattr(found, "__annotations__", {}):
                return None
            found = getattr(found, name, name)
        return found
    return None


def setup(app: Sphinx) -> dict[str, bool]:
    """Take part in resolving references."""
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
