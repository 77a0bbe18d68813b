"""Whether a command is given the measured amplitudes of a crystal, or a map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.errors import InputError, as_argument
from ..maps.map_suffixes import map_format
from ..report.results import CRYSTAL_SETTINGS
from .fit_options import FitOptions


def is_of_amplitudes(options: FitOptions) -> bool:
    """Return whether a fit is one to amplitudes: asked for, what its file has, or begun so in its folder."""
    resumed = options.output.resume
    if resumed is not None:
        return (Path(resumed) / CRYSTAL_SETTINGS).is_file()
    crystal = options.crystal
    if crystal.make_free_flags or (crystal.amplitudes, crystal.free_flags, crystal.free_value) != (None,) * 3:
        return True
    return options.files.map is not None and takes_amplitudes(options.files.map, options.files.columns)


def is_mtz(path: str) -> bool:
    """Return whether a file is an MTZ file, by its content where that tells, and else by its name."""
    try:
        return map_format(Path(path)) == "MTZ"
    except InputError:  # for those who read it
        return False


def check_of_amplitudes(path: str, options: Mapping[str, Any]) -> None:
    """Refuse what is asked of measured amplitudes beside a map."""
    if is_mtz(path):
        return
    for name in _OF_AMPLITUDES:
        if options.get(name) not in (None, False):
            raise InputError(
                f"is for the measured amplitudes of an MTZ file, and {Path(path).name} is a map",
                argument=name,
                remedy=f"leave {as_argument(name)} out, or give the MTZ file of the crystal",
            )


_OF_AMPLITUDES = ("amplitudes", "free_flags", "free_value", "make_free_flags")


def takes_amplitudes(path: str, columns: Sequence[str] | None, rather_than_map: bool = True) -> bool:
    """Return whether a file that exists is an MTZ file whose amplitudes are used, as no columns of a map are named."""
    file = Path(path)
    if columns is not None or not is_mtz(path) or not file.is_file():
        return False
    from ..maps.mtz_columns import holds_amplitudes, types_of
    from ..maps.mtz_maps import read_mtz, usual_map_columns

    mtz = read_mtz(file)
    try:
        has_map = usual_map_columns(types_of(mtz, file)) is not None
        return (rather_than_map or not has_map) and holds_amplitudes(mtz, file)
    except InputError:
        return False
