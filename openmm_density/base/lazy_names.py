"""Names that a package imports at their first use: all of this project takes seconds, and each command needs a part."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, where: Mapping[str, str], modules: tuple[str, ...] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` of a package whose names are imported at their first use.

    ``dir`` and the completion of an interactive session show these names and modules, and nothing else.

    Parameters
    ----------
    package : str
        The package's ``__name__``.
    where : mapping of str to str
        The module, below the package, that defines each name.
    modules : tuple of str
        Modules below the package that users import from: found as its attributes also before they are imported.
    """

    def find(name: str) -> Any:
        if name in where:
            found = getattr(import_module(f".{where[name]}", package), name)
        elif name in modules:
            found = import_module(f".{name}", package)
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, found)
        return found

    def names() -> list[str]:
        return [*where, *modules]

    return find, names
