"""The figures of a Table 1, of a model in a map."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gemmi
import numpy as np
from openmm import app

from ...base.errors import InputError
from ...base.units import resolution_in_angstrom, takes_units
from ...maps.density_map import DensityMap
from ...maps.model_density import B_PER_RESOLUTION
from ...models.chemistry.elements import is_hydrogen
from ...models.chemistry.residues import residue_kind
from ...validation.box_correlations import box_correlations
from ...validation.correlation import MapCorrelation
from ...validation.emringer import emringer
from ...validation.fsc import (
    HALF_MAP_THRESHOLD,
    MODEL_THRESHOLD,
    ShellCorrelation,
    model_fsc,
    unmasked_model_fsc,
)
from ...validation.model_report import nucleic_correlations
from ...validation.q_score import q_scores, usual_q
from ...validation.segment_overlap import segment_overlap
from .cctbx_figures import cctbx_figures


@dataclass(frozen=True)
class FiguresOfModel:
    """A model whose figures are asked for."""

    topology: app.Topology  # Of N atoms
    positions: np.ndarray  # (N, 3), Å
    b_factors: np.ndarray  # `b_factors`, `occupancies` (N,) in Å², and fractions.
    occupancies: np.ndarray
    path: Path | None = None  # A file with the same atoms, for the library that reads its own; None for none


@takes_units("resolution")
def deposition_figures(
    model: FiguresOfModel,
    density_map: DensityMap,
    resolution: Any,
    *,
    residue_q_scores: Any = None,
    masked_fsc: ShellCorrelation | None = None,
    of_map: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return what a Table 1 says of a model in a map, beside its geometry.

    Parameters
    ----------
    model : FiguresOfModel
    density_map : DensityMap
        The map as it was read.
    resolution : float or Quantity
        Å.
    residue_q_scores : array_like, shape (n_residues,), optional
        Mean Q-scores of the residues, where they are known; NaN or None for those without.
    masked_fsc : ShellCorrelation, optional
        That of `openmm_density.validation.fsc.model_fsc`, where it is known.
    of_map : dict, optional
        What `map_figures` returns, where it is known.

    Returns
    -------
    dict
        Plain numbers, None for what is undefined.

        ``model``: ``composition`` and ``mean_b_factors`` (`deposition.composition`).
        ``map``: ``correlations`` (``cc_mask``, ``cc_volume``, ``cc_peaks``, ``cc_box``, in Phenix' definitions with the model's B
        factors, or 8 d where it has none; ``b_used`` says which), ``emringer`` and ``emringer_side_chains``, ``smoc`` (mean over
        the residues), ``cc_bases`` and ``cc_backbone`` of nucleotides, ``q_score``, ``q_score_expected`` and
        ``q_score_relative`` (their ratio), over polymers, and ``fsc``: of
        ``masked_0.5``, ``masked_0.143``, ``unmasked_0.5`` and ``unmasked_0.143`` the resolution in Å and whether the curve
        ``falls`` there; None where it is nowhere above.
        ``cctbx``: `deposition.cctbx_figures.cctbx_figures`.

    Raises
    ------
    InputError
        If positions and topology disagree, or an argument makes no sense.
    """
    return {
        "model": {
            "composition": composition(model.topology),
            "mean_b_factors": mean_b_factors(model.topology, model.b_factors),
        },
        "map": _of_map(
            model, density_map, resolution_in_angstrom(resolution), residue_q_scores, masked_fsc, of_map
        ),
        "cctbx": None if model.path is None else cctbx_figures(model.path),
    }


def map_figures(
    topology: app.Topology,
    positions: np.ndarray,
    b_factors: np.ndarray,
    occupancies: np.ndarray,
    density_map: DensityMap,
    resolution: float,
) -> dict[str, Any]:
    """Return `FiguresOfModel` in a map of a resolution in Å, and ``unmasked``, its whole curve, None where no atom is near it."""
    ringer = emringer(density_map, topology, positions)
    smoc = segment_overlap(density_map, topology, positions, resolution)
    b_iso = B_PER_RESOLUTION * resolution
    try:
        unmasked = unmasked_model_fsc(density_map, topology, positions, b_factors=b_iso)
    except InputError:
        unmasked = None
    around = MapCorrelation(density_map, topology, resolution)
    return {
        **nucleic_correlations(around, topology, positions),
        "correlations": _correlations(topology, positions, b_factors, occupancies, density_map, resolution),
        "emringer": ringer.score,
        "emringer_side_chains": ringer.side_chains,
        "smoc": float(np.nanmean(smoc)) if np.isfinite(smoc).any() else None,
        "unmasked": unmasked,
    }


def _of_map(
    model: FiguresOfModel,
    density_map: DensityMap,
    resolution: float,
    residue_q_scores: Any,
    masked_fsc: ShellCorrelation | None,
    of_map: dict[str, Any] | None,
) -> dict[str, Any]:
    """Return what a model and a map have in common."""
    topology, positions = model.topology, np.asarray(model.positions)
    found = dict(
        of_map
        or map_figures(topology, positions, model.b_factors, model.occupancies, density_map, resolution)
    )
    unmasked = found.pop("unmasked")
    if residue_q_scores is None:
        residue_q_scores = q_scores(density_map, topology, positions).residues
    curves: dict[str, ShellCorrelation | None] = {"masked": None, "unmasked": None}
    with suppress(InputError):  # no atom is near the map
        masked = masked_fsc or model_fsc(density_map, topology, positions, resolution)
        curves = {"masked": masked, "unmasked": unmasked}
    return {**found, **_relative_q(topology, residue_q_scores, resolution), "fsc": _resolutions(curves)}


def _correlations(
    topology: app.Topology,
    positions: np.ndarray,
    b_factors: np.ndarray,
    occupancies: np.ndarray,
    density_map: DensityMap,
    resolution: float,
) -> dict[str, Any]:
    """Correlate with the model's own B factors and occupancies, as far as an atom can have them."""
    has_b = bool((np.asarray(b_factors) > 0).any())
    found = box_correlations(
        density_map,
        topology,
        positions,
        resolution,
        b_factors=np.maximum(b_factors, 0) if has_b else None,
        occupancies=np.clip(occupancies, 0, 1),
    )
    return {**found._asdict(), "b_used": "model" if has_b else "8 d"}


def _relative_q(topology: app.Topology, residue_q_scores: Any, resolution: float) -> dict[str, float | None]:
    """Compare the mean Q-score over the atoms of polymers with what is usual at the resolution."""
    scores = np.array([np.nan if score is None else score for score in residue_q_scores], dtype=np.float64)
    counts = np.zeros(len(scores))
    for residue in topology.residues():
        if residue_kind(residue) == "polymer" and np.isfinite(scores[residue.index]):
            counts[residue.index] = sum(not is_hydrogen(atom) for atom in residue.atoms())
    if not counts.any():
        return dict.fromkeys(("q_score", "q_score_expected", "q_score_relative"))
    mean, usual = float(np.average(np.nan_to_num(scores), weights=counts)), usual_q(topology, resolution)
    relative = None if usual is None else mean / usual
    return {"q_score": mean, "q_score_expected": usual, "q_score_relative": relative}


def _resolutions(curves: dict[str, ShellCorrelation | None]) -> dict[str, Any]:
    """Return where the curves of map and model fall."""
    found: dict[str, Any] = {}
    for name, curve in curves.items():
        for threshold in (MODEL_THRESHOLD, HALF_MAP_THRESHOLD):
            crossing = None if curve is None else curve.crossing(threshold, dips=threshold == MODEL_THRESHOLD)
            known = crossing is not None and np.isfinite(crossing.resolution)
            found[f"{name}_{threshold:g}"] = (
                {"resolution": crossing.resolution, "falls": crossing.falls} if known else None
            )
    return found


KINDS = ("protein", "nucleotide", "ligand", "water")


def residue_class(residue: app.topology.Residue) -> str:
    """Return which of `KINDS` a residue is: ions and sugars are ligands."""
    kind = residue_kind(residue)
    if kind != "polymer":
        return "water" if kind == "water" else "ligand"
    return "nucleotide" if gemmi.find_tabulated_residue(residue.name).is_nucleic_acid() else "protein"


def composition(topology: app.Topology) -> dict[str, Any]:
    """Return how many there are of what."""
    kinds = Counter(map(residue_class, topology.residues()))
    hydrogens = sum(map(is_hydrogen, topology.atoms()))
    ligands = Counter(residue.name for residue in topology.residues() if residue_class(residue) == "ligand")
    return {
        "chains": len({chain.id for chain in topology.chains()}),
        "atoms": topology.getNumAtoms() - hydrogens,
        "hydrogens": hydrogens,
        **{kind: kinds[kind] for kind in KINDS},
        "ligands": dict(sorted(ligands.items())),
    }


def mean_b_factors(topology: app.Topology, b_factors: Iterable[float]) -> dict[str, float | None]:
    """Return the mean B factors in Å² over the atoms but hydrogens of each of `KINDS`, and ``all`` of them; None of none."""
    values = defaultdict(list)
    for atom, b_factor in zip(topology.atoms(), np.asarray(b_factors).tolist(), strict=True):
        if not is_hydrogen(atom):
            values[residue_class(atom.residue)].append(b_factor)
    values["all"] = [each for kind in KINDS for each in values[kind]]
    return {kind: float(np.mean(values[kind])) if values[kind] else None for kind in (*KINDS, "all")}
