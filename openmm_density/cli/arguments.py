"""What arguments of several commands have in common: how they are read, added, checked and called in errors."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from ..errors import InputError

if TYPE_CHECKING:
    from ..maps.corrections import MapCorrections

    Commands: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]

PROGRAM = "openmm-density"


class Parser(argparse.ArgumentParser):
    """Without the usage before every error: one sentence, and where the rest stands."""

    def error(self, message: str) -> NoReturn:
        """End the process with status 2."""
        self.exit(2, f"{self.prog}: error: {message.removeprefix('argument ')} (see {self.prog} --help)\n")


def add_map(parser: argparse.ArgumentParser) -> None:
    """Add a map, its resolution and its columns."""
    parser.add_argument("map", metavar="MAP", help="MRC, CCP4, SITUS (.gz or not), or MTZ")
    parser.add_argument("--resolution", type=number, required=True, metavar="R", help="of the map, in Å")
    add_columns(parser)
    add_corrections(parser)


def add_corrections(parser: argparse.ArgumentParser) -> None:
    """Add what of a map, and of its half maps, is corrected when they are read."""
    parser.add_argument(
        "--voxel-size",
        type=_voxel_size,
        metavar="X",
        help="of the map in Å, where its header is wrong: one number, or X,Y,Z; the origin scales with it",
    )
    parser.add_argument(
        "--mirror", action="store_true", help="read the mirror image of the map, where its hand is wrong"
    )
    parser.add_argument(
        "--invert", action="store_true", help="change the map's sign, where density is negative in it"
    )


def corrections(options: argparse.Namespace) -> MapCorrections:
    """Return what is to be corrected of the maps that a command reads."""
    from ..maps.corrections import MapCorrections

    size = options.voxel_size
    return MapCorrections(tuple(size) if isinstance(size, list) else size, options.mirror, options.invert)


def add_columns(parser: argparse.ArgumentParser) -> None:
    """Add which columns of an MTZ file make the map."""
    parser.add_argument(
        "--columns",
        type=_columns,
        metavar="F,PHI",
        help="the map coefficients of an MTZ file, where their names are not the usual ones",
    )


def add_dictionary(parser: argparse.ArgumentParser) -> None:
    """Add the restraint dictionaries of ligands."""
    parser.add_argument(
        "--dictionary",
        action="append",
        default=[],
        metavar="FILE",
        help="restraint dictionary (CCP4, AceDRG) or wwPDB component file of a ligand; may be given several times",
    )


def number(text: str) -> float:
    """Read a number; say what to give where there is none."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'found "{text}"; give a number') from None


def whole_number(text: str) -> int:
    """Read a whole number that OpenMM can count to."""
    try:
        whole = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'found "{text}"; give a whole number') from None
    if abs(whole) > _LARGEST:
        raise argparse.ArgumentTypeError(f"found {text}; give a whole number up to {_LARGEST}")
    return whole


# More steps than any simulation makes, and what OpenMM counts with.
_LARGEST = 2**31 - 1


def _voxel_size(text: str) -> float | list[float]:
    sizes = [number(part) for part in text.split(",")]
    if len(sizes) not in (1, 3) or not all(0 < size < float("inf") for size in sizes):
        raise argparse.ArgumentTypeError(f'found "{text}"; give a positive number of Å, or three: X,Y,Z')
    return sizes[0] if len(sizes) == 1 else sizes


def _columns(text: str) -> list[str]:
    labels = text.split(",")
    if len(labels) != 2 or not all(labels):
        raise argparse.ArgumentTypeError(
            f'found "{text}"; give the labels of amplitude and phase, as in FWT,PHWT'
        )
    return labels


def check_files(models: Iterable[str | None], maps: Iterable[str | None] = ()) -> None:
    """Refuse files that are not there, as those that read them would, but before what reads them is imported, for seconds."""
    for paths, what in ((models, "check the path of the model"), (maps, "give the path of a density map")):
        for path in paths:
            if path is not None and not os.path.lexists(path):
                raise InputError(f"{path}: there is no such file; {what}.")


def check_halves(options: argparse.Namespace) -> None:
    """Refuse one half map without the other."""
    given = len(options.half_map)
    if given not in (0, 2):
        raise InputError(f"--half-map must be given twice, once for each half, found {given}.")


# What errors call by the names of Python arguments, where the names differ by more than their spelling.
_SAME = {
    **{"density_map": "map", "dictionaries": "dictionary", "restraints": "restrain", "ligands": "ligand"},
    "topology_path": "topology",
}


def spelled(name: str) -> str:
    """Return an argument as users type it."""
    return name.upper() if name in ("model", "map") else f"--{name.replace('_', '-')}"


def spellings(options: argparse.Namespace) -> dict[str, str]:
    """Return what users of a command type for the Python arguments that its errors name."""
    names = {name: name for name in vars(options) if name != "command"}
    same = {**_SAME, "sigma": "planarity"}  # of planes, in a fit
    names |= {name: other for name, other in same.items() if name not in names and other in names}
    return {name: spelled(other) for name, other in names.items()}
