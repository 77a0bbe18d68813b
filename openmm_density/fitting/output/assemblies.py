"""What a fit with symmetry leaves of its assembly: the unit with its operators, all copies, and how they agree with the map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ...extensions.symmetry.assembly import AssemblySymmetry, clashes_with_copies, copied_topology
from ...extensions.symmetry.assembly_file import write_assembly, write_expanded
from ..fit_result import FitResult
from ..flexible_fit import FlexibleFit
from .results import ASSEMBLY_FILES, FITTED


def assembly_report(fit: FlexibleFit, result: FitResult) -> dict[str, Any]:
    """Return what ``summary.json`` says as ``assembly``: how all copies agree with the map; None without symmetry."""
    symmetry = fit.symmetry
    if symmetry is None:
        return {"assembly": None}
    operators = symmetry.operators
    # As of the unit: of the atoms that were given.
    prepared = result.prepared
    copies = copied_topology(prepared.model.topology, len(operators))
    correlation = fit.fit_map.correlation(copies)
    before, after = (
        correlation.cc_mask(operators.expanded(prepared.input_positions(positions)).reshape(-1, 3))
        for positions in (result.initial, result.final)
    )
    return {
        "assembly": {
            **symmetry.as_dict(),
            "cc_initial": before,
            "cc_final": after,
            "clashes": clashes_with_copies(fit.solute.topology, result.final, operators),
            "rotations": np.round(operators.rotations, 10).tolist(),
            "translations": np.round(operators.translations, 6).tolist(),
        }
    }


def write_assembly_files(folder: Path, symmetry: AssemblySymmetry | None) -> None:
    """Write ``assembly.cif`` and ``assembly_expanded.cif``; without symmetry files of an earlier fit are removed."""
    paths = [folder / name for name in ASSEMBLY_FILES]
    if symmetry is None:
        for path in paths:
            path.unlink(missing_ok=True)
        return
    operators = symmetry.operators
    write_assembly(
        folder / FITTED, operators.rotations, operators.translations, paths[0], is_helical=symmetry.is_helical
    )
    write_expanded(paths[0], paths[1])
