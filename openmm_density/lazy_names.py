"""Names that a package imports at their first use: all of this project takes seconds, and each command needs a part."""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, where: Mapping[str, str], modules: tuple[str, ...] = (), deprecated: tuple[str, ...] = ()
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
    deprecated : tuple of str
        Modules that only stand for new names, with a warning: found, but not shown.
    """

    def find(name: str) -> Any:
        if name in where:
            found = getattr(import_module(f".{where[name]}", package), name)
        elif name in (*modules, *deprecated):
            found = import_module(f".{name}", package)
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, found)
        return found

    def names() -> list[str]:
        return [*where, *modules]

    return find, names


def moved_names(
    module: str, where: Mapping[str, str], others: Callable[[str], Any] | None = None
) -> Callable[[str], Any]:
    """Return the function ``__getattr__`` of a module some of whose names have moved to others, or have new names.

    Each is still found at its former place, with a `DeprecationWarning` that says where it is.

    Parameters
    ----------
    module : str
        The former module's ``__name__``.
    where : mapping of str to str
        The full name of the module that now defines each name, with a colon and its new name there where it has another.
    others : callable, optional
        The function ``__getattr__`` for all other names.
    """

    def find(name: str) -> Any:
        if name not in where:
            if others is not None:
                return others(name)
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        place, _, new_name = where[name].partition(":")
        new_name = new_name or name
        warnings.warn(
            f"{module}.{name} is deprecated: import {new_name} from {place}",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(import_module(place), new_name)

    return find


class FormerName:
    """The former name of an attribute, of a class and of its objects: it warns of the new one, and returns the same.

    Parameters
    ----------
    attribute : str
        Where the value is now, with dots where it belongs to a part.
    advice : str, optional
        What to use instead; ``attribute`` by default.
    """

    def __init__(self, attribute: str, advice: str | None = None) -> None:
        self._value = operator.attrgetter(attribute)
        self._advice = advice or attribute

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"{owner.__name__}.{name}"

    def __get__(self, instance: object | None, owner: type) -> Any:
        warnings.warn(f"{self._name} is deprecated: use {self._advice}", DeprecationWarning, stacklevel=2)
        return self._value(owner if instance is None else instance)
