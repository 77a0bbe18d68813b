"""The command line: ``fit | simulate | score | report | planes``, and the commands of extensions."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, NoReturn

from ..base.errors import InputError, SimulationError, did_you_mean, is_of_machine
from ..base.wording import one_line
from . import fit, planes, report, score, simulate
from .arguments import PROGRAM, Parser, spelled, spellings
from .startup import INTERRUPTED, end_process, note_start

__all__ = ["build_parser", "main", "program"]


def program() -> NoReturn:
    """Run the command of this process's arguments, and end the process."""
    end_process(main())


def main(
    arguments: Sequence[str] | None = None, commands: Mapping[str, Callable[..., int]] = MappingProxyType({})
) -> int:
    """Run a command (`commands` replace its own function); return 0, 1 for what failed on the way, 2 for unusable input."""
    note_start(is_process=arguments is None)
    parser, functions = _parser()
    options, unknown = parser.parse_known_args(arguments)
    name = f"{PROGRAM} {options.command}"
    try:
        os.getcwd()
    except OSError:  # torch would end the process without a message
        print(
            f"{name}: error: the folder that this was started in is gone: change to another one",
            file=sys.stderr,
        )
        return 2
    if unknown:
        asked = did_you_mean(unknown[0].partition("=")[0], map(spelled, vars(options)))
        said = f"{': ' if asked else ''}{asked} (see {name} --help)"
        print(f'{name}: error: "{unknown[0]}" is not understood{said}', file=sys.stderr)
        return 2
    empty = [given for given, value in vars(options).items() if value == "" or value == [""]]
    if empty:
        print(f"{name}: error: {spelled(empty[0])} is empty (see {name} --help)", file=sys.stderr)
        return 2
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed by the shell
            setattr(sys, stream, open(os.devnull, "w"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a locale that has no Å is no reason to fail
    if threading.current_thread() is threading.main_thread():
        # A batch system's limit ends a fit as Ctrl-C does.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    warnings.showwarning = _once_each()
    try:
        return {**functions, **commands}[options.command](options)
    except BrokenPipeError:
        return 141
    except KeyboardInterrupt:
        status, said = INTERRUPTED, "interrupted; nothing was written"
    except (InputError, SimulationError, OSError, MemoryError) as error:
        is_given = isinstance(error, (InputError, OSError)) and not is_of_machine(error)
        status = 2 if is_given else 1
        sentence = sentence_of(error, options)
        said = f"error: {sentence}{'' if sentence[-1:] in '.?!' else '.'}"
    print(f"{name}: {said}", file=sys.stderr)
    return status


def sentence_of(error: Exception, options: argparse.Namespace) -> str:
    """Return what is printed of an error that ends a command."""
    if isinstance(error, InputError):
        return error.spelled(spellings(vars(options)))
    if isinstance(error, OSError):
        return f"{error.filename or 'a file'}: {error.strerror or one_line(error)}"
    if isinstance(error, MemoryError):
        return f"not enough memory ({one_line(error)}): is the resolution right, or the map too large?"
    return str(error)


def _once_each() -> Callable[..., None]:
    """Return a function that prints each warning once: a fit builds its forces again for every segment."""
    said: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in said:
            said.add(str(message))
            print(f"openmm-density: warning: {message}", file=sys.stderr)

    return show


_EPILOG = (
    f"{PROGRAM} COMMAND --help has the options of each. All figures of a fit are in summary.json in its folder; score, planes, "
    "b-factors and doctor print theirs with --json. Exit status: 0 complete, 1 it failed on the way, 2 unusable input, "
    "130 interrupted."
)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands, of which `main` runs one."""
    return _parser()[0]


def _parser() -> tuple[Parser, dict[str, Callable[..., int]]]:
    """Return the parser of all commands, and the function of each."""
    parser = Parser(
        prog=PROGRAM, description="Fit atomic models into density maps with OpenMM.", epilog=_EPILOG
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, default=argparse.SUPPRESS, help="print the version"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    functions: dict[str, Callable[..., int]] = {}
    for command in (fit, simulate, score, report, planes, *_of_extensions()):
        command.add_parser(commands)
        functions[list(commands.choices)[-1]] = command.run
    return parser, functions


def _of_extensions() -> list[ModuleType]:
    """Return the modules of the commands that extensions have: ``command.py`` in the folder of each."""
    folder = Path(__file__).parents[1] / "extensions"
    found = sorted(path.parent.name for path in folder.glob("*/command.py"))
    return [import_module(f"..extensions.{name}.command", __name__) for name in found]


class _Version(argparse.Action):
    """Print the version, which takes an import that other commands do without."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        from .. import __version__

        print(f"openmm-density {__version__}")
        parser.exit()
