"""Several models of one molecule in one mmCIF file, with the weight of each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import gemmi
import numpy as np
from openmm import app

from ...base.atomic_files import write_text
from ...base.errors import InputError
from ...models.kept_files import atom_block
from ...models.structure_files import document_of_models
from ...models.written_structures import Header

CATEGORY = "_openmm_density_replica."
"""The loop that tells of each model its weight and conformation."""


def write_ensemble_cif(
    path: str | os.PathLike[str],
    topology: app.Topology,
    models: Sequence[Any],
    weights: Sequence[float],
    conformations: Sequence[int],
    b_factors: Sequence[float] | np.ndarray | None = None,
    header: Header | None = None,
) -> None:
    """Write models as mmCIF, numbered from 1 in their order.

    Weights are in a loop of their own, ``_openmm_density_replica``, with the number of the conformation that each is of, and in
    ``_ihm_multi_state_modeling``, as integrative models have populations (Vallat et al. 2018).

    `models` (N, 3) in Å where plain.
    """
    if not len(models) or not len(models) == len(weights) == len(conformations):
        raise InputError(
            "must be one for each model",
            argument="weights",
            found=f"{len(weights)} for {len(models)}",
            remedy="give as many numbers",
        )
    header = header or Header()
    document = document_of_models(path, topology, models, b_factors, header)
    _add_weights(atom_block(document), weights, conformations)
    write_text(path, document.as_string())


def _add_weights(block: gemmi.cif.Block, weights: Sequence[float], conformations: Sequence[int]) -> None:
    loop = block.init_loop(CATEGORY, ["model_number", "weight", "conformation"])
    for number, (weight, conformation) in enumerate(zip(weights, conformations), start=1):
        loop.add_row([str(number), f"{weight:.5f}", str(conformation)])
    states = block.init_loop(
        "_ihm_multi_state_modeling.",
        ["ordinal_id", "state_id", "state_group_id", "population_fraction", "state_type", "state_name"],
    )
    for state in sorted(set(conformations)):
        share = sum(weight for weight, own in zip(weights, conformations) if own == state)
        states.add_row(
            [str(state), str(state), "1", f"{share:.5f}", ".", gemmi.cif.quote(f"conformation {state}")]
        )
