"""A program: write MolProbity's figures of a model, by cctbx, as JSON into a file."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

_TABLES = {
    "rotarama_data": "Top8000_rotamer_pct_contour_grids",
    "cablam_data": "Top8000_cablam_pct_contour_grids",
    "rama_z": "rama_z",
}
"""MolProbity's tables, by their folders in ``chem_data``: what they are called where they come from."""
_MONOMERS = "needs the CCP4 monomer library, for hydrogens: name its folder in CLIBD_MON"
_MONOMER_VARIABLES = ("CLIBD_MON", "MMTBX_CCP4_MONOMER_LIB")


def _lacking(needs: str) -> str | None:
    """Return what is not there of what a figure needs, in words; None where it is."""
    if needs == "monomers":
        return None if any(map(os.environ.get, _MONOMER_VARIABLES)) else _MONOMERS
    if not needs or _has_tables(needs):
        return None
    return (
        f"needs MolProbity's tables, which cctbx-base does not have: a folder chem_data/{needs} beside mmtbx with those of "
        f"Top8000/{_TABLES[needs]} in github.com/rlabduke/reference_data"
    )


def _has_tables(folder: str) -> bool:
    import libtbx.load_env

    return (
        libtbx.env.find_in_repositories(relative_path=f"chem_data/{folder}", test=os.path.isdir) is not None
    )


def _ramachandran(model: Any) -> dict[str, float]:
    from mmtbx.validation.ramalyze import ramalyze

    found = ramalyze(pdb_hierarchy=model.get_hierarchy(), outliers_only=False)
    return {
        "ramachandran_favoured_percent": found.fav_percent,
        "ramachandran_allowed_percent": 100 - found.fav_percent - found.out_percent,
        "ramachandran_outlier_percent": found.out_percent,
        "ramachandran_count": found.n_total,
    }


def _c_beta(model: Any) -> dict[str, float]:
    from mmtbx.validation.cbetadev import cbetadev

    found = cbetadev(pdb_hierarchy=model.get_hierarchy(), outliers_only=False)
    return {"c_beta_outlier_percent": found.get_weighted_outlier_percent()}


def _rotamers(model: Any) -> dict[str, float]:
    from mmtbx.monomer_library import server
    from mmtbx.validation.rotalyze import rotalyze

    # It opens the monomer library, which few have, and never asks it anything.
    with mock.patch.object(server, "server", object):
        found = rotalyze(pdb_hierarchy=model.get_hierarchy(), outliers_only=False)
    return {"rotamer_outlier_percent": found.out_percent, "rotamer_count": found.n_total}


def _cablam(model: Any) -> dict[str, float]:
    from mmtbx.validation.cablam import cablamalyze

    found = cablamalyze(
        pdb_hierarchy=model.get_hierarchy(), outliers_only=False, out=io.StringIO(), quiet=True
    )
    return {
        "cablam_outlier_percent": found.percent_outliers(),
        "cablam_disfavoured_percent": found.percent_disfavored(),
        "ca_geometry_outlier_percent": found.percent_ca_outliers(),
    }


def _ramachandran_z(model: Any) -> dict[str, Any]:
    from mmtbx.validation.rama_z import rama_z

    found = rama_z([model], io.StringIO()).get_result()
    parts = {part: getattr(found, part) for part in ("whole", "helix", "sheet", "loop")}
    return {
        f"ramachandran_z_{part}": None if score.value is None else [score.value, score.std]
        for part, score in parts.items()
    }


def _clashscore(model: Any, manager: Any) -> dict[str, float]:
    import iotbx.phil
    from mmtbx.programs import clashscore2 as program
    from mmtbx.validation.clashscore2 import clashscore2

    parameters = iotbx.phil.parse(program.Program.master_phil_str).extract()
    found = clashscore2(parameters.probe, data_manager=manager, fast=True, keep_hydrogens=False)
    return {"clashscore": found.get_clashscore()}


def main(path: str, output: str) -> None:
    """Write the figures of the model in a file."""
    import iotbx
    from iotbx.data_manager import DataManager

    manager = DataManager()
    manager.process_model_file(path)
    model = manager.get_model()
    asked: tuple[tuple[str, Callable[..., dict[str, Any]], tuple[Any, ...], str], ...] = (
        ("Ramachandran plot", _ramachandran, (model,), ""),
        ("Cβ deviations", _c_beta, (model,), ""),
        ("Rotamers", _rotamers, (model,), "rotarama_data"),
        ("CaBLAM", _cablam, (model,), "cablam_data"),
        ("Ramachandran Z", _ramachandran_z, (model,), "rama_z"),
        ("Clashscore", _clashscore, (model, manager), "monomers"),
    )
    figures: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for name, function, arguments, needs in asked:
        lacking = _lacking(needs)
        if lacking is not None:
            missing[name] = lacking
            continue
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                figures |= function(*arguments)
        except (Exception, SystemExit) as error:  # it exits where a table is missing
            missing[name] = _failure(error)
    _add_score(figures)
    found = {
        "version": iotbx.__version__,
        "figures": {name: value if value == value else None for name, value in figures.items()},
        "missing": missing,
    }
    with open(output, "w", encoding="utf-8") as file:
        json.dump(found, file)


def _failure(error: BaseException) -> str:
    """Return in words why a figure could not be had."""
    if isinstance(error, SystemExit):
        return "cctbx ended without a figure, as where one of its tables is out of date"
    return "failed in cctbx: " + " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _add_score(figures: dict[str, Any]) -> None:
    """Add the MolProbity score where all is known that it is made of."""
    from mmtbx.validation.utils import molprobity_score

    names = ("clashscore", "rotamer_outlier_percent", "ramachandran_favoured_percent")
    if all(figures.get(name) is not None for name in names):
        figures["molprobity_score"] = molprobity_score(*(figures[name] for name in names))


if __name__ == "__main__":
    main(*sys.argv[1:])
