"""Names that a package imports at their first use: all of this project takes seconds, and each command needs a part."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, modules: tuple[str, ...] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` of a package (its ``__name__``) whose names are imported at their
    first use.

    These are the names that it imports ``if TYPE_CHECKING``, from where they are imported there, and `modules` below it that
    users import from: ``dir`` and the completion of an interactive session show these, and nothing else.
    """
    where = _declared(package)

    def find(name: str) -> Any:
        if name in where:
            found = getattr(import_module(where[name], package), name)
        elif name in modules:
            found = import_module(f".{name}", package)
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, found)
        return found

    def names() -> list[str]:
        return [*where, *modules]

    return find, names


def _declared(package: str) -> dict[str, str]:
    """Return the module below a package that each name is from which the package imports for type checkers."""
    tree = ast.parse(sys.modules[package].__spec__.loader.get_source(package))
    return {
        each.name: f"{'.' * statement.level}{statement.module}"
        for block in tree.body
        if isinstance(block, ast.If)  # TYPE_CHECKING
        for statement in block.body
        for each in statement.names
    }
