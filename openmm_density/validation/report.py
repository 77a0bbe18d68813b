"""How well a model fits its map, and how sane it is: everything that is reported of a model, in one dictionary."""

from __future__ import annotations

from typing import Any

import numpy as np
from openmm import app

from ..errors import InputError
from ..maps.density_map import DensityMap
from ..models.structures import residue_label
from ..units import in_angstrom, positions_in_angstrom
from .correlation import MapCorrelation
from .fsc import model_fsc
from .geometry import geometry_report
from .q_score import q_scores


def report(
    topology: app.Topology, positions: Any, density_map: DensityMap, resolution: Any
) -> dict[str, Any]:
    """Assess a model and its fit to a map.

    Parameters
    ----------
    topology : openmm.app.Topology
        With bonds, as from `openmm_density.models.structures.read_model`.
    positions : Quantity or array_like, shape (N, 3)
        Cartesian positions in Å.
    density_map : DensityMap
        The map as it was read.
    resolution : float or Quantity
        Resolution in Å.

    Returns
    -------
    dict
        Plain numbers, strings and lists, ready for JSON; None for what is undefined.

        ``resolution`` (Å), ``cc_mask`` (`validation.correlation`), ``q_score`` (mean over the atoms, σ = 0.6 Å,
        `validation.q_score`), ``fsc_resolution`` (Å, where the correlation with the model falls below 0.5) and ``fsc``
        (the curve, `validation.fsc`), ``residues`` (for each its ``residue``, as in ``A HIS 57``, ``correlation`` and
        ``q_score``), and ``geometry`` (`validation.geometry.GeometryReport`: bonds, angles, clashes, peptides, chirality,
        Ramachandran plot and rotamers).

    Raises
    ------
    InputError
        If positions and topology disagree, no atom is in the map, or an argument makes no sense.
    """
    positions = positions_in_angstrom(positions)
    overall, correlations = MapCorrelation(density_map, topology, resolution).evaluate(positions)
    scores = q_scores(density_map, topology, positions)
    curve = model_fsc(density_map, topology, positions, resolution)
    return {
        "resolution": in_angstrom(resolution, "resolution"),
        "cc_mask": overall,
        "q_score": _known(scores.mean),
        "fsc_resolution": _known(curve.resolution()),
        "fsc": curve.as_dict(),
        "residues": [
            {"residue": residue_label(residue), "correlation": _known(cc), "q_score": _known(q)}
            for residue, cc, q in zip(topology.residues(), correlations, scores.residues)
        ],
        "geometry": geometry_report(topology, positions).as_dict(),
    }


def residue_changes(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    """Put the residues of two reports of one model side by side.

    Parameters
    ----------
    before, after : dict
        From `report`.

    Returns
    -------
    list of dict
        For each residue ``residue``, ``correlation_initial``, ``correlation_final``, ``q_score_initial``, ``q_score_final``.

    Raises
    ------
    InputError
        If the reports are of different models.
    """
    rows = [(first, last) for first, last in zip(before["residues"], after["residues"])]
    if len(before["residues"]) != len(after["residues"]) or any(
        a["residue"] != b["residue"] for a, b in rows
    ):
        raise InputError(
            f"the reports are of different models, of {len(before['residues'])} and {len(after['residues'])} residues; "
            "give two of the same one"
        )
    return [
        {
            "residue": first["residue"],
            **{
                f"{measure}_{stage}": row[measure]
                for measure in ("correlation", "q_score")
                for stage, row in (("initial", first), ("final", last))
            },
        }
        for first, last in rows
    ]


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
