"""Sentences of ``openmm-density score``: all residues, the worst of them, and warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..chemistry.residues import residue_kind
from ..models.trajectory_files import as_openmm_topology
from ..units import ANGSTROM_PER_NANOMETER
from ..validation.correlation import LARGEST_PART_OUTSIDE, LOW_CORRELATION
from ..validation.map_checks import MapChecks
from ..validation.stretches import doubtful_stretches
from ..wording import counted, listing

if TYPE_CHECKING:
    import mdtraj

    from ..maps.density_map import DensityMap

TOLD = 5
"""How many of the worst residues, and of stretches, are listed in words."""
MOST_WORST = 10
"""How many of the worst residues are listed in JSON, as in a fit's summary."""

_EXPLAINING = {"contrast", "box", "resolution", "place", "voxel_size", "handedness"}
"""Checks of the map whose findings explain a low correlation."""

_MEASURES = {"CC": "correlation", "Q": "q_score"}


def residue_rows(
    topology: mdtraj.Topology, labels: Sequence[str], columns: Mapping[str, np.ndarray]
) -> list[dict[str, Any]]:
    """Return a row of figures for each residue in one frame.

    Parameters
    ----------
    columns : mapping of str to ndarray, shape (R,)
        Values under "CC" and "Q"; NaN where there is none.

    Returns
    -------
    list of dict
        ``residue``, ``chain``, ``number``, ``insertion_code``, ``kind``, ``correlation_final`` and ``q_score_final``: names
        that `doubtful_stretches` reads; None where unknown.
    """
    rows: list[dict[str, Any]] = [
        {
            "residue": label,
            "chain": residue.chain.id,
            "number": int(residue.id),
            "insertion_code": "",
            "kind": residue_kind(residue),
        }
        for label, residue in zip(labels, as_openmm_topology(topology).residues(), strict=True)
    ]
    for name, values in columns.items():
        for row, value in zip(rows, values, strict=True):
            row[f"{_MEASURES[name]}_final"] = float(value) if np.isfinite(value) else None
    return rows


def worst_residues(rows: Sequence[Mapping[str, Any]], name: str) -> list[tuple[str, float]]:
    """Return the residues other than water with their values in a column, the lowest first."""
    measure = f"{_MEASURES[name]}_final"
    known = [
        (row["residue"], row[measure]) for row in rows if row[measure] is not None and row["kind"] != "water"
    ]
    return sorted(known, key=lambda pair: pair[1])


def residue_sentences(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, np.ndarray]) -> list[str]:
    """Return a line for each column: its mean and range over the residues, and the lowest."""
    lines = []
    for name in columns:
        worst = worst_residues(rows, name)
        if not worst:
            continue
        values = [value for _, value in worst]
        named = ", ".join(f"{residue} ({value:.2f})" for residue, value in worst[:TOLD])
        lines.append(
            f"{name} of {counted(len(worst), 'residue')}: mean {np.mean(values):.3f}, {values[0]:.3f} to {values[-1]:.3f}; "
            f"lowest: {named}"
        )
    return lines


def warnings_about(
    trajectory: mdtraj.Trajectory,
    density_map: DensityMap,
    cc: float,
    rows: Sequence[Mapping[str, Any]],
    checks: MapChecks,
) -> list[str]:
    """Return a sentence for each sign that model and map do not belong together as they are, or that a part is wrong."""
    return [
        *_overall_warnings(trajectory, density_map, cc, checks),
        *_unknown_warning(rows),
        *(str(stretch) for stretch in doubtful_stretches(rows)[:TOLD]),
    ]


def _overall_warnings(
    trajectory: mdtraj.Trajectory, density_map: DensityMap, cc: float, checks: MapChecks
) -> list[str]:
    sentences = []
    values = density_map.value_at(trajectory.xyz[-1] * ANGSTROM_PER_NANOMETER)
    outside = float(np.isnan(values).mean())
    if outside > LARGEST_PART_OUTSIDE:
        sentences.append(
            f"{outside:.0%} of the atoms are outside the map: is the model where its density is?"
        )
    explained = any(finding.check in _EXPLAINING for finding in checks.findings)
    if cc < LOW_CORRELATION and not explained:
        sentences.append(
            f"the correlation is low ({cc:.2f}): check that model and map belong together, the resolution, and the model's place "
            "(fit --place on finds it)."
        )
    return sentences


def _unknown_warning(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    unknown = [row["residue"] for row in rows if row["correlation_final"] is None]
    if not unknown:
        return []
    return [f"no correlation where the map is flat, as it is beyond a mask, or ends: {listing(unknown, 10)}."]
