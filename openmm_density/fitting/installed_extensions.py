"""Extensions that are installed: the core calls them here, and knows no type of theirs; `extension` says what they are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from ..base.errors import InputError

GROUP, FUNCTIONS = "openmm_density.extensions", "openmm_density.functions"
OWN = Path(__file__).parents[1] / "extensions" / "entry_points.txt"


class Unfinished(NamedTuple):
    """What an extension was interrupted in, after the fit of one model was complete, and why to go on with it."""

    what: str
    remedy: str


@cache
def extensions() -> tuple[Any, ...]:
    """Return the installed extensions, this package's first, others by name; ImportError names an entry point that fails."""
    return tuple(_extension(name, target) for name, target in declared_entry_points(OWN, sys.path).items())


def function_of_extension(name: str, otherwise: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return a function of an extension, as ``find_assembly``, by its entry point; where there is none, another or InputError."""
    target = declared_entry_points(OWN, sys.path, FUNCTIONS).get(name)
    if target is None and otherwise is not None:
        return otherwise
    if target is None:
        raise InputError(
            f"this needs an extension with {name}, and none is installed",
            remedy="install the package again, or leave the option out",
        )
    return _loaded(name, target)


def answered() -> set[str]:
    """Return the keys of protocols and stages that extensions answer."""
    return {key for extension in extensions() for key in extension.answers}


def extension_options() -> list[Any]:
    """Return the options of all extensions."""
    found: dict[str, Any] = {}
    for option in (option for extension in extensions() for option in extension.options):
        same = found.get(option.name)
        found[option.name] = option if same is None else replace(same, help=f"{same.help}; {option.help}")
    return list(found.values())


def split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return options with those of extensions, by default where not given, and the others alone, without "solvent"."""
    defaults = {option.name: option.default for option in extension_options()}
    others = {name: value for name, value in options.items() if name not in {*defaults, "solvent"}}
    return {**defaults, **options}, others


def extended(
    fit: Any, result: Any, folder: Any = None, stop: Any = None, progress: Callable[..., None] | None = None
) -> Any:
    """Return the result of a fit that is complete with what extensions find yet."""
    for extension in extensions():
        result = extension.after(fit, result, folder, stop or _Never(), progress or (lambda *_: None))
    return result


class _Never:
    requested = False


def protocol_asked(protocol: Any, asked: Mapping[str, Any]) -> Any:
    """Return a protocol with what the options of extensions ask for."""
    for extension in extensions():
        protocol = extension.protocol(protocol, asked)
    return protocol


def declared_entry_points(own: Path, folders: Iterable[str], group: str = GROUP) -> dict[str, str]:
    """Return a group's ``package.module:Class`` by name, of a file, then of folders: `importlib.metadata` is too slow."""
    found = dict(_declared(own, group))
    others = {}
    for folder in dict.fromkeys(folders):
        for kind in ("dist-info", "egg-info"):
            for path in Path(folder or ".").glob(f"*.{kind}/entry_points.txt"):
                with suppress(
                    OSError, UnicodeDecodeError
                ):  # of a package that is just being removed, or none
                    others |= dict(_declared(path, group))
    # What an installation says of this package may be of an earlier state of it.
    names = sorted(
        name for name in others.keys() - found.keys() if not others[name].startswith("openmm_density.")
    )
    return found | {name: others[name] for name in names}


def _declared(path: Path, group: str) -> Iterator[tuple[str, str]]:
    """Yield name and object of each entry point of a group in a file."""
    text = path.read_text(encoding="utf-8")
    if f"[{group}]" in text:
        for line in text.partition(f"[{group}]")[2].partition("\n[")[0].splitlines():
            name, equals, target = line.partition("=")
            if equals:
                yield name.strip(), target.strip()


def _loaded(name: str, target: str) -> Any:
    module, _, attribute = target.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ImportError(
            f"the extension {name} of openmm-density ({target}) cannot be imported: {error}"
        ) from error


def _extension(name: str, target: str) -> Any:
    extension = _loaded(name, target)()
    extension.name = name
    return extension
