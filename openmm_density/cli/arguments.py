"""Arguments that several commands share, how they are checked, and how errors spell them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from ..base.errors import InputError, as_argument, did_you_mean
from ..base.given_files import MAPS, MODELS, check_given_file, kind_of
from ..base.multi_process_service import SETTINGS
from ..base.wording import listing
from ..maps.map_suffixes import is_map_name, map_format
from ..models.structure_suffixes import is_structure_name, structure_format

if TYPE_CHECKING:
    from ..maps.corrections import MapCorrections

    Commands: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]

PROGRAM = "openmm-density"


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence that names the help, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        """End the process with status 2."""
        # argparse itself joins "argument --steps: " and what `refused` says of it, and passes on the text alone; with
        # exit_on_error=False it would raise the parts, but not those of what is missing.
        sentence = message.removeprefix("argument ").replace(f": {_MUST_BE}", f" {_MUST_BE}", 1)
        self.exit(2, f"{self.prog}: error: {sentence} (see {self.prog} --help)\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse what is not among the choices of an option, or among the commands, as other values are refused."""
        if action.choices is not None and value not in action.choices:
            asked = did_you_mean(str(value), action.choices)
            said = refused(f"one of {', '.join(action.choices)}", value)
            raise argparse.ArgumentError(action, f"{said}{': ' if asked else ''}{asked}")


_MUST_BE = "must be "


def refused(required: str, text: str) -> argparse.ArgumentTypeError:
    """Return the error for the text of an option that is not what is required, as in "a whole number"."""
    return argparse.ArgumentTypeError(f'{_MUST_BE}{required}, found "{text}"')


def missing(names: Sequence[str], remedy: str) -> InputError:
    """Return the error for arguments that are required, all of them at once."""
    return InputError(
        f"{listing([*map(as_argument, names)])} {'is' if len(names) == 1 else 'are'} required", remedy=remedy
    )


def add_map(parser: argparse.ArgumentParser, of_amplitudes: bool = False) -> None:
    """Add a map, its resolution and its columns; or measured amplitudes, whose resolution need not be given."""
    parser.add_argument("map", metavar="MAP", help="MRC, CCP4, SITUS (.gz or not), or MTZ")
    parser.add_argument(
        "--resolution",
        type=number,
        required=not of_amplitudes,
        metavar="R",
        help=f"resolution of the map in Å{'; of amplitudes, the limit to which they are used (all)' if of_amplitudes else ''}",
    )
    add_columns(parser)
    add_corrections(parser)


PREDICTED = {"auto": None, "yes": True, "no": False}
"""Whether a model is a prediction, as a user says it."""
PREDICTED_HELP = "whether the B column of MODEL is the confidence of a prediction (auto: by what the file or that column says)"


def add_predicted(parser: argparse.ArgumentParser) -> None:
    """Add whether the model is a prediction."""
    parser.add_argument(
        "--predicted",
        choices=PREDICTED,
        default="auto",
        help=PREDICTED_HELP,
    )


def add_corrections(parser: argparse.ArgumentParser) -> None:
    """Add the corrections of a map, and of its half maps, that are applied when they are read."""
    parser.add_argument(
        "--voxel-size",
        type=_voxel_size,
        metavar="X",
        help="voxel size in Å, where the header of the map is wrong: one number, or X,Y,Z; the origin scales with it",
    )
    parser.add_argument(
        "--mirror",
        action="store_true",
        help="read the mirror image of the map, where its handedness is wrong",
    )
    parser.add_argument(
        "--invert", action="store_true", help="change the map's sign, where density is negative in it"
    )


def map_corrections(voxel_size: float | list[float] | None, mirror: bool, invert: bool) -> MapCorrections:
    """Return what is to be corrected of the maps that a command reads, from the options of `add_corrections`."""
    from ..maps.corrections import MapCorrections

    return MapCorrections(tuple(voxel_size) if isinstance(voxel_size, list) else voxel_size, mirror, invert)


def add_columns(parser: argparse.ArgumentParser) -> None:
    """Add which columns of an MTZ file make the map."""
    parser.add_argument(
        "--columns",
        type=_columns,
        metavar="F,PHI",
        help="the map coefficients of an MTZ file, where their names are not the standard ones",
    )


def add_amplitudes(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add which columns of an MTZ file hold what was measured of a crystal."""
    parser.add_argument(
        "--amplitudes",
        type=_measured,
        metavar="F,SIGF",
        help="the measured amplitudes or intensities of an MTZ file and their deviations, where their names are not "
        "the usual ones or the file has map coefficients too",
    )
    parser.add_argument(
        "--free-flags", metavar="LABEL", help="the free flags of an MTZ file (the column of a usual name)"
    )
    parser.add_argument(
        "--free-value",
        type=whole_number,
        metavar="N",
        help="the flag of reflections that are held out (CCP4 0, Phenix 1, SHELX -1, told apart by how many have it)",
    )


def add_mps(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add whether processes share a GPU at one time."""
    parser.add_argument(
        "--mps",
        choices=SETTINGS,
        default=SETTINGS[0],
        help="auto: fits that share a GPU run on it at one time, by NVIDIA's Multi-Process Service where installed; off: in "
        "turns (%(default)s)",
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
    """Return the number that a text is."""
    try:
        return float(text)
    except ValueError:
        raise refused("a number", text) from None


def whole_number(text: str) -> int:
    """Return the whole number that a text is, no larger than OpenMM counts."""
    try:
        whole = int(text)
    except ValueError:
        raise refused("a whole number", text) from None
    if abs(whole) > _LARGEST:
        raise refused(f"a whole number up to {_LARGEST}", text)
    return whole


# The largest of the 32-bit integers in which OpenMM counts steps.
_LARGEST = 2**31 - 1


def _voxel_size(text: str) -> float | list[float]:
    sizes = [number(part) for part in text.split(",")]
    if len(sizes) not in (1, 3) or not all(0 < size < float("inf") for size in sizes):
        raise refused("a positive number of Å, or three: X,Y,Z", text)
    return sizes[0] if len(sizes) == 1 else sizes


def _columns(text: str) -> list[str]:
    return _two_labels(text, "amplitude and phase, as in FWT,PHWT")


def _measured(text: str) -> list[str]:
    return _two_labels(text, "amplitudes or intensities and their deviations, as in F,SIGF")


def _two_labels(text: str, what: str) -> list[str]:
    labels = text.split(",")
    if len(labels) != 2 or not all(labels):
        raise refused(f"the labels of {what}", text)
    return labels


def check_files(
    models: Iterable[str | None], maps: Iterable[str | None] = (), dictionaries: Iterable[str] = ()
) -> None:
    """Refuse missing files and unknown formats before slow imports; the first model and map may stand in each other's place."""
    models, maps = [*models], [*maps]
    remedies = (
        (models, "check the path of the model"),
        (maps, "give the path of a density map"),
        (dictionaries, "give a restraint dictionary or a wwPDB component file"),
    )
    for paths, what in remedies:
        for path in paths:
            if path is not None:
                check_given_file(path, what)
    if models and maps:
        check_order(models[0], maps[0])
    for path in filter(None, maps):
        map_format(Path(path))
    for path in filter(None, models):
        structure_format(path)


def check_order(model: str | None, density_map: str | None) -> None:
    """Refuse a map in the place of a model, and the model in that of the map, by their contents, else by their names."""
    if not model or not density_map:
        return
    first, second = kind_of(model), kind_of(density_map)
    is_map = first in MAPS or (not first and is_map_name(Path(model)))
    is_model = second in MODELS or (not second and is_structure_name(density_map))
    if is_map and is_model:
        raise InputError(
            f"it is a density map, and {density_map} a model: they are swapped",
            source=model,
            remedy="give the model first, then the map",
        )


def check_new_file(output: Path, overwrite: bool) -> None:
    """Refuse to write a file where there is one, unless that was asked for."""
    if output.exists() and not overwrite:
        raise InputError(
            "it exists already", source=output, remedy="choose another name, or pass --overwrite"
        )


def check_halves(half_maps: Sequence[str]) -> None:
    """Refuse one half map without the other."""
    if len(half_maps) not in (0, 2):
        raise InputError(
            "must be given twice",
            argument="half_map",
            found=f"{len(half_maps)} of them",
            remedy="give one for each half",
        )


# The option of a Python argument that errors name, where it is not spelled alike.
_SAME = {
    "density_map": "map",
    "dictionaries": "dictionary",
    "half_maps": "half_map",
    "ligands": "ligand",
    "ligand_potentials": "ligand_potential",
    "maps": "map",
    "models": "model",
    "restraints": "restrain",
    "topology_path": "topology",
}


def spelled(name: str) -> str:
    """Return an option as users type it, from its name in the namespace of the parser."""
    return name.upper() if name in ("model", "map") else f"--{name.replace('_', '-')}"


def spellings(options: Iterable[str]) -> dict[str, str]:
    """Return what users of a command type in place of each Python argument that errors name, from the names of its options."""
    names = {name: name for name in options if name != "command"}
    same = {**_SAME, "sigma": "planarity"}  # of planes, in a fit
    names |= {name: other for name, other in same.items() if name not in names and other in names}
    # What findings of another command send their reader to.
    return {"place": "fit --place"} | {name: spelled(other) for name, other in names.items()}
