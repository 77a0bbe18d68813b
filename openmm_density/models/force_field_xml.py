"""Reading of OpenMM's force field files (XML) with the files they include, and without the code that they may contain."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from xml.etree import ElementTree

from ..base.atomic_files import read_file
from ..base.errors import InputError, as_argument
from ..base.wording import one_line

if TYPE_CHECKING:
    from openmm import app

SCRIPTS = frozenset({"Script", "InitializationScript"})
"""Elements whose text OpenMM executes: one with every System that it makes, the other when it reads the file."""

# OpenMM evaluates this attribute as Python; these values are its intended use.
_EVALUATED, _PLAIN = "useDispersionCorrection", frozenset({"True", "False", "0", "1"})


@dataclass(frozen=True)
class _File:
    """A file to be loaded; OpenMM reads its own files that include nothing."""

    path: Path
    content: bytes | None = None

    @property
    def source(self) -> str | io.BytesIO:
        return str(self.path) if self.content is None else io.BytesIO(self.content)


def load_force_field(files: Sequence[Path], allow_scripts: bool = False) -> app.ForceField:
    """Read force field files and what they include; OpenMM gets the checked text, so that no file can be swapped."""
    found = tuple(_with_included(files, allow_scripts))
    try:
        if all(is_shipped(file.path) for file in found):
            return pickle.loads(_pickled(found))
        return _force_field(found)
    except Exception as error:  # ForceField raises whatever its own checks, and scripts, raise
        raise InputError(
            f"cannot be read ({one_line(error)})",
            source=f"force field {', '.join(str(path) for path in files)}",
            remedy="give OpenMM force field files, such as amber14-all.xml",
        ) from None


@lru_cache(maxsize=4)
def _pickled(files: tuple[_File, ...]) -> bytes:
    """Read OpenMM's own files once: a copy takes a fifth of the time, and can be extended."""
    return pickle.dumps(_force_field(files))


def _force_field(files: tuple[_File, ...]) -> app.ForceField:
    from openmm import app

    return app.ForceField(*(file.source for file in files))


def files_read(files: Sequence[Path]) -> list[Path]:
    """Name the files that `load_force_field` reads, without OpenMM's own."""
    return [file.path for file in _with_included(files, allow_scripts=True) if not is_shipped(file.path)]


def find_file(name: str) -> Path:
    """Find a file as OpenMM does, here or among its own; where both exist, OpenMM would take the one here."""
    here, shipped = Path(name), _shipped(name)
    if not os.path.exists(here):
        if shipped is None:
            raise InputError(
                "there is no such file, here or among those of OpenMM",
                source=f"force field {name}",
                remedy="give one, such as amber14-all.xml",
            )
        return shipped
    if shipped is not None and not name.startswith(".") and not here.samefile(shipped):
        raise InputError(
            "OpenMM has a file of this name, and so has the working folder",
            source=f"force field {name}",
            remedy=f"for the one here give {os.path.join('.', name)}, else rename it",
        )
    return Path(os.path.abspath(name))


def shipped_file(name: str) -> Path:
    """Return the path of OpenMM's own file, whatever the working folder holds."""
    found = _shipped(name)
    if found is None:
        raise InputError(
            "this OpenMM has no such file",
            source=f"force field {name}",
            remedy="install another version of OpenMM",
        )
    return found


def is_shipped(path: Path) -> bool:
    """Return whether a file is installed with OpenMM, or with a package that adds force fields to it."""
    real = Path(os.path.realpath(path))
    return any(real.is_relative_to(os.path.realpath(folder)) for folder in _shipped_folders())


def _shipped_folders() -> list[str]:
    from openmm import app

    return app.forcefield._getDataDirectories()


def _shipped(name: str) -> Path | None:
    if os.path.isabs(name):
        return None
    candidates = (Path(folder) / name for folder in _shipped_folders())
    return next((Path(os.path.abspath(path)) for path in candidates if path.is_file()), None)


def _with_included(files: Sequence[Path], allow_scripts: bool) -> Iterator[_File]:
    """Read files and what they include, in OpenMM's order, and check them."""
    queue = list(files)
    known = {os.path.realpath(path) for path in queue}
    for path in queue:  # it grows
        try:
            content = read_file(path)
        except OSError as error:
            raise InputError(
                f"cannot be read ({error.strerror or error})",
                source=f"force field {path}",
                remedy="give OpenMM force field files, such as amber14-all.xml",
            ) from None
        shipped = is_shipped(path)
        if shipped and b"<Include" not in content:
            yield _File(path)
            continue
        root = _parsed(path, content)
        if not (shipped or allow_scripts):
            _refuse_code(path, root)
        includes = root.findall("Include")
        for include in includes:
            included = _included(path, include.get("file"))
            # OpenMM also reads a file only once.
            if (real := os.path.realpath(included)) not in known:
                known.add(real)
                queue.append(included)
            root.remove(include)
        # Passed on without its includes, which OpenMM would look up again.
        yield _File(path, ElementTree.tostring(root, "utf-8") if includes else content)


def _included(path: Path, name: str | None) -> Path:
    if name is None:
        raise InputError(
            "an <Include> names no file",
            source=f"force field {path}",
            remedy="correct the file",
        )
    beside = path.parent / name
    try:
        return Path(os.path.abspath(beside)) if beside.is_file() else find_file(name)
    except InputError as error:
        raise error.within(f"force field {path}, in an <Include>") from None


class _WithoutDoctype(ElementTree.TreeBuilder):
    """Refuse a document type before any of its entities is expanded."""

    def doctype(self, *_: object) -> NoReturn:
        """Raise, as no force field file has one."""
        raise _DoctypeError


class _DoctypeError(Exception):
    pass


def _parsed(path: Path, content: bytes) -> ElementTree.Element:
    try:
        root = ElementTree.fromstring(content, ElementTree.XMLParser(target=_WithoutDoctype()))
    except _DoctypeError:
        raise InputError(
            "it declares a document type (<!DOCTYPE>), which no force field needs and which can make a file "
            "grow without end",
            source=f"force field {path}",
            remedy="take that line out",
        ) from None
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise InputError(
            f"cannot be read ({one_line(error)})",
            source=f"force field {path}",
            remedy="give OpenMM force field files, such as amber14-all.xml",
        ) from None
    if root.tag != "ForceField":
        raise InputError(
            f"it begins with <{root.tag}>, not <ForceField>",
            source=f"force field {path}",
            remedy="give OpenMM force field files, such as amber14-all.xml",
        )
    return root


def _refuse_code(path: Path, root: ElementTree.Element) -> None:
    for element in root.iter():
        if element.tag in SCRIPTS:
            found = f"<{element.tag}>"
        elif element.get(_EVALUATED, "True") not in _PLAIN:
            found = f"in the attribute {_EVALUATED}"
        else:
            continue
        raise InputError(
            f"it holds Python code ({found}), which OpenMM would run",
            source=f"force field {path}",
            remedy=f"read it, and only if you trust it allow that by {as_argument('allow_scripts', True)}",
        )
