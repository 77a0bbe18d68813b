"""The error a user is meant to read, and the other errors and warnings of this package."""

from __future__ import annotations

import errno
import numbers
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any


class InputError(ValueError):
    """What the user gave cannot be used.

    The message is one sentence: what is wrong, what was found, what to do. It is put together from parts::

        argument problem, found …: remedy.                 of an argument
        source: problem, found …: remedy.                  of a file, or of a place such as a stage
        source: argument problem, found …: remedy.         of an argument that stands there
        problem, found …: remedy.                          of how several things go together

    The command line prints it without a traceback, with its own options in place of the arguments, and exits with status 2.

    Parameters
    ----------
    problem : str
        What is required of the argument ("must be 0 or more kJ/mol per fitted atom"), or what is wrong with the file ("there is
        no such file"). It begins in lower case and ends without a full stop; neither the argument nor what was found is repeated
        in it. A whole sentence, where nothing else is given, is the message as it is.
    argument : str, optional
        The Python name of the argument. Name other arguments in ``problem`` and ``remedy`` by `as_argument`.
    source : str or path, optional
        The file, or where in it.
    found : object, optional
        What was there instead. Text is written as it is, so quote what a user typed (``f'"{name}"'``); a number is written in
        its shortest form; of anything else its ``repr`` is written. Leave it out where ``problem`` says it already.
    remedy : str, optional
        What to do, as an order: "give kJ/mol, such as 10". Every error of this package has one.

    Examples
    --------
    >>> raise InputError("must be 0 or more kJ/mol per fitted atom", argument="strength", found=-3.0, remedy="give 10")
    InputError: strength must be 0 or more kJ/mol per fitted atom, found -3: give 10.

    of which ``openmm-density fit`` makes ``--strength must be 0 or more …``. A name that is none of those known:

    >>> raise InputError(
    ...     "must be a known solvent",
    ...     argument="solvent",
    ...     found=f'"{solvent}"',
    ...     remedy=f"use one of {', '.join(SOLVENTS)}",
    ... )
    InputError: solvent must be a known solvent, found "ether": use one of none, obc, gbn2, water.

    A file:

    >>> raise InputError(
    ...     "its header promises more voxels than it holds",
    ...     source=path,
    ...     found=f"{held} of {promised}",
    ...     remedy="download it again",
    ... )
    InputError: map.mrc: its header promises more voxels than it holds, found 12 of 27: download it again.

    Other arguments beside the one at fault: ``remedy=f"add it, or leave {as_argument('restrain_to')} out"``. An error that
    another function raised, of what stands in a file: ``raise error.within(path) from None``.

    Notes
    -----
    What was found may be anything: characters that would end the line or move the cursor of a terminal are written as escapes,
    and the middle of very long messages is left out.
    """

    def __init__(
        self,
        problem: str = "",
        *,
        argument: str | None = None,
        source: str | PathLike[str] | None = None,
        found: Any = None,
        remedy: str | None = None,
    ) -> None:
        self.argument, self.source, self.found, self.remedy = argument, source, found, remedy
        sentence = problem if argument is None else f"{as_argument(argument)} {problem}"
        if source is not None:
            sentence = f"{source}: {sentence}"
        if found is not None:
            sentence = f"{sentence}, found {_shown(found)}"
        if remedy is not None:
            sentence = f"{sentence}: {remedy}{'' if remedy[-1:] in '.?!' else '.'}"
        self._sentence = sentence
        super().__init__(self.spelled({}))

    def spelled(self, spellings: Mapping[str, str]) -> str:
        """Return the message with arguments written as somebody other than a Python script writes them.

        Parameters
        ----------
        spellings : mapping of str to str
            What stands for an argument, by its name: ``{"report_interval": "--report-interval"}``. Others keep their names.
        """
        sentence = with_arguments(self._sentence, spellings)
        text = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in sentence)
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - _END]} … {text[-_END:]}"

    def within(self, source: str | PathLike[str]) -> InputError:
        """Return the same error of what stands in a file, as in ``fit.toml: temperature must be …``.

        Arguments keep their Python names, which are those that the file has: they are not options of the command line.
        """
        error = InputError(f"{source}: {self}")
        error.argument, error.source, error.found, error.remedy = (
            self.argument,
            source,
            self.found,
            self.remedy,
        )
        return error


def as_argument(name: str, value: Any = None) -> str:
    """Return what names an argument in the text of an `InputError`, which writes it as its reader would."""
    if value is None:
        return f"{_BEGIN}{name}{_STOP}"
    shown = f'"{value}"' if isinstance(value, str) else _shown(value)
    return f"{_BEGIN}{name}={shown}{_STOP}"


def with_arguments(text: str, spellings: Mapping[str, str]) -> str:
    """Return a text with what `as_argument` put into it written as its reader would."""

    def spell(match: re.Match[str]) -> str:
        name, value = match.groups()
        if name not in spellings:
            return name if value is None else f"{name}={value}"
        if value in (None, "True"):
            return spellings[name]
        # A shell needs no quotes around a word.
        word = re.fullmatch(r'"([\w.-]+)"', value)
        return f"{spellings[name]} {word[1] if word else value}"

    return _ARGUMENT.sub(spell, text)


def _shown(found: Any) -> str:
    if isinstance(found, (str, PathLike)):
        return str(found)
    if isinstance(found, numbers.Real) and not isinstance(
        found, bool
    ):  # NumPy's among them, whose repr names their type
        return str(found) if isinstance(found, numbers.Integral) else f"{found:g}"
    return repr(found)


# Around an argument in a sentence: two code points that Unicode gives to no character, so that no text has them.
_BEGIN, _STOP = "\ufdd0", "\ufdd1"
_ARGUMENT = re.compile(f"{_BEGIN}([^={_BEGIN}{_STOP}]*)(?:=([^{_STOP}]*))?{_STOP}")

# Letters of a message, and of its end.
_LONGEST, _END = 1500, 300


def check_keywords(called: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Refuse keyword arguments that what is called does not take, before it does anything with the others."""
    for name in given:
        if name not in known:
            remedy = did_you_mean(name, known) or f"it takes {', '.join(known)}."
            raise TypeError(f"{called} has no argument {name}: {remedy}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question with the name that is most like one that is not known; empty where none is like it."""
    from difflib import get_close_matches

    return "".join(f"did you mean {each}?" for each in get_close_matches(name, list(known), n=1))


def level_outside() -> int:
    """Return the ``stacklevel`` of a warning that names the line which called this package, directly or through OpenMM."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _PACKAGES:
        frame, level = frame.f_back, level + 1
    return level


# A Simulation calls our reporters, and a Context our forces.
_PACKAGES = {"openmm_density", "openmm"}


def is_of_machine(error: BaseException) -> bool:
    """Return whether an error, or its cause, is the machine's, as a full disk, and not of what a user gave."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in _OF_MACHINE:
            return True
        seen = seen.__cause__ or seen.__context__
    return False


# Space, quota, failing and remote disks, memory, and as many files or processes as are allowed.
_OF_MACHINE = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.ENOMEM,
    errno.EMFILE,
    errno.ENFILE,
    errno.EAGAIN,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.EHOSTDOWN,
    errno.ENETDOWN,
    errno.ENETUNREACH,
}


class SimulationError(RuntimeError):
    """A simulation that cannot go on; the message is one sentence that says when and what to do."""


class DeveloperWarning(UserWarning):
    """What a script with OpenMM can do better; a fit by the command does not show it."""
