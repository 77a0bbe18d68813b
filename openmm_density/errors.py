"""The error a user is meant to read."""

from __future__ import annotations


class InputError(ValueError):
    """What the user gave cannot be used.

    The message is one sentence that names the file or argument, says what was found and what to do.
    The command line prints it without a traceback and exits with status 2.
    """


class SimulationError(RuntimeError):
    """A simulation that cannot go on; the message is one sentence that says when and what to do."""


class DeveloperWarning(UserWarning):
    """What can be done better by who writes a script with OpenMM, and not by who runs a fit, which does not show it."""
