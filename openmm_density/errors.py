"""The error a user is meant to read."""

from __future__ import annotations


class InputError(ValueError):
    """What the user gave cannot be used.

    The message is one sentence that names the file or argument, says what was found and what to do.
    The command line prints it without a traceback and exits with status 2.

    What was found may be anything: characters that would end the line or move the cursor of a terminal are written as escapes,
    and the middle of very long messages is left out.
    """

    def __init__(self, message: str = "") -> None:
        text = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in message)
        if len(text) > _LONGEST:
            text = f"{text[: _LONGEST - _END]} … {text[-_END:]}"
        super().__init__(text)


# Letters of a message, and of its end.
_LONGEST, _END = 1500, 300


class SimulationError(RuntimeError):
    """A simulation that cannot go on; the message is one sentence that says when and what to do."""


class DeveloperWarning(UserWarning):
    """What can be done better by who writes a script with OpenMM, and not by who runs a fit, which does not show it."""
