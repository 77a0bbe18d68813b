"""``openmm-density score --symmetry``: the symmetry of a model and its map, and how the whole assembly agrees."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..progress import SYMMETRY, Display

if TYPE_CHECKING:
    from ..maps.density_map import DensityMap


def assembly_figures(word: str, path: str, density_map: DensityMap, resolution: float) -> dict[str, Any]:
    """Return the symmetry of a model, the map's correlation with its copies by each operator, and CC of all copies.

    Parameters
    ----------
    resolution : float
        Å.
    """
    from ..models.structures import read_model
    from ..symmetry import find_assembly, parse_symmetry
    from ..symmetry.assembly import copied_topology
    from ..validation.correlation import cc_mask

    asked, model = parse_symmetry(word), read_model(path)
    bar = Display()
    bar.start("symmetry")
    try:
        with tempfile.TemporaryDirectory() as folder:
            searched = partial(bar.update, stage=SYMMETRY, row=None)
            unit, found = find_assembly(asked, model, density_map, Path(folder) / "unit.cif", searched)
    finally:
        bar.stop()
    topology = copied_topology(unit.topology, len(found.operators))
    positions = found.operators.expanded(unit.positions).reshape(-1, 3)
    return found.as_dict() | {"cc": cc_mask(density_map, topology, positions, resolution)}


def assembly_lines(figures: dict[str, Any]) -> list[str]:
    """Return what is printed of it."""
    each = ", ".join("-" if value is None else f"{value:.3f}" for value in figures["map_correlations"][1:])
    lines = [
        f"symmetry {figures['symmetry']}, axes from the {figures['axes_from']}: the map correlates with its copies by {each}",
        f"CC of the unit and its copies ({figures['copies']}): {figures['cc']:.3f}; "
        f"{figures['clashes_at_start']} heavy atoms of the unit are within 2.2 Å of a copy",
    ]
    if figures["unit"]:
        off = figures["copies_rmsd"]
        lines.append(
            f"the unit is chain {' '.join(figures['unit'])}; the other copies are {off:.2f} Å off it"
        )
    return lines
