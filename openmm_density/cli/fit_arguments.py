"""The arguments of ``openmm-density fit``: what the groups of its options and extensions declare."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from ..fitting.extension import Option
from ..fitting.installed_extensions import extension_options
from .arguments import (
    add_amplitudes,
    add_columns,
    add_corrections,
    add_dictionary,
    number,
    spelled,
    whole_number,
)
from .fit_options import (
    CrystalData,
    Density,
    Execution,
    Files,
    ForceField,
    Output,
    Prediction,
    ProtocolChoice,
    options_of,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add all that ``fit`` takes."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help="PDB or mmCIF, .gz or not")
    parser.add_argument(
        "map",
        nargs="*",
        metavar="MAP",
        action=_MapBehindModels,
        help="MRC, CCP4, SITUS (.gz or not), or MTZ; models before it are placed in it one by one, as in A.cif B.cif:3 MAP with "
        "three copies of B",
    )
    parser.set_defaults(map=None, parts=[])
    parser.add_argument(
        "--resolution",
        type=number,
        metavar="R",
        help="resolution of the map in Å; of amplitudes, the limit to which they are used (all)",
    )
    _add(parser, options_of(Output))
    add_crystal(parser)
    add_options(parser)


class _MapBehindModels(argparse.Action):
    """The map, and all models before it where there are several."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Keep them as ``map`` and ``parts``."""
        *others, namespace.map = values or [None]
        if others:
            namespace.parts = [namespace.model, *others]


def add_crystal(parser: argparse.ArgumentParser) -> None:
    """Add what is said of the measured amplitudes of a crystal, and of a fit to them."""
    group = parser.add_argument_group("measured amplitudes of a crystal, in place of a map")
    add_amplitudes(group)
    _add(group, options_of(CrystalData))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what says how a fit is made, beside its model, map and folder."""
    add_columns(parser)
    add_corrections(parser)
    _add(parser, options_of(Files))
    _add(parser, options_of(Prediction))
    _add(protocol := parser.add_argument_group("the protocol"), options_of(ProtocolChoice))
    groups = {str(protocol.title): protocol}
    for option in extension_options():
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        _add(groups[option.group], [option])
    add_shared(parser)


def add_shared(parser: argparse.ArgumentParser) -> None:
    """Add what every command takes that fits: on the density force, the force field and the run."""
    _add(parser.add_argument_group("the density force"), options_of(Density))
    _add(force_field := parser.add_argument_group("the force field"), options_of(ForceField))
    add_dictionary(force_field)
    _add(parser.add_argument_group("the run"), options_of(Execution))


def _add(parser: argparse._ActionsContainer, options: Iterable[Option]) -> None:
    for option in options:
        how: dict[str, Any] = {"help": option.help}
        if option.kind is bool:
            how["action"] = "store_true"
        else:
            how |= {"metavar": option.metavar, "choices": option.choices, "default": option.default}
            how["type"] = {int: whole_number, float: number}.get(option.kind, option.kind)
        if option.many:
            how |= {"action": "append", "default": []}
        parser.add_argument(spelled(option.name), **how)


def defaults() -> dict[str, Any]:
    """Return the default of each option."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return vars(parser.parse_args([]))
