"""What an mmCIF file says of fit and refinement: ``_em_3d_fitting``, ``_refine``, ``_refine_ls_restr`` and ``_software``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gemmi
import numpy as np

from ..atomic_files import write_text
from ..cif_files import read_cif
from .table import IDEAL_VALUES, TableInput

_METHODS = {False: "ELECTRON MICROSCOPY", True: "X-RAY DIFFRACTION"}


def add_refinement(path: Path, known: TableInput, b_factors: np.ndarray, measure: str) -> None:
    """Add the categories of a refinement to an mmCIF file.

    Rows that the file has of other software and of an earlier fitting stay, and the new ones follow. What ``_refine`` says of
    the data stays too. Names and values are those of the PDBx/mmCIF dictionary (version 5).

    Parameters
    ----------
    path : Path
        The file; it is replaced.
    known : TableInput
        Of the model in it.
    b_factors : np.ndarray, shape (N,)
        Of the atoms but hydrogens, in Å².
    measure : str
        What was maximised.
    """
    document = read_cif(path)
    block = next(block for block in document if block.find_loop("_atom_site.Cartn_x"))
    entry = gemmi.cif.as_string(block.find_value("_entry.id") or "") or block.name
    is_crystal = bool(known.crystal)
    if not is_crystal:
        _append(
            block,
            "_em_3d_fitting.",
            "id",
            {**_fitting(known, measure, float(b_factors.mean())), "entry_id": entry},
        )
    method = _refine(block, entry, known, b_factors)
    _restraints(block, known.geometry, method)
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
    methods = table.get("pdbx_refine_id") or [gemmi.cif.quote(_METHODS[bool(known.crystal)])]
    count = len(methods)
    has_b = bool((b_factors > 0).any())
    own = {
        "B_iso_mean": f"{b_factors.mean():.2f}" if has_b else None,
        "B_iso_min": f"{b_factors.min():.2f}" if has_b else None,
        "B_iso_max": f"{b_factors.max():.2f}" if has_b else None,
        "pdbx_stereochemistry_target_values": IDEAL_VALUES,
        "ls_R_factor_R_work": None if known.r_work is None else f"{known.r_work:.4f}",
        "ls_R_factor_R_free": None if known.r_free is None else f"{known.r_free:.4f}",
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


def _restraints(block: gemmi.cif.Block, geometry: Mapping[str, Any], method: str) -> None:
    """Write ``_refine_ls_restr``: deviations from ideal values, in Å and degrees."""
    rows = [
        (f"amber_{kind}", geometry[f"{name}_rmsd"], geometry[f"{name}_count"])
        for kind, name in (("bond_d", "bond"), ("angle_d", "angle"))
        if geometry[f"{name}_rmsd"] is not None
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
