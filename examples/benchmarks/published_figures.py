"""Figures that deposited models were published with, beside ours of the same models.

``python examples/benchmarks/published_figures.py``, with the whole models in OPENMM_DENSITY_DATA (or ../shared/data). What was
published is read from the files: REMARK 3 of PDB files, ``_refine`` and ``_refine_ls_restr`` of mmCIF.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import gemmi

from openmm_density.extensions.deposition.figures import composition, mean_b_factors
from openmm_density.models import read_model
from openmm_density.validation.model_geometry import geometry_of_model

EXAMPLES = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("OPENMM_DENSITY_DATA", EXAMPLES.parents[1] / "shared" / "data"))
MODELS = {
    "1G8A, 1.23 Å (Phenix)": "xray_1g8a_P21/1G8A_refined.pdb",
    "3PQR, 2.85 Å (REFMAC)": "xraymap_3pqr_R32/3pqr.pdb",
    "5NI1, 3.2 Å (REFMAC)": "emd3488_5ni1/5ni1_updated.cif",
}
REMARKS = {
    "clashscore": r"ALL-ATOM CLASHSCORE : +([\d.]+)",
    "Ramachandran favoured (%)": r"FAVORED  : +([\d.]+)",
    "Ramachandran allowed (%)": r"ALLOWED  : +([\d.]+)",
    "Ramachandran outliers (%)": r"  OUTLIERS : +([\d.]+)",
    "r.m.s. bonds (Å)": r"(?: BOND +: +|BOND LENGTHS REFINED ATOMS +\(A\): +NULL ; )([\d.]+)",
    "r.m.s. angles (°)": r"(?: ANGLE +: +|BOND ANGLES REFINED ATOMS +\(DEGREES\): +NULL ; )([\d.]+)",
    "mean B (Å²)": r"Overall: +[\d.]+ +[\d.]+ +([\d.]+)",
    "mean B of protein (Å²)": r"Protein: +[\d.]+ +[\d.]+ +([\d.]+)",
    "mean B of water (Å²)": r"Water: +[\d.]+ +[\d.]+ +([\d.]+)",
}


def published(path: Path) -> dict[str, float]:
    """Return what a file says of its model."""
    if path.suffix != ".cif":
        text = "\n".join(line for line in path.read_text().splitlines() if line.startswith("REMARK   3"))
        found = {name: re.search(pattern, text) for name, pattern in REMARKS.items()}
        return {name: float(match[1]) for name, match in found.items() if match}
    block = gemmi.cif.read(str(path)).sole_block()
    restraints = block.find("_refine_ls_restr.", ["type", "dev_ideal"])
    values = {row.str(0): row.str(1) for row in restraints}
    return {
        "r.m.s. bonds (Å)": float(values["r_bond_refined_d"]),
        "r.m.s. angles (°)": float(values["r_angle_refined_deg"]),
        "mean B (Å²)": float(block.find_value("_refine.B_iso_mean")),
    }


def ours(path: Path) -> dict[str, Any]:
    """Return our figures of a model."""
    model = read_model(path)
    geometry = geometry_of_model(model).as_dict()
    b_factors, count = mean_b_factors(model.topology, model.b_factors), geometry["ramachandran_count"]
    plot = {
        f"Ramachandran {name} (%)": 100 * geometry[f"ramachandran_{key}_count"] / count
        for name, key in (("favoured", "favoured"), ("allowed", "allowed"), ("outliers", "outlier"))
    }
    return {
        "atoms": composition(model.topology)["atoms"],
        "clashscore": geometry["clashscore"],
        **plot,
        "r.m.s. bonds (Å)": geometry["bond_rmsd"],
        "r.m.s. angles (°)": geometry["angle_rmsd"],
        "mean B (Å²)": b_factors["all"],
        "mean B of protein (Å²)": b_factors["protein"],
        "mean B of water (Å²)": b_factors["water"],
    }


def main() -> None:
    """Print a table."""
    print(f"{'':28}{'':28}{'published':>10}{'ours':>10}")
    for title, name in MODELS.items():
        said, found = published(DATA / name), ours(DATA / name)
        for figure, value in found.items():
            known = f"{said[figure]:10.3f}" if figure in said else f"{'-':>10}"
            print(f"{title:28}{figure:28}{known}{value:10.3f}")


if __name__ == "__main__":
    main()
