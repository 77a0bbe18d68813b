"""What an mmCIF file says of fit and refinement: ``_em_3d_fitting``, ``_refine``, ``_reflns``, ``_exptl`` and others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gemmi
import numpy as np

from ...base.atomic_files import write_text
from ...base.cif_files import read_cif
from .diffraction import DiffractionFigures
from .table import IDEAL_VALUES, TableInput

_BUILT = "ATOMS THAT THE INPUT MODEL DID NOT HAVE WERE BUILT, HYDROGENS AMONG THEM, AND ARE NOT IN THE STRUCTURE FACTORS"
_METHODS = {False: "ELECTRON MICROSCOPY", True: "X-RAY DIFFRACTION"}


def add_refinement(path: Path, known: TableInput, b_factors: np.ndarray, measure: str) -> None:
    """Add the categories of a refinement to an mmCIF file.

    Rows that the file has of other software and of an earlier fitting stay, and the new ones follow. What ``_refine`` says of
    the data stays too. Names and values are those of the PDBx/mmCIF dictionary (version 5). `b_factors` (N,) of the atoms but
    hydrogens, in Å².
    """
    document = read_cif(path)
    block = next(block for block in document if block.find_loop("_atom_site.Cartn_x"))
    entry = gemmi.cif.as_string(block.find_value("_entry.id") or "") or block.name
    if known.crystal is None:
        _append(
            block,
            "_em_3d_fitting.",
            "id",
            {**_fitting(known, measure, float(b_factors.mean())), "entry_id": entry},
        )
    method = _refine(block, entry, known, b_factors)
    _restraints(block, known.geometry, method)
    if known.crystal is not None and known.crystal.diffraction is not None:
        _reflections(block, entry, known.crystal.diffraction, method)
        _experiment(block, entry)
    _append(
        block,
        "_software.",
        "pdbx_ordinal",
        {
            "name": "openmm-density",
            "version": known.version,
            "classification": "refinement",
            "type": "program",
            "description": "flexible fitting by molecular dynamics in OpenMM",
        },
    )
    cctbx = known.figures["cctbx"]
    if cctbx is not None and cctbx["version"] is not None:
        theirs = {
            "name": "cctbx",
            "version": cctbx["version"],
            "classification": "validation",
            "type": "library",
        }
        _append(block, "_software.", "pdbx_ordinal", theirs)
    write_text(path, document.as_string())


def _fitting(known: TableInput, measure: str, mean_b: float) -> dict[str, str]:
    cc = known.figures["map"]["correlations"]
    told = [
        f"{name.replace('cc', 'CC', 1)} {value:.3f}" for name, value in cc.items() if isinstance(value, float)
    ]
    if known.figures["map"]["emringer"] is not None:
        told.append(f"EMRinger {known.figures['map']['emringer']:.2f}")
    symmetric = known.symmetric
    if symmetric is not None and symmetric.name:
        told.append(f"of one unit of symmetry {symmetric.name}")
    if symmetric is not None and symmetric.correlation is not None:
        told.append(f"CC_mask of all its copies {symmetric.correlation:.3f}")
    found = {
        "method": "FLEXIBLE FITTING BY MOLECULAR DYNAMICS",
        "ref_space": "REAL",
        "ref_protocol": "FLEXIBLE FIT",
        "target_criteria": measure,
        "details": ", ".join(told),
    }
    return found | {"overall_b_value": f"{mean_b:.2f}"} if mean_b > 0 else found


def _refine(block: gemmi.cif.Block, entry: str, known: TableInput, b_factors: np.ndarray) -> str:
    """Write ``_refine``, and return by what its row is called."""
    table = _table(block, "_refine.")
    own_method = gemmi.cif.quote(_METHODS[known.crystal is not None])
    # Written from a PDB file, a row may have "?" in quotes.
    methods = [
        own_method if gemmi.cif.as_string(each) in ("", "?") else each
        for each in table.get("pdbx_refine_id", [own_method])
    ]
    count = len(methods)
    has_b = bool((b_factors > 0).any())
    own = {
        "B_iso_mean": f"{b_factors.mean():.2f}" if has_b else None,
        "B_iso_min": f"{b_factors.min():.2f}" if has_b else None,
        "B_iso_max": f"{b_factors.max():.2f}" if has_b else None,
        "pdbx_stereochemistry_target_values": IDEAL_VALUES,
        **({} if known.crystal is None else _of_reflections(known.crystal.diffraction)),
        "details": _details(block, known),
    }
    given = {"entry_id": entry, "pdbx_refine_id": None, "ls_d_res_high": f"{known.resolution:.2f}"}
    for name, value in given.items():
        if value is not None and name not in table:
            table[name] = [gemmi.cif.quote(value)] * count
    table["pdbx_refine_id"] = methods
    for name, value in own.items():
        if value is not None:
            table[name] = [gemmi.cif.quote(value)] + ["?"] * (count - 1)
    _store(block, "_refine.", table)
    return gemmi.cif.as_string(methods[0])


def _details(block: gemmi.cif.Block, known: TableInput) -> str | None:
    """Return that atoms that were built have no part in the R factors, where some hydrogens are not the model's own."""
    if known.crystal is None or known.crystal.diffraction is None:
        return None
    symbols = map(gemmi.cif.as_string, block.find_values("_atom_site.type_symbol"))
    written = sum(symbol.upper() in ("H", "D") for symbol in symbols)
    return _BUILT if written > known.figures["model"]["composition"]["hydrogens"] else None


def _of_reflections(found: DiffractionFigures | None) -> dict[str, str]:
    """Return what ``_refine`` says of measured amplitudes and of how the model explains them."""
    if found is None:
        return {}
    whole = found.whole
    number = whole.n_work + whole.n_free
    told = {
        "ls_d_res_high": f"{whole.finest:.3f}",
        "ls_d_res_low": f"{whole.coarsest:.3f}",
        "ls_number_reflns_obs": str(number),
        "ls_number_reflns_R_work": str(whole.n_work),
        "ls_percent_reflns_obs": f"{100 * whole.completeness:.2f}",
        "ls_R_factor_obs": f"{whole.r_all:.4f}",
        "ls_R_factor_R_work": f"{whole.r_work:.4f}",
        "solvent_model_details": "FLAT BULK SOLVENT MODEL",
        "solvent_model_param_ksol": f"{found.solvent_density:.3f}",
        "solvent_model_param_bsol": f"{found.solvent_b:.1f}",
    }
    if whole.r_free is None:
        return told
    return told | {
        "ls_R_factor_R_free": f"{whole.r_free:.4f}",
        "ls_R_factor_R_free_error": f"{whole.r_free_error:.4f}",
        "ls_R_factor_R_free_error_details": "R-free divided by the square root of the number of free reflections",
        "ls_number_reflns_R_free": str(whole.n_free),
        "ls_percent_reflns_R_free": f"{100 * whole.n_free / number:.2f}",
        "pdbx_ls_cross_valid_method": "THROUGHOUT",
    }


def _reflections(block: gemmi.cif.Block, entry: str, found: DiffractionFigures, method: str) -> None:
    """Write ``_refine_ls_shell``, of the finest shell, and what ``_reflns`` does not say yet."""
    shell = found.finest_shell
    table = {
        "pdbx_refine_id": method,
        "d_res_high": f"{shell.finest:.3f}",
        "d_res_low": f"{shell.coarsest:.3f}",
        "number_reflns_R_work": str(shell.n_work),
        "number_reflns_R_free": str(shell.n_free),
        "percent_reflns_obs": f"{100 * shell.completeness:.2f}",
        "R_factor_R_work": "?" if shell.r_work is None else f"{shell.r_work:.4f}",
        "R_factor_R_free": "?" if shell.r_free is None else f"{shell.r_free:.4f}",
        "R_factor_R_free_error": "?" if shell.r_free_error is None else f"{shell.r_free_error:.4f}",
    }
    _store(block, "_refine_ls_shell.", {name: [gemmi.cif.quote(value)] for name, value in table.items()})
    whole, known = found.whole, _table(block, "_reflns.")
    count = len(next(iter(known.values()), ("",)))
    told = {
        "entry_id": entry,
        "pdbx_ordinal": "1",
        "d_resolution_high": f"{whole.finest:.3f}",
        "d_resolution_low": f"{whole.coarsest:.3f}",
        "number_obs": str(whole.n_work + whole.n_free),
        "percent_possible_obs": f"{100 * whole.completeness:.2f}",
        "B_iso_Wilson_estimate": None if found.wilson_b is None else f"{found.wilson_b:.2f}",
    }
    for name, value in told.items():
        if value is not None and count == 1 and all(map(gemmi.cif.is_null, known.get(name, ["?"]))):
            known[name] = [gemmi.cif.quote(value)]
    _store(block, "_reflns.", known)


def _experiment(block: gemmi.cif.Block, entry: str) -> None:
    """Write ``_exptl`` and ``_exptl_crystal`` where the file has none, as one from a PDB file without EXPDTA."""
    for category, told in (
        ("_exptl.", {"entry_id": entry, "method": _METHODS[True]}),
        ("_exptl_crystal.", {"id": "1"}),
    ):
        if not _table(block, category):
            _store(block, category, {name: [gemmi.cif.quote(value)] for name, value in told.items()})


def _restraints(block: gemmi.cif.Block, geometry: Mapping[str, Any], method: str) -> None:
    """Write ``_refine_ls_restr``: deviations from Amber's ideal values in Å and degrees, and RMS Z-scores by CCP4's."""
    rows = [
        (f"{source}_{kind}_{what}", geometry[f"{name}_{key}"], geometry[f"{name}_{count}"])
        for source, what, key, count in (("amber", "d", "rmsd", "count"), ("ccp4", "rmsz", "rmsz", "z_count"))
        for kind, name in (("bond", "bond"), ("angle", "angle"))
        if geometry[f"{name}_{key}"] is not None
    ]
    if not rows:
        return
    block.set_mmcif_category(
        "_refine_ls_restr.",
        {
            "pdbx_refine_id": [method] * len(rows),
            "type": [kind for kind, _, _ in rows],
            "dev_ideal": [f"{rmsd:.4f}" for _, rmsd, _ in rows],
            "number": [str(count) for _, _, count in rows],
        },
    )


def _table(block: gemmi.cif.Block, category: str) -> dict[str, list[str]]:
    return dict(block.get_mmcif_category(category, raw=True))


def _append(block: gemmi.cif.Block, category: str, key: str, values: Mapping[str, str]) -> None:
    """Add a row to a category, with the first free number as its key."""
    table = _table(block, category)
    count = len(next(iter(table.values()), ()))
    used = {gemmi.cif.as_string(value) for value in table.get(key, ())}
    number = next(n for n in range(count + 1, 10**9) if str(n) not in used)
    row = {key: str(number), **{name: gemmi.cif.quote(value) for name, value in values.items()}}
    if count and key not in table:
        table[key] = [str(n) for n in range(1, count + 1)]
    for name in dict.fromkeys((*table, *row)):
        table[name] = [*table.get(name, ["?"] * count), row.get(name, "?")]
    _store(block, category, table)


def _store(block: gemmi.cif.Block, category: str, table: Mapping[str, list[str]]) -> None:
    """Write a category: one row as pairs, as the PDB does, more as a loop."""
    if len(next(iter(table.values()))) > 1:
        block.set_mmcif_category(category, table, raw=True)
        return
    block.find_mmcif_category(category).erase()
    for name, (value,) in table.items():
        block.set_pair(category + name, value)
