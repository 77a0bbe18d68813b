"""Residues and built atoms without density where a model has them."""

from __future__ import annotations

import numpy as np
from openmm import app

from ..base.wording import counted
from ..energies.density_fit import DensityFit
from ..models.chemistry.backbone import peptide_chains
from ..models.confidence import UNSURE
from ..models.preparation import Prepared
from ..validation.stretches import runs_of, window_means

LEAST_PART = 0.5
"""Of the median of a model's residues: where neighbours correlate less with a map on average, it does not show them there."""
SHOWN = 0.8
"""Of the same median: residues that a prediction is not sure of are shown from here on."""
NOT_THERE = 0.05
"""By how much similarity is higher without atoms that were built and that a map has none of: 0.10 of phosphates in a map without
them; side chains built with the wrong rotamers into a map that shows them have 0.015."""
LONGEST_LOOP = 15
"""Residues. More in a row are a domain, which the map shows elsewhere: it is to go there, and of its chain nothing is held."""


def unseen_residues(topology: app.Topology, correlations: np.ndarray) -> np.ndarray:
    """Find the residues of proteins that a map does not show where a model has them.

    A loop that a map does not show, or shows far away, is pulled to what belongs to others, and falls onto its neighbours: where
    nothing holds it, it goes 10 Å astray. A domain that lies far from its density looks the same, but is longer than a loop.
    """
    known = np.nan_to_num(correlations)
    _, chains = peptide_chains(topology)
    if not chains:
        return np.zeros(0, dtype=np.int64)
    least = LEAST_PART * np.median(known[np.concatenate(chains)])
    found = [np.zeros(0, dtype=np.int64)]
    for chain in chains:
        low = window_means(known[chain]) < least
        if all(last - first < LONGEST_LOOP for first, last in runs_of(low)):
            found.append(chain[low])
    return np.sort(np.concatenate(found))


def unshown_residues(
    topology: app.Topology, correlations: np.ndarray, plddt: np.ndarray | None
) -> np.ndarray:
    """Find the residues that a prediction is not sure of, and that a map does not show where they are.

    These have a pLDDT below 50, and correlate by less than 0.8 of the median of all others with their neighbours in the chain.
    `correlations`, `plddt` (R,). Returns int (U,).
    """
    if plddt is None or not (plddt < UNSURE).any():
        return np.zeros(0, dtype=np.int64)
    known = np.nan_to_num(correlations)
    _, chains = peptide_chains(topology)
    if not chains:
        return np.zeros(0, dtype=np.int64)
    every = np.concatenate(chains)
    sure = every[~(plddt[every] < UNSURE)]
    if not len(sure):
        return np.zeros(0, dtype=np.int64)
    least = SHOWN * np.median(known[sure])
    return np.sort(
        np.concatenate(
            [chain[(plddt[chain] < UNSURE) & (window_means(known[chain]) < least)] for chain in chains]
        )
    )


def without_unseen_atoms(density: DensityFit, prepared: Prepared) -> tuple[DensityFit, list[str]]:
    """Return a density force without the atoms that a preparation built, if the map has none of them, and a sentence on it."""
    built = prepared.input_index[density.atoms] < 0
    if not density.measure.compares_widths or built.all() or not built.any():
        return density, []
    rest = density.with_some_atoms(~built)
    if rest.similarity(prepared.positions) < density.similarity(prepared.positions) + NOT_THERE:
        return density, []
    atoms = counted(int(built.sum()), "atom")
    return rest, [f"The map shows none of the {atoms} that were built: they are not pulled into it."]
