"""The parsers of the commands."""

from __future__ import annotations

import argparse

from openmm_density.cli import build_parser


def commands() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each command by its name."""
    (subparsers,) = (each for each in build_parser()._actions if isinstance(each, argparse._SubParsersAction))
    return dict(subparsers.choices)


def options(parser: argparse.ArgumentParser) -> list[str]:
    """Return the options of a command but that for help."""
    return [
        name
        for each in parser._actions
        for name in each.option_strings
        if not isinstance(each, argparse._HelpAction)
    ]
