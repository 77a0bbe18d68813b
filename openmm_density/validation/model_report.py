"""How well a model fits its map, and how sane it is: everything that is reported of a model, in one dictionary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from openmm import app

from ..base.errors import InputError
from ..base.units import as_number, positions_in_angstrom, takes_units
from ..base.wording import residue_label
from ..maps.density_map import DensityMap
from ..models.chemistry.planes import PlaneSet, find_planes
from ..models.chemistry.residues import residue_kind
from .correlation import MapCorrelation
from .flatness import flat_ligands
from .fsc import model_fsc
from .geometry import GeometryReport, geometry_report
from .nucleic_acids import nucleotide_parts
from .q_score import QScores, q_scores

MEASURES = ("correlation", "q_score")
"""Measures of each residue in a report."""


@takes_units("positions", "resolution")
def report(
    topology: app.Topology,
    positions: Any,
    density_map: DensityMap,
    resolution: Any,
    *,
    planes: PlaneSet | None = None,
    geometry: GeometryReport | None = None,
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
    planes : PlaneSet, optional
        What is flat in it, such as in the model before a fit; by default what `chemistry.planes.find_planes` finds.
    geometry : GeometryReport, optional
        Where it is known, as that of `validation.model_geometry.geometry_of_model`, which tells clashes of models without
        hydrogens.

    Returns
    -------
    dict
        What `map_report` gives, with ``resolution`` (Å), ``geometry`` (`validation.geometry.GeometryReport`: bonds, angles,
        clashes, peptides, chirality, Ramachandran plot and rotamers), and ``flat_ligands`` (`validation.flatness.FlatLigand`: how
        far the conjugated systems of ligands, such as haems, are from a plane).

    Raises
    ------
    InputError
        If positions and topology disagree, a residue has no number, or an argument makes no sense.
    """
    positions = positions_in_angstrom(positions)
    if planes is None:
        planes = find_planes(topology, positions)
    return {
        "resolution": as_number(resolution, "resolution"),
        **map_report(topology, positions, density_map, resolution),
        "geometry": (geometry or geometry_report(topology, positions)).as_dict(),
        "flat_ligands": [ligand.as_dict() for ligand in flat_ligands(topology, planes, positions)],
    }


def map_report(
    topology: app.Topology, positions: Any, density_map: DensityMap, resolution: Any
) -> dict[str, Any]:
    """Assess the fit of a model to a map; what it returns is ready for JSON, with None for what is undefined.

    ``cc_mask`` (`validation.correlation`), ``cc_bases`` and ``cc_backbone`` (the same around the bases of nucleotides, and
    around their sugars and phosphates), ``q_score`` (mean over the atoms, σ = 0.4 Å, `validation.q_score`), ``q_score_bases``
    and ``q_score_backbone`` (the same of these parts of nucleotides), ``fsc`` (the curve
    of `validation.fsc`, None where no atom is near the map), ``fsc_resolution`` (Å, where it falls below 0.5, or its last
    shell where it never does; None where it is nowhere above), ``fsc_falls`` (whether it does fall), and ``residues``: for
    each its ``residue`` (as in ``A HIS 57B``), ``chain``, ``name``, ``number``, ``insertion_code``, ``kind`` ("polymer",
    "water" or "other"), ``correlation`` and ``q_score``. The Q-scores take about 0.06 ms an atom, and the curve nearly as
    long, on one core.
    """
    scores = q_scores(density_map, topology, positions_in_angstrom(positions))
    curve = fsc_report(topology, positions, density_map, resolution)
    correlation = correlation_report(topology, positions, density_map, resolution)
    return joined_report(topology, correlation, curve, scores)


def correlation_report(
    topology: app.Topology, positions: Any, density_map: DensityMap, resolution: Any
) -> dict[str, Any]:
    """Return what `map_report` does without the curve and the Q-scores, which take longer: see `joined_report`."""
    positions = positions_in_angstrom(positions)
    identities = [_identity(residue) for residue in topology.residues()]
    correlation = MapCorrelation(density_map, topology, resolution)
    overall, correlations = correlation.evaluate(positions)
    return {
        "cc_mask": overall,
        **nucleic_correlations(correlation, topology, positions),
        "residues": [
            {**identity, "correlation": _known(cc)} for identity, cc in zip(identities, correlations)
        ],
    }


def fsc_report(
    topology: app.Topology, positions: Any, density_map: DensityMap, resolution: Any
) -> dict[str, Any]:
    """Return the part of `map_report` that is the Fourier shell correlation."""
    positions = positions_in_angstrom(positions)
    # Without an atom in the map there is nothing to mask the map around.
    if not np.isfinite(density_map.value_at(positions)).any():
        return {"fsc_resolution": None, "fsc_falls": None, "fsc": None}
    curve = model_fsc(density_map, topology, positions, resolution)
    crossing = curve.crossing()
    return {
        "fsc_resolution": _known(crossing.resolution),
        "fsc_falls": crossing.falls,
        "fsc": curve.as_dict(),
    }


def joined_report(
    topology: app.Topology, correlation: dict[str, Any], curve: dict[str, Any], scores: QScores
) -> dict[str, Any]:
    """Return what `map_report` does, of its parts for one model."""
    rows = [
        row | {"q_score": _known(score)}
        for row, score in zip(correlation["residues"], scores.residues, strict=True)
    ]
    known, parts = np.isfinite(scores.atoms), nucleotide_parts(topology)
    of_parts = {
        name: _known(scores.atoms[known & (parts == part)].mean())
        if (known & (parts == part)).any()
        else None
        for part, name in enumerate(("q_score_bases", "q_score_backbone"))
    }
    return correlation | {"q_score": _known(scores.mean)} | of_parts | curve | {"residues": rows}


def nucleic_correlations(
    correlation: MapCorrelation, topology: app.Topology, positions: np.ndarray
) -> dict[str, float | None]:
    """Return ``cc_bases`` and ``cc_backbone``, see `map_report`; None where there are no nucleotides. `positions` (N, 3) in Å."""
    parts = nucleotide_parts(topology)
    found = correlation.group_correlations(positions, parts, 2) if (parts >= 0).any() else np.full(2, np.nan)
    return {"cc_bases": _known(found[0]), "cc_backbone": _known(found[1])}


def residue_changes(
    before: dict[str, Any], after: dict[str, Any], reference: Sequence[dict[str, Any] | None] | None = None
) -> list[dict[str, Any]]:
    """Put the residues of two reports of one model side by side, and beside those of a reference model.

    `reference` for each residue that of a reference model's report which stands for it, or None where there is none.
    """
    initial, final = before["residues"], after["residues"]
    if [row["residue"] for row in initial] != [row["residue"] for row in final]:
        raise InputError(
            "the two reports are of different models",
            found=f"{len(initial)} and {len(final)} residues",
            remedy="give two of the same one",
        )
    stages: dict[str, Sequence[dict[str, Any] | None]] = {"initial": initial, "final": final}
    if reference is not None:
        stages["reference"] = reference
    return [
        {
            **{name: value for name, value in row.items() if name not in MEASURES},
            **{
                f"{measure}_{stage}": None if rows[place] is None else rows[place][measure]
                for measure in MEASURES
                for stage, rows in stages.items()
            },
        }
        for place, row in enumerate(initial)
    ]


def _identity(residue: app.topology.Residue) -> dict[str, Any]:
    try:
        number = int(residue.id)
    except ValueError:
        raise InputError(
            f"residue {residue_label(residue)} has no number",
            found=repr(residue.id),
            remedy="give every residue of the topology a whole number as its id",
        ) from None
    return {
        "residue": residue_label(residue),
        "chain": residue.chain.id,
        "name": residue.name,
        "number": number,
        "insertion_code": residue.insertionCode.strip(),
        "kind": residue_kind(residue),
    }


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
